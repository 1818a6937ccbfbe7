"""One read of a queue: from its units to the records they point to, file by file.

A walk knows when it is full, what is missing and what is damaged; its subclasses take the good
records.
"""

from abc import ABC, abstractmethod
from struct import Struct as Layout
from typing import ClassVar, Final, NamedTuple

from rocketlake.errors import FileAccessError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.slice import Slice
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format import layout
from rocketlake.format.queue_unit import is_ext_address
from rocketlake.format.record import ReadStop, reason_text
from rocketlake.store.api import CorruptUnit, GetRequest, GetStatus, Gone
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.queue.queue_set import AnyQueue
from rocketlake.store.read.rules import Limits, ReadRules

_UNIT: Final = Layout(">qiq")  # physical_offset, size, tags_code
_NUMBERS: Final = Layout(">qh")  # base_queue_offset, batch_size
_NUMBERS_AT: Final = 28
_OFFSET: Final = Layout(">q")
_FILES_MAX: Final = 1 << 30


def may_match(queue: AnyQueue, tags_code: int, wanted: MessageFilter) -> bool:
    """Apply a filter to a unit of a queue, with its extension unit if it has one."""
    if not is_ext_address(tags_code):
        return wanted.may_match(tags_code, None)
    bits = queue.ext_unit(tags_code)
    return wanted.may_match(None if bits is None else bits.tags_code, bits)


class Unit(NamedTuple):
    """One unit, with the number it stands for and how many messages that is."""

    physical_offset: int
    size: int
    tags_code: int
    number: int
    message_count: int


class OneFile(NamedTuple):
    """Where the units of a read begin, and the log file that the first of them points into."""

    units: memoryview
    first: int
    file: MappedFile


