"""The records of one file of a log, in order, past bad bytes between them."""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from msgspec import Struct

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import layout
from rocketlake.format.record import RecordColumns, StopReason, reason_text, scan
from rocketlake.store.disk.log import Readers
from rocketlake.store.disk.record_search import MAGICS, next_record
from rocketlake.store.disk.search_budget import SearchBudget

# Why: small enough that what a scan has just read is still in the processor's cache when the
# records are looked at again, and large enough for few calls.
WINDOW: Final = 1 << 20
_ROWS_MAX: Final = 65_536


class BadPart(Struct, frozen=True):
    """A range of bytes that are not good records, and why."""

    begin: int
    end: int
    reason: StopReason
    has_record_behind: bool
    """Whether a good record begins at the end, in the same file, or its blank record."""
    written_end: int
    """Behind the last byte that is not zero."""


class WalkedLog(Protocol):
    """What a walk must know of a log: a Layout, or less."""

    @property
    def log_files(self) -> list[OffsetFile]:
        """The files, in order."""
        ...

    @property
    def log_file_size(self) -> int:
        """How large a file is."""
        ...

    @property
    def held_by(self) -> int | None:
        """The process that has the store open; None if none has."""
        ...

    @property
    def checks(self) -> int:
        """What a good record must pass."""
        ...

    def room(self, number: int) -> int:
        """Return how many bytes of a file count."""
        ...


class LogFileWalk:
    """Walks one file; behind bad bytes it goes on with the next record that claims its place.

    Afterwards `end` and `stop` are where and why the records end, `bad` the parts between them.
    """

    def __init__(
        self,
        store: WalkedLog,
        number: int,
        readers: Readers,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self._store = store
        self._file = store.log_files[number]
        self._limit = self._file.base_offset + store.room(number)
        self._readers = readers
        self._on_bytes = on_bytes
        self._budget = SearchBudget(store.room(number))
        self.begin = self.end = self._file.base_offset
        self.stop = StopReason.END_OF_DATA
        self.bad: list[BadPart] = []

    def records(self) -> Iterator[RecordColumns]:
        """Yield the good records in order, and collect the bad parts between them."""
        offset = self.begin
        doubted = -1
        while offset < self._limit:
            buffer = self._read(offset)
            position = 0
            reason = StopReason.OK
            while reason is StopReason.OK:
                found = scan(
                    buffer,
                    position,
                    base_offset=offset,
                    checks=self._store.checks,
                    rows_max=_ROWS_MAX,
                )
                reason, position = found.reason, found.position
                if len(found.columns):
                    yield found.columns
            self._advance(position)
            offset += position
            if self._is_cut_by_window(offset, buffer, position, reason):
                continue
            self.end, self.stop = offset, reason
            if reason is StopReason.END_OF_FILE or offset >= self._limit:
                return
            if reason is StopReason.END_OF_DATA and not self._goes_on_behind_zeros(offset):
                return
            if doubted != offset and self._store.held_by is not None:
                doubted = offset  # a running broker may be writing it: look once more
                continue
            offset = self._pass_bad(offset, reason)

    def _read(self, offset: int) -> bytes:
        """Return the bytes from an offset on: a window, or one record if that is larger."""
        position = offset - self._file.base_offset
        left = self._limit - offset
        data = self._readers.read(self._file.path, position, min(WINDOW, left))
        size = int.from_bytes(data[:4], "big", signed=True)
        magic = data[4:8]
        if len(data) < size <= left and magic in MAGICS:
            data = self._readers.read(self._file.path, position, size)
        return data

    def _is_cut_by_window(
        self, offset: int, buffer: bytes, position: int, reason: StopReason
    ) -> bool:
        """Tell whether only the window ended, so that reading on at the offset gives more."""
        if position == 0 or offset - position + len(buffer) >= self._limit:
            return False
        left = len(buffer) - position
        return reason is StopReason.TORN or left < layout.BLANK_HEADER_SIZE

    def _advance(self, count: int) -> None:
        if self._on_bytes is not None and count:
            self._on_bytes(count)

    def _pass_bad(self, offset: int, reason: StopReason) -> int:
        """Note bad bytes and return where the next good record begins, or the limit."""
        following = self._blank_behind(offset) or self._next_good(offset)
        found = following is not None
        end = self._limit if following is None else following
        written = end if found else self.last_written(offset)
        self.bad.append(BadPart(offset, end, reason, found, written))
        self._advance(end - offset)
        return end

    def _blank_behind(self, offset: int) -> int | None:
        """Return where the file's blank record begins, if it is just behind a damaged record."""
        base = self._file.base_offset
        head = self._readers.read(self._file.path, offset - base, 4)
        following = offset + max(int.from_bytes(head, "big", signed=True), 0)
        if following <= offset or following + layout.BLANK_HEADER_SIZE > self._limit:
            return None
        head = self._readers.read(self._file.path, following - base, layout.BLANK_HEADER_SIZE)
        left = (self._store.log_file_size - (following - base)).to_bytes(4, "big", signed=True)
        is_blank = head == left + layout.MAGIC_BLANK.to_bytes(4, "big", signed=True)
        return following if is_blank else None

    def last_written(self, offset: int) -> int:
        """Return the offset behind the last byte of the file that is not zero, or this offset."""
        base = self._file.base_offset
        end = offset
        while offset < self._limit:
            wanted = min(WINDOW, self._limit - offset)
            data = self._readers.read(self._file.path, offset - base, wanted)
            if not data:
                break
            used = len(data.rstrip(b"\0"))
            end = offset + used if used else end
            offset += len(data)
        return end

    def _goes_on_behind_zeros(self, offset: int) -> bool:
        """Tell whether a good record lies behind zeros, which are the ordinary end of a log.

        A running broker may have written it since.
        """
        return self._store.held_by is None and self._next_good(offset) is not None

    def _next_good(self, offset: int) -> int | None:
        """Return the first well-formed record behind an offset that claims its very place."""
        path, base = self._file.path, self._file.base_offset
        ranges = self._readers.ranges(path, offset + 1 - base, self._limit - base)
        return next_record(
            lambda at, size: self._readers.read(path, at - base, size),
            ((base + first, base + last) for first, last in ranges),
            (offset + 1, self._limit),
            checks=self._store.checks,
            budget=self._budget,
        )


def bad_text(part: BadPart) -> str:
    """Return text on what is wrong with a part of the log."""
    text = reason_text(part.reason)
    return f"{text}; records go on at {part.end}" if part.has_record_behind else text
