"""All queues of a store: finding, loading, dropping, what is done to each of them."""

import shutil
import threading

import numpy as np
import pytest
from queue_makers import (
    CountingOps,
    bounds,
    columns,
    encoded,
    files,
    offsets,
    open_set,
    put,
    reopen,
)

from rocketlake.errors import FileSizeError, StoreError
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import can_name_queues

A0, A1, B0 = QueueKey("A", 0), QueueKey("A", 1), QueueKey("B", 0)


@pytest.fixture
def queues(tmp_path):
    queues = open_set(tmp_path)
    yield queues
    queues.close()


def put_batch(queue, base=0, place=0):
    times = np.array([1_700_000_000_000])
    queue.put(columns((place,)), np.array([base]), times, np.array([3]))


def fill(queues):
    put(queues.get_or_create(A0), 0, 25)
    put(queues.get_or_create(A1), 0, 5, begin=2500)
    put_batch(queues.get_or_create(B0, is_batch=True), place=3000)
    return queues


# --- finding -------------------------------------------------------------------------------------


def test_queue_is_found_once_it_was_made(queues):
    assert queues.find(A0) is None
    queue = queues.get_or_create(A0)
    assert queues.find(A0) is queue
    assert queues.get_or_create(A0) is queue
    assert queues.find(A1) is None
    assert len(queues) == 1


def test_queue_keeps_its_kind(queues):
    assert not queues.get_or_create(A0).is_batch
    assert queues.get_or_create(B0, is_batch=True).is_batch
    assert queues.get_or_create(B0).is_batch
    assert not queues.get_or_create(A0, is_batch=True).is_batch


def test_queues_are_listed(queues):
    fill(queues)
    assert [key for key, _ in queues.items()] == [A0, A1, B0]
    assert queues.topics() == ["A", "B"]
    assert queues.max_physical_offset == 3100
    assert queues.mapped_size == 3 * 200 + 200 + 460


def test_no_queues(queues, tmp_path):
    queues.load()
    assert (queues.items(), queues.topics(), queues.recover(), len(queues)) == ([], [], -1, 0)
    assert not queues.flush(0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../a", "/a", "a\0"])
def test_topic_that_is_no_name_of_a_directory_is_refused(queues, topic):
    assert not can_name_queues(topic)
    with pytest.raises(ValueError, match="no queue can be kept for a topic named"):
        queues.get_or_create(QueueKey(topic, 0))
    assert len(queues) == 0


@pytest.mark.parametrize("topic", ["%RETRY%g", "%LMQ%a b", "a.b", "...", "ünicode", "a\\b"])
def test_any_other_topic_is_kept_under_its_name(queues, tmp_path, topic):
    put(queues.get_or_create(QueueKey(topic, 3)), 0, 1)
    assert (tmp_path / "consumequeue" / topic / "3").is_dir()
    assert reopen(tmp_path).topics() == [topic]


def test_two_threads_make_one_queue(queues):
    start = threading.Barrier(8)
    made = []

    def make():
        start.wait()
        made.extend(queues.get_or_create(QueueKey("T", number)) for number in range(50))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(queue) for queue in made}) == 50


# --- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("is_clean", [True, False])
def test_queues_of_both_kinds_come_back(queues, tmp_path, workers, is_clean):
    fill(queues)
    again = open_set(tmp_path)
    again.load()
    assert again.recover(workers, is_clean=is_clean) == 3100
    assert {key: bounds(queue) for key, queue in again.items()} == {
        A0: (0, 25, 2500),
        A1: (0, 5, 3000),
        B0: (0, 3, 3100),
    }
    assert again.find(B0).is_batch
    assert offsets(again.find(A0)) == list(range(0, 2500, 100))


def test_what_is_no_queue_is_passed_over(queues, tmp_path):
    fill(queues)
    (tmp_path / "consumequeue/A/x1").mkdir()
    (tmp_path / "consumequeue/A/-x").mkdir()
    (tmp_path / "consumequeue/notes").write_text("")
    (tmp_path / "consumequeue/Empty").mkdir()
    assert [key for key, _ in reopen(tmp_path).items()] == [A0, A1, B0]


def test_queue_of_both_kinds_is_refused(queues, tmp_path):
    fill(queues)
    shutil.copytree(tmp_path / "consumequeue/A", tmp_path / "consumequeue/B")
    with pytest.raises(StoreError, match="B/0 has units in consumequeue and in batchconsumequeue"):
        open_set(tmp_path).load()


@pytest.mark.parametrize("family", ["consumequeue", "batchconsumequeue"])
def test_empty_directory_of_the_other_kind_is_no_queue(queues, tmp_path, family):
    fill(queues)
    for topic in ("A", "B"):
        (tmp_path / family / topic / "0").mkdir(parents=True, exist_ok=True)
    again = reopen(tmp_path)
    assert [again.find(key).is_batch for key in (A0, B0)] == [False, True]
    assert again.find(A0).max_offset == 25


