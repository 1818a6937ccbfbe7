"""What recovery learns from reading the last files of a log: its end, and what was on the way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.files.store_dir import StoreDir
from rocketlake.format import layout
from rocketlake.format.dispatch import Trait, dispatch_columns, key_entries
from rocketlake.format.record import Check, RecordColumns
from rocketlake.model import flags
from rocketlake.model.queues import QueueKey
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import WINDOW, Chunk, LogView, Readers
from rocketlake.store.queue.unit_kind import QUEUE_OFFSET_MAX
from rocketlake.store.recovery import log_end as tail_rules
from rocketlake.store.recovery.log_end import Tail
from rocketlake.store.recovery.missing_records import UnheldRecords

_KEYED_LOOK_MAX: Final = 4096  # records at the end among which one with a key is looked for
_ZEROS: Final = bytes(WINDOW)
_NOT_PLAIN: Final = flags.TransactionType.PREPARED | flags.INNER_BATCH


@contextmanager
def viewed(directory: StoreDir, file_size: int) -> Iterator[LogView]:
    """Look at the log of an open store as readers of another process do; nothing is reported."""
    readers = Readers(directory.ops)
    try:
        view = LogView(directory, readers, Damage(None))
        view.refresh(file_size)
        yield view
    finally:
        readers.close()


class LogWalk(Struct, frozen=True, kw_only=True):
    """The end of a log, and what the records before it say."""

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
        begin: tail_rules.Begin,
        checks: Check,
        on_bytes: Callable[[int], None],
        *,
        is_clean: bool,
    ) -> LogWalk:
        """Go to the first thing that is no good record."""
        # Why: nobody writes while a store is recovered, so that `settle` has nothing to add.
        tail = tail_rules.find_end(
            log, begin, checks, on_bytes, on_chunk=self._take, after_crash=not is_clean
        )
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
    """Return where the last byte lies that is not zero, behind the end of a log; else that end.

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


def record_behind(log: LogView, tail: Tail) -> int | None:
    """Return where a good record lies behind the end of a log; None if none is found."""
    for file in log.files:
        if file.base_offset + file.size > tail.end_offset:
            found = tail_rules.search(log, file, max(tail.end_offset + 1, file.base_offset))
            if found is not None:
                return found
    return None


def next_offsets(
    log: LogView, start: int, end: int, deleted: DeletedTopics = NO_TOPICS
) -> dict[QueueKey, int]:
    """Return the queue offsets behind the last records of a range, by their queues.

    Records of earlier lives of `deleted` topics do not count.
    """
    found: dict[QueueKey, int] = {}
    for step in log.walk(start, end, checks=Check.OFFSET):
        if not isinstance(step, Chunk):
            continue
        columns = step.columns
        traits = dispatch_columns(columns).traits
        enters, is_special = traits & Trait.ENTERS_QUEUE != 0, traits & Trait.IS_SPECIAL != 0
        rows = deleted.later_rows(columns, *columns.topics(), np.flatnonzero(enters & ~is_special))
        rows = rows[columns["queue_offset"][rows] <= QUEUE_OFFSET_MAX]
        for key, following in _plain_ends(columns, rows):
            found[key] = max(found.get(key, 0), following)
        for row in np.flatnonzero(enters & is_special).tolist():
            message = columns.message(row)
            for seat in tail_rules.seats_of(message):
                if (
                    deleted.is_earlier(seat.key.topic, message.physical_offset)
                    or seat.queue_offset > QUEUE_OFFSET_MAX
                ):
                    continue
                following = seat.queue_offset + seat.count
                found[seat.key] = max(found.get(seat.key, 0), following)
    return found


def _plain_ends(
    columns: RecordColumns, rows: npt.NDArray[np.intp]
) -> Iterator[tuple[QueueKey, int]]:
    """Yield the queues of rows, and the highest queue offset of each and one more."""
    codes, topics = columns.topics()
    places = codes[rows].astype(np.int64) << 32 | columns["queue_id"][rows].astype(np.uint32)
    numbers, which = np.unique(places, return_inverse=True)
    ends = np.zeros(len(numbers), np.int64)
    np.maximum.at(ends, which, columns["queue_offset"][rows] + 1)
    for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
        queue_id = int(np.int32(np.uint32(number & 0xFFFFFFFF)))
        yield QueueKey(topics[number >> 32], queue_id), end


def first_offsets(
    log: LogView, start: int, end: int, deleted: DeletedTopics = NO_TOPICS
) -> dict[QueueKey, int]:
    """Return the queue offsets of the first records of a range, by their plain queues.

    Records of earlier lives of `deleted` topics do not count.
    """
    found: dict[QueueKey, int] = {}
    for step in log.walk(start, end, checks=Check.OFFSET):
        if isinstance(step, Chunk):
            found = plain_firsts(step.columns, deleted) | found
    return found


def plain_firsts(columns: RecordColumns, deleted: DeletedTopics = NO_TOPICS) -> dict[QueueKey, int]:
    """Return the queue offsets of the first of some records, by their plain queues."""
    codes, topics = columns.topics()
    places = codes.astype(np.int64) << 32 | columns["queue_id"].view(np.uint32)
    plain = (columns["sys_flag"] & _NOT_PLAIN) == 0
    rows = deleted.later_rows(columns, codes, topics, np.flatnonzero(plain))
    return {
        QueueKey(topics[codes[row]], int(columns["queue_id"][row])): int(
            columns["queue_offset"][row]
        )
        for row in rows[np.unique(places[rows], return_index=True)[1]].tolist()
    }


def is_blank_at(log: LogView, offset: int) -> bool:
    """Tell whether the filler at the end of a file begins here."""
    head = log.read(offset, layout.BLANK_HEADER_SIZE)
    return int.from_bytes(head[4:8], "big", signed=True) == layout.MAGIC_BLANK
