"""An open store gives up the end of its log, and all parts follow."""

from itertools import pairwise

import pytest

from rocketlake import failpoint
from rocketlake.errors import StoreClosedError, StorePoisonedError
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.offline import OfflineStore
from support.engine import batch_request, open_engine, request
from support.manual_clock import ManualClock
from support.reading import bodies

FILE = 4096
T, U = QueueKey("T", 0), QueueKey("U", 0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path, clock):
    with open_engine(tmp_path, clock) as opened:
        yield opened


def put(store, clock, numbers, *, size=300):
    """Messages of two queues, each with a key; the log begins another file now and then."""
    receipts = []
    for number in numbers:
        clock.advance_ms(1000)
        body = (b"%d " % number).ljust(size, b".")
        receipts.append(store.put(request("TU"[number % 2], 0, body, keys=[f"k{number}"])))
        assert receipts[-1].is_ok
    return receipts


def numbers(store, key):
    low, high = store.queue_bounds(key)
    found = []
    for offset in range(low, high):
        unit = store.queue_units(key, offset, 1)
        message = store.message_at(int(unit["physical_offset"][0]), int(unit["size"][0]))
        assert message.queue_offset == offset
        found.append(int(message.body.split()[0]))
    return found


def found_by_key(store, number):
    key = KeyQuery(topic="TU"[number % 2], key=f"k{number}")
    return len(store.query(key).messages)


def check_whole(store, clock, kept, receipts):
    """The store has what is left, and goes on behind it."""
    assert numbers(store, T) == [n for n in range(kept) if n % 2 == 0]
    assert numbers(store, U) == [n for n in range(kept) if n % 2]
    for number in (0, kept - 1):
        assert found_by_key(store, number) == 1
    assert found_by_key(store, kept) == 0
    again = put(store, clock, range(kept, len(receipts)))
    assert [r.queue_offset for r in again] == [r.queue_offset for r in receipts[kept:]]
    assert [r.physical_offset for r in again] == [r.physical_offset for r in receipts[kept:]]
    assert numbers(store, T) == [n for n in range(len(receipts)) if n % 2 == 0]
    for number in range(len(receipts)):
        assert found_by_key(store, number) == 1


@pytest.mark.parametrize("kept", [39, 38, 33, 25])
def test_all_parts_follow(store, clock, kept):
    receipts = put(store, clock, range(40))
    store.catch_up()
    offset, end = receipts[kept].physical_offset, store.log.wrote_where
    assert store.truncate(offset) == end - offset
    assert store.log.wrote_where == store.dispatcher.dispatched_where == offset
    assert store.log_bounds()[1] == offset
    check_whole(store, clock, kept, receipts)


def test_store_that_is_closed_behind_a_cut_is_whole(tmp_path, clock):
    with open_engine(tmp_path, clock) as store:
        receipts = put(store, clock, range(40))
        store.truncate(receipts[30].physical_offset)
    with OfflineStore(tmp_path) as view:
        assert len(bodies(view)) == len(bodies(view, "U")) == 15
        assert view.damage.count == 0
    with open_engine(tmp_path, clock) as store:
        assert store.recovery.is_clean
        assert store.recovery.cut_bytes == 0
        check_whole(store, clock, 30, receipts)


def test_checkpoint_speaks_of_what_is_left(store, clock, tmp_path):
    receipts = put(store, clock, range(40))
    store.flush()
    store.catch_up()
    store.parts.queue_flush.run_last()
    kept = receipts[29]
    store.truncate(receipts[30].physical_offset)
    page = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert page.physical_timestamp == page.queue_timestamp == kept.store_timestamp
    assert page.confirm_offset <= receipts[30].physical_offset
    store.parts.queue_flush.run_last()
    page = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert page.queue_timestamp == kept.store_timestamp


def test_bytes_behind_the_cut_are_zeros(store, clock, tmp_path):
    receipts = put(store, clock, range(40))
    offset = receipts[30].physical_offset
    store.truncate(offset)
    *_, last = sorted((tmp_path / "commitlog").iterdir())
    while int(last.name) > offset:  # made ahead
        assert not any(last.read_bytes())
        last = last.with_name(f"{int(last.name) - FILE:020d}")
    assert not any(last.read_bytes()[offset % FILE :])


def test_bytes_of_a_raw_read_change_behind_the_cut(store, clock):
    """As `get_raw` says: a server ends its answers, or drops them, before it cuts the log."""
    receipts = put(store, clock, range(8))
    with store.get_raw(GetRequest(topic="T", queue_id=0, offset=0)) as found:
        before = [bytes(view) for view in found.views]
        assert len(before) == 4  # records of U are between them
        store.truncate(receipts[4].physical_offset)
        assert [bytes(view) for view in found.views[:2]] == before[:2]
        assert not any(b"".join(found.views[2:]))
        again = put(store, clock, range(4, 8))
        assert [bytes(view)[:4] for view in found.views] == [text[:4] for text in before]
        assert again[0].physical_offset == receipts[4].physical_offset


def test_bytes_of_a_raw_read_stay_in_files_that_go_whole(store, clock):
    receipts = put(store, clock, range(40))
    second = next(n for n, r in enumerate(receipts) if r.physical_offset >= FILE)
    wanted = GetRequest(topic="TU"[second % 2], queue_id=0, offset=receipts[second].queue_offset)
    with store.get_raw(wanted) as found:
        before = [bytes(view) for view in found.views]
        store.truncate(receipts[second - 1].physical_offset, is_limited=False)
        put(store, clock, range(second - 1, 40))
        assert [bytes(view) for view in found.views] == before