def find_one_file(log: CommitLog, queue: AnyQueue, offset: int, window: int) -> OneFile | None:
    """Find what most reads need: one file of a plain queue and one of the log, in memory.

    None if the log's file may not be in memory, or a file is going away.

    Raises:
        FileAccessError, ValueError: a file went away right now.
    """
    at = offset * layout.UNIT_SIZE
    unit_file = queue.files.find(at)
    if unit_file is None or not unit_file.is_available:
        return None
    units = unit_file.map()
    at -= unit_file.base_offset
    (physical_offset,) = _OFFSET.unpack_from(units, at)
    file = log.files.find(physical_offset)
    if file is None or not file.is_available:
        return None
    last = log.files.files[-1]
    if last.base_offset + last.size - physical_offset > window:
        return None
    return OneFile(units, at // layout.UNIT_SIZE, file)


class LogPart(NamedTuple):
    """Bytes of a log file, and which physical offsets of it are meant."""

    view: memoryview
    begin: int
    end: int
    may_wait: bool
    """Whether bytes may have to come from the disk."""


class Taken(NamedTuple):
    """How far a kernel call came: units, a ReadStop, and the StopReason of a damaged record."""

    looked: int
    stop: int
    damage: int


class UnitWalk(ABC):
    """The state of one read.

    Thread-safety: one thread. Files are held only while they are looked at.
    """

    __slots__ = (
        "corrupt", "count", "gone", "next_offset", "size", "status", "stop_offset", "unit_size",
        "_files", "_high", "_is_full", "_is_large", "_last_physical", "_limits", "_log_max",
        "_queue", "_request", "_rules",
    )  # fmt: skip

    def __init__(
        self, log: CommitLog, queue: AnyQueue, rules: ReadRules, request: GetRequest, *, high: int
    ) -> None:
        """Begin at the offset asked for, which the queue has; `high` is its end."""
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.count = 0
        self.size = 0
        self.corrupt: list[CorruptUnit] = []
        self.gone: list[Gone] = []
        self.next_offset = request.offset
        self.unit_size = layout.BATCH_UNIT_SIZE if queue.is_batch else layout.UNIT_SIZE
        self.stop_offset = min(rules.stop_offset(request, self.unit_size), high)
        self._files = log.files
        self._log_max = log_max = log.max_offset
        self._queue = queue
        self._rules = rules
        self._request = request
        self._high = high
        self._is_full = False
        self._is_large = log_max > rules.window
        self._last_physical = 0
        self._limits = rules.limits(request, is_in_memory=True)

    goes_on: ClassVar[bool] = True
    """Whether more can be added to what was found in one file."""

    @property
    @abstractmethod
    def has_found(self) -> bool:
        """Whether there is something to return."""

    @abstractmethod
    def take(self, units: memoryview, index: int, part: LogPart, limits: Limits) -> Taken:
        """Read the records of units, from an index on, that are in a part of the log.

        Moves `next_offset`, `count` and `size`. The stop OUTSIDE has the walk go on.
        """

    @abstractmethod
    def may_want(self, unit: Unit) -> bool:
        """Tell whether a unit leads to something that is wanted, as far as it can be known."""

    def run(self) -> None:
        """Read until there is enough, or as many units and files of the queue as are allowed.

        What is not limited goes on in the next file, with what was found in the one before.
        """
        is_limited = self._request.is_limited
        for _ in range(self._rules.files_max if is_limited else _FILES_MAX):
            if self._is_full or self.next_offset >= self.stop_offset:
                return
            if self.has_found and (is_limited or not self.goes_on):
                return
            before = self.next_offset
            held = self._queue.slice(self.next_offset)
            if held is None:
                self.status = GetStatus.OFFSET_FOUND_NULL
                self.next_offset = self._rules.correct(
                    self.next_offset, self._queue.roll_next(self.next_offset)
                )
                self._note_gone(before)
                return
            with held:
                looked = self._walk(held.view)
                if self.next_offset == before:
                    return
                if self._is_large and looked:
                    self._last_physical = self.unit(held.view, looked - 1).physical_offset

    def is_behind(self) -> bool:
        """Whether the last unit looked at leads so far back that it is not in memory any more."""
        return self._is_large and self._log_max - self._last_physical > self._rules.window

    def unit(self, units: memoryview, index: int) -> Unit:
        """Return one unit; a plain one has the number that is next."""
        at = index * self.unit_size
        physical_offset, size, tags_code = _UNIT.unpack_from(units, at)
        number, messages = self.next_offset, 1
        if self.unit_size == layout.BATCH_UNIT_SIZE:
            number, messages = _NUMBERS.unpack_from(units, at + _NUMBERS_AT)
        return Unit(physical_offset, size, tags_code, number, max(messages, 1))

    def is_full(self, unit: Unit) -> bool:
        """Tell whether the message of a unit would be too much; the first never is."""
        if self.count == 0:
            return False
        limits = self._limits_for(is_in_memory=self._is_in_memory(unit.physical_offset))
        return (
            self.count + unit.message_count > limits.count_max
            or self.count >= limits.count_stop
            or self.size + unit.size > limits.size_max
        )

    # --- private ---------------------------------------------------------------------------------

    def _walk(self, units: memoryview) -> int:
        """Go through the units of one file; return how many were looked at."""
        index, end = 0, len(units) // self.unit_size
        while index < end and self.next_offset < self.stop_offset:
            (physical_offset,) = _OFFSET.unpack_from(units, index * self.unit_size)
            file = self._files.find(physical_offset)
            held = None if file is None else _slice(file, physical_offset - file.base_offset)
            if file is None or held is None:
                passed = self._pass_missing(units, index)
                if not passed:
                    self._is_full = True
                    break
                index += passed
                continue
            with held:
                looked, stop, damage = self._take(units, index, held, file)
            index += looked
            if stop == ReadStop.DAMAGED:
                self._step_over(self.unit(units, index), file, damage)
                index += 1
            elif stop != ReadStop.OUTSIDE:
                self._is_full = stop == ReadStop.FULL
                break
        return index

    def _take(self, units: memoryview, index: int, held: Slice, file: MappedFile) -> Taken:
        begin = held.start_offset
        end = begin + held.size
        is_in_memory = True
        if self._is_large:
            is_in_memory = self._is_in_memory(begin)
            if self._request.is_limited and not is_in_memory:
                end = min(end, self._log_max - self._rules.window)  # other limits hold from there
        # What this process has not written may never have been in memory.
        may_wait = not is_in_memory or file.store_timestamp == 0
        part = LogPart(held.view, begin, end, may_wait)
        return self.take(units, index, part, self._limits_for(is_in_memory=is_in_memory))

    def _pass_missing(self, units: memoryview, index: int) -> int:
        """Pass over units whose records no file holds; return how many, 0 if the read is full."""
        unit = self.unit(units, index)
        if self.is_full(unit):
            return 0
        self.next_offset = unit.number + unit.message_count
        if not 0 <= unit.physical_offset < self._log_max:
            self._report(unit, None, "the unit points behind the end of the log")
            return 1
        if not self.may_want(unit):
            self._note(GetStatus.NO_MATCHED_MESSAGE)
            return 1
        self._note(GetStatus.MESSAGE_WAS_REMOVING)
        file_size = self._files.file_size
        file_end = unit.physical_offset - unit.physical_offset % file_size + file_size
        passed = 1 + self._pass_below(units, index + 1, file_end)
        self._note_gone(unit.number)
        return passed

    def _pass_below(self, units: memoryview, start: int, file_end: int) -> int:
        """Pass over the units of a log file that is gone; return how many."""
        index, end = start, len(units) // self.unit_size
        while index < end and self.next_offset < self.stop_offset:
            unit = self.unit(units, index)
            if unit.physical_offset >= file_end or self.is_full(unit):
                break
            self.next_offset = unit.number + unit.message_count
            index += 1
        return index - start

    def _note_gone(self, first: int) -> None:
        """Remember that messages from one on up to the next are gone; what is adjacent is one."""
        if self.next_offset > first:
            if self.gone and self.gone[-1].end == first:
                first = self.gone.pop().first
            self.gone.append(Gone(first, self.next_offset))

    def _step_over(self, unit: Unit, file: MappedFile, damage: int) -> None:
        """Pass over a unit whose record is not good."""
        self.next_offset = unit.number + unit.message_count
        if unit.physical_offset == 0 and unit.size == layout.PREFILL_SIZE:
            self._note(GetStatus.MESSAGE_WAS_REMOVING)  # its queue never held that message
        else:
            self._report(unit, file, reason_text(damage))

    def _report(self, unit: Unit, file: MappedFile | None, reason: str) -> None:
        position, files = unit.physical_offset, self._files.files
        path = str(files[0].path.parent) if files else ""
        if file is not None:
            path, position = str(file.path), position - file.base_offset
        self.corrupt.append(
            CorruptUnit(path=path, position=position, reason=reason, queue_offset=unit.number)
        )

    def _note(self, status: GetStatus) -> None:
        if not self.has_found:
            self.status = status

    def _is_in_memory(self, physical_offset: int) -> bool:
        return self._log_max - physical_offset <= self._rules.window

    def _limits_for(self, *, is_in_memory: bool) -> Limits:
        if is_in_memory:
            return self._limits
        return self._rules.limits(self._request, is_in_memory=False)


def _slice(file: MappedFile, position: int) -> Slice | None:
    """Return what can be read of a file; None if it is going, or has nothing there."""
    try:
        return file.slice(position)
    except FileAccessError:
        if file.last_modified_ms():
            raise
        return None  # deleted before it was mapped
