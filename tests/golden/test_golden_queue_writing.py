"""Queues that we write: RocketMQ's bytes again, and RocketMQ's queues carried on."""

import random
import shutil

import numpy as np
import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import layout, queue_unit
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import Boundary
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN
from support.golden import GoldenCase, case_names
from support.manual_clock import ManualClock

WHOLE = [name for name in case_names() if GoldenCase(name).recovered is None]
"""Stores whose queues have all their units."""
PLACES = ["physical_offset", "size", "tags_code"]


def shape_of(case):
    """The sizes a store was written with."""
    options = case.options("")
    defaults = QueueShape()
    return QueueShape(
        file_size=options.get("mappedFileSizeConsumeQueue", defaults.file_size),
        batch_file_size=options.get("mapperFileSizeBatchConsumeQueue", defaults.batch_file_size),
        ext_file_size=options.get("mappedFileSizeConsumeQueueExt", defaults.ext_file_size),
        has_ext=options.get("enableConsumeQueueExt", False),
        is_4x=not case.is_5x,
    )


def open_queues(root, case):
    return ConsumeQueueSet(StoreDir.make(PosixFileOps(), root), ManualClock(), shape_of(case))


def units_of(golden, family):
    """Every unit of every queue of a family, with the index of the first one."""
    kind = BATCHED if family == "batchconsumequeue" else PLAIN
    found = {}
    for path in golden.files(family):
        key = QueueKey(path.parent.parent.name, int(path.parent.name))
        units = kind.decode(path.read_bytes())
        units = units[: kind.count_valid(units)]
        first, before = found.get(key, (int(path.name) // kind.unit_size, units[:0]))
        found[key] = (first, np.concatenate([before, units]))
    return found


def rounds(length, rng):
    """Cut a queue into rounds of dispatch."""
    start = 0
    while start < length:
        stop = min(start + rng.randint(1, 12), length)
        yield slice(start, stop)
        start = stop


def put_plain(queue, first, units, golden):
    numbers = np.arange(first, first + len(units))
    for part in rounds(len(units), random.Random(7)):
        chosen = units[part]
        if not shape_of(golden.case).has_ext:
            queue.put(chosen, numbers[part])
            continue
        ext = [ext_unit(golden, queue.key, int(code)) for code in chosen["tags_code"]]
        chosen = chosen.copy()
        chosen["tags_code"] = [unit.tags_code for unit in ext]
        times = np.array([unit.store_timestamp for unit in ext])
        queue.put_extended(chosen, numbers[part], times, [unit.bitmap for unit in ext])


def ext_unit(golden, key, address):
    size = shape_of(golden.case).ext_file_size
    base, position = divmod(queue_unit.ext_offset(address), size)
    place = golden.root / "consumequeue_ext" / key.topic / str(key.queue_id)
    data = (place / f"{base * size:020d}").read_bytes()
    return queue_unit.ExtUnit.decode(data, position)


def put_batches(queue, units):
    plain = np.zeros(len(units), queue_unit.UNIT_DTYPE)
    for name in PLACES:
        plain[name] = units[name]
    for part in rounds(len(units), random.Random(7)):
        queue.put(
            plain[part],
            units["base_queue_offset"][part].astype(np.int64),
            units["store_timestamp"][part].astype(np.int64),
            units["batch_size"][part].astype(np.int64),
        )


def content(root):
    """The bytes of all queue files by path; files without any unit are left out."""
    families = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for family in families
        for path in (root / family).rglob("*")
        if path.is_file()
    }
    return {name: data for name, data in found.items() if any(data)}


def test_units_put_again_give_the_same_files(golden, tmp_path):
    queues = open_queues(tmp_path, golden.case)
    for key, (first, units) in units_of(golden, "consumequeue").items():
        put_plain(queues.get_or_create(key), first, units, golden)
    for key, (_, units) in units_of(golden, "batchconsumequeue").items():
        put_batches(queues.get_or_create(key, is_batch=True), units)
    queues.close()
    want = content(golden.root)
    assert content(tmp_path) == want
    assert want or golden.case.name.endswith("noqueue")


@pytest.fixture
def carried_on(golden, tmp_path):
    """The queues of a copy of a store, opened as after its stop."""
    root = tmp_path / "store"
    for family in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        if (golden.root / family).exists():
            shutil.copytree(golden.root / family, root / family)
    queues = open_queues(root, golden.case)
    queues.load()
    queues.recover(is_clean=golden.case.recovered is None)
    queues.correct_min(golden.case.log_bounds[0])
    yield queues, root
    queues.close()


def test_queues_have_the_bounds_that_rocketmq_says(carried_on, golden):
    """Where a stop was unclean, units behind the end of the log go, and others are still owed."""
    queues, root = carried_on
    assert content(root) == content(golden.root), "opening changes nothing"
    log_end = golden.case.log_bounds[1]
    queues.truncate(log_end)
    found = {(key.topic, key.queue_id): q for key, q in queues.items()}
    for name, (first, end) in golden.case.bounds.items():
        queue = found.get(name)
        if golden.case.recovered is None:
            assert (queue.min_offset, queue.max_offset) == (first, end), name
        elif queue is not None:
            assert queue.max_offset <= end
            assert queue.max_physical_offset <= log_end


@pytest.mark.parametrize("golden", WHOLE, indirect=True)
def test_times_are_answered_as_rocketmq_does(carried_on, golden, open_case):
    queues, _ = carried_on
    log = Log(open_case(golden.case.name).view)
    for question in golden.case.time_queries:
        queue = queues.find(QueueKey(question["topic"], question["queueId"]))
        answers = [queue.offset_by_time(log, question["timestamp"], b) for b in Boundary]
        if golden.case.is_5x:
            assert answers == [question["lower"], question["upper"]], question
        else:
            assert answers[0] == question["offset"], question


class Log:
    """Store times out of a store that is only read."""

    def __init__(self, view):
        self._view = view
        self.min_offset = view.min_offset

    def store_timestamp_at(self, physical_offset):
        message = self._view.message_at(physical_offset)
        return message.store_timestamp if message is not None else -1


def test_next_message_goes_behind_the_last(carried_on, golden):
    queues, root = carried_on
    before = content(root)
    for queue in [queue for _, queue in queues.items()]:
        end = queue.max_offset
        units = np.array([(1 << 40, 123, 456)], queue_unit.UNIT_DTYPE)
        numbers = np.array([end])
        if queue.is_batch:
            queue.put(units, numbers, np.array([789]), np.array([1]))
        else:
            queue.put(units, numbers)
        assert queue.max_offset == end + 1
        assert queue.units(end, 1)[PLACES[0]].tolist() == [1 << 40]
    after = content(root)
    size = layout.UNIT_SIZE
    for name, data in before.items():
        if name.startswith("consumequeue/"):
            old = data.rstrip(b"\0")
            assert after[name][: len(old)] == old
            assert len(after[name].rstrip(b"\0")) - len(old) <= 2 * size