def test_file_of_another_size_is_refused(queues, tmp_path):
    fill(queues)
    with pytest.raises(FileSizeError, match=r"200 bytes, .* have 400"):
        open_set(tmp_path, file_size=400).load()


def test_many_queues_are_opened_with_few_calls(tmp_path):
    """Two files opened for a queue, none mapped, whatever it holds."""
    queues = open_set(tmp_path, file_size=20_000)
    keys = [QueueKey(f"topic{number // 4}", number % 4) for number in range(200)]
    for key in keys:
        put(queues.get_or_create(key), 0, 3)
    queues.close()
    ops = CountingOps()
    again = open_set(tmp_path, ops, file_size=20_000)
    again.load()
    assert ops.opened == 0
    again.recover()
    assert ops.opened == 2 * len(keys)
    assert {again.find(key).max_offset for key in keys} == {3}


# --- all of them ---------------------------------------------------------------------------------


def test_truncate_reaches_all(queues):
    fill(queues).truncate(2600)
    assert [queue.max_offset for _, queue in queues.items()] == [25, 1, 0]
    assert queues.max_physical_offset == 2600


def test_lowest_offsets_of_all_are_corrected(queues):
    fill(queues).correct_min(2600)
    assert [queue.min_offset for _, queue in queues.items()] == [25, 1, 0]


def test_flush_reaches_all(queues):
    fill(queues)
    assert queues.flush(0)
    assert not queues.flush(0)
    put(queues.find(A1), 5, 1, begin=3500)
    assert queues.flush(0)
    assert not any(queue.flush(0) for _, queue in queues.items())


def test_expired_files_of_all_are_deleted_with_pauses(queues):
    fill(queues)
    put(queues.find(A1), 5, 20, begin=3100)
    waits = []
    assert queues.delete_expired(1 << 40, waits.append, pause_ms=100) == 4
    assert waits == [0.1, 0.1], "behind each queue that lost files"
    assert [queue.min_offset for _, queue in queues.items()] == [25, 25, 3]


def test_deleting_can_be_ended(queues):
    fill(queues)
    put(queues.find(A1), 5, 20, begin=3100)
    assert queues.delete_expired(1 << 40, lambda _: True) == 2
    assert queues.delete_expired(1 << 40) == 2


# --- the end -------------------------------------------------------------------------------------


def test_dropped_topic_leaves_nothing(queues, tmp_path):
    fill(queues)
    queue = queues.find(A0)
    assert queues.drop("A") == 2
    assert queues.find(A0) is None
    assert queues.topics() == ["B"]
    assert not (tmp_path / "consumequeue/A").exists()
    assert bounds(queue) == (0, 0, -1)
    assert queues.drop("A") == 0


def test_dropped_topic_with_extensions_leaves_nothing(tmp_path):
    queues = open_set(tmp_path, has_ext=True)
    units = columns((0,))
    queues.get_or_create(A0).put_extended(units, np.array([0]), np.array([1]), [b""])
    assert (tmp_path / "consumequeue_ext/A/0").exists()
    queues.drop("A")
    assert not (tmp_path / "consumequeue_ext/A").exists()


def test_queue_of_a_dropped_topic_is_made_again_at_its_old_offsets(queues, tmp_path):
    """Messages that wait for dispatch when their topic is deleted bring it back."""
    fill(queues)
    queues.drop("A")
    put(queues.get_or_create(A0), 25, 2)
    assert bounds(queues.find(A0)) == (25, 27, 2700)
    assert files(tmp_path, key=A0)[400][100:140] == encoded(25, 2)


def test_destroyed_set_is_empty(queues, tmp_path):
    fill(queues).destroy()
    assert len(queues) == 0
    assert list(tmp_path.glob("*/*")) == []


def look(queue):
    """Read at the end of a queue that may be gone in the middle of it."""
    if queue is None:
        return
    number = queue.max_offset - 1
    found = queue.slice(number)
    if found is not None:
        with found:
            assert len(found.view) >= 20
    assert len(queue.units(number, 1)) <= 1
    queue.correct_min(0)
    queue.flush(0)


def test_readers_survive_a_drop(tmp_path):
    """Bounds, units and slices of queues that vanish: nothing, or what was there; no error."""
    now = [fill(open_set(tmp_path))]
    failures = []
    done = threading.Event()

    def read():
        try:
            while not done.is_set():
                for key in (A0, A1, B0):
                    look(now[0].find(key))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        now[0].close()
        now[0] = reopen(tmp_path)  # nothing is mapped then
        assert now[0].drop("A") == 2
        fill(now[0])
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
