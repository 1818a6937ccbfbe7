"""The pool of write buffers: last in, first out; short and empty pools; the way to a file."""

import logging

import pytest
from file_fakes import SIZE, FakeMap, FaultyOps

from rocketlake.files.file_traits import LOG_FILES, FilePlace
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.write_buffer_pool import WriteBufferPool
from support.manual_clock import ManualClock


class MemoryOps(FaultyOps):
    """Files whose plain memory counts what is done to it."""

    def __init__(self, *, locks=True):
        super().__init__()
        self.memories = []
        self._locks = locks

    def allocate_memory(self, size):
        self.memories.append(FakeMap(size, self._locks))
        return self.memories[-1]


@pytest.fixture
def ops():
    return MemoryOps()


@pytest.fixture
def pool(ops):
    made = WriteBufferPool(ops, count=5, size=SIZE)
    made.open()
    yield made
    made.close()


def test_closed_pool_has_nothing(ops):
    pool = WriteBufferPool(ops, count=5, size=SIZE)
    assert (pool.available, ops.memories) == (0, [])
    assert pool.borrow() is None


def test_opened_pool_has_locked_buffers_of_a_files_size(pool, ops, caplog):
    assert pool.available == len(ops.memories) == 5
    assert all(memory.calls == [("lock", 0, SIZE)] for memory in ops.memories)
    assert caplog.records == []


def test_pool_does_without_locks(caplog):
    pool = WriteBufferPool(MemoryOps(locks=False), count=2, size=SIZE)
    pool.open()
    assert pool.available == 2
    assert f"write buffers not locked in memory locked=0 of=2 size={SIZE}" in caplog.text


def test_buffer_that_came_back_last_is_lent_first(pool):
    first, second, third = pool.borrow(), pool.borrow(), pool.borrow()
    memories = [id(loan.buffer.obj) for loan in (first, second, third)]
    second.give_back()
    first.give_back()
    assert [id(pool.borrow().buffer.obj) for _ in range(2)] == memories[:2]


def test_empty_pool_lends_nothing(pool):
    loans = [pool.borrow() for _ in range(5)]
    assert pool.available == 0
    assert pool.borrow() is None
    loans[0].give_back()
    assert pool.available == 1
    assert pool.borrow() is not None


def test_buffer_goes_back_once(pool):
    loan = pool.borrow()
    loan.give_back()
    loan.give_back()
    assert pool.available == 5
    assert len(loan.buffer) == 0, "whoever gave it back cannot write to it"


def test_pool_that_runs_short_says_so(pool, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            pool.borrow()
        assert caplog.records == []
        pool.borrow()
    assert "write buffers run short free=1 of=5" in caplog.text


def test_closing_gives_the_memory_back(pool, ops):
    loan = pool.borrow()
    pool.close()
    assert pool.available == 0
    assert pool.borrow() is None
    assert sum(("unlock",) in memory.calls for memory in ops.memories) == 4
    loan.give_back()
    assert pool.available == 0


def test_files_take_buffers_while_there_are_some(pool, ops, tmp_path):
    maker = MappedFileMaker(ops, ManualClock(), LOG_FILES, pool.borrow)
    files = [maker.create(FilePlace(tmp_path / f"{n:020d}", n, SIZE)) for n in range(6)]
    assert pool.available == 0
    for file in files:
        file.append(b"abc")
    # The one that came too late writes to its own memory, and can be read at once.
    assert [file.readable_end for file in files] == [0, 0, 0, 0, 0, 3]
    for file in files:
        file.fill_to_end(b"")
        assert file.commit(0) == SIZE
        file.shutdown(0)
    assert pool.available == 5


def test_real_memory(tmp_path):
    pool = WriteBufferPool(FaultyOps(), count=1, size=4096)
    pool.open()
    loan = pool.borrow()
    loan.buffer[:3] = b"abc"
    loan.give_back()
    assert bytes(pool.borrow().buffer[:3]) == b"abc", "old bytes stay in it"
    pool.close()
