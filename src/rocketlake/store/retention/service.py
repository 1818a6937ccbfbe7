"""Retention: deletes what is old enough, and refuses puts while a disk is full.

1. Every look reads the usage of the disks. A disk that is too full sets a flag, which refuses puts,
   with the reason; the flag is cleared when there is space again.
2. Every interval files are deleted: the oldest first, a few at a time, with pauses; never the last
   one, never what is not yet dispatched or on the disk, never what a holder keeps. Before the first
   one, queues and index are flushed: without the log they cannot be made again.
3. Then expired files of queues and index are deleted.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.errors import RocketLakeError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.mapped_file_queue import Expiry, MappedFileQueue, Waiter
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.queue_set import ConsumeQueueSet
from rocketlake.store.retention import rules
from rocketlake.store.retention.disks import DiskLook, Disks, Place
from rocketlake.store.retention.followers import Followers
from rocketlake.store.retention.reasons import Outlook, refusal
from rocketlake.store.retention.rules import NEVER, DiskLevel, Limits
from rocketlake.store.running_flags import RunningFlag, RunningFlags
from rocketlake.store.stats.store_stats import SparseLog

log = logging.getLogger(__name__)

FIRST_ROUND_S: Final = 60.0
ASKED_ROUNDS: Final = 20
_CHECK_S: Final = 600.0
_REFUSING_LOOK_S: Final = 1.0
_ALL: Final = (1 << 63) - 1


class Deleted(Struct, frozen=True):
    """What a deletion removed."""

    files: int = 0
    """Files of the log."""
    size: int = 0
    """Bytes of them."""
    queue_files: int = 0
    index_files: int = 0


class RetentionGauges(Struct, frozen=True, kw_only=True):
    """The state of retention; times are Unix milliseconds, -1 if there is none."""

    oldest_file: str = ""
    newest_file: str = ""
    oldest_changed_ms: int = NEVER
    next_deletion_ms: int = NEVER
    deleted: Deleted = Deleted()
    """Since the store was started."""
    refusal: str = ""
    """Why puts are refused; nothing if they are not."""
    kept_from: int = NEVER
    """The offset of the log from which on holders keep files."""
    error: str = ""
    """Why the last round could not delete a file."""


class RetentionParts(Struct, frozen=True):
    """What retention works on."""

    log: CommitLog
    queues: ConsumeQueueSet
    index: IndexFileSet | None
    flags: RunningFlags
    dispatched: Callable[[], int]
    """Returns up to where queues and index have everything."""
    flush_and_dispatch: Callable[[], None]
    """Dispatches what was put so far, and flushes it."""
    forget_expired: Callable[[int], None] = lambda _: None
    """Receives where the log begins, for tables with entries of what was before."""

    @property
    def files(self) -> MappedFileQueue:
        """The files of the log."""
        return self.log.files

    @property
    def own_bytes(self) -> int:
        """How many bytes the store's files have [getMajorFileSize]."""
        index = self.index.mapped_size if self.index is not None else 0
        return self.files.mapped_size + self.queues.mapped_size + index

    def secure_followers(self) -> None:
        """Flush units and entries of all that was dispatched, and the names of their files.

        Raises:
            FlushFailedError: they may not be there.
        """
        self.queues.flush(0)
        if self.index is not None:
            self.index.flush()


