"""CommitLog: append under one lock, read, bounds.

1. Inside the lock, and nowhere else, a record gets its queue and physical offset and store time.
   The end of the log and the queue offsets move by one call of the kernel (`set_together`): an
   exception that a signal raises comes before that call or after it, never in between.
2. A record that does not fit into the file ends it with a blank record and goes to the next one.
3. What is appended can be read at once, unless write buffers hold it back until they are committed.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.errors import RocketLakeError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import Advice
from rocketlake.files.slice import Slice
from rocketlake.format import layout
from rocketlake.format.appending import LogTail, RecordFrame, append, append_batch, set_together
from rocketlake.format.bulk import BulkStop, append_rows
from rocketlake.format.record import Check, StoredMessage, scan
from rocketlake.model.message import Message
from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.log.queue_offsets import QueueSlot
from rocketlake.store.log.topic_routes import Appended, TopicRoutes

log = logging.getLogger(__name__)

_BLANK: Final = Layout(">ii")
_OK: Final = PutStatus.PUT_OK
_NS_PER_MS: Final = 1_000_000
_CHECKS: Final = Check.BODY_CRC | Check.OFFSET
# Why: after so many appended bytes the page prefetcher prepares the next pages. A smaller log needs
# no help and should cost no memory.
AHEAD_STEP: Final = 4 << 20
SYNCED_AHEAD_STEP: Final = 1 << 20

Rewrite = Callable[[], Message]


class Step(Struct, frozen=True):
    """How an append moves queue offsets, where that is not by one in one queue."""

    count: int = 1
    light: Sequence[QueueSlot] = ()
    rewrite: Rewrite | None = None
    """Returns the message with the offsets in it; called under the append lock."""


_PLAIN_STEP: Final = Step()


class CommitLog:
    """The log of one store.

    Thread-safety: appends take one lock; reads take none. `cut` needs puts to stand still.

    Invariants: bytes are in place before `wrote` moves, and a queue offset is given out only with
    its record.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        clock: Clock,
        *,
        reads_ahead: bool = True,
        is_synced: bool = False,
        on_roll: Callable[[MappedFile], None] | None = None,
        on_ahead: Callable[[], None] | None = None,
    ) -> None:
        self.files = files
        files.on_advance = self.note_readable
        self.on_readable: Callable[[], None] | None = None
        """Called when the readable end may have moved, in the thread that moved it."""
        self.confirms_flushed = False
        """Whether only what is on the disk is confirmed."""
        self.replicated_where: int | None = None
        """How far replicas have the log, as replication reports; None: there is no replication."""
        self._clock = clock
        self._now_ns = clock.now_ns
        self._reads_ahead = reads_ahead
        self._ahead_step = SYNCED_AHEAD_STEP if is_synced else AHEAD_STEP
        self._first_step = 0 if is_synced else AHEAD_STEP
        self.on_roll = on_roll  # called with each full file
        self._on_ahead = on_ahead
        self._lock = threading.Lock()
        self._is_closed = False
        self._refusal: str | None = None  # why nothing can be put at the moment
        self._file: MappedFile | None = None  # the last file, with space reserved to its end
        self.on_slow: Callable[[int, int], None] | None = None
        # Appends plain messages: format/_kernel/pure/tail.py and its twin tail.pxi (ADR 0010).
        self.tail = LogTail(
            self._lock, clock.now_ns, PutReceipt, _OK, self._prefetch_pages, self._note_slow
        )

    # --- bounds ----------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; -1 without files."""
        for file in self.files.files:
            if file.is_available:
                return file.base_offset
        return self.files.min_offset if self.files.files else -1

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte that may be read."""
        return self.files.max_offset

    @property
    def wrote_where(self) -> int:
        """The offset behind the last byte appended."""
        return self.files.wrote_where

    @property
    def confirm_offset(self) -> int:
        """The end of what may be dispatched: readable, flushed and replicated as required."""
        end = self.files.max_offset
        if self.confirms_flushed:
            end = min(end, self.files.flushed_where)
        replicated = self.replicated_where
        return end if replicated is None else min(end, replicated)

    def set_confirm_offset(self, offset: int | None) -> None:
        """Limit dispatch to an offset; None: without replication there is no limit."""
        self.replicated_where = offset
        self.note_readable()

    def note_readable(self) -> None:
        """Notify dispatch that the readable end may have moved.

        As the options say, an append, a flush, a commit of write buffers or a confirmation by
        replication moves the end, and calls this after the move.
        """
        if self.on_readable is not None:
            self.on_readable()

    @property
    def lock_since_ms(self) -> int:
        """When the append in progress began; 0: there is none."""
        # Why: an exception may end an append before it resets the time.
        return self.tail.lock_since_ms if self._lock.locked() else 0

    # --- appending -------------------------------------------------------------------------------

    def append_step(
        self,
        message: Message,
        slot: QueueSlot | None,
        frame: RecordFrame,
        born_timestamp: int | None,
        *,
        step: Step = _PLAIN_STEP,
    ) -> PutReceipt | None:
        """Append a message; `step` says how queue offsets move.

        None if the message does not qualify for a guarded frame. Without a slot the record has
        queue offset 0 and no queue moves.
        """
        with self._lock:
            self.tail.lock_since_ms = self._now_ns() // _NS_PER_MS
            try:
                return self._append_message(message, slot, frame, born_timestamp, step=step)
            finally:
                self.tail.lock_since_ms = 0

    def append_batch(
        self,
        messages: Sequence[Message],
        slot: QueueSlot,
        frame: RecordFrame,
        born_timestamp: int | None = None,
    ) -> PutReceipt | None:
        """Append messages to a queue, contiguously in one file; None as for `append_step`.

        Raises:
            ValueError: one of them cannot be encoded; nothing was changed.
        """
        with self._lock:
            self.tail.lock_since_ms = now = self._now_ns() // _NS_PER_MS
            try:
                file = self._file or self._next_file()
                for _ in range(2):
                    at = file.wrote
                    place = file.base_offset + at
                    sizes = append_batch(
                        file.buffer,
                        at,
                        messages,
                        frame,
                        now if born_timestamp is None else born_timestamp,
                        slot.next_offset,
                        place,
                        now,
                    )
                    if isinstance(sizes, list):
                        return self._publish_batch(file, slot, frame, sizes=sizes, now=now)
                    if sizes == 0:
                        return None
                    if -sizes + layout.BLANK_HEADER_SIZE > file.size:
                        return self._too_large(-sizes)
                    file = self._roll(file)
                raise AssertionError("what fits a file fits an empty one")
            except _NoFileError as error:
                return self._refuse(error)
            finally:
                self.tail.lock_since_ms = 0

    def append_rows(
        self, records: bytes | memoryview, position: int, routes: TopicRoutes, *, with_crc: bool
    ) -> Appended:
        """Append staged records from a position on, up to one that the caller has to put itself.

        What was appended stays, also after an error.
        """
        with self._lock:
            self.tail.lock_since_ms = now = self._now_ns() // _NS_PER_MS
            count, stop, is_fresh, is_large = 0, BulkStop.DONE, False, False
            routes.load()
            try:
                while True:
                    file = self._file or self._next_file()
                    is_direct = file.has_write_buffer or is_large
                    window = file.buffer[file.wrote :] if is_direct else routes.window(file)
                    stop_code, rows, position, size = append_rows(
                        window,
                        0,
                        records,
                        position,
                        routes.table,
                        routes.offsets,
                        file.base_offset + file.wrote,
                        now,
                        with_crc,
                    )
                    stop = BulkStop(stop_code)
                    if size:
                        self._publish_rows(file, window[:size], now, routes, is_direct=is_direct)
                        is_fresh = False
                    count += rows
                    if stop is not BulkStop.FULL:
                        return Appended(stop, count, position)
                    if len(window) < file.append_room + size:
                        is_large = not size  # larger than the window, not than the file
                        continue
                    if is_fresh and not size:
                        reason = "a staged record does not fit into a commit-log file"
                        return Appended(BulkStop.BAD, count, position, reason)
                    self._roll(file)
                    is_fresh, is_large = True, False
            except _NoFileError as error:
                return Appended(stop, count, position, str(error))
            finally:
                self.tail.lock_since_ms = 0

    def refuse_puts(self, reason: str | None) -> None:
        """Refuse every put from now on, with a reason; None: accept them again.

        No put is in progress when this returns.
        """
        with self._lock:
            self._refusal = reason
            self.release_file()

    def cut(self, offset: int, *, timeout_s: float = 0.0) -> None:
        """Cut the log at an offset; under the lock of `pause`."""
        self.release_file()
        self.files.truncate(offset, timeout_s=timeout_s)

    def close(self) -> None:
        """Refuse every append from now on, and release the last file.

        Order: an append that took the lock before is in the log and is covered by the flush that
        follows; a later one is refused.
        """
        with self._lock:
            self._is_closed = True
            self.release_file()

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed for appends."""
        return self._is_closed

    def pause(self) -> threading.Lock:
        """Return the append lock, for work that must not run beside an append."""
        return self._lock

    # --- reading ---------------------------------------------------------------------------------

    def slice(self, offset: int, size: int | None = None) -> Slice | None:
        """Return bytes of one file, without a size all readable ones; None if they are not there.

        The file is held until the slice is closed.
        """
        file = self.files.find(offset)
        return None if file is None else file.slice(offset - file.base_offset, size)

    def message_at(self, offset: int, size: int | None = None) -> StoredMessage | None:
        """Return the message whose good record begins at an offset; None if there is none.

        With a size, only a record of that size.
        """
        with_bytes = self.slice(offset, size)
        if with_bytes is None:
            return None
        with with_bytes:
            found = scan(with_bytes.view, base_offset=offset, checks=_CHECKS, rows_max=1).columns
            if not len(found) or (size is not None and found["size"][0] != size):
                return None
            return found.message(0)

    def store_timestamp_at(self, offset: int) -> int:
        """Return the store time of the record at an offset; -1 if none begins there."""
        with_bytes = self.slice(offset)
        if with_bytes is None:
            return -1
        with with_bytes:
            found = scan(with_bytes.view, base_offset=offset, checks=Check.OFFSET, rows_max=1)
            return int(found.columns["store_timestamp"][0]) if len(found.columns) else -1

    # --- private, under the lock -----------------------------------------------------------------

    def _append_message(
        self,
        message: Message,
        slot: QueueSlot | None,
        frame: RecordFrame,
        born_timestamp: int | None,
        *,
        step: Step = _PLAIN_STEP,
    ) -> PutReceipt | None:
        try:
            file = self._file or self._next_file()
            for _ in range(2):
                now = self._now_ns() // _NS_PER_MS
                at = file.wrote
                place = file.base_offset + at
                queue_offset = slot.next_offset if slot is not None else 0
                final = step.rewrite() if step.rewrite is not None else message
                size = append(
                    file.buffer,
                    at,
                    final,
                    frame,
                    now if born_timestamp is None else born_timestamp,
                    queue_offset,
                    place,
                    now,
                )
                if size == 0:
                    return None
                if size > 0:
                    receipt = PutReceipt(
                        _OK, queue_offset, place, now, size, step.count, frame.store_host
                    )
                    set_together(
                        [
                            (file, "wrote", at + size),
                            (file, "store_timestamp", now),
                            *_offset_moves(slot, step),
                        ]
                    )
                    return receipt
                if -size + layout.BLANK_HEADER_SIZE > file.size:
                    return self._too_large(-size)
                file = self._roll(file)
        except _NoFileError as error:
            return self._refuse(error)
        raise AssertionError("what fits a file fits an empty one")

    def _publish_batch(
        self, file: MappedFile, slot: QueueSlot, frame: RecordFrame, *, sizes: list[int], now: int
    ) -> PutReceipt:
        place = file.base_offset + file.wrote
        ends = list(accumulate(sizes, initial=place))
        first = slot.next_offset
        end = ends.pop()
        receipt = PutReceipt(
            _OK, first, place, now, end - place, len(sizes), frame.store_host, tuple(ends)
        )
        set_together(
            (
                (file, "wrote", end - file.base_offset),
                (file, "store_timestamp", now),
                (slot, "next_offset", first + len(sizes)),
            )
        )
        if file.wrote > self.tail.ahead_at:
            self._prefetch_pages()
        return receipt

    def _publish_rows(
        self, file: MappedFile, rows: memoryview, now: int, routes: TopicRoutes, *, is_direct: bool
    ) -> None:
        if not is_direct:
            try:
                file.write_behind(rows)
            except RocketLakeError as error:
                self.release_file()  # the next append looks for the end of the last record
                raise _NoFileError(str(error)) from error
        set_together(
            [
                (file, "wrote", file.wrote + len(rows)),
                (file, "store_timestamp", now),
                *routes.moves(),
            ]
        )
        if is_direct and file.wrote > self.tail.ahead_at:
            self._prefetch_pages()

    def _too_large(self, size: int) -> PutReceipt:
        # Compat: 5.3.3 answers PUT_OK here, with END_OF_FILE inside, and the message is lost.
        room = self.files.file_size - layout.BLANK_HEADER_SIZE
        text = f"{size} bytes of records do not fit into a commit-log file, which holds {room}"
        return PutReceipt(PutStatus.MESSAGE_ILLEGAL, reason=text)

    def _refuse(self, error: "_NoFileError") -> PutReceipt:
        failed = PutStatus.CREATE_MAPPED_FILE_FAILED
        is_refused = self._is_closed or self._refusal is not None
        status = PutStatus.SERVICE_NOT_AVAILABLE if is_refused else failed
        return PutReceipt(status, reason=str(error))

    def _roll(self, file: MappedFile) -> MappedFile:
        """End a file with a blank record and return the next one.

        Each step can be repeated: an exception may end this method anywhere, and the next append
        calls it again.
        """
        if not file.is_full:
            file.fill_to_end(_BLANK.pack(file.append_room, layout.MAGIC_BLANK))
        self.release_file()
        if self.on_roll is not None:
            self.on_roll(file)
        return self._next_file()

    def release_file(self) -> None:
        """Forget the last file, so that the next append looks for it; under the append lock."""
        self._file = None
        self.tail.detach()

    def _next_file(self) -> MappedFile:
        if self._is_closed:
            raise _NoFileError("the store is closed")
        if self._refusal is not None:
            raise _NoFileError(self._refusal)
        try:
            file = self.files.last_file(create_at=0)
            if file is None:
                raise _NoFileError(f"no new commit-log file: {self.files.refusal}")
            file.map()
            file.reserve(file.append_room)
            if not self._reads_ahead:
                file.advise(Advice.RANDOM)
        except RocketLakeError as error:
            raise _NoFileError(str(error)) from error
        self._file = file
        self.tail.attach(file, file.base_offset)
        self.tail.ahead_at = file.wrote + self._first_step
        return file

    def _prefetch_pages(self) -> None:
        """Wake the page prefetcher; called when an append passes `tail.ahead_at`."""
        if self._file is not None:
            self.tail.ahead_at = self._file.wrote + self._ahead_step
        if self._on_ahead is not None:
            self._on_ahead()

    def _note_slow(self, lock_ns: int, copy_ns: int) -> None:
        if self.on_slow is not None:
            self.on_slow(lock_ns, copy_ns)


def _offset_moves(slot: QueueSlot | None, step: Step) -> list[tuple[QueueSlot, str, int]]:
    """Return the changes of queue offsets that an append makes."""
    moves = [(light, "next_offset", light.next_offset + 1) for light in step.light]
    if slot is not None:
        moves.append((slot, "next_offset", slot.next_offset + step.count))
    return moves


class _NoFileError(Exception):
    """There is no file to append to; the text says why."""
