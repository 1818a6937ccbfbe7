"""Memory of mapped files; the C library is called without the interpreter lock.

Only `files.ops` uses this module, and what it makes is reached through `ops.MemoryMap`.

Why: `mmap.mmap` keeps a copy of the descriptor, one for each mapped file (until 3.13), and does its
work with the interpreter lock held. Here a map costs no descriptor, and long calls let other
threads run.
"""

import ctypes
import enum
import errno
import mmap
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

PAGE_SIZE: Final = mmap.PAGESIZE
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14: fault pages in; an error where a touch is SIGBUS
_MAP_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,  # address, size, protection
    ctypes.c_int, ctypes.c_int, ctypes.c_long,  # flags, descriptor, offset
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.munlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Advice(enum.IntEnum):
    """How memory will be used, in the kernel's numbers."""

    NORMAL = 0
    RANDOM = 1
    SEQUENTIAL = 2
    WILL_NEED = 3


class PosixMap:
    """Shared memory of a file, or private memory of no file.

    Invariants: the memory is given back to the system when the last view of it is gone, never
    before; `close` only gives up this object's own. A slice that was forgotten can therefore keep
    memory, but not end the process.
    """

    __slots__ = ("_address", "_size", "buffer")

    def __init__(self, descriptor: int | None, size: int) -> None:
        """Map a file from its begin, or plain memory.

        Raises:
            OSError: the system has no room for it or forbids it.
        """
        flags = mmap.MAP_SHARED if descriptor is not None else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        wanted = -1 if descriptor is None else descriptor
        address = _libc.mmap(None, size, protection, flags, wanted, 0)
        if address == _MAP_FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        memory = (ctypes.c_ubyte * size).from_address(address)
        # Order: every view keeps `memory` alive, so this runs when no view is left.
        weakref.finalize(memory, _libc.munmap, address, size).atexit = False
        self._address: int = address
        self._size = size
        self.buffer = memoryview(memory).cast("B")

    def populate(self, position: int, size: int, *, may_touch: bool = True) -> bool:
        """Bring pages into memory, ready to be written; their bytes stay as they are.

        Where the system has no call for it, pages are touched; False if another thread may be
        writing to them.
        """
        size = min(size, self._size - position)
        if not self._address or size <= 0:
            return False
        if self._call(_libc.madvise, position, size, _MADV_POPULATE_WRITE):
            return True
        if ctypes.get_errno() != errno.EINVAL or not may_touch:
            return False  # perhaps no space behind a page: touching it would end the process
        pages = self.buffer[position : position + size : PAGE_SIZE]
        pages[:] = bytes(pages)
        return True

    def lock(self, position: int, size: int) -> bool:
        """Keep pages in memory; False where the system refuses."""
        return self._call(_libc.mlock, position, min(size, self._size - position))

    def unlock(self) -> bool:
        """Let all pages go to disk again when memory is short."""
        return self._call(_libc.munlock, 0, self._size)

    def advise(self, advice: Advice) -> bool:
        """Tell the system how the memory will be used; False where it does not listen."""
        return self._call(_libc.madvise, 0, self._size, int(advice))

    def close(self) -> None:
        """Give up this object's view of the memory."""
        self._address = 0
        view, self.buffer = self.buffer, memoryview(b"")
        with suppress(BufferError):  # a reader or writer keeps it alive
            view.release()

    def _call(self, function: Callable[..., int], position: int, size: int, *more: int) -> bool:
        if not self._address:
            return False
        before = position % PAGE_SIZE  # the system wants whole pages
        return function(self._address + position - before, size + before, *more) == 0