class Retention(BackgroundService):
    """Keeps the disk from filling up [CleanCommitLogService].

    Archives, replicas and backups keep files with `hold`, each under a name of its own: the holder
    returns the offset of the log below which everything may be deleted, None for no limit. Holders
    always win: if the disk fills up then, puts stop, not archiving.

    Thread-safety: any thread may ask for a deletion or for gauges; one deletion at a time.

    Durability: files go oldest first, each off the disk before the next. The units and entries made
    from a file are on the disk before it goes, and files of queues and index go only after those of
    the log: a crash at any moment leaves a log without gaps, and queues that recovery corrects.
    """

    def __init__(
        self,
        parts: RetentionParts,
        disks: Disks,
        options: StoreOptions,
        clock: Clock,
        *,
        wait: Waiter | None = None,
    ) -> None:
        """`wait` pauses between two files; without it, until the service is closed at most."""
        super().__init__("rocketlake-retention", is_daemon=True)
        self._parts = parts
        self._disks = disks
        self._clock = clock
        self._limits = Limits.of(options)
        self._followers = Followers(
            parts.queues, parts.index, pause_ms=options.delete_consume_queue_files_interval
        )
        self._expiry = Expiry(
            reserved_ms=self._limits.reserved_ms,
            force_after_ms=options.destroy_maped_file_interval_forcibly,
            pause_ms=options.delete_commit_log_files_interval,
            batch_max=options.delete_file_batch_max,
        )
        self._interval_s = options.clean_resource_interval / 1000
        self._reap_s = options.redelete_hanged_file_interval / 1000
        self._wait = wait or self._closing.wait
        self._notes = SparseLog(log, clock, interval_s=60.0)
        self.turn = threading.Lock()
        """Held while files are deleted."""
        self._asked = 0
        self._needed = 0  # files that must go before the disk is no longer too full
        self._look: DiskLook | None = None
        self._set_times()
        self._holders: dict[str, Callable[[], int | None]] = {}
        self.error = ""

    def _set_times(self) -> None:
        now_s = self._clock.monotonic_s()
        self._due_s = self._check_due_s = now_s + FIRST_ROUND_S
        self._pressed_s = now_s  # not earlier, even if the disk is too full
        self._reap_due_s = now_s + self._reap_s

    # --- holders ---------------------------------------------------------------------------------

    def hold(self, name: str, keep_from: Callable[[], int | None]) -> None:
        """Delete no log file that reaches behind the offset which `keep_from` returns.

        A second holder of the same name takes the place of the first.

        Raises:
            TypeError: `keep_from` cannot be called.
        """
        if not callable(keep_from):
            raise TypeError(f"keep_from = {keep_from!r}: wanted a function that returns an offset")
        # Why a copy: a round may be looking at the holders.
        self._holders = {**self._holders, name: keep_from}

    def release(self, name: str) -> None:
        """Remove a holder; nothing happens if there is none of that name."""
        self._holders = {key: held for key, held in self._holders.items() if key != name}

    @property
    def holders(self) -> tuple[str, ...]:
        """The names of the holders."""
        return tuple(self._holders)

    # --- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the first round is a minute later, as in the reference."""
        self._set_times()
        super().start()

    def pause_s(self) -> float:
        """Look each interval; more often while puts are refused."""
        return min(self._interval_s, _REFUSING_LOOK_S) if self.is_refusing else self._interval_s

    def run_once(self) -> None:
        """Look at the disks, and delete what is due."""
        found = self.look()
        now_s = self._clock.monotonic_s()
        if found.level >= DiskLevel.CLEANING:
            # Why: a minute may be too long, and the reference's interval begins with its round.
            self._due_s = min(self._due_s, self._pressed_s)
        if now_s >= self._reap_due_s:
            self._reap_due_s = now_s + self._reap_s
            self._parts.files.reap(self._expiry.force_after_ms)
        if now_s >= self._due_s:
            self._due_s = self._pressed_s = now_s + self._interval_s
            self._run_round(found)
        if now_s >= self._check_due_s:
            self._check_due_s = now_s + _CHECK_S
            self._check_files()

    def run_last(self) -> None:
        """Delete no more; look once more, so that space that came back counts at the end."""
        with self.turn:
            self.look()
        self._notes.close()

    def ask(self) -> None:
        """Have expired files deleted in the next rounds, at any hour [executeDeleteFilesManually].

        The reference counts 20 rounds.
        """
        self._asked = ASKED_ROUNDS
        self._due_s = self._clock.monotonic_s()
        self.wakeup()

    # --- looking ---------------------------------------------------------------------------------

    @property
    def is_refusing(self) -> bool:
        """Whether puts are refused for want of space."""
        flags = self._parts.flags
        return flags.has(RunningFlag.DISK_FULL) or flags.has(RunningFlag.LOGIC_DISK_FULL)

    def look(self) -> DiskLook:
        """Ask the disks, and set or clear what refuses puts."""
        own_bytes = self._parts.own_bytes if self._limits.sharers > 1 else 0
        found = self._look = self._disks.look(own_bytes)
        self._parts.files.full_paths = found.full_paths
        # Compat: of several directories the least used decides.
        self._set_flag(RunningFlag.DISK_FULL, found.best)
        self._set_flag(
            RunningFlag.LOGIC_DISK_FULL, found.best if found.is_one_disk else found.queues
        )
        return found

    def _set_flag(self, flag: RunningFlag, place: Place) -> None:
        flags = self._parts.flags
        usage = place.usage
        if not rules.is_refusing(usage, self._limits, before=flags.has(flag)):
            if flags.clear(flag):
                log.info("puts are taken again flag=%s path=%s", flag.name, place.path)
        elif usage is not None:
            words = refusal(place.path, usage, self._limits, self._outlook())
            if flags.mark(flag, words):
                log.error("puts are refused flag=%s reason=%s", flag.name, words)

    def _outlook(self) -> Outlook:
        files, now_ms = self._parts.files, self._clock.now_ms()
        kept_from = self._kept_from()
        limit = _ALL if kept_from is None else kept_from
        goes = [file for file in files.files[:-1] if file.base_offset + files.file_size <= limit]
        return Outlook(
            deletable=len(goes),
            file_size=files.file_size,
            next_ms=self._next_deletion(now_ms),
            now_ms=now_ms,
            look_s=self._interval_s,
            kept_from=kept_from,
        )

    def _next_deletion(self, now_ms: int) -> int:
        oldest = self._parts.files.files[:-1]
        if not oldest:
            return NEVER
        level = self._look.level if self._look is not None else DiskLevel.OK
        return rules.next_deletion(now_ms, oldest[0].last_modified_ms(), level, self._limits)

    # --- deleting --------------------------------------------------------------------------------

    def delete_expired(self, *, reserved_ms: int | None = None, force: bool = False) -> Deleted:
        """Delete now, in the caller's thread, all files of the log that are old enough.

        `reserved_ms` is how old, in place of the option; with `force` age does not matter. The last
        file stays, and so does what is held back.

        Raises:
            FileAccessError: a file cannot be removed; those before it are gone.
        """
        before = self._totals()
        expiry = self._expiry
        if reserved_ms is not None:
            expiry = replace(expiry, reserved_ms=reserved_ms)
        with self.turn:
            # Why so many: puts that go on make new files as fast as these go.
            left = len(self._parts.files.files) - 1
            while left > 0 and self._delete(expiry, is_forced=force) == expiry.batch_max:
                left -= expiry.batch_max
                if self.is_closing or self._wait(expiry.pause_ms / 1000):
                    break
            self._follow()
        self.look()
        after = self._totals()
        return Deleted(*(getattr(after, f) - getattr(before, f) for f in after.__struct_fields__))

    def _run_round(self, found: DiskLook) -> None:
        decision = rules.decide(
            self._clock.now_ms(), found.level, self._limits, is_asked=self._asked > 0
        )
        self._asked = max(self._asked - 1, 0)
        deleted = 0
        try:
            with self.turn:
                if decision.is_forced:
                    deleted = self._delete_forced(found)
                elif decision.deletes:
                    deleted = self._delete(self._expiry)
                self._follow()
        except RocketLakeError as error:
            # The next round tries again; the gauges show the error.
            self.error = str(error)
            self._notes.warning("delete", "files not deleted reason=%s", error)
            return
        self.error = ""
        if deleted:
            # Files that had not expired are a loss that operators should see.
            level = logging.WARNING if decision.is_forced else logging.INFO
            begins = self._parts.log.min_offset
            log.log(
                level,
                "log files deleted count=%d why=%s is_forced=%s log_begins=%d",
                deleted,
                decision.why,
                decision.is_forced,
                begins,
            )
            self.look()
        elif decision.is_forced:
            self._notes.warning(
                "full", "disk full soon, and no file to delete: %s", found.best.path
            )

    def _delete_forced(self, found: DiskLook) -> int:
        """Delete a batch of files, expired or not, but no more than what is needed.

        Why: a message that was not to go yet goes only if it must. And space that a file system, or
        a reader, gives back late must not cost more files: one look says how many are needed, and
        the next look is an interval later.
        """
        if self._needed <= 0:
            places = (found.best, found.queues)
            size = max(rules.bytes_to_free(place.usage, self._limits) for place in places)
            file_size = self._parts.files.file_size
            self._needed = -(-size // file_size) or self._expiry.batch_max
        count = min(self._needed, self._expiry.batch_max)
        deleted = self._delete(replace(self._expiry, batch_max=count), is_forced=True)
        self._needed = self._needed - deleted if deleted == count else 0
        if self._needed:
            self._due_s = self._pressed_s = self._clock.monotonic_s()
            self.wakeup()
        return deleted

    def _delete(self, expiry: Expiry, *, is_forced: bool = False) -> int:
        """Delete a batch of log files; return how many."""
        parts, kept_from = self._parts, self._kept_from()
        if self._limit(kept_from) < _last_begin(parts.files):
            with suppress(RocketLakeError):  # what cannot be flushed or dispatched is not deleted
                parts.flush_and_dispatch()
        if parts.flags.has(RunningFlag.NOT_WRITEABLE):
            return 0  # a flush failed: what is on the disk is for recovery to find out
        below = self._limit(kept_from)
        return parts.files.delete_expired(
            expiry,
            self._wait,
            is_forced=is_forced,
            below=below,
            # Order: after `below` was read, so that the flush covers every unit of what goes.
            prepare=parts.secure_followers,
        )

    def _limit(self, kept_from: int | None) -> int:
        """Return the offset below which files may go at all."""
        parts = self._parts
        # Why: a message that no queue holds yet would vanish without a trace, and one that is being
        # flushed would be acknowledged although it is gone.
        reached = min(parts.dispatched(), parts.files.flushed_where)
        return min(reached, _ALL if kept_from is None else kept_from)

    def _kept_from(self) -> int | None:
        """Return the lowest offset that a holder keeps; one that fails keeps the whole log."""
        kept: list[int] = []
        for name, keep_from in list(self._holders.items()):
            try:
                offset = keep_from()
            except Exception:  # a holder's fault must not cost a file
                log.exception("holder failed, no file is deleted name=%s", name)
                offset = 0
            if offset is not None:
                kept.append(offset)
        return min(kept, default=None)

    def _follow(self) -> None:
        log_min = self._parts.log.min_offset
        if log_min > 0:
            self._followers.follow(log_min, self._wait)
            self._parts.forget_expired(log_min)

    def _check_files(self) -> None:
        """Log where files of the log do not fit together [checkSelf]."""
        for gap in self._parts.files.check_self():
            log.error(
                "log files do not fit together before=%s after=%s distance=%d",
                gap.before,
                gap.after,
                gap.distance,
            )

    # --- gauges ----------------------------------------------------------------------------------

    def _totals(self) -> Deleted:
        files = self._parts.files
        count, size = files.expired_count, files.expired_count * files.file_size
        return Deleted(count, size, self._followers.queue_files, self._followers.index_files)

    def gauges(self) -> RetentionGauges:
        """Return the state of retention."""
        files = self._parts.files.files
        kept_from = self._kept_from()
        return RetentionGauges(
            oldest_file=files[0].path.name if files else "",
            newest_file=files[-1].path.name if files else "",
            oldest_changed_ms=files[0].last_modified_ms() if files else NEVER,
            next_deletion_ms=self._next_deletion(self._clock.now_ms()),
            deleted=self._totals(),
            refusal=self._parts.flags.explain() if self.is_refusing else "",
            kept_from=NEVER if kept_from is None else kept_from,
            error=self.error,
        )


def _last_begin(files: MappedFileQueue) -> int:
    """Return where the last file begins: everything before it may be deleted."""
    last = files.last_file()
    return last.base_offset if last is not None else 0
