"""MessageWalk: the messages of a read of several files, or with a filter that reads bits."""

from typing import Final

from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format import layout
from rocketlake.format.record import Check, ReadStop, StoredMessage, read_units
from rocketlake.model import properties as names
from rocketlake.store.api import GetRequest, GetStatus
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.queue.queue_set import AnyQueue
from rocketlake.store.read.rules import Limits, ReadRules
from rocketlake.store.read.unit_walk import (
    LogPart,
    Taken,
    Unit,
    UnitWalk,
    may_match,
)

_CHECKS: Final = int(Check.BODY_CRC | Check.OFFSET)


class MessageWalk(UnitWalk):
    """Makes messages of records, and filters them."""

    __slots__ = ("message_filter", "messages")

    def __init__(
        self, log: CommitLog, queue: AnyQueue, rules: ReadRules, request: GetRequest, *, high: int
    ) -> None:
        super().__init__(log, queue, rules, request, high=high)
        self.messages: list[StoredMessage] = []
        self.message_filter: MessageFilter | None = None

    @property
    def has_found(self) -> bool:
        """Whether there are messages."""
        return bool(self.messages)

    def take(self, units: memoryview, index: int, part: LogPart, limits: Limits) -> Taken:
        """Append the messages that are wanted."""
        wanted = self.message_filter
        stop_offset = self.stop_offset
        if wanted is not None and wanted.reads_bits:
            # Each unit is shown to the filter first, so they are read one by one.
            unit = self.unit(units, index)
            if self.is_full(unit):
                return Taken(0, ReadStop.FULL, 0)
            if not self.may_want(unit):
                self.next_offset = unit.number + unit.message_count
                return Taken(1, ReadStop.OUTSIDE, 0)
            stop_offset = unit.number + 1
        found = self.messages if wanted is None else []
        looked, stop, damage, self.next_offset, count, size = read_units(
            found,
            units,
            index,
            self.unit_size,
            self.next_offset,
            stop_offset,
            part.view,
            len(part.view),
            part.begin,
            part.end,
            _CHECKS,
            wanted.hashes if wanted else None,
            (self.count, self.size, limits.count_max, limits.count_stop, limits.size_max),
            part.may_wait,
        )
        if wanted is None:
            self.count, self.size = count, size
            return Taken(looked, stop, damage)
        is_all_kept = self._keep(found, wanted)
        if looked and not self.messages:
            self.status = GetStatus.NO_MATCHED_MESSAGE
        is_full = stop == ReadStop.FULL and (is_all_kept or not looked)
        is_end = stop == ReadStop.END and stop_offset == self.stop_offset
        goes_on = stop != ReadStop.DAMAGED and not is_full and not is_end
        return Taken(looked, ReadStop.OUTSIDE if goes_on else stop, damage)

    def _keep(self, found: list[StoredMessage], wanted: MessageFilter) -> bool:
        """Append the messages that pass the filter; return whether all were examined."""
        kept = [message for message in found if wanted.matches(message)]
        self.messages += kept
        self.count += sum(map(self._message_count, kept))
        self.size += sum(message.store_size for message in kept)
        return len(kept) == len(found)

    def _message_count(self, message: StoredMessage) -> int:
        """Return how many messages a record of this queue stands for."""
        if self.unit_size != layout.BATCH_UNIT_SIZE:
            return 1
        text = message.properties.get(names.INNER_NUM, "")
        return int(text) if text.isdecimal() else 1

    def may_want(self, unit: Unit) -> bool:
        """Ask the filter."""
        wanted = self.message_filter
        return wanted is None or may_match(self._queue, unit.tags_code, wanted)
