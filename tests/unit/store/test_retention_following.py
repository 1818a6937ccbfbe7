"""Queues and index follow the log; readers keep what they hold; a restart finds all in order."""

import shutil
import threading

import pytest
from retention_bench import BODY, FILE_SIZE, PER_FILE, Bench, benches, usage

from rocketlake import failpoint
from rocketlake.files.mapped_file_queue import Expiry
from rocketlake.model import flags as sys_flags
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus, Gone
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.offline import OfflineStore
from support.engine import open_engine, request

UNITS = 10  # of a queue file


@pytest.fixture
def make(tmp_path, monkeypatch):
    yield from benches(tmp_path, monkeypatch)


def found(bench, number):
    query = KeyQuery(topic="T", key=f"k{number}")
    return [message.queue_offset for message in bench.store.query(query).messages]


def queue_names(bench, family="consumequeue", topic="T"):
    return [path.name for path in sorted((bench.root / family / topic / "0").iterdir())]


def check(bench, first):
    """Hold the store against what must be left: the messages of T from one on."""
    assert bench.bounds() == (first, bench.sent)
    result = bench.read(offset=first)
    assert [m.queue_offset for m in result.messages] == [*range(first, bench.sent)]
    assert [m.keys for m in result.messages] == [[f"k{n}"] for n in range(first, bench.sent)]
    assert [found(bench, n) for n in range(first)] == [[]] * first
    assert [found(bench, n) for n in range(first, bench.sent)] == [
        [n] for n in range(first, bench.sent)
    ]
    if first:
        too_small = bench.read(offset=0)
        assert (too_small.status, too_small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, first)


