"""StoreLife: the lock, recovery, the services, and the end of a store.

`close` goes the way bytes travel: puts are refused, the log is flushed, dispatch catches up,
queues, index and checkpoint are flushed. Only then the mark of a running store goes, and last the
lock. What cannot be brought to an end leaves the mark: the next start recovers.
"""

import logging
import threading
from collections.abc import Callable

from rocketlake.errors import RocketLakeError
from rocketlake.files.service import BackgroundService
from rocketlake.files.store_lock import AbortMark, StoreLock
from rocketlake.store import exit_hook
from rocketlake.store.assembly import Base, Parts
from rocketlake.store.options import CompatVersion
from rocketlake.store.recovery import Recovery, RecoveryParts, RecoveryReport
from rocketlake.store.running_flags import RunningFlag

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Is told how many bytes recovery has read, and of how many."""


def _ignore(_done: int, _total: int) -> None:
    """Show no progress."""


class StoreLife:
    """Opens and closes one store. Thread-safety: one lock; the second `close` does nothing."""

    def __init__(self, base: Base, parts: Parts) -> None:
        self._base = base
        self._parts = parts
        root = base.directory.root
        names_process = base.options.compat_version is CompatVersion.V5_3
        self._lock = StoreLock(base.ops, root)
        self._abort = AbortMark(base.ops, root, names_process=names_process)
        self._life = threading.Lock()
        self._forget_fork: Callable[[], None] | None = None
        self.is_open = False
        self.is_forked = False

    # --- the begin -------------------------------------------------------------------------------

    def start(self, on_progress: Progress | None = None) -> RecoveryReport:
        """Take the lock, recover, and start the services.

        Raises:
            StoreLockedError: another process, or this one, has the store open.
            StoreError: the files cannot be used.
        """
        self._lock.acquire()
        try:
            report = self._recover(on_progress)
        except BaseException:
            self._let_go()
            raise
        parts = self._parts
        parts.offsets.load(report.queue_offsets)
        parts.dispatcher.dispatched_where = report.dispatched_where
        if self._base.options.duplication_enable:
            parts.log.set_confirm_offset(report.dispatched_where)
        parts.dispatcher.dispatched_timestamp = report.last_timestamp
        for service in self._services():
            service.start()
        if parts.index is not None:
            parts.index.start()
        parts.putter.open()
        self.is_open = True
        self._forget_fork = exit_hook.on_fork(self._note_fork)
        return report

    def _recover(self, on_progress: Progress | None) -> RecoveryReport:
        parts, options = self._parts, self._base.options
        is_clean = not self._abort.is_set
        if parts.log_parts.pool is not None:
            parts.log_parts.pool.open()
        parts.checkpoint.load()
        parts.log_parts.files.load()
        parts.queues.load()
        # Order: from here on files change; a crash must not look like a clean stop.
        self._abort.set()
        if parts.index is not None:
            parts.index.load(is_clean=is_clean, checkpoint=parts.checkpoint)
        recovery = Recovery(
            RecoveryParts(
                directory=self._base.directory,
                options=options,
                log_files=parts.log_parts.files,
                queues=parts.queues,
                index=parts.index,
                checkpoint=parts.checkpoint,
                dispatch_range=parts.dispatcher.dispatch_range,
                clock=self._base.clock,
                has_topic=lambda topic: self._base.catalog.read_queue_count(topic) > 0,
                on_progress=on_progress or _ignore,
            )
        )
        return recovery.run(is_clean=is_clean)

    def _services(self) -> list[BackgroundService]:
        """Return the services in the order in which they are closed."""
        parts, log_parts = self._parts, self._parts.log_parts
        first = [log_parts.commit] if log_parts.commit is not None else []
        return [
            *first,
            log_parts.flusher,
            parts.durability.watcher,
            parts.dispatcher,
            parts.queue_flush,
            log_parts.feeder,
            log_parts.preallocator,
            parts.sampler,
        ]

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring everything to disk and let go; in a fork, do nothing.

        Raises:
            RocketLakeError: something could not be brought to disk; the store is closed all the
                same, and the next start recovers.
        """
        if self.is_forked:
            return
        with self._life:
            if not self.is_open:
                return
            self.is_open = False
            self._parts.putter.close()
            self._parts.log.close()
            error = self._close_services()
            self._end(error)
        if error is not None:
            raise error

    def _close_services(self) -> RocketLakeError | None:
        error: RocketLakeError | None = None
        for service in self._services():
            try:
                service.close()
            except RocketLakeError as failed:
                log.warning("service not closed name=%s reason=%s", service.name, failed)
                error = error or failed
        return error

    def _end(self, error: RocketLakeError | None) -> None:
        parts = self._parts
        is_whole = (
            error is None
            and parts.log_parts.poison.error is None
            and parts.dispatcher.behind_bytes == 0
            and not parts.flags.has(RunningFlag.DISK_FULL)
        )
        try:
            if parts.index is not None:
                parts.index.close()
            parts.checkpoint.flush()
        except RocketLakeError as failed:
            log.warning("checkpoint not written reason=%s", failed)
            is_whole = False
        self._let_go(is_whole=is_whole)

    def _let_go(self, *, is_whole: bool = False) -> None:
        parts = self._parts
        if self._forget_fork is not None:
            self._forget_fork()
        parts.queues.close()
        parts.log.close()
        parts.log_parts.files.close()
        if parts.log_parts.pool is not None:
            parts.log_parts.pool.close()
        if is_whole:
            self._abort.remove()
        self._lock.release()

    def _note_fork(self) -> None:
        """Refuse to work in a fork: it has neither the threads nor the lock."""
        self.is_forked = True
        self.is_open = False
        self._parts.putter.refuse(
            "the process forked, and only its parent can use this store; open it in the parent, or "
            "after the fork"
        )
