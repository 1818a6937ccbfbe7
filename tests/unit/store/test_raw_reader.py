"""Raw reads: the same records as object reads find, as bytes of the log's own files."""

import gc
import random
import weakref

import pytest

from rocketlake.filters.message_filter import make_filter
from rocketlake.format.record import Check, scan
from rocketlake.model.hashes import tags_code
from rocketlake.store.api import GetStatus
from support.read_parts import ReadParts, ask, numbers, ten_messages

SMALL_MEMORY = 1  # of which no part of the log is taken to be in memory


@pytest.fixture
def parts(tmp_path):
    return ReadParts(tmp_path)


@pytest.fixture
def ten(tmp_path):
    return ten_messages(tmp_path)


@pytest.fixture
def mixed(tmp_path):
    """Messages of two topics and three tags, in several files of the log and of the queues."""
    parts = ReadParts(tmp_path, queue_file_units=7, log_file_size=2048)
    for number in range(60):
        parts.put(
            "T" if number % 5 else "U",
            body=b"%d" % number * 20,
            tags=("a", "b", None)[number % 3],
            properties={"n": str(number)},
        )
    return parts


def messages(result):
    """Return the messages that the views of a result hold."""
    found = []
    for view in result.views:
        done = scan(view, checks=Check.BODY_CRC)
        assert done.position == len(view), "a view ends inside a record"
        found += done.columns.messages()
    return found


def outcome(result):
    places = (result.status, result.next_offset, result.min_offset, result.max_offset)
    return *places, result.suggest_replica, list(result.gone)


def assert_same(reader, raw_reader, request, wanted=None):
    """Read as objects and as bytes; return the latter's messages."""
    expected = reader.get(request, wanted)
    with raw_reader.read(request, wanted) as result:
        assert outcome(result) == outcome(expected)
        found = messages(result)
        assert [m.physical_offset for m in found] == [m.physical_offset for m in expected.messages]
        assert [m.body for m in found] == [m.body for m in expected.messages]
        assert sum(map(len, result.views)) == result.size
        assert [c.queue_offset for c in result.corrupt] == [
            c.queue_offset for c in expected.corrupt
        ]
    return found


FILTERS = [None, make_filter("a"), make_filter("a || c"), make_filter(sql="n BETWEEN 7 AND 33")]


@pytest.mark.parametrize("wanted", FILTERS, ids=["all", "tag", "tags", "sql"])
@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("memory_size", [None, SMALL_MEMORY])
def test_bytes_are_those_of_the_messages_that_an_object_read_finds(
    mixed, wanted, is_limited, memory_size
):
    rng = random.Random(5)
    options = {"memory_size": memory_size, "max_filter_message_size": 400}
    readers = (mixed.reader(**options), mixed.raw_reader(**options))
    for _ in range(60):
        request = ask(
            rng.randrange(-1, 52),
            rng.choice([1, 2, 5, 32, 100]),
            topic=rng.choice("TU"),
            max_bytes=rng.choice([1, 300, 1000, 1 << 20]),
            is_limited=is_limited,
        )
        assert_same(*readers, request, wanted)


def test_records_of_one_queue_behind_each_other_are_one_view(ten):
    with ten.raw_reader().read(ask(0)) as result:
        in_first = sum(unit.physical_offset < 4096 for unit in ten.units)
        assert [len(view) for view in result.views] == [
            sum(unit.size for unit in ten.units[:in_first]),
            sum(unit.size for unit in ten.units[in_first:]),
        ]
        assert (result.count, result.size) == (10, sum(unit.size for unit in ten.units))
        assert [m.queue_offset for m in messages(result)] == list(range(10))


def test_views_are_read_only(ten):
    for offset in (0, 9):
        with ten.raw_reader().read(ask(offset, 32)) as result:
            assert result.views
            assert all(view.readonly for view in result.views)


@pytest.mark.parametrize("request_", [ask(0, 2), ask(0)], ids=["one file", "two files"])
def test_bytes_stay_when_their_files_are_deleted(ten, request_):
    with ten.raw_reader().read(request_) as result:
        before = [bytes(view) for view in result.views]
        files = ten.log.files.files
        ten.log.expire(len(files))
        assert all(file.is_closed for file in files)
        assert [bytes(view) for view in result.views] == before


def test_memory_of_a_deleted_file_goes_with_the_last_view(ten):
    file = ten.log.files.files[0]
    gone = weakref.ref(file.map().obj)
    reader = ten.raw_reader()
    result = reader.read(ask(0, 1))
    part = result.views[0][10:20]
    ten.log.expire()
    result.close()
    gc.collect()
    assert gone() is not None
    assert len(bytes(part)) == 10
    del part
    gc.collect()
    assert gone() is None


def test_bodies_are_checked_where_the_disk_may_have_changed_them(ten):
    with ten.raw_reader().read(ask(3, 1)) as result:
        position = bytes(result.views[0]).index(b"0003")
    ten.log.flip(ten.units[3].physical_offset + position)
    with ten.raw_reader().read(ask(0, 4)) as result:
        assert (result.count, list(result.corrupt)) == (4, [])
    ten.log.files.files[0].store_timestamp = 0  # as if an earlier process had written it
    with ten.raw_reader().read(ask(0, 4)) as result:
        assert [m.queue_offset for m in messages(result)] == [0, 1, 2, 4]
        assert [unit.queue_offset for unit in result.corrupt] == [3]


@pytest.mark.parametrize("at", [0, 4, 28])
def test_record_whose_head_is_damaged_is_never_returned(ten, at):
    ten.log.flip(ten.units[3].physical_offset + at)
    with ten.raw_reader().read(ask(0)) as result:
        assert [m.queue_offset for m in messages(result)] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert [unit.queue_offset for unit in result.corrupt] == [3]


def test_expired_messages_are_told(ten):
    ten.log.expire()
    found = assert_same(ten.reader(), ten.raw_reader(), ask(0))
    assert found


def test_file_that_is_going_away_is_left_out(ten):
    ten.log.files.files[0].shutdown(1 << 40)
    assert_same(ten.reader(), ten.raw_reader(), ask(0))


def test_other_tag_of_the_same_hash_is_left_to_the_client(parts):
    assert tags_code("Aa") == tags_code("BB")
    for tags in ("Aa", "BB", "c"):
        parts.put(tags=tags)
    wanted = make_filter("Aa")
    assert numbers(parts.reader().get(ask(0), wanted)) == [0]
    with parts.raw_reader().read(ask(0), wanted) as result:
        assert [m.tags for m in messages(result)] == ["Aa", "BB"]


def test_record_of_a_batch_queue_counts_its_messages(parts):
    for count in (3, 1, 4):
        parts.put_inner_batch(count)
    with parts.raw_reader().read(ask(0, topic="B")) as result:
        assert (result.count, result.next_offset) == (8, 8)
        assert len(messages(result)) == 3


def test_queue_that_is_not_there_and_offsets_beyond_are_answered_as_by_object_reads(ten):
    reader, raw = ten.reader(), ten.raw_reader()
    for request in (ask(0, topic="other"), ask(10), ask(11), ask(-1)):
        assert not assert_same(reader, raw, request)


def test_reads_are_counted(ten):
    reader = ten.raw_reader()
    reader.read(ask(0)).close()
    assert reader.read(ask(10)).status is GetStatus.OFFSET_OVERFLOW_ONE
    stats = ten.stats
    counts = (stats.get_found_count, stats.get_miss_count, stats.get_transferred_count)
    assert counts == (1, 1, 10)
    assert stats.get.total == 16
