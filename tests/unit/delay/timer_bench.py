"""A store in memory with a timer, which can be stopped, killed and started."""

from delay_fakes import DELAYS_MS

from rocketlake.delay.hook import DelayHook
from rocketlake.delay.levels import DelayLevels
from rocketlake.delay.timer_files import TimerFiles
from rocketlake.delay.timer_rules import TimerRules
from rocketlake.delay.timer_store import TimerStore
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import layout
from rocketlake.format.timer import TimerCheckpoint
from rocketlake.metadata.timer_metrics import TimerMetrics

NOW = 1_800_000_000_500
HOUR_MS = 3_600_000
LOG_FILE_SIZE = 10 * layout.TIMER_UNIT_SIZE + 20


class TimerBench:
    """A store with a timer, which can be stopped, killed and started."""

    def __init__(self, store, place, usage, **rules):
        self.store = store
        self.clock = store.clock
        self.place = place
        self.usage = usage
        self.root = place.config_dir.parent
        self.rules = TimerRules(**{"log_file_size": LOG_FILE_SIZE} | rules)
        self.timer = None
        self.restart()

    def restart(self):
        self.metrics = TimerMetrics.load(self.place)
        self.files = TimerFiles(
            PosixFileOps(),
            self.clock,
            self.root,
            self.rules,
            flush_log=lambda: self.store.sync(),  # noqa: PLW0108 - replaced
        )
        self.timer = TimerStore(
            self.store, self.clock, self.files, self.rules, metrics=self.metrics, usage=self.usage
        )
        self.store.hook = DelayHook(
            DelayLevels(DELAYS_MS), self.clock, self.usage, timer=self.timer
        )
        self.timer.load()

    def kill(self):
        """End as a process that is killed: nothing more is written."""
        self.files.close()

    def pass_ms(self, count):
        self.clock.advance_ms(count)
        self.timer.run_once()

    def checkpoint(self):
        return TimerCheckpoint.decode((self.root / "config" / "timercheck").read_bytes())
