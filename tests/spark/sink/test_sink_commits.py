"""Commits that nobody kills: what is written once, where it goes, and what is left behind."""

import os
import random
import shutil
from itertools import islice
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.clock import SystemClock
from rocketlake.embedded.bulk_store import open_bulk
from rocketlake.files.ops import PosixFileOps
from rocketlake.spark.sink.marks import MarkFiles
from rocketlake.spark.sink.plan import WriteKey
from rocketlake.spark.sink.sweeper import FORGOTTEN_MS, Sweeper
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.backup.copier import Backup, Listener
from support.manual_clock import ManualClock
from support.sink_kit import (
    Sink,
    assert_sound,
    bodies,
    leftovers,
    numbered,
    once,
    queue_counts,
    stream,
)

NOTHING_APPENDED = 0


def marks(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "rocketlake" / "sink" / "marks").iterdir())


def test_batch_that_is_done_is_not_written_again(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    assert sink.write(stream(3), numbered(0, 50), numbered(50, 60)) == 60
    assert sink.write(stream(3), numbered(10, 60)[::-1], numbered(0, 60)) == NOTHING_APPENDED
    assert sink.write(stream(2), numbered(0, 60)) == NOTHING_APPENDED
    assert sink.write(stream(4), numbered(60, 70)) == 10
    assert bodies(path) == once(range(70))
    assert leftovers(path) == []
    assert marks(path) == ["stream-q.json"]


def test_batch_that_is_done_needs_no_free_store(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    sink.write(stream(0), numbered(0, 5))
    with rocketlake.open_store(tmp_path / "s"):
        assert sink.write(stream(0), numbered(0, 5)) == NOTHING_APPENDED


def test_queries_do_not_know_of_each_other(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    sink.write(stream(0, "a"), numbered(0, 10))
    sink.write(stream(0, "b"), numbered(10, 20))
    assert bodies(tmp_path / "s") == once(range(20))
    assert marks(tmp_path / "s") == ["stream-a.json", "stream-b.json"]


def test_write_id_is_written_once_whatever_it_is_called(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    ids = ["w", "W", "../../w", "a" * 300, "a" * 299 + "b", "ü/ü", "job 2026-01-01T00:00"]
    for number, name in enumerate(ids * 2):
        rows = numbered(number % len(ids) * 10, number % len(ids) * 10 + 10)
        sink.write(WriteKey("batch", name), rows)
    assert bodies(path) == once(range(len(ids) * 10))
    assert len(marks(path)) == len(ids)
    assert leftovers(path) == []


def test_job_without_a_write_id_leaves_no_mark(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    for run in ("one", "two"):
        sink.write(WriteKey("job", run), numbered(0, 10))
    assert set(bodies(path).values()) == {2}
    assert marks(path) == []


def test_attempt_that_lost_is_removed(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    plan = sink.plan
    lost, won = (sink.stage(stream(0), numbered(0, 10)) for _ in range(2))
    part = plan.folder(stream(0)) / "00000-x.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"killed while it staged")
    sink.committer.commit(stream(0), won)
    assert bodies(path) == once(range(10))
    assert leftovers(path) == []
    assert not Path(lost[0].path).exists()


def test_rows_of_other_writes_are_not_removed(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    waiting = [*sink.stage(stream(1), numbered(0, 10)), *sink.stage(stream(0, "b"), numbered(5, 9))]
    sink.write(stream(0), numbered(10, 20))
    assert all(Path(file.path).exists() for file in waiting)
    sink.committer.commit(stream(1), waiting[:1])
    assert bodies(tmp_path / "s") == once(range(20))


def test_rows_that_a_job_left_long_ago_are_removed(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    (old,) = sink.stage(WriteKey("job", "killed"), numbered(0, 10))
    (young,) = sink.stage(WriteKey("job", "running"), numbered(0, 10))
    past = (SystemClock().now_ms() - FORGOTTEN_MS) / 1000 - 60
    for place in (old.path, Path(old.path).parent):
        os.utime(place, (past, past))
    sink.write(stream(0), numbered(0, 10))
    assert not Path(old.path).exists()
    assert Path(young.path).exists()
    assert len(leftovers(path)) == 3


def test_queues_take_turns_over_partitions_and_batches(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    for batch in range(7):
        sink.write(stream(batch), numbered(batch * 3, batch * 3 + 1), numbered(batch, batch + 1))
    counts = queue_counts(path)
    assert sum(counts) == 14
    assert max(counts) - min(counts) <= 1


def test_rows_of_a_partition_stay_in_order_within_a_queue(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    rows = [{**row, "ordering_key": f"k{n % 7}"} for n, row in enumerate(numbered(0, 300))]
    sink.write(stream(0), rows)
    with rocketlake.open_store(tmp_path / "s") as store:
        for queue in range(4):
            found = [m.body for m in store.get("orders", queue, 0, max_messages=300).messages]
            assert found == sorted(found)


def test_ordering_key_goes_where_a_put_would_send_it(tmp_path: Path) -> None:
    keys = [f"key {n}" for n in range(40)]
    Sink(tmp_path / "s").write(stream(0), [{"body": k.encode(), "ordering_key": k} for k in keys])
    with rocketlake.open_store(tmp_path / "s") as store:
        sent = {
            message.body: queue
            for queue in range(4)
            for message in store.get("orders", queue, 0, max_messages=100).messages
        }
        for key in keys:
            ends = [store.max_offset("orders", queue) for queue in range(4)]
            receipt = store.put(Message(topic="orders", body=b"again", ordering_key=key))
            assert receipt.queue_offset == ends[sent[key.encode()]]


def test_store_may_be_moved_with_a_commit_that_was_cut_short(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    files = sink.stage(stream(0), numbered(0, 10))
    with sink.committer._open() as store:
        sink.committer._start(store, stream(0), files)
    shutil.move(tmp_path / "s", tmp_path / "moved")
    moved = Sink(tmp_path / "moved")
    assert moved.committer.finish_pending() == 1
    assert moved.committer.finish_pending() == 0
    assert bodies(tmp_path / "moved") == once(range(10))


def test_staging_may_lie_elsewhere(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s", stagingPath=str(tmp_path / "shared"))
    files = sink.stage(stream(0), numbered(0, 10))
    assert all(file.path.startswith(str(tmp_path / "shared")) for file in files)
    sink.committer.commit(stream(0), files)
    assert list((tmp_path / "shared").iterdir()) == []
    assert bodies(tmp_path / "s") == once(range(10))


def test_intent_whose_records_expired_is_told(tmp_path: Path) -> None:
    options = '{"mappedFileSizeCommitLog": 16384, "diskRatioEnable": false}'
    sink = Sink(tmp_path / "s", options=options)
    sink.write(stream(0), numbered(0, 5))
    files = sink.stage(stream(1), numbered(5, 15))
    with sink.committer._open() as store:
        sink.committer._start(store, stream(1), files)
    with rocketlake.open_store(tmp_path / "s") as store:
        for _ in range(40):
            store.put(Message(topic="other", body=bytes(1000)))
        store.delete_expired(0)
    with pytest.raises(rocketlake.StoreError, match=r"have expired.*marks/stream-q\.json"):
        sink.committer.commit(stream(1), files)
    sink.write(stream(0, "another"), numbered(20, 30))  # is not held up
    assert set(once(range(20, 30))) <= set(bodies(tmp_path / "s"))


def test_delayed_rows_are_delivered_by_who_opens_the_store_next(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms() - 3_600_000)  # an hour before it is opened again
    sink = Sink(tmp_path / "s", clock)
    due = (clock.now_ms() + 60_000) * 1000
    rows = [
        {"body": b"now"},
        {"body": b"level", "delay_level": 2},
        {"body": b"time", "deliver_at": due},
        {"body": b"past", "deliver_at": 0},
    ]
    sink.write(stream(0), rows)
    assert set(bodies(tmp_path / "s")) == {b"now", b"past"}
    with rocketlake.open_store(tmp_path / "s") as store:
        consumer = store.consumer("g", "orders", timeout=30)
        found = [message.body for message in islice(consumer, 4)]
        assert sorted(found) == [b"level", b"now", b"past", b"time"]


def test_commit_delivers_nothing_itself(tmp_path: Path) -> None:
    with rocketlake.open_store(tmp_path / "s") as store:
        store.put(Message(topic="orders", body=b"later", delay_level=18))
    clock = ManualClock(SystemClock().now_ms() + 10 * 3_600_000)
    Sink(tmp_path / "s", clock).write(stream(0), numbered(0, 20))
    assert bodies(tmp_path / "s") == once(range(20))


def test_own_files_disturb_neither_verify_nor_backup(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    sink.write(stream(0), numbered(0, 20, keys=["k"]))
    sink.stage(stream(1), numbered(20, 30))
    assert_sound(path)
    quiet = Listener(print, print, lambda _what, _size: print)
    Backup(path, lambda: OfflineStore(path), tmp_path / "copy", quiet).run()
    assert bodies(tmp_path / "copy") == once(range(20))


def test_sweeper_keeps_what_an_intent_names(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    files = sink.stage(stream(0), numbered(0, 10))
    with sink.committer._open() as store:
        sink.committer._start(store, stream(0), files)
    sweeper = Sweeper(PosixFileOps(), MarkFiles(PosixFileOps(), tmp_path / "s"))
    sweeper.sweep(stream(5), files)
    sweeper.remove(files, Path(files[0].path).parent)
    assert sink.committer.finish_pending() == 1
    assert bodies(tmp_path / "s") == once(range(10))


def test_bulk_store_refuses_what_a_put_would(tmp_path: Path) -> None:
    with open_bulk(tmp_path / "s") as store:
        with pytest.raises(ValueError, match="characters that are not allowed"):
            store.plan_route("a b")
        store.store.create_topic("closed", 2)
        store.store.update_topic("closed", writable=False)
        with pytest.raises(ValueError, match="may not be written"):
            store.plan_route("closed")


@pytest.mark.parametrize("seed", range(3))
def test_many_topics_and_files_of_one_commit(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    topics = [f"t{n}" for n in range(12)]
    parts = [
        [
            {"body": b"%d-%d" % (part, n), "topic": rng.choice(topics), "keys": [f"k{n}"]}
            for n in range(rng.randrange(200))
        ]
        for part in range(6)
    ]
    sink = Sink(tmp_path / "s", options='{"mappedFileSizeCommitLog": 32768}')
    sink.write(stream(0), *(part for part in parts if part))
    found = {topic: bodies(tmp_path / "s", topic) for topic in topics}
    wanted = {
        topic: {r["body"] for p in parts for r in p if r["topic"] == topic} for topic in topics
    }
    assert {topic: set(count) for topic, count in found.items()} == wanted
    assert all(set(count.values()) <= {1} for count in found.values())
    assert_sound(tmp_path / "s")
