"""DelayServices: the hook, level scheduler and timer of one store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from rocketlake.clock import Clock
from rocketlake.delay.hook import DelayHook
from rocketlake.delay.level_scheduler import LevelRules, LevelScheduler
from rocketlake.delay.levels import DelayLevels
from rocketlake.delay.store_access import DelayStore, Usage
from rocketlake.delay.timer_files import TimerFiles
from rocketlake.delay.timer_rules import TimerRules
from rocketlake.delay.timer_store import TimerStore
from rocketlake.files.ops import FileOps
from rocketlake.format import names
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.offsets import DelayOffsets
from rocketlake.metadata.timer_metrics import TimerMetrics
from rocketlake.model.queues import QueueKey
from rocketlake.store import exit_hook
from rocketlake.store.options import BrokerRole, CompatVersion, StoreOptions
from rocketlake.store.ports import Arrival


class DelayServices:
    """The delay services of one store.

    `hook` is added to the hooks of the store, the object itself to its listeners. `start` once the
    store accepts puts; `close` before the store is closed.
    """

    def __init__(
        self, store: DelayStore, root: Path, options: StoreOptions, *, ops: FileOps, clock: Clock
    ) -> None:
        """Read the progress of an earlier run; starts nothing.

        Raises:
            StoreError: a file of an earlier run cannot be used.
        """
        self._is_replica = options.broker_role is BrokerRole.SLAVE
        self._is_forked = False
        self._forget_fork: Callable[[], None] | None = None
        version = options.compat_version
        place = TableLocation(ops, clock, root / names.CONFIG, version.is_4x, flush_log=store.sync)
        levels = DelayLevels(options.delay_levels_ms)
        usage = Usage()
        rules = LevelRules(
            levels=levels,
            flush_interval_ms=options.flush_delay_offset_interval,
            is_4x=version.is_4x,
            notes_waiting=version is not CompatVersion.V4_9,
        )
        self.levels = LevelScheduler(store, clock, DelayOffsets.load(place), rules, usage=usage)
        self.timer: TimerStore | None = None
        if options.timer_wheel_enable:
            timer_rules = TimerRules.of(options)
            self.timer = TimerStore(
                store,
                clock,
                TimerFiles(ops, clock, root, timer_rules, flush_log=store.sync),
                timer_rules,
                metrics=TimerMetrics.load(place),
                usage=usage,
            )
        self.hook = DelayHook(levels, clock, usage, timer=self.timer, is_4x=version.is_4x)

    def cap_progress(self, end_of: Callable[[QueueKey], int]) -> list[str]:
        """Set progress beyond the end of a queue to that end, on the disk; return notes.

        Called before `start` and before the first put.

        Raises:
            RocketLakeError: a table cannot be written.
        """
        notes = self.levels.cap_progress(end_of)
        return notes if self.timer is None else [*notes, *self.timer.cap_progress(end_of)]

    is_awaited: ClassVar[bool] = False
    """A message due in a second or more may be noticed some milliseconds late."""

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the services concerned (store.ports.ArrivalListener)."""
        self.levels.arrived(arrivals)
        if self.timer is not None:
            self.timer.arrived(arrivals)

    def start(self) -> None:
        """Open the files of an earlier run and begin to deliver; a replica does nothing.

        Raises:
            StoreError: a file of an earlier run cannot be used.
        """
        if self._is_replica:
            return
        self._forget_fork = exit_hook.on_fork(self._note_fork)
        if self.timer is not None:
            self.timer.load()
            self.timer.start()
        self.levels.start()

    def run_once(self) -> None:
        """Deliver all due messages in the calling thread; for programs that start no service."""
        self.levels.run_once()
        if self.timer is not None:
            self.timer.run_once()

    @property
    def behind_ms(self) -> int:
        """How late delivery is."""
        return max(self.levels.behind_ms, 0 if self.timer is None else self.timer.behind_ms)

    def runtime_info(self) -> dict[str, str]:
        """Return the progress of delivery, by the reference's names; for the broker."""
        info = {
            f"scheduleMessageOffset_{level}": f"{offset},{end}"
            for level, (offset, end) in self.levels.progress().items()
        }
        if self.timer is not None:
            info["timerReadBehind"] = str(self.timer.behind_ms // 1000)
            info["timerOffsetBehind"] = str(self.timer.unset_count)
            info["timerCongestNum"] = str(sum(self.timer.waiting_counts.values()))
        return info

    def close(self) -> None:
        """Stop delivering and write the progress; in a fork, do nothing."""
        if self._is_forked:
            return
        if self._forget_fork is not None:
            self._forget_fork()
        try:
            self.levels.close()
        finally:
            if self.timer is not None:
                self.timer.close()

    def _note_fork(self) -> None:
        """Leave the files to the parent process, which has the threads."""
        self._is_forked = True
