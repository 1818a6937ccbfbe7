"""LogTail: the append of a plain message, in one call (docs/adr/0010-the-append-tail.md).

Most messages of a store take this way. The call takes the append lock, reads the clock, writes the
record and moves the positions. It returns None for anything unusual, and the caller takes the long
way, `CommitLog.append_step`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.pure.appending import RecordFrame, append
from rocketlake.format._kernel.pure.field_append import PropertyEdits, append_fields

_NS_PER_MS = 1_000_000
_SLOW_NS = 1_000_000

_Write = Callable[[Any, int, tuple[int, int, int]], int]
"""Writes a record into a buffer at a position, for queue offset, physical offset and store time."""


def set_together(changes: Iterable[tuple[Any, str, Any]]) -> None:
    """Set attributes, each given as (object, name, value): no Python code runs in between.

    Why: an exception raised by a signal, or by a debugger, comes between two instructions of the
    interpreter. What must change together is changed by one call that has none.
    """
    targets, names, values = zip(*changes, strict=True)
    deque(map(setattr, targets, names, values), maxlen=0)


def are_inert(messages: Iterable[Any]) -> bool:
    """Tell whether reading the fields of messages runs no code of their sender.

    Why: fields are read under the append lock. A mapping with code of its own could put a message
    itself, and would wait for that lock forever.
    """
    return all(
        type(message.properties) is dict
        and type(message.keys) in (tuple, list, str)
        and (
            type(message.body) in (bytes, bytearray, memoryview)
            or not hasattr(type(message.body), "__buffer__")
        )
        for message in messages
    )


class LogTail:
    """The end of a log: the file that is appended to, and what an append needs beside it.

    A file has `buffer`, `wrote` and `store_timestamp`; a slot has `next_offset`. `receipt` is
    called with `ok`, queue offset, physical offset, store time, size, 1 and the store's host.

    Thread-safety: `append` by any thread; `attach` and `detach` under the lock.
    """

    __slots__ = (
        "_lock", "_now_ns", "_receipt", "_ok", "_on_ahead", "_on_slow", "_file", "_base",
        "lock_ns", "copy_ns", "lock_since_ms", "busy_ms", "ahead_at",
    )  # fmt: skip

    def __init__(
        self,
        lock: Any,
        now_ns: Callable[[], int],
        receipt: Callable[..., Any],
        ok: Any,
        on_ahead: Callable[[], None],
        on_slow: Callable[[int, int], None],
    ) -> None:
        """`on_ahead` is called under the lock when an append passes `ahead_at`.

        `on_slow` is called after a slow append, with the nanoseconds for lock and copy.
        """
        self._lock = lock
        self._now_ns = now_ns
        self._receipt = receipt
        self._ok = ok
        self._on_ahead = on_ahead
        self._on_slow = on_slow
        self._file: Any = None
        self._base = 0
        self.lock_ns = 0
        self.copy_ns = 0
        self.lock_since_ms = 0
        self.busy_ms = 1 << 62
        self.ahead_at = 0

    def attach(self, file: Any, base_offset: int) -> None:
        """Append to a file from now on."""
        self._file = file
        self._base = base_offset

    def detach(self) -> None:
        """Append to no file."""
        self._file = None

    def append(self, message: Any, slot: Any, frame: RecordFrame) -> Any:
        """Append a plain message; None if it must take the long way.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
        """
        since = self.lock_since_ms
        if not are_inert((message,)):
            return None
        if since and self._now_ns() // _NS_PER_MS - since > self.busy_ms:
            return None
        return self._append_locked(
            slot,
            frame,
            lambda buffer, at, places: append(buffer, at, message, frame, places[2], *places),
        )

    def append_fields(
        self, fields: Any, slot: Any, frame: RecordFrame, edits: PropertyEdits, may_wait: bool
    ) -> Any:
        """Append the message that a client's fields describe; None if it must take the long way.

        None too, without `may_wait`, if another thread has the lock.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
        """
        since = self.lock_since_ms
        if since and self._now_ns() // _NS_PER_MS - since > self.busy_ms:
            return None
        # Why looked at first: a lock that is taken in any way but by `with` can be left taken by an
        # exception. A thread that takes it in between is waited for.
        if not may_wait and self._lock.locked():
            return None
        return self._append_locked(
            slot,
            frame,
            lambda buffer, at, places: append_fields(buffer, at, fields, frame, edits, *places),
        )

    def _append_locked(self, slot: Any, frame: RecordFrame, write: _Write) -> Any:
        started = perf_counter_ns()
        with self._lock:
            locked = perf_counter_ns()
            try:
                receipt = self._append_now(slot, frame, write)
            finally:
                self.lock_since_ms = 0
            self.lock_ns = locked - started
            self.copy_ns = perf_counter_ns() - locked
        if self.lock_ns + self.copy_ns > _SLOW_NS and receipt is not None:
            self._on_slow(self.lock_ns, self.copy_ns)
        return receipt

    def _append_now(self, slot: Any, frame: RecordFrame, write: _Write) -> Any:
        file = self._file
        if file is None:
            return None
        self.lock_since_ms = now = self._now_ns() // _NS_PER_MS
        at = file.wrote
        if not 0 <= at <= len(file.buffer) - layout.BLANK_HEADER_SIZE:
            return None
        place = self._base + at
        queue_offset = slot.next_offset
        size = write(file.buffer, at, (queue_offset, place, now))
        if size <= 0:
            return None
        receipt = self._receipt(self._ok, queue_offset, place, now, size, 1, frame.store_host)
        # Order: the bytes are there before their end moves.
        set_together(
            (
                (file, "wrote", at + size),
                (file, "store_timestamp", now),
                (slot, "next_offset", queue_offset + 1),
            )
        )
        if at + size > self.ahead_at:
            self._on_ahead()
        return receipt
