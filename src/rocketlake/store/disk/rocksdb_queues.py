"""Consume queues that RocketMQ keeps in RocksDB, with the interface of queues that are files.

A queue ends behind its last unit, or where the table of bounds says if all its units are gone. It
begins with the first unit whose message the log still holds: the broker drops older ones when
RocksDB compacts, so that some of them may be there and some not.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rocketlake.files.rocksdb import Database
from rocketlake.format import layout
from rocketlake.format.rocksdb_keys import (
    BOUNDS,
    UNITS,
    parse_end,
    parse_unit_key,
    queue_prefix,
    unit_key,
    unit_of,
)
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import can_name_queues
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import Readers
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.queue.unit_kind import PLAIN, QUEUE_OFFSET_MAX


def load_queues(
    database: Database, readers: Readers, log_min: int
) -> Iterator[tuple[QueueKey, QueueView]]:
    """Yield the queues of a database by key.

    Raises:
        RocksDbError: the database is damaged.
    """
    ends = dict(_ends(database))
    for key in _queues_with_units(database):
        ends.setdefault(key, 0)
    for key, end in sorted(ends.items()):
        if can_name_queues(key.topic):
            queue = RocksDbQueue(key, readers, database)
            queue.load_from(end, log_min)
            yield key, queue


class RocksDbQueue(QueueView):
    """One queue in RocksDB. A unit's index is its queue offset."""

    def __init__(self, key: QueueKey, readers: Readers, database: Database) -> None:
        super().__init__(key, PLAIN, readers, [])
        self._database = database

    def load_from(self, known_end: int, log_min: int) -> None:
        """Find the bounds; `known_end` is what the table of bounds says, 0 if nothing."""
        first, last = unit_key(self.key, 0), unit_key(self.key, QUEUE_OFFSET_MAX)
        found = self._database.last(UNITS, first, last)
        parsed = parse_unit_key(found[0]) if found is not None else None
        end = known_end
        if found is not None and parsed is not None:
            unit = self.kind.decode(unit_of(found[1]) or b"")
            is_held = len(unit) and int(unit["physical_offset"][0]) >= log_min
            # Why: after a crash the table may have come further than the units, which the log has.
            end = parsed[1] + 1 if is_held else max(end, parsed[1] + 1)
        low, high = self._first_offset(end), end
        self.first_index, self.end_index = low, end
        while low < high:
            middle = (low + high) // 2
            unit = self._disk_units(middle, 1)
            if len(unit) and int(unit["physical_offset"][0]) >= log_min:
                high = middle
            else:
                low = middle + 1
        self.first_index = low
        self._find_max_physical()

    def next_held(self, index: int) -> int:
        """Return the first unit at an index or behind it."""
        if index >= self.end_index:
            return index
        return min(self._first_offset(self.end_index, index), self.end_index)

    def _first_offset(self, otherwise: int, at_least: int = 0) -> int:
        """Return the queue offset of the first unit from an offset on."""
        begin = unit_key(self.key, at_least)
        end = unit_key(self.key, QUEUE_OFFSET_MAX)
        for key, _ in self._database.items(UNITS, begin, end):
            parsed = parse_unit_key(key)
            return otherwise if parsed is None else parsed[1]
        return otherwise

    def _report_behind(self, dropped: int, damage: Damage) -> None:
        text = f"{dropped} units of {self.key} point behind the end of the log"
        damage.report(self._database.path, 0, text, messages=dropped)

    def _pass_over(self, index: int, damage: Damage) -> int:
        if index >= self.end_index:
            return self.first_index + self.total
        held = self.next_held(index + 1)
        text = f"units of {self.key} from {index} to {held} are not in the database"
        damage.report(self._database.path, 0, text)
        return held

    def _disk_units(self, index: int, count: int) -> npt.NDArray[np.void]:
        """Return units that follow each other; fewer where one is missing."""
        if count == 1:
            value = self._database.get(UNITS, unit_key(self.key, index))
            unit = unit_of(value) if value is not None else None
            return self.kind.decode(unit or b"")
        units = bytearray()
        begin, end = unit_key(self.key, index), unit_key(self.key, index + count)
        for key, value in self._database.items(UNITS, begin, end):
            unit = unit_of(value)
            if unit is None or key != unit_key(self.key, index + len(units) // layout.UNIT_SIZE):
                break
            units += unit
        return self.kind.decode(bytes(units))


def _ends(database: Database) -> Iterator[tuple[QueueKey, int]]:
    for key, value in database.items(BOUNDS):
        parsed = parse_end(key, value)
        if parsed is not None and parsed[1] <= QUEUE_OFFSET_MAX:
            yield parsed


def _queues_with_units(database: Database) -> Iterator[QueueKey]:
    """Yield the queues that have units, stepping from one queue to the next."""
    at = b""
    while True:
        step = next(database.items(UNITS, at), None)
        if step is None:
            return
        parsed = parse_unit_key(step[0])
        if parsed is None:
            at = step[0] + b"\0"
            continue
        yield parsed[0]
        at = queue_prefix(parsed[0]) + b"\xff" * 9  # behind every unit of the queue
