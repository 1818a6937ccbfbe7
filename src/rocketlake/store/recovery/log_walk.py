"""The walk of recovery over the last files of a log: its end, and facts about its last records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from rocketlake.files.store_dir import StoreDir
from rocketlake.format import layout
from rocketlake.format.dispatch import key_entries
from rocketlake.format.record import Check, RecordColumns
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import WINDOW, Chunk, LogView, Readers
from rocketlake.store.recovery.log_end import Begin, Tail, find_end
from rocketlake.store.recovery.missing_records import UnheldRecords

_KEYED_LOOK_MAX: Final = 4096  # records at the end among which one with a key is looked for
_ZEROS: Final = bytes(WINDOW)


@contextmanager
def viewed(directory: StoreDir, file_size: int) -> Iterator[LogView]:
    """Open the log of an open store for reading, as another process does; nothing is reported."""
    readers = Readers(directory.ops)
    try:
        view = LogView(directory, readers, Damage(None))
        view.refresh(file_size)
        yield view
    finally:
        readers.close()


class LogWalk(Struct, frozen=True, kw_only=True):
    """The end of a log, and facts about the records before it."""

    tail: Tail
    last_record: int
    """Where the last good record begins; -1 if there is none."""
    last_timestamp: int
    """Its store time; 0 if there is none."""
    last_keyed: int
    """Where the last record begins that the index must know; -1 if none of the last has a key."""


class LogWalker:
    """Walks from a file to the end of the log, and shows all records to `unheld`."""

    def __init__(self, unheld: UnheldRecords) -> None:
        self._unheld = unheld
        self._last: RecordColumns | None = None
        self._before: RecordColumns | None = None

    def walk(
        self,
        log: LogView,
        begin: Begin,
        checks: Check,
        on_bytes: Callable[[int], None],
        *,
        is_clean: bool,
    ) -> LogWalk:
        """Walk to the first bytes that are not a good record."""
        # Why without `recheck_end`: nothing is appended while a store is recovered.
        tail = find_end(log, begin, checks, on_bytes, on_chunk=self._take, after_crash=not is_clean)
        last = self._last_before(tail.end_offset)
        return LogWalk(
            tail=tail,
            last_record=int(last["physical_offset"][-1]) if last is not None else -1,
            last_timestamp=int(last["store_timestamp"][-1]) if last is not None else 0,
            last_keyed=_last_keyed(last) if last is not None else -1,
        )

    def _take(self, chunk: Chunk) -> None:
        self._unheld.add(chunk.columns)
        self._before, self._last = self._last, chunk.columns

    def _last_before(self, end: int) -> RecordColumns | None:
        """Return the last records of the log, which may end before the last one that was read."""
        for columns in (self._last, self._before):
            if columns is not None and columns["physical_offset"][0] < end:
                return RecordColumns(columns.buffer, columns.rows[columns["physical_offset"] < end])
        return None


def _last_keyed(columns: RecordColumns) -> int:
    last = RecordColumns(columns.buffer, columns.rows[-_KEYED_LOOK_MAX:])
    _, rows = key_entries(last)
    return int(last["physical_offset"][rows[-1]]) if len(rows) else -1


def written_end(log: LogView, tail: Tail, *, is_clean: bool, held_to: int) -> int:
    """Return the offset behind the last byte that is not zero, or the end of the log.

    After a clean stop zeros follow where nothing bad ended the log, unless queues hold records
    behind it (`held_to`): only files behind it are looked at, if they begin with something. A power
    cut may take a page and leave the next.
    """
    for file in reversed(log.files):
        limit = file.base_offset + file.size
        if limit <= tail.end_offset:
            break
        begin = max(file.base_offset, tail.end_offset)
        if is_clean:
            is_last = file.base_offset <= tail.end_offset
            if is_last:
                is_zero = tail.stop_is_ordinary and held_to <= tail.end_offset
            else:
                is_zero = _is_zero(log.read(begin, WINDOW))
            if is_zero:
                continue
        found = _last_byte(log, begin, limit)
        if found > begin:
            return found
    return tail.end_offset


def _last_byte(log: LogView, begin: int, limit: int) -> int:
    """Return the offset behind the last byte of a range in one file that is not zero."""
    for first, stop in reversed(log.written_ranges(begin, limit)):
        end = stop
        while end > first:
            start = max(first, end - WINDOW)
            data = log.read(start, end - start)
            if not _is_zero(data):
                return start + len(data.rstrip(b"\0"))
            end = start
    return begin


def _is_zero(data: bytes) -> bool:
    return data == _ZEROS[: len(data)]


def is_blank_at(log: LogView, offset: int) -> bool:
    """Tell whether the filler at the end of a file begins here."""
    head = log.read(offset, layout.BLANK_HEADER_SIZE)
    return int.from_bytes(head[4:8], "big", signed=True) == layout.MAGIC_BLANK