def test_cut_of_the_whole_log(store, clock):
    receipts = put(store, clock, range(10), size=200)
    store.truncate(0)
    assert store.log_bounds() == (0, 0)
    assert numbers(store, T) == numbers(store, U) == []
    again = put(store, clock, range(10), size=200)
    assert [r.queue_offset for r in again] == [r.queue_offset for r in receipts]


def test_cut_at_the_end_changes_nothing(store, clock):
    put(store, clock, range(5))
    assert store.truncate(store.log.wrote_where) == 0
    assert numbers(store, T) == [0, 2, 4]


def test_no_more_than_two_files_go(store, clock):
    """As in MappedFileQueue#resetOffset; a replica may cut as much as it has to [truncateFiles]."""
    receipts = put(store, clock, range(60))
    end = store.log.wrote_where
    first = next(n for n, r in enumerate(receipts) if end - r.physical_offset <= 2 * FILE)
    with pytest.raises(ValueError, match="more than 2 files of 4096 bytes"):
        store.truncate(receipts[first - 1].physical_offset)
    assert store.log.wrote_where == end
    store.truncate(receipts[first - 1].physical_offset, is_limited=False)
    check_whole(store, clock, first - 1, receipts)


@pytest.mark.parametrize("beside", [1, 4, 100])
def test_cut_within_a_record_is_refused(store, clock, beside):
    receipts = put(store, clock, range(40))
    end = store.log.wrote_where
    offset = receipts[38].physical_offset
    with pytest.raises(ValueError, match=f"in the middle of the record at {offset}"):
        store.truncate(offset + beside)
    assert store.log.wrote_where == end
    assert store.put(request("T", 0, b"40")).queue_offset == 20


def test_cut_within_the_filler_of_a_file_is_refused(store, clock):
    receipts = put(store, clock, range(40))
    before, after = next(
        pair
        for pair in pairwise(receipts[25:])
        if pair[0].physical_offset + pair[0].size != pair[1].physical_offset
    )
    filler = before.physical_offset + before.size
    with pytest.raises(ValueError, match=f"at {filler} is none"):
        store.truncate(filler + 8)
    store.truncate(after.physical_offset)
    assert store.put(request("T", 0, b"new")).physical_offset == after.physical_offset


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_cut_beside_the_log_is_refused(store, clock, offset):
    put(store, clock, range(3))
    with pytest.raises(ValueError, match="is not in the log"):
        store.truncate(offset)


def test_closed_store_is_not_cut(tmp_path, clock):
    store = open_engine(tmp_path, clock)
    store.close()
    with pytest.raises(StoreClosedError):
        store.truncate(0)


def test_reader_keeps_what_it_holds(store, clock, monkeypatch):
    """Its bytes become zeros when it lets go, or when it was waited for long enough."""
    monkeypatch.setattr("rocketlake.store.truncation._READERS_TIMEOUT_S", 0.05)
    receipts = put(store, clock, range(4))
    last = receipts[-1]
    held = store.log.slice(last.physical_offset, last.size)
    seen = []
    before = store.log.files.files[-1]
    retire = type(before).retire

    def look(self, timeout_s):
        seen.append(bytes(held.view))
        held.close()
        retire(self, timeout_s)

    monkeypatch.setattr(type(before), "retire", look)
    store.truncate(last.physical_offset)
    assert b"3 ...." in seen[0]
    assert before.is_closed


def test_deleted_topic_stays_deleted(store, clock):
    """Cut before its deletion, it has neither its old messages nor those of its next life."""
    receipts = put(store, clock, range(20))
    store.drop_topic("T")
    put(store, clock, range(20, 24))
    store.truncate(receipts[15].physical_offset)
    assert numbers(store, T) == []
    assert store.put(request("T", 0, b"50")).queue_offset == 0
    assert store.put(request("U", 0, b"51")).queue_offset == 7


def test_batches_and_light_queues_count_back(tmp_path, clock):
    options = {"enable_lmq": True, "enable_multi_dispatch": True}
    with open_engine(tmp_path, clock, batch_topics=["B"], **options) as store:
        light = {"INNER_MULTI_DISPATCH": "%LMQ%x"}
        for _ in range(3):
            store.put(request("T", 0, b"1", properties=light))
        cut = store.put(request("T", 0, b"2", properties=light))
        messages = [request("U", 0, b"3").message, request("U", 0, b"4").message]
        store.put_batch(batch_request(messages))
        store.truncate(cut.physical_offset)
        assert store.queue_bounds(QueueKey("%LMQ%x", 0)) == (0, 3)
        store.put(request("T", 0, b"2", properties=light))
        assert store.queue_bounds(QueueKey("%LMQ%x", 0)) == (0, 4)
        assert store.put_batch(batch_request(messages)).queue_offset == 0


def test_write_buffers_are_cut_too(tmp_path, clock):
    options = {"transient_store_pool_enable": True, "transient_store_pool_size": 3}
    with open_engine(tmp_path, clock, **options) as store:
        receipts = put(store, clock, range(20))
        store.truncate(receipts[15].physical_offset)
        check_whole(store, clock, 15, receipts)


def test_cut_that_fails_in_the_middle_stops_the_store(tmp_path, clock):
    store = open_engine(tmp_path, clock)
    receipts = put(store, clock, range(40))

    def fail():
        raise OSError("broken")

    with failpoint.switched_on("truncate.before", fail), pytest.raises(OSError, match="broken"):
        store.truncate(receipts[30].physical_offset)
    with pytest.raises(StorePoisonedError):
        store.put(request())
    with pytest.raises(StorePoisonedError):
        store.close()
    assert (tmp_path / "abort").exists()
    with open_engine(tmp_path, clock) as store:
        assert numbers(store, T) == list(range(0, 40, 2))
