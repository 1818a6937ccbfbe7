"""PastDamageStore: a store that is read past its damage.

`OfflineStore` shows a store as a start would leave it: the log cut at the first bad record, a
queue at the first unit that is not valid. This one goes on behind both, and shows every message
whose record and unit are intact; the rest is in `damage`.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from rocketlake.format.layout import RECORD_BORN_HOST_AT, RECORD_MIN_SIZE
from rocketlake.format.record import reason_text
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import Chunk, Stop, is_record_at
from rocketlake.store.disk.queue_listing import DiskQueues
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.log.bad_records import claimed_size
from rocketlake.store.offline.gaps import Gap, walk_past
from rocketlake.store.offline.view import OfflineStore
from rocketlake.store.offline.written_end import Times, find_written_end
from rocketlake.store.recovery import log_end

_LOOK_MS: Final = 1000


class PastDamageStore(OfflineStore):
    """A store directory, read past its damage.

    Thread-safety: one thread.
    """

    _look_again_ms = 0
    _passed_in_vain = -1
    """The end of the log if what follows it is known not to count; -1: not known."""

    @cached_property
    def tail(self) -> log_end.Tail:
        """Where the log ends: behind the last record that is proven."""
        times = Times()
        found, may_go_on = self._walked_end(times.take)
        found, behind = log_end.recheck_end(self.log, found, self.checks, passes_zeros=may_go_on)
        held_to = self._dispatched if self.traits.is_clean else -1
        if behind is None and held_to <= found.end_offset:
            self._cuts_records = False
            return found
        written = find_written_end(self.log, found, self.checks, times=times, held_to=held_to)
        if found.passed is not None:
            log_end.report_cut(found, None, self.damage)
        for gap in written.gaps:
            self._report(gap)
        return written.tail

    @cached_property
    def _disk_queues(self) -> dict[QueueKey, QueueView]:
        found = super()._disk_queues
        # Why: after a clean stop the last units tell what the log had, be it lost.
        for queue in found.values() if not self.traits.is_clean else ():
            queue.hold_to_proven(self._is_whole_record)
        return found

    def _is_whole_record(self, offset: int, size: int) -> bool:
        head = self.log.read(offset, RECORD_BORN_HOST_AT)
        is_size = size >= RECORD_MIN_SIZE and claimed_size(head) == size
        return is_size and is_record_at(head, offset)

    @cached_property
    def queues(self) -> dict[QueueKey, QueueView]:
        """Every queue by topic and number, with all units that point into the log."""
        found = super().queues
        for queue in found.values():
            queue.recheck_min(self.log.min_offset)
        return found

    def _queue_loader(self) -> DiskQueues:
        return DiskQueues(
            self.directory, self._readers, self.options, self.damage, passes_damage=True
        )

    def _cut(self, queue: QueueView, end: int, damage: Damage | None) -> None:
        if queue.max_physical_offset > end:
            queue.cut_behind(end, damage)

    def _steps(self, begin: int, end: int) -> Iterator[Chunk | Stop]:
        for step in walk_past(self.log, begin, end, self.checks):
            if isinstance(step, Gap):
                self._report(step)
            else:
                yield step

    def _report(self, gap: Gap) -> None:
        if not self.log.is_expired(gap.physical_offset):
            text = f"{reason_text(gap.reason)}; {gap.size} bytes are left out"
            self.damage.report(gap.file.path, gap.file_position, text, size=gap.size)

    def refresh(self) -> bool:
        """Add what another process has written since, behind damage too."""
        if super().refresh():
            return True
        if "queues" not in self.__dict__ or not self._goes_on():
            return False
        before = self.tail.end_offset
        self._start_over()
        # Why: what stands behind may be left from before a cut, and does not count.
        self._passed_in_vain = before if self.tail.end_offset <= before else -1
        return True

    def _goes_on(self) -> bool:
        """Tell whether good records stand behind a bad one, by a look once a second at most."""
        tail, now = self.tail, self._clock.now_ms()
        end = tail.end_offset
        if end == self._passed_in_vain or now < self._look_again_ms or not self.log.has_more(end):
            return False
        step = next(iter(self.log.walk(end, checks=self.checks)), None)
        if not isinstance(step, Stop):
            return False
        self._look_again_ms = now + _LOOK_MS
        return log_end.records_behind(self.log, log_end.Tail(end, 0, step)) is not None
