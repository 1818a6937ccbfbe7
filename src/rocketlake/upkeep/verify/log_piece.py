"""One file of the log: every record by itself, then against its queues and the index.

Everything about many records is done in columns, window by window: the memory it takes does not
grow with the file.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format.dispatch import key_and_tag_entries
from rocketlake.format.record import Check, RecordColumns, StopReason
from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.key_cursor import KeyCursor, KeyReport, Keys
from rocketlake.upkeep.verify.log_file_walk import WINDOW, BadPart, LogFileWalk
from rocketlake.upkeep.verify.queue_check import UnitCheck, UnitReport
from rocketlake.upkeep.verify.record_checks import RecordChecks
from rocketlake.upkeep.verify.store_layout import Layout


class LogReport(Struct, kw_only=True):
    """What a file of the log holds, and what is wrong with it."""

    number: int
    end: int = 0
    """The offset behind the file's last good record."""
    stop: StopReason = StopReason.OK
    """Why the records end there."""
    records: int = 0
    bytes: int = 0
    keys: int = 0
    max_timestamp: int = 0
    bad: list[BadPart] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    rest_position: int = -1
    """The first byte that is not zero behind the records; -1 if all are."""
    rest_end: int = -1
    """The offset behind the last such byte."""
    has_bad_blank: bool = False
    """The blank record at the end does not reach to the end of the file."""
    units: UnitReport = field(default_factory=UnitReport)
    index: KeyReport = field(default_factory=KeyReport)


def check_log_file(
    store: Layout,
    number: int,
    index_start: tuple[int, int] = (0, 1),
    *,
    on_bytes: Callable[[int], None] | None = None,
    ops: FileOps | None = None,
) -> LogReport:
    """Check one file; `index_start` is the index file and entry its keys begin with."""
    readers = Readers(ops or PosixFileOps())
    try:
        cursor = None
        if store.index and "index" in store.what:
            cursor = KeyCursor(store.index, readers, index_start)
        return _LogPiece(store, number, readers, cursor).run(on_bytes)
    finally:
        readers.close()


class _LogPiece:
    def __init__(
        self, store: Layout, number: int, readers: Readers, keys: KeyCursor | None
    ) -> None:
        self._store = store
        self._file = store.log_files[number]
        self._limit = self._file.base_offset + store.room(number)
        self._readers = readers
        self._on_bytes: Callable[[int], None] | None = None
        self._report = LogReport(number=number)
        self._checks = RecordChecks(
            str(self._file.path),
            self._file.base_offset,
            has_checksums=bool(store.checks & (Check.RECORD_CRC | Check.RECORD_CRC_REQUIRED)),
        )
        self._units = UnitCheck(store, readers, self._file) if "queues" in store.what else None
        self._keys = keys
        self._has_index = "index" in store.what

    def run(self, on_bytes: Callable[[int], None] | None) -> LogReport:
        self._on_bytes = on_bytes
        report = self._report
        walk = LogFileWalk(self._store, report.number, self._readers, on_bytes)
        bad = 0
        for columns in walk.records():
            if len(walk.bad) > bad:
                bad = len(walk.bad)
                self._pass_bad(walk.bad[-1])
            self._take(columns)
        report.end, report.stop, report.bad = walk.end, walk.stop, walk.bad
        if self._units is not None:
            report.units = self._units.finish()
        if self._keys is not None:
            report.index = self._keys.finish()
        self._check_end(walk)
        return report

    def _take(self, columns: RecordColumns) -> None:
        report = self._report
        first, last = columns.rows[0], columns.rows[-1]
        report.records += len(columns)
        report.bytes += int(last["position"] + last["size"] - first["position"])
        report.faults += self._checks.look_at(columns)
        report.max_timestamp = self._checks.newest
        if self._units is not None:
            self._units.take(columns)
        if self._has_index:
            self._take_keys(columns)

    def _pass_bad(self, part: BadPart) -> None:
        self._checks.forget()
        if self._keys is not None:
            self._keys.skip_to(part.end)

    def _take_keys(self, columns: RecordColumns) -> None:
        hashes, rows, is_tag = key_and_tag_entries(columns)
        self._report.keys += int(np.count_nonzero(~is_tag))
        if self._keys is not None and len(hashes):
            places, times = columns["physical_offset"][rows], columns["store_timestamp"][rows]
            self._keys.take(Keys(hashes, places, times, is_tag))

    # --- the end of the file -------------------------------------------------------------------

    def _advance(self, count: int) -> None:
        if self._on_bytes is not None:
            self._on_bytes(count)

    def _check_end(self, walk: LogFileWalk) -> None:
        report = self._report
        if report.stop is StopReason.END_OF_FILE:
            self._check_blank()
        elif report.stop is StopReason.END_OF_DATA:
            report.rest_position = self._first_written(report.end)
            if report.rest_position >= 0:
                report.rest_end = walk.last_written(report.end)

    def _check_blank(self) -> None:
        """A blank record reaches to the end of its file."""
        position = self._report.end - self._file.base_offset
        data = self._readers.read(self._file.path, position, 4)
        size = int.from_bytes(data, "big", signed=True)
        left = self._store.log_file_size - position
        if size != left:
            reason = f"the blank record says {size} bytes, but the file has {left} left"
            fault = Fault(str(self._file.path), position, reason, kind=Kind.RECORD, about="log")
            self._report.faults.append(fault)
            self._report.has_bad_blank = True

    def _first_written(self, offset: int) -> int:
        """Return the position of the first byte behind an offset that is not zero; -1 if none."""
        position = offset - self._file.base_offset
        end = self._limit - self._file.base_offset
        while position < end:
            data = self._readers.read(self._file.path, position, min(WINDOW, end - position))
            if not data:
                return -1
            self._advance(len(data))
            written = first_nonzero(data)
            if written >= 0:
                return position + written
            position += len(data)
        return -1


def first_nonzero(data: bytes) -> int:
    """Return the position of the first byte that is not zero; -1 if all are."""
    whole = len(data) // 8 * 8
    if not np.frombuffer(data, np.uint64, whole // 8).any() and not any(data[whole:]):
        return -1
    found: npt.NDArray[np.intp] = np.flatnonzero(np.frombuffer(data, np.uint8))
    return int(found[0])
