"""Lifecycle: the lock, recovery, the services, and the end of a store.

`close` goes the way bytes travel: puts are refused, the log is flushed, dispatch catches up,
queues, index and checkpoint are flushed. Only then the mark of a running store goes, and last the
lock. What cannot be brought to an end leaves the mark: the next start recovers.

Both run on a thread of their own (`ShieldedWorker`): Ctrl-C in the thread that waits ends neither
in the middle.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar
from uuid import uuid4

from rocketlake.errors import FileSizeError, RocketLakeError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.files.store_lock import AbortMark, StoreLock
from rocketlake.store import exit_hook
from rocketlake.store.assembly import Base, Parts
from rocketlake.store.disk.traits import refuse_rocksdb
from rocketlake.store.dispatch.external_files import WriterNote, acquire_within
from rocketlake.store.inventory import Inventory, InventoryFile
from rocketlake.store.recovery.parts import RecoveryParts, RecoveryReport
from rocketlake.store.recovery.recovery import Recovery
from rocketlake.store.role_change import REPLICA_REFUSAL
from rocketlake.store.running_flags import RunningFlag

log = logging.getLogger(__name__)

_LOG_WAY_OUT: Final = (
    "Nothing was changed. Put the whole file back, or have every good record of the log put into a "
    "new store: rocketlake salvage NEW --from THIS/commitlog --replay. Meanwhile it can be read "
    "(read_only=True, rocketlake dump)"
)
_QUEUE_WAY_OUT: Final = (
    "Nothing was changed. Remove the file: `rocketlake repair` makes it again from the log"
)
_INDEX_WAY_OUT: Final = "Remove the file: its keys are indexed again from the log"

_JOB_TIMEOUT_S: Final = 15.0
_JOB_WAY_OUT: Final = (
    'a dispatch job writes the queues: stop it first, or open the store with dispatch="external"'
)

Value = TypeVar("Value")

Progress = Callable[[int, int], None]
"""Gets how many bytes recovery has read, and of how many."""


def _ignore(_done: int, _total: int) -> None:
    """Show no progress."""


class Lifecycle:
    """Opens and closes one store. Thread-safety: one lock; the second `close` does nothing."""

    def __init__(self, base: Base, parts: Parts) -> None:
        self._base = base
        self._parts = parts
        root = base.directory.root
        names_process = not base.options.compat_version.is_4x
        self._log_dirs = [path for path in base.paths.writable if path not in base.paths.read_only]
        self._lock = StoreLock(base.ops, root, self._log_dirs, base.paths.read_only)
        self.inventory = InventoryFile(base.ops, root)
        self._abort = AbortMark(base.ops, root, names_process=names_process)
        self._life = threading.Lock()
        self._worker = base.worker or ShieldedWorker("rocketlake-store")
        self._forget_fork: Callable[[], None] | None = None
        self._dispatch_lock: StoreLock | None = None
        self.on_dispatch: Progress = _ignore  # gets the range that recovery is going to dispatch
        self.is_open = False
        self.is_forked = False

    # --- opening ---------------------------------------------------------------------------------

    def start(self, on_progress: Progress | None = None) -> RecoveryReport:
        """Take the lock, recover, and start the services.

        An exception in the calling thread leaves the store closed.

        Raises:
            StoreLockedError: another process, or this one, has the store open.
            StoreError: the files cannot be used.
        """
        try:
            return self._worker.run(lambda: self._start(on_progress))
        except BaseException:
            self.close()  # Why: what interrupted this thread did not interrupt the start
            raise

    def _start(self, on_progress: Progress | None) -> RecoveryReport:
        self._acquire()
        try:
            report = self._recover(on_progress)
            self._let_others_dispatch(report)
        except BaseException:
            self._release()
            raise
        parts = self._parts
        self._take_over(report)
        parts.retention.look()
        for service in self._services():
            service.start()
        if report.indexed_from is not None and parts.index_catch_up is not None:
            parts.index_catch_up.wakeup()
        if parts.index is not None:
            parts.index.start()
        parts.putter.open()
        self.is_open = True
        self._forget_fork = exit_hook.on_fork(self._note_fork)
        return report

    def recover_and_close(self, on_progress: Progress | None = None) -> RecoveryReport:
        """Recover, bring everything to disk and close: nothing is started, no put is accepted.

        Raises:
            StoreLockedError: another process, or this one, has the store open.
            RocketLakeError: the files cannot be used, or something could not be brought to disk.
        """
        try:
            return self._worker.run(lambda: self._recover_and_close(on_progress))
        finally:
            self._worker.end()

    def _recover_and_close(self, on_progress: Progress | None) -> RecoveryReport:
        self._acquire()
        try:
            report = self._recover(on_progress, may_defer=False)
            self._take_over(report)
            self._parts.log_parts.flusher.close()
            self._parts.queue_flush.close()
        except BaseException:
            self._release()
            raise
        self._end(None)
        self._parts.log_parts.poison.check()
        return report

    def _acquire(self) -> None:
        """Take the lock of the store and the one of dispatch."""
        refuse_rocksdb(self._base.directory)
        is_external = self._base.is_external
        external = self._parts.external
        # Order: a directory that is not there cannot be locked, and another root may name it too.
        for path in self._log_dirs:
            self._base.ops.mkdirs(path)
        # Why wait: a job that finds the store closed opens it for a moment, to recover it.
        timeout_s = _JOB_TIMEOUT_S if is_external and external.job is not None else 0.0
        if timeout_s:
            acquire_within(self._lock, timeout_s, "", self._base.clock)
        else:
            self._lock.acquire()
        if not is_external and not external.exists:
            return  # no job can have been here: it would find this store open, and nothing said
        try:
            self._dispatch_lock = external.dispatch_lock()
            timeout_s = _JOB_TIMEOUT_S if is_external else 0.0
            acquire_within(self._dispatch_lock, timeout_s, _JOB_WAY_OUT, self._base.clock)
            external.remove_note()
        except BaseException:
            self._dispatch_lock = None
            self._lock.release()
            raise

    def _let_others_dispatch(self, report: RecoveryReport) -> None:
        """Say where a job has to go on, and let it; nothing if the store dispatches by itself."""
        if not self._base.is_external:
            return
        # Order: nothing of this process may touch their files from here on.
        self._parts.queues.close()
        self._parts.external.write_note(
            WriterNote(
                session=uuid4().hex,
                pid=os.getpid(),
                is_clean=report.is_clean,
                log_end=report.log_end,
                dispatch_from=report.dispatched_where,
                options=self._base.options,
            )
        )
        assert self._dispatch_lock is not None, "taken with the store's lock"
        self._dispatch_lock.release()
        self._dispatch_lock = None

    def _take_over(self, report: RecoveryReport) -> None:
        """Let the parts go on where recovery ended."""
        parts = self._parts
        parts.offsets.load(report.queue_offsets)
        parts.dispatcher.dispatched_where = report.dispatched_where
        if self._base.options.duplication_enable:
            parts.log.set_confirm_offset(report.dispatched_where)
        if not parts.role.takes_puts:
            parts.log.refuse_puts(REPLICA_REFUSAL)
        parts.dispatcher.dispatched_timestamp = report.last_timestamp

    def _recover(self, on_progress: Progress | None, *, may_defer: bool = True) -> RecoveryReport:
        parts, options = self._parts, self._base.options
        index_later = parts.index_catch_up if may_defer else None
        is_clean = not self._abort.is_set
        if parts.log_parts.pool is not None:
            parts.log_parts.pool.open()
        parts.checkpoint.load()
        parts.deleted.load()
        with _way_out(_LOG_WAY_OUT):
            parts.log_parts.files.load()
        with _way_out(_QUEUE_WAY_OUT):
            parts.queues.load(is_clean=is_clean)
        # Order: from here on files change; a crash must not look like a clean stop.
        self._abort.set()
        if parts.index is not None:
            expected = self._expected_index_files()
            with _way_out(_INDEX_WAY_OUT):
                parts.index.load(is_clean=is_clean, checkpoint=parts.checkpoint, expected=expected)
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
                inventory=self.inventory,
                deleted=parts.deleted,
                defer_index=index_later.defer if index_later is not None else None,
                on_dispatch=self.on_dispatch,
                is_external=self._base.is_external,
                has_topic=lambda topic: self._base.catalog.read_queue_count(topic) > 0,
                on_progress=on_progress or _ignore,
            )
        )
        return recovery.run(is_clean=is_clean)

    def _expected_index_files(self) -> list[str]:
        """Return the names of index files that the log still needs."""
        inventory = self.inventory.load()
        log_min = self._parts.log_parts.files.min_offset
        found = inventory.index if inventory is not None else {}
        return [name for name, last in found.items() if last >= log_min]

    def _services(self) -> list[BackgroundService]:
        """Return the services in the order in which they are closed."""
        parts, log_parts = self._parts, self._parts.log_parts
        first = [log_parts.commit] if log_parts.commit is not None else []
        late = [parts.index_catch_up] if parts.index_catch_up is not None else []
        return [
            parts.retention,
            parts.non_blocking,
            *first,
            log_parts.flusher,
            parts.durability.watcher,
            parts.dispatcher,
            *late,
            parts.queue_flush,
            log_parts.prefetcher,
            log_parts.preallocator,
            parts.sampler,
        ]

    def shielded(self, action: Callable[[], Value]) -> Value:
        """Do something where no exception of a signal handler can end it in the middle."""
        return self._worker.run(action)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring everything to disk and close; in a fork, do nothing.

        A call that an exception ends (Ctrl-C) has closed the store all the same, and a second call
        waits for the first.

        Raises:
            RocketLakeError: something could not be brought to disk; the store is closed all the
                same, and the next start recovers.
        """
        if self.is_forked:
            return
        # Order: before it waits for its turn, behind a change that may wait for dispatch.
        self._parts.dispatcher.is_store_closing = True
        try:
            self._worker.run(self._close)
        finally:
            if not self.is_open:
                self._worker.end()

    def _close(self) -> None:
        with self._life:
            if not self.is_open:
                return
            self.is_open = False
            try:
                self._parts.putter.close()
                self._parts.log.close()
                error = self._close_services()
                self._end(error)
            except BaseException:
                self._release()  # Why: after any error another process can open the store
                raise
        if error is not None:
            raise error

    def _close_services(self) -> Exception | None:
        error: Exception | None = None
        for service in self._services():
            try:
                service.close()
            except Exception as failed:  # noqa: BLE001 - the others are closed first
                log.warning("service not closed name=%s reason=%s", service.name, failed)
                error = error or failed
        poison = self._parts.log_parts.poison
        if error is None and poison.error is not None:
            # Why: the last flush may have failed just now, after puts succeeded that did not wait
            # for the disk; no other call reports it.
            return poison.exception()
        return error

    def _end(self, error: Exception | None) -> None:
        parts = self._parts
        is_whole = (
            error is None
            and parts.log_parts.poison.error is None
            and parts.dispatcher.owed_bytes == 0
            and (parts.index_catch_up is None or parts.index_catch_up.where is None)
            and not parts.flags.has(RunningFlag.DISK_FULL)
        )
        index = parts.index.inventory if parts.index is not None else {}
        try:
            if parts.index is not None:
                parts.index.close()
            if parts.log_parts.poison.error is None:
                parts.checkpoint.flush()
            if is_whole:
                log_parts = parts.log_parts
                bounds = (log_parts.files.min_offset, log_parts.files.max_offset)
                if self._base.is_external:
                    self.inventory.remove()  # it cannot speak of what a job has written
                else:
                    self.inventory.save(Inventory.of(bounds, parts.queues.bounds(), index))
        except RocketLakeError as failed:
            log.warning("checkpoint not written reason=%s", failed)
            is_whole = False
        self._release(is_whole=is_whole)

    def _release(self, *, is_whole: bool = False) -> None:
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
        if self._base.is_external:
            parts.external.mark_closed()
        if self._dispatch_lock is not None:
            self._dispatch_lock.release()
        self._lock.release()

    def _note_fork(self) -> None:
        """Refuse to work in a fork: it has neither the threads nor the lock."""
        self.is_forked = True
        self.is_open = False
        self._parts.putter.refuse(
            "the process forked, and only its parent can use this store; open it in the parent, or "
            "after the fork"
        )


@contextmanager
def _way_out(text: str) -> Iterator[None]:
    """Add the way out to the error of a file that has the wrong size."""
    try:
        yield
    except FileSizeError as error:
        raise FileSizeError(
            error.path, size=error.size, expected=error.expected, way_out=text
        ) from error
