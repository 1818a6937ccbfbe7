"""Memory of files: it follows the file, costs no descriptor and outlives whoever closed it."""

import ctypes
import errno
import os
import threading

import numpy as np
import pytest

from rocketlake.errors import FileAccessError
from rocketlake.files import memory as memory_module
from rocketlake.files.ops import PAGE_SIZE, Advice, PosixFileOps

SIZE = 4 * PAGE_SIZE


@pytest.fixture
def ops():
    return PosixFileOps()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f"


@pytest.fixture
def mapped(ops, path):
    writer = ops.create(path, SIZE)
    found = writer.map(SIZE)
    writer.close()
    yield found
    found.close()


def is_mapped(path):
    with open("/proc/self/maps") as maps:  # noqa: PTH123 - not a file
        return any(str(path) in line for line in maps)


def refuse(number):
    def call(*_):
        ctypes.set_errno(number)
        return -1

    return call


def test_map_and_file_show_the_same_bytes(ops, path, mapped):
    mapped.buffer[5:8] = b"abc"
    writer = ops.open_writer(path)
    assert writer.read(4, 5) == b"\0abc\0"
    writer.write(6, b"X")
    assert bytes(mapped.buffer[4:9]) == b"\0aXc\0"
    writer.close()


def test_map_is_plain_bytes_that_can_be_written(mapped):
    assert (mapped.buffer.format, mapped.buffer.itemsize) == ("B", 1)
    assert (mapped.buffer.readonly, mapped.buffer.contiguous) == (False, True)
    assert len(mapped.buffer) == SIZE


def test_map_costs_no_descriptor(ops, tmp_path):
    writer = ops.create(tmp_path / "f", SIZE)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - not a directory of ours
    maps = [writer.map(SIZE) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    for mapped in maps:
        mapped.close()
    writer.close()


def test_closed_map_is_gone(path, mapped):
    assert is_mapped(path)
    mapped.close()
    assert not is_mapped(path)
    assert len(mapped.buffer) == 0
    mapped.close()


def test_view_outlives_the_map(path, mapped):
    mapped.buffer[3] = 7
    view = mapped.buffer[2:5].toreadonly()
    array = np.frombuffer(mapped.buffer, np.uint8)
    mapped.close()
    assert bytes(view) == b"\0\7\0"
    assert array[3] == 7
    assert is_mapped(path)
    view.release()
    assert is_mapped(path)
    del array
    assert not is_mapped(path)


def test_closed_map_has_no_memory_to_advise(mapped):
    mapped.close()
    assert not mapped.populate(0, SIZE)
    assert not mapped.lock(0, SIZE)
    assert not mapped.unlock()
    assert not mapped.advise(Advice.WILL_NEED)


def test_pages_are_brought_in_and_keep_their_bytes(mapped):
    mapped.buffer[PAGE_SIZE] = 9
    assert mapped.populate(0, SIZE)
    assert mapped.populate(PAGE_SIZE + 1, 10 * SIZE), "no further than the end"
    assert mapped.buffer[PAGE_SIZE] == 9
    assert not mapped.populate(SIZE, 1)


def test_pages_are_touched_where_the_system_cannot_bring_them_in(mapped, monkeypatch):
    mapped.buffer[:] = bytes(range(256)) * (SIZE // 256)
    monkeypatch.setattr(memory_module._libc, "madvise", refuse(errno.EINVAL))
    assert mapped.populate(0, SIZE)
    assert bytes(mapped.buffer) == bytes(range(256)) * (SIZE // 256)


def test_pages_that_others_write_to_are_not_touched(mapped, monkeypatch):
    assert mapped.populate(0, SIZE, may_touch=False)
    monkeypatch.setattr(memory_module._libc, "madvise", refuse(errno.EINVAL))
    assert not mapped.populate(0, SIZE, may_touch=False)


def test_pages_without_space_are_not_touched(mapped, monkeypatch):
    monkeypatch.setattr(memory_module._libc, "madvise", refuse(errno.EFAULT))
    assert not mapped.populate(0, SIZE)


def test_system_that_refuses_to_lock(mapped, monkeypatch):
    monkeypatch.setattr(memory_module._libc, "mlock", refuse(errno.ENOMEM))
    assert not mapped.lock(0, SIZE)


def test_locked_memory_counts_as_such(mapped):
    if not mapped.lock(PAGE_SIZE + 5, 10):
        pytest.skip("the system lets nobody lock memory")
    with open("/proc/self/smaps") as maps:  # noqa: PTH123
        assert any(line.startswith("Locked:") and not line.endswith(" 0 kB\n") for line in maps)
    assert mapped.unlock()


@pytest.mark.parametrize("advice", Advice)
def test_advice_is_taken(mapped, advice):
    assert mapped.advise(advice)


def test_plain_memory(ops):
    memory = ops.allocate_memory(SIZE)
    assert bytes(memory.buffer) == bytes(SIZE)
    memory.buffer[:3] = b"abc"
    assert bytes(memory.buffer[:3]) == b"abc"
    memory.close()


def test_memory_nobody_has(ops):
    with pytest.raises(FileAccessError, match=r"cannot have \d+ bytes: Cannot allocate memory"):
        ops.allocate_memory(1 << 60)


def test_file_that_cannot_be_mapped(ops, path):
    writer = ops.create(path, 10)
    with pytest.raises(FileAccessError, match="cannot map: Invalid argument"):
        writer.map(0)
    writer.close()


def test_long_calls_let_other_threads_run(mapped, monkeypatch):
    """The C library is called without the interpreter lock: two threads meet inside of it."""
    assert isinstance(memory_module._libc, ctypes.CDLL)
    assert not isinstance(memory_module._libc, ctypes.PyDLL)
    meeting = threading.Barrier(2, timeout=10)
    meet = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: meeting.wait() * 0)
    monkeypatch.setattr(memory_module._libc, "munlock", lambda *_: meet())
    other = threading.Thread(target=mapped.unlock)
    other.start()
    assert mapped.unlock()
    other.join()
