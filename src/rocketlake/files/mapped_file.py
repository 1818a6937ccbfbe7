"""MappedFile: positions, append, slices, flush, holds.

1. A file has its full length from the start; what counts is how far it was written.
2. Bytes are copied into `buffer`. That is the mapped file itself, or a borrowed write buffer whose
   content `commit` writes to the file.
3. Readers take a `Slice`. It holds the file, which may lose its name meanwhile, but not its bytes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from rocketlake import failpoint
from rocketlake.clock import Clock
from rocketlake.errors import FileAccessError
from rocketlake.files.file_traits import LOG_FILES, FilePlace, FileTraits
from rocketlake.files.held_resource import HeldResource
from rocketlake.files.ops import Advice, Buffer, FileOps, MemoryMap, Writer
from rocketlake.files.shared_writer import SharedWriter
from rocketlake.files.slice import Slice
from rocketlake.files.write_buffer_pool import LentBuffer

FLUSH_PAGE_SIZE: Final = 4096  # pages as the reference counts them, on every machine
_ALLOCATE_STEP: Final = 64 << 10
_WARM_STEP: Final = 8 << 20
_LOOK_S: Final = 0.005
_NEVER_MS: Final = 1 << 40
_NOTHING: Final = memoryview(b"")
# Why: the first bytes of a new file otherwise make the system read ahead in a file of zeros, which
# takes milliseconds and megabytes; times ten thousand queues.
_SPARSE_ADVICE: Final = Advice.RANDOM


class MappedFile(HeldResource):
    """One file of a log, a queue or an index, and how far it was written, committed and flushed.

    Thread-safety: each position has one owner, anybody may read it.
    `wrote`, `allocated`, `store_timestamp`: one appender at a time (the append lock).
    `committed` and, when it becomes full, `buffer`: the one that commits. `flushed`: the one that
    flushes. Holds have a lock of their own. `cut` needs all of the owners to stand still.

    Invariants: flushed <= readable_end <= wrote <= size, and committed <= wrote. Appending never
    passes `allocated`: behind it there may be no space on the disk, and writing to a map without
    space ends the process. An appender that sets `wrote` itself does so after the bytes are in
    `buffer`, and sets `store_timestamp` after `wrote`.

    Durability: bytes below `flushed` are on the disk. A failed flush leaves `flushed` alone.
    """

    __slots__ = (
        "allocated", "base_offset", "buffer", "committed", "flushed", "is_first", "path", "size",
        "store_timestamp", "wrote",
        "_is_locked", "_is_unlinked", "_map", "_ops", "_owes_zeros", "_traits",
        "_write_buffer", "_writers",
    )  # fmt: skip

    def __init__(
        self, ops: FileOps, clock: Clock, place: FilePlace, traits: FileTraits = LOG_FILES
    ) -> None:
        super().__init__(clock)
        self._ops = ops
        self._traits = traits
        self.path = place.path
        self.base_offset = place.base_offset
        self.size = place.size
        self.wrote = self.committed = self.flushed = self.allocated = place.size
        self.store_timestamp = 0  # of the last record appended by this process
        self.is_first = False  # made in an empty queue
        self.buffer = _NOTHING
        self._map: MemoryMap | None = None
        self._writers = SharedWriter()
        self._write_buffer: LentBuffer | None = None
        self._is_unlinked = False
        self._is_locked = False
        self._owes_zeros = False  # whether bytes after `wrote` have to be zeroed first

    def __repr__(self) -> str:
        return f"MappedFile({str(self.path)!r}, {self.flushed}/{self.committed}/{self.wrote})"

    # --- coming into being -----------------------------------------------------------------------

    def create(self, write_buffer: LentBuffer | None = None) -> None:
        """Make the file on the disk, empty; with a buffer, that is where appends go.

        Raises:
            DiskFullError: there is no space; nothing is left behind.
        """
        failpoint.hit("create.before")
        handle = self._ops.create(self.path, self.size, is_sparse=self._traits.is_sparse)
        try:
            if self._traits.is_durable:
                handle.sync()
                self._ops.sync_dir(self.path.parent)
            self._map = handle.map(self.size)
        except BaseException:
            handle.close()
            self._ops.unlink(self.path)
            raise
        failpoint.hit("create.after")
        self.wrote = self.committed = self.flushed = 0
        self.allocated = 0 if self._traits.is_sparse else self.size
        self._write_buffer = write_buffer
        self.buffer = self._map.buffer if write_buffer is None else write_buffer.buffer
        if self._traits.keeps_descriptor:
            self._writers.keep(handle)
        else:
            handle.close()

    def map(self) -> memoryview:
        """Return the file's own memory, mapped at the first call."""
        mapped = self._map
        return mapped.buffer if mapped is not None else self._map_now().buffer

    # --- appending -------------------------------------------------------------------------------

    @property
    def readable_end(self) -> int:
        """Where what readers may see ends."""
        return self.wrote if self._write_buffer is None else self.committed

    @property
    def has_write_buffer(self) -> bool:
        """Whether appended bytes are held back until they are committed."""
        return self._write_buffer is not None

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be appended."""
        return self.wrote == self.size

    @property
    def append_room(self) -> int:
        """How many bytes can still be appended."""
        return self.size - self.wrote

    def reserve(self, count: int) -> None:
        """Have space on the disk for so many bytes more, up to the end of the file.

        Raises:
            DiskFullError: there is none; the file is as before.
        """
        end = min(self.wrote + count, self.size)
        if end <= self.allocated:
            return
        if self._traits.is_sparse:
            end = min(-(-end // _ALLOCATE_STEP) * _ALLOCATE_STEP, self.size)
        else:
            end = self.size
        start = min(self.wrote, self.allocated)
        with self._writer() as writer:
            if self._owes_zeros:
                self._zero_rest(writer, self.wrote)
            writer.allocate(start, end - start)
        if self._traits.is_sparse:
            self.advise(_SPARSE_ADVICE)
        self.map()
        self.allocated = end

    def resume(self, position: int) -> None:
        """Take this position as the end of a file that was opened, up to which it is flushed.

        What lies behind it stays; space below it is had with the next `reserve`, for files that
        are not only appended to: bytes that were never written may have none.
        """
        assert 0 <= position <= self.size, f"{self!r} has no position {position}"
        self.wrote = self.committed = self.flushed = position
        self.allocated = 0

    def prepare_append(self) -> None:
        """Be mapped, and have space for all that can be appended; a sparse file waits for a need.

        Raises:
            DiskFullError: there is none; the file can be read.
        """
        if not self._traits.is_sparse:
            self.map()
            self.reserve(self.append_room)

    def append(self, data: Buffer) -> bool:
        """Copy bytes behind the last ones; False, and nothing is changed, if they do not fit.

        Raises:
            DiskFullError: there is no space; the file is as before.
        """
        end = self.wrote + len(data)
        if end > self.allocated:
            if end > self.size:
                return False
            self.reserve(len(data))
        self.buffer[self.wrote : end] = data
        self.wrote = end
        return True

    def append_by_call(self, data: Buffer) -> bool:
        """Append as `append` does, by a call to the system: for many bytes and pages not touched.

        Raises:
            DiskFullError, FileAccessError: they cannot be written; the file is as before, but for
                bytes behind its end that the next `reserve` makes zeros.
        """
        if self.wrote + len(data) > self.size:
            return False
        self.write_behind(data)
        self.wrote += len(data)
        return True

    def write_behind(self, data: Buffer) -> None:
        """Write bytes behind the last ones by a call to the system; `wrote` is for the caller.

        Raises:
            DiskFullError, FileAccessError: they cannot be written; the file is as before, but for
                bytes behind its end that the next `reserve` makes zeros.
        """
        assert self._write_buffer is None, f"{self!r} is written through a buffer"
        assert self.wrote + len(data) <= self.size, f"{self!r} has no room for {len(data)} bytes"
        self.reserve(len(data))
        try:
            with self._writer() as writer:
                writer.write(self.wrote, data)
        except BaseException:
            # Some of it may be there, and would look like what was appended.
            self.allocated, self._owes_zeros = self.wrote, True
            raise

    def advance(self, count: int) -> None:
        """Count bytes that were put into `buffer` at `wrote`."""
        assert 0 <= count <= self.allocated - self.wrote, f"{self!r} cannot take {count} bytes"
        self.wrote += count

    def fill_to_end(self, header: bytes) -> None:
        """Append a header and zeros to the end: the file is full then."""
        assert len(header) <= self.append_room, f"{self!r} has no room for a header"
        self.reserve(self.append_room)
        start = self.wrote
        if self._write_buffer is not None:
            # Why: a borrowed buffer holds old bytes, and all up to `wrote` goes to the file.
            self.buffer[start:] = bytes(self.size - start)
        self.buffer[start : start + len(header)] = header
        self.wrote = self.size

    # --- commit and flush ------------------------------------------------------------------------

    def commit(self, least_pages: int) -> int:
        """Write the borrowed buffer's new bytes to the file if there are enough; return the end.

        The buffer is given back when the whole file is committed.
        """
        if self._write_buffer is None:
            self.committed = self.wrote
            return self.committed
        end = self.wrote
        if self._is_due(self.committed, end, least_pages) and self.hold():
            try:
                failpoint.hit("commit.before")
                with self._writer() as writer, self.buffer[self.committed : end] as new:
                    writer.write(self.committed, new)
                self.committed = end
                failpoint.hit("commit.after")
            finally:
                self.release()
        if self.committed == self.size:
            self._return_write_buffer()
        return self.committed

    def flush(self, least_pages: int) -> int:
        """Have readable bytes on the disk if there are enough new ones; return up to where.

        Raises:
            FlushFailedError: they may not be there; `flushed` stays.
        """
        end = self.readable_end
        if self._is_due(self.flushed, end, least_pages):
            if self.hold():
                try:
                    self._sync()
                finally:
                    self.release()
            # Compat: a file that is going away counts as flushed: the next one has its turn.
            self.flushed = end
            if end == self.size:
                self._writers.give_up()
                if self._traits.is_sparse:
                    self.advise(Advice.NORMAL)
        return self.flushed

    def sync(self) -> None:
        """Flush all that any process has written to this file; moves no position."""
        with self._writer() as writer:
            writer.sync()

    def cut(self, position: int) -> None:
        """Make this position the end, and zeros of all bytes behind it, on the disk too.

        Why: a record that was cut off is still well-formed. One appended at the cut may end just
        where the next old one begins, and a later recovery would take that for a new one.

        Raises:
            FlushFailedError: the zeros may not be on the disk.
        """
        assert 0 <= position <= self.wrote, f"{self!r} has no position {position}"
        self.commit(0)
        failpoint.hit("truncate.before")
        with self._writer() as writer:
            self._zero_rest(writer, position)
        self.wrote = self.committed = self.flushed = position
        self.allocated = min(self.allocated, position)
        failpoint.hit("truncate.after")

    def end_at(self, position: int) -> None:
        """Make this position the end, as `cut` does; the zeros come before the next append."""
        assert 0 <= position <= self.wrote, f"{self!r} has no position {position}"
        self.commit(0)
        self.wrote = self.committed = self.flushed = position
        self.allocated = min(self.allocated, position)
        self._owes_zeros = True

    def retire(self, timeout_s: float) -> None:
        """Close the file when it has no holders any more, or after a timeout."""
        for _ in range(round(timeout_s / _LOOK_S)):
            if self.shutdown(_NEVER_MS):
                return
            self._clock.sleep(_LOOK_S)
        self.shutdown(0)

    # --- reading ---------------------------------------------------------------------------------

    def slice(self, position: int, size: int | None = None) -> Slice | None:
        """Return bytes from a position on, all readable ones without a size; None if there is none.

        None too when they are not all readable yet, or the file is going away.
        """
        end = self.readable_end
        stop = end if size is None else position + size
        if not 0 <= position <= stop <= end or (size is None and position == end):
            return None
        if not self.hold():
            return None
        try:
            view = self.map()[position:stop].toreadonly()
        except BaseException:
            self.release()
            raise
        return Slice(self, self.base_offset + position, view)

    def readable_view(self) -> tuple[int, int, memoryview]:
        """Return where the file begins, where what can be read ends, and its memory, read-only.

        The view keeps the memory, but does not hold the file.
        """
        end = self.wrote if self._write_buffer is None else self.committed
        mapped = self._map or self._map_now()
        return self.base_offset, end, mapped.buffer.toreadonly()

    def last_modified_ms(self) -> int:
        """Return when the file was changed last, as the file system has it; 0 if it is gone."""
        entry = self._ops.stat(self.path)
        return entry.mtime_ms if entry is not None else 0

    # --- memory ----------------------------------------------------------------------------------

    def warm(self, stop: Callable[[], bool], *, sync_every_pages: int = 0) -> bool:
        """Bring a new file into memory and keep it there; False if it was stopped before.

        With `sync_every_pages` it is flushed each time so many pages were touched.
        """
        assert self.wrote == 0, f"{self!r} is in use"
        if not self.hold():
            return False
        try:
            return self._warm(stop, sync_every_pages * FLUSH_PAGE_SIZE)
        finally:
            self.release()

    def populate_ahead(self, count: int) -> bool:
        """Bring so many bytes behind `wrote` into memory while others append; False if it cannot.

        Why: an append that meets a page which is not there waits for it, inside the append lock.
        """
        if not self.hold():
            return False
        try:
            count = min(count, self.allocated - self.wrote)
            mapped = self._map
            return mapped is not None and mapped.populate(self.wrote, count, may_touch=False)
        finally:
            self.release()

    def munlock(self) -> bool:
        """Let the system take the file out of memory again; False if it was not kept there."""
        if not self._is_locked or not self.hold():
            return False
        try:
            self._is_locked = False
            return self._map is not None and self._map.unlock()
        finally:
            self.release()

    def advise(self, advice: Advice) -> bool:
        """Tell the system how the file will be read; False where it does not listen."""
        if not self.hold():
            return False
        try:
            mapped = self._map or self._map_now()
            return mapped.advise(advice)
        finally:
            self.release()

    # --- the end ---------------------------------------------------------------------------------

    def destroy(self, force_after_ms: int) -> bool:
        """Remove the file's name now, and release it as `shutdown` does; True once it is released.

        Views that are in use when it is forced to go stay valid memory.

        Raises:
            FileAccessError: it cannot be removed; it stays in use.
        """
        if not self._is_unlinked:
            self._is_unlinked = True
            failpoint.hit("delete.before")
            try:
                self._ops.unlink(self.path)
            except BaseException:
                self._is_unlinked = False
                raise
            self._ops.sync_dir(self.path.parent)
            failpoint.hit("delete.after")
        return self.shutdown(force_after_ms)

    # --- private ---------------------------------------------------------------------------------

    def _is_due(self, done: int, end: int, least_pages: int) -> bool:
        """Whether the bytes from `done` to `end` are enough to be moved on."""
        if end <= done:
            return False
        if self.wrote == self.size or least_pages <= 0:
            return True
        return end // FLUSH_PAGE_SIZE - done // FLUSH_PAGE_SIZE >= least_pages

    def _sync(self) -> None:
        failpoint.hit("flush.before")
        try:
            self.sync()
        except FileAccessError:
            if self._is_available and not self._is_unlinked:
                raise
            # The file was removed between the hold and the opening of its name.
        failpoint.hit("flush.after")

    def _zero_rest(self, writer: Writer, position: int) -> None:
        has_changed = writer.zero(position, self.size - position)
        if has_changed or self._traits.is_durable:
            writer.sync()  # the bytes before the cut, too: `flushed` will claim them
        self._owes_zeros = False

    def _warm(self, stop: Callable[[], bool], sync_every: int) -> bool:
        mapped = self._map or self._map_now()
        unsynced = 0
        self._is_locked = True
        for position in range(0, self.size, _WARM_STEP):
            if stop():
                return False
            count = min(_WARM_STEP, self.size - position)
            mapped.populate(position, count)
            self._is_locked = self._is_locked and mapped.lock(position, count)
            unsynced += count
            if 0 < sync_every <= unsynced:
                self.sync()
                unsynced = 0
        mapped.advise(Advice.WILL_NEED)
        return True

    def _map_now(self) -> MemoryMap:
        with self._writer() as writer, self._guard:
            if self._map is None:
                assert not self._is_closed, f"{self!r} is closed"
                self._map = writer.map(self.size)
                self.buffer = self._map.buffer
            return self._map

    def _writer(self) -> AbstractContextManager[Writer]:
        """Lend the open file; opened for this once where the family keeps no descriptors."""
        keeps = self._traits.keeps_descriptor and self.flushed < self.size
        return self._writers.borrow(lambda: self._ops.open_writer(self.path), keeps=keeps)

    def _return_write_buffer(self) -> None:
        lent = self._write_buffer
        if lent is not None:
            # Order: `committed` is at the end already, so that readers see the same end throughout.
            self.buffer = self._map.buffer if self._map is not None else _NOTHING
            self._write_buffer = None
            lent.give_back()

    def _let_go(self) -> None:
        self._return_write_buffer()
        self._writers.give_up(is_end=True)
        mapped, self._map = self._map, None
        self.buffer = _NOTHING
        if mapped is not None:
            mapped.close()
