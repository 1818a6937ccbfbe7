"""The files of the timer together: log, wheel and checkpoint."""

import logging
from pathlib import Path

from rocketlake import failpoint
from rocketlake.clock import Clock
from rocketlake.delay.timer_log import TimerLog
from rocketlake.delay.timer_rules import TimerRules
from rocketlake.delay.timer_wheel import TimerWheel
from rocketlake.errors import FlushFailedError
from rocketlake.files.ops import FileOps
from rocketlake.format import layout, names
from rocketlake.format.timer import TimerCheckpoint

log = logging.getLogger(__name__)


class TimerFiles:
    """What the timer keeps on the disk. Made when the first message comes.

    Thread-safety: one thread, the timer's.

    Durability: what the checkpoint says of log and wheel is on the disk before it is. After a
    flush that failed nothing is written any more: the next start goes on from the last checkpoint.
    """

    def __init__(self, ops: FileOps, clock: Clock, root: Path, rules: TimerRules) -> None:
        self._ops = ops
        self._root = root
        self._path = root / names.CONFIG / names.TIMER_CHECK
        self.log = TimerLog(ops, clock, root / names.TIMER_LOG, rules.log_file_size)
        self.wheel = TimerWheel(ops, root / names.TIMER_WHEEL, rules.precision_ms)
        self.checkpoint = TimerCheckpoint()
        self.had_wheel = False
        self._is_failed = False

    @property
    def exist(self) -> bool:
        """Whether a timer was used here before."""
        return self.wheel.exists or self._ops.stat(self._path) is not None

    def open(self) -> None:
        """Open the files, and make those that are missing.

        Raises:
            FileSizeError: one has not the size that it should have.
            DiskFullError: there is no space for a new one.
        """
        self._ops.mkdirs(self._path.parent)
        self.had_wheel = self.wheel.exists
        self.log.load()
        self.wheel.open()
        self._read_checkpoint()

    def flush(self, checkpoint: TimerCheckpoint) -> bool:
        """Have log and wheel on the disk, then the checkpoint that speaks of them; False if failed.

        Raises:
            DiskFullError: there is no space; it can be tried again.
        """
        if self._is_failed:
            return False
        try:
            self.log.flush()
            self.wheel.flush()
            self._write_checkpoint(checkpoint)
        except FlushFailedError:
            log.critical("timer files cannot be flushed; their progress is no longer written")
            self._is_failed = True
            return False
        return True

    def discard(self) -> None:
        """Remove log and wheel, and begin with empty ones."""
        self.log.destroy()
        self.wheel.destroy()
        self.wheel.open()

    def close(self) -> None:
        """Close all files; nothing is flushed."""
        self.log.close()
        self.wheel.close()

    def _read_checkpoint(self) -> None:
        if self._ops.stat(self._path) is None:
            return
        reader = self._ops.open_reader(self._path)
        try:
            self.checkpoint = TimerCheckpoint.decode(reader.read(0, layout.CHECKPOINT_SIZE))
        finally:
            reader.close()

    def _write_checkpoint(self, checkpoint: TimerCheckpoint) -> None:
        failpoint.hit("checkpoint.before")
        entry = self._ops.stat(self._path)
        if entry is None:
            writer = self._ops.create(self._path, layout.CHECKPOINT_SIZE)
            self._ops.sync_dir(self._path.parent)
        else:
            writer = self._ops.open_writer(self._path)
        try:
            # All that is not zero lies in one sector, which is written whole or not.
            writer.write(0, checkpoint.encode())
            writer.sync()
        finally:
            writer.close()
        failpoint.hit("checkpoint.after")
        self.checkpoint = checkpoint