@pytest.mark.parametrize("files", [1, 4, 7, 20])
def test_queues_and_index_follow(make, files):
    bench = make(delete_file_batch_max=100)
    bench.fill(20)
    bench.age(100, count=files)
    deleted = bench.store.delete_expired()
    first = files * PER_FILE
    check(bench, first)
    assert (deleted.files, deleted.queue_files) == (files, first // UNITS)
    assert queue_names(bench)[0] == f"{first // UNITS * UNITS * 20:020d}"
    # Forty entries in a file, of which one is never used.
    assert deleted.index_files == first // 39
    offline = OfflineStore(bench.root)
    try:
        assert offline.queues[QueueKey("T", 0)].min_offset == first
    finally:
        offline.close()


def test_queue_whose_messages_are_all_gone_keeps_its_number(make):
    bench = make()
    bench.fill(2, topic="Old")
    bench.fill(4)
    bench.age(100, count=5)
    bench.store.delete_expired()
    end = 2 * PER_FILE + 1
    assert bench.bounds("Old") == (end, end)
    assert bench.put("Old").queue_offset == end
    assert bench.bounds("Old") == (end, end + 1)
    assert queue_names(bench, topic="Old") == [f"{0:020d}"]


def test_batch_queues_and_extensions_follow(make):
    bench = make(
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=200,
        mapper_file_size_batch_consume_queue=5 * 46,
    )
    for _ in range(60):
        inner = request("B", 0, BODY, sys_flag=sys_flags.INNER_BATCH, properties={"INNER_NUM": "3"})
        assert bench.store.put(inner).is_ok
    bench.fill(10)
    before = len(queue_names(bench, "consumequeue_ext"))
    for rest in (40, 20, 4):
        bench.store.catch_up()
        bench.store.flush()
        bench.age(100, count=bench.file_count - rest // PER_FILE)
        bench.store.delete_expired()
        log_min = bench.store.log.min_offset
        for topic in ("B", "T"):
            low, high = bench.bounds(topic)
            kept = bench.read(topic, offset=low).messages
            if kept:
                assert kept[0].queue_offset == low
                assert all(message.physical_offset >= log_min for message in kept)
            else:
                assert low == high
    assert bench.bounds("B") == (180, 180)
    assert len(queue_names(bench, "batchconsumequeue", "B")) == 1
    assert len(queue_names(bench, "consumequeue_ext")) < before


def test_queues_follow_with_pauses_and_go_on_after_an_end(make):
    bench = make(delete_consume_queue_files_interval=70, delete_file_batch_max=100)
    for queue_id in range(3):
        bench.fill(6, queue_id=queue_id)
    bench.age(100)
    bench.disk.usage = usage(80)
    retention = bench.store.retention
    pauses = []

    def stop_at_first_queue(seconds):
        pauses.append(seconds)
        return seconds == 0.07

    retention._wait = stop_at_first_queue
    assert bench.round() == 18
    assert pauses.count(0.07) == 1
    # The lowest offsets are right at once, files take their time.
    log_min = bench.store.log.min_offset
    for queue_id in range(3):
        low, high = bench.bounds(queue_id=queue_id)
        kept = bench.read(queue_id=queue_id, offset=low).messages
        assert len(kept) == high - low < 5
        assert all(message.physical_offset >= log_min for message in kept)
    assert file_counts(bench) == [1, 3, 3]
    retention._wait = lambda _: False
    assert bench.round() == 0
    assert file_counts(bench) == [1, 1, 1]


def file_counts(bench):
    return [len([*(bench.root / f"consumequeue/T/{q}").iterdir()]) for q in range(3)]


# --- readers --------------------------------------------------------------------------------------


def test_slice_stays_readable_until_it_is_let_go(make):
    bench = make()
    bench.fill(3)
    files = bench.store.log.files
    path = files.files[0].path
    held = bench.store.log.slice(0)
    wanted = path.read_bytes()
    assert bench.store.delete_expired(force=True).files == 3
    assert not path.exists()
    assert bytes(held.view) == wanted
    assert bench.store.log.slice(0) is None
    assert bench.store.log.min_offset == 3 * FILE_SIZE
    assert files.reap(10_000) == 1
    held.close()
    assert files.reap(10_000) == 0


def test_file_whose_reader_never_lets_go_is_closed_after_a_while(make):
    bench = make(destroy_maped_file_interval_forcibly=30_000, redelete_hanged_file_interval=20_000)
    bench.fill(2)
    held = bench.store.log.slice(0)
    first = bench.store.log.files.files[0]
    bench.store.delete_expired(force=True)
    states = []
    for _ in range(3):
        bench.clock.advance_ms(20_000)
        bench.store.retention.run_once()
        states.append(first.is_closed)
    assert states == [False, True, True]
    assert len(bytes(held.view)) == FILE_SIZE  # memory that somebody looks at stays
    held.close()


def test_everybody_reads_and_puts_while_files_go(tmp_path):
    """Deleting, with everything running: nobody sees another message than its own."""
    options = {"delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0}
    store = open_engine(tmp_path, **options)
    has_ended = threading.Event()
    failures, seen = [], []

    def read():
        try:
            offset = 0
            while not has_ended.is_set() or offset < store.queue_bounds(QueueKey("T", 0))[1]:
                result = bench_read(store, offset)
                for message in result.messages:
                    assert message.queue_offset >= offset
                    assert message.body == b"%d" % message.queue_offset + BODY
                    seen.append(message.queue_offset)
                assert result.next_offset >= offset
                offset = result.next_offset
        except Exception as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(1)]
    for thread in threads:
        thread.start()
    deleted = 0
    for number in range(320):
        assert store.put(request("T", 0, b"%d" % number + BODY)).queue_offset == number
        if number % 32 == 31:
            store.flush()
            deleted += store.delete_expired(force=True).files
    has_ended.set()
    for thread in threads:
        thread.join(30)
    bounds = store.queue_bounds(QueueKey("T", 0))
    store.close()
    assert not failures
    assert seen
    assert deleted > 60
    assert bounds[1] == 320
    assert bounds[0] > 250


def bench_read(store, offset):
    return store.get(GetRequest(topic="T", queue_id=0, offset=offset, max_messages=50))


def test_read_tells_what_it_steps_over_before_queues_have_followed(make):
    bench = make()
    bench.fill(6)
    files = bench.store.log.files
    files.delete_expired(Expiry(reserved_ms=0, pause_ms=0), lambda _: False, is_forced=True)
    first = 6 * PER_FILE
    result = bench.read(offset=3)
    assert (result.status, result.gone) == (GetStatus.FOUND, [Gone(3, first)])
    assert [message.queue_offset for message in result.messages] == [first]
    assert bench.read(offset=first).gone == ()
    queue = bench.store.queues.find(QueueKey("T", 0))
    queue.files.delete_before(2 * UNITS * 20)
    result = bench.read(offset=3)
    assert (result.status, result.gone) == (GetStatus.OFFSET_FOUND_NULL, [Gone(3, UNITS)])
    assert result.next_offset == UNITS


# --- restart --------------------------------------------------------------------------------------


def test_restart_after_deletion(make):
    bench = make()
    bench.fill(12)
    bench.age(100, count=7)
    bench.store.delete_expired()
    bench.store.close()
    bench.reopen()
    check(bench, 7 * PER_FILE)
    bench.fill(2)
    check(bench, 7 * PER_FILE)


def killed(bench, tmp_path):
    """Let the store go on in a copy of its files, as after `kill -9`."""
    copy = tmp_path / "killed"
    shutil.copytree(bench.root, copy)
    bench.store.close()
    bench.root = copy
    bench.reopen()


def test_unclean_restart_after_deletion(make, tmp_path):
    bench = make()
    bench.fill(12)
    bench.age(100, count=7)
    bench.store.delete_expired()
    killed(bench, tmp_path)
    check(bench, 7 * PER_FILE)
    bench.fill(2)
    check(bench, 7 * PER_FILE)


@pytest.mark.parametrize("passes", [0, 3, 5, 6, 7])
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_at_each_deletion_leaves_a_store_in_order(make, tmp_path, passes, when):
    bench = make()
    bench.fill(12)
    bench.age(100, count=6)
    copy = tmp_path / "killed"
    point = f"delete.{when}"
    with failpoint.switched_on(point, lambda: shutil.copytree(bench.root, copy), passes=passes):
        bench.store.delete_expired()
    assert copy.exists(), "no file was deleted at this point"
    bench.store.close()
    bench.root = copy
    bench.reopen()
    gone = min(passes + (when == "after"), 6)
    check(bench, gone * PER_FILE)
    # What the crash left behind goes in the first round.
    assert bench.round() == 0
    assert queue_names(bench)[0] == f"{gone * PER_FILE // UNITS * UNITS * 20:020d}"
    check(bench, gone * PER_FILE)


# --- the thread -----------------------------------------------------------------------------------


def test_file_more_makes_the_thread_look(tmp_path):
    bench = Bench(tmp_path / "store", clean_resource_interval=3_600_000)
    has_looked = threading.Event()
    look = bench.store.retention.look

    def noting():
        found = look()
        has_looked.set()
        return found

    bench.store.retention.look = noting
    bench.disk.usage = usage(95)
    for _ in range(PER_FILE + 1):
        bench.put()
    assert has_looked.wait(10)
    assert not bench.put().is_ok
    bench.disk.usage = usage(5)
    has_looked.clear()
    assert has_looked.wait(10)  # without being woken: it looks more often now
    assert bench.put().is_ok
    bench.store.close()


def test_thread_deletes_when_it_is_asked(tmp_path):
    bench = Bench(tmp_path / "store", clean_resource_interval=3_600_000)
    bench.fill(3)
    bench.age(100)
    has_followed = threading.Event()
    retention = bench.store.retention
    follow = retention._follow

    def noting():
        follow()
        has_followed.set()

    retention._follow = noting
    retention.ask()
    assert has_followed.wait(10)
    check(bench, 3 * PER_FILE)
    bench.store.close()
