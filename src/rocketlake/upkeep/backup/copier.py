"""A consistent copy of a store that may be in use; later runs copy only what is new.

1. The log is copied up to an end that is fixed first. What it holds before that never changes.
2. Queues are copied up to what the log has; the newest index file, which may be half written, is
   left out. Then the copy is recovered as a start would do it, so that all families agree, and
   left cleanly closed.
3. Progress of consumers and deliveries is read before the end of the log is fixed: a copy may
   deliver again, but leaves nothing out. Topics and groups are read after it.
4. While a backup runs, the copy has the mark of an unclean stop, and `backup.json` records it. A
   crash leaves what was there before, and the next run continues.
5. The source is only read, and its `lock` never touched.
6. Where a start would cut good records off the log, the copy is not recovered: that would cut them
   off here. All bytes are copied as they are, the mark of an unclean stop too, and the report says
   what a start would cut. Files from the cut on are copied whole, and again by the next backup.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import FileSizeError, StoreError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.files.store_lock import AbortMark
from rocketlake.format import java_json, names
from rocketlake.store.inventory import FILE_NAME as INVENTORY
from rocketlake.store.inventory import InventoryFile
from rocketlake.store.offline import Finding, OfflineStore
from rocketlake.store.recovery.salvage import SALVAGE
from rocketlake.upkeep.backup import file_queues
from rocketlake.upkeep.backup import manifest as manifests
from rocketlake.upkeep.backup.file_copy import checksum
from rocketlake.upkeep.backup.files import BackupFiles
from rocketlake.upkeep.backup.finish_copy import Kind, queue_shape, settle
from rocketlake.upkeep.backup.manifest import Manifest
from rocketlake.upkeep.backup.steps import StoreCopier, log_parts
from rocketlake.upkeep.salvage.cut_off import CutOff, find_cut_off
from rocketlake.version import __version__

_TABLE_SIZE_MAX: Final = 256 << 20
_IS_PROGRESS: Final = (
    "consumerOffset",
    "lmqConsumerOffset",
    "delayOffset",
    "timer",
    "consumerOrder",
)
_UNKNOWN_VARIANTS: Final = frozenset(
    {
        "RocksDB message database",
        "DLedger log",
        "tiered storage",
        "compaction topics",
    }
)
_NOT_LISTED: Final = frozenset(
    {names.LOCK, names.ABORT, names.ABORT + names.BACKUP_SUFFIX, manifests.NAME}
)
_KNOWN_NAMES: Final = frozenset(
    {
        names.COMMIT_LOG,
        names.CONSUME_QUEUE,
        names.BATCH_CONSUME_QUEUE,
        names.INDEX,
        names.CONSUME_QUEUE_EXT,
        names.CONFIG,
        names.CHECKPOINT,
        names.ABORT,
        names.LOCK,
        names.TIMER_LOG,
        names.TIMER_WHEEL,
        names.EPOCHS,
        names.ABORT + names.BACKUP_SUFFIX,
        manifests.NAME,
        SALVAGE,
        INVENTORY,
        names.ROCKSDB_MESSAGES,
        names.ROCKSDB_QUEUES,
    }
)


class BackupReport(Struct, frozen=True, kw_only=True):
    """What a backup did."""

    is_first: bool
    log_begin: int
    log_end: int
    copied_bytes: int
    files: int
    pruned: int
    kept: int
    """Files that have expired in the source and are still here."""
    cut_off: CutOff | None = None
    """Good records of the copy that a start would cut off."""
    refused: FileSizeError | None = None
    """The file that keeps a start from opening the copy: it was cut short in the source."""


class Listener(Struct, frozen=True):
    """Callbacks of a backup: notes, damage, progress."""

    note: Callable[[str], None]
    damage: Callable[[Finding], None]
    begin: Callable[[str, int], Callable[[int], None]]
    """Start a step of so many bytes; the result is called with each part that is done."""


class Backup:
    """Copies one store into one directory. Used once, by one thread."""

    noun = "backup"
    """What messages call that which is made."""
    can_prune = True

    def __init__(
        self,
        source: Path,
        open_source: Callable[[], OfflineStore],
        target: Path,
        listener: Listener,
        *,
        ops: FileOps | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._source = source
        self._open_source = open_source
        self._target = target
        self._listener = listener
        self._ops = ops or PosixFileOps()
        self._clock = clock or SystemClock()

    def run(self, *, prune: bool = False, verify: bool = False) -> BackupReport:
        """Update the backup; `prune` removes what has expired in the source.

        Raises:
            StoreError: the directory is something else or of another store, the source is of a
                kind that cannot be copied, or files cannot be written.
        """
        former = self._check_target()
        started_at = self._now_text()
        # Order: progress before the end of the log is fixed, so that it points to what is there.
        tables = self._read_tables(is_progress=True)
        with self._open_source() as view:
            self._check_source(view)
            end = view.max_offset
            cut_off = find_cut_off(view)
            self._check_log(view, former, end, prune=prune)
            begun = self._begin(view, former, started_at)
            files = self._open_files(view, begun, end)
            copier = StoreCopier(view, files, end, prune=prune, as_is=cut_off is not None)
            self._copy(view, copier, files, tables)
            refused = None
            if cut_off is None:
                refused = self._settle(view, copier, end)
            elif self._is_quiet(view):
                AbortMark(self._ops, self._target).remove()
        done = self._finish(begun, files, end, scan_all=verify)
        if cut_off is not None:
            cut_off = self._check_cut_off(cut_off)
        if verify:
            self._verify(done)
        return BackupReport(
            is_first=former is None,
            log_begin=done.log_begin,
            log_end=end,
            copied_bytes=files.copied_bytes,
            files=len(done.files),
            pruned=copier.pruned,
            kept=copier.kept,
            cut_off=cut_off,
            refused=refused,
        )

    def _check_cut_off(self, wanted: CutOff) -> CutOff:
        """Return what is behind the end of the copy.

        Raises:
            StoreError: it is less than the source had.
        """
        with OfflineStore(self._target, ops=self._ops) as copy:
            found = find_cut_off(copy)
        if found is None or found.records < wanted.records:
            raise StoreError(
                f"{wanted}, but {0 if found is None else found.records} in the copy: the log of"
                f" {self._source} was cut meanwhile; the copy is left as it is"
            )
        return found

    def _now_text(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat("T", "seconds")

    # --- may it be done? -------------------------------------------------------------------------

    def _check_target(self) -> Manifest | None:
        source, target = self._source.resolve(), self._target.resolve()
        if source == target or source in target.parents or target in source.parents:
            raise StoreError(f"{self._target} and {self._source} lie in each other; copy elsewhere")
        entry = self._ops.stat(self._target)
        if entry is None:
            return None
        if not entry.is_dir:
            raise StoreError(f"{self._target} is a file; a {self.noun} is a directory")
        found = manifests.load(self._ops, self._target)
        there = [e.name for e in self._ops.entries(self._target) if not e.name.endswith(".part")]
        if found is None and there:
            raise StoreError(
                f"{self._target} is no {self.noun} to go on with: it has {', '.join(there[:3])},"
                f" but no {manifests.NAME}; name a directory that is empty or not there"
            )
        holder = self._ops.lock_holder(self._target / names.LOCK)
        if holder is not None:
            raise StoreError(
                f"{self._target} is open as a store by process {holder}; close it there"
            )
        if found is not None and found.state == "copying":
            self._listener.note(
                f"the last {self.noun} did not come to its end; this one goes on with it"
            )
        return found

    def _check_source(self, view: OfflineStore) -> None:
        strange = sorted(set(view.traits.variants) & _UNKNOWN_VARIANTS)
        if strange:
            raise StoreError(
                f"{self._source} has {', '.join(strange)}, which cannot be copied while a process"
                " writes; stop the broker and copy the directory"
            )
        if view.traits.has_rocksdb_queues:
            file_queues.require_readable(view)
        if view.traits.has_rocksdb_queues or view.traits.has_rocksdb_tables:
            self._listener.note("what the source keeps in RocksDB is in files in the copy")
        others = {e.name for e in self._ops.entries(self._source)} - _KNOWN_NAMES
        others -= {path.name for path in view.directory.log_dirs}
        if others:
            self._listener.note(
                f"not copied, being no part of a store: {', '.join(sorted(others))}"
            )

    def _check_log(
        self, view: OfflineStore, former: Manifest | None, end: int, *, prune: bool
    ) -> None:
        """Refuse a source whose log does not continue where the target's ends."""
        if former is None:
            return
        elsewhere = "; name another directory"
        if end < former.log_end:
            raise StoreError(
                f"the log of {self._source} ends at {end}, before that of the {self.noun}, at"
                f" {former.log_end}: it is another store, or lost messages{elsewhere}"
            )
        if view.min_offset > former.log_end and not prune:
            way_out = " --prune drops the older part, or name" if self.can_prune else " Name"
            raise StoreError(
                f"the log of {self._source} begins at {view.min_offset}, but the {self.noun} ends"
                f" at {former.log_end}: what lay between has expired.{way_out} another directory"
            )
        files = BackupFiles(self._ops, self._target, former.by_path(), lambda _: None)
        for part in log_parts(view, end):
            if files.is_other(part):
                raise StoreError(
                    f"{part.source} does not begin as {self._target / part.name} does: it is of"
                    f" another store, or was cut and written anew{elsewhere}"
                )
        if former.state == "complete" and self._goes_on(former):
            raise StoreError(
                f"{self._target} was opened and written to since: its log is not as it was left"
                f" behind {former.log_end}{elsewhere}"
            )

    def _goes_on(self, former: Manifest) -> bool:
        """Tell whether the copy's log was changed behind its end."""
        as_is = [file for file in former.files if file.rebuilt and file.is_of_log]
        if as_is:
            return any(
                checksum(self._ops, self._target / file.path, file.bytes)
                != (file.bytes, file.crc32)
                for file in as_is
            )
        with OfflineStore(self._target, ops=self._ops) as copy:
            return copy.log.has_more(former.log_end)

    # --- copying ---------------------------------------------------------------------------------

    def _begin(self, view: OfflineStore, former: Manifest | None, started_at: str) -> Manifest:
        """Record on disk that the copy is being changed."""
        begun = Manifest(
            made_by=f"rocketlake {__version__}",
            state="copying",
            source=str(self._source.absolute()),
            started_at=started_at,
            log_begin=former.log_begin if former is not None else 0,
            log_end=former.log_end if former is not None else 0,
            files=former.files if former is not None else [],
        )
        self._ops.mkdirs(self._target)
        manifests.save(self._ops, self._target, begun)
        AbortMark(self._ops, self._target, names_process=view.traits.is_5x).set()
        # What is replaced or pruned from here on is not missed by the next start.
        InventoryFile(self._ops, self._target).remove()
        return begun

    def _open_files(self, view: OfflineStore, begun: Manifest, end: int) -> BackupFiles:
        covered = max(begun.log_end, view.min_offset)
        advance = self._listener.begin("copying the log", end - covered)
        files = BackupFiles(self._ops, self._target, begun.by_path(), advance)
        files.cut_back()
        return files

    def _copy(
        self,
        view: OfflineStore,
        copier: StoreCopier,
        files: BackupFiles,
        tables: dict[str, bytes],
    ) -> None:
        copier.copy_log()
        files.on_bytes = self._listener.begin("copying queues and index", 0)
        # Order: what the checkpoint vouches for was in the queues before they are read.
        page = view.directory.read_small(names.CHECKPOINT)
        epochs = view.directory.read_small(names.EPOCHS)
        copier.copy_queues()
        if view.traits.has_rocksdb_queues:
            shape = queue_shape(Kind.of(view))
            directory = StoreDir(self._ops, self._target)
            file_queues.begin_expired_queues(view, directory, self._clock, shape)
        copier.copy_ext()
        copier.copy_index(with_last=copier.as_is or self._is_quiet(view))
        copier.copy_timer()
        copier.copy_salvage()
        for name, data in (tables | self._read_tables(is_progress=False)).items():
            files.write(f"{names.CONFIG}/{name}", data)
        if epochs is not None:
            files.write(names.EPOCHS, epochs)
        # Order: last, for a crash before must be recovered from where the former one says.
        if page is not None:
            files.write(names.CHECKPOINT, page)

    def _is_quiet(self, view: OfflineStore) -> bool:
        """Tell whether the source was cleanly stopped, and not started since."""
        directory = view.directory
        holder = self._ops.lock_holder(directory.path(names.LOCK))
        return view.traits.is_clean and holder is None and not directory.exists(names.ABORT)

    def _settle(self, view: OfflineStore, copier: StoreCopier, end: int) -> FileSizeError | None:
        """Make all families agree with the log, as a start would, and close the copy cleanly.

        Returns why that cannot be: a file was cut short, and a start refuses it. The copy then has
        the files as they are.
        """
        if view.traits.has_rocksdb_queues:
            pass  # the mark of an unclean stop has the queues made from the log
        elif self._is_quiet(view):
            AbortMark(self._ops, self._target).remove()
        elif view.traits.is_clean:
            copier.drop_last_index()  # a writer has started since
        bar: list[Callable[[int], None]] = []
        reached = 0

        def show(done: int, total: int) -> None:
            nonlocal reached
            if not bar:
                bar.append(self._listener.begin("making queues and index agree", total))
            bar[0](done - reached)
            reached = done

        kind = Kind.of(view)
        try:
            report = settle(self._ops, self._target, self._clock, kind=kind, on_progress=show)
        except FileSizeError as error:
            if names.COMMIT_LOG not in Path(error.path).parts:  # of the log the view has told it
                text = f"it has {error.size} bytes instead of {error.expected}"
                self._listener.damage(Finding(error.path, error.size, text))
            return error
        if report.log_end != end and end > view.min_offset:
            notes = "; ".join(report.notes)
            raise StoreError(
                f"the log of the copy ends at {report.log_end}, that of {self._source} at {end}"
                f" ({notes}); the copy is left as it is, and marked as unfinished"
            )
        if view.traits.has_rocksdb_queues:
            file_queues.drop_deleted_topics(view, self._ops, self._target)
        return None

    def _finish(self, begun: Manifest, files: BackupFiles, end: int, *, scan_all: bool) -> Manifest:
        """Scan what is new in the copy, and write down what it holds."""
        with OfflineStore(self._target, ops=self._ops, on_damage=self._listener.damage) as copy:
            start = copy.min_offset if scan_all else max(begun.log_end, copy.min_offset)
            advance = self._listener.begin("scanning the copy", end - start)
            for chunk in copy.walk(start):
                advance(int(chunk.columns["size"].sum()))
            log_begin = copy.min_offset
        done = replace(
            begun,
            state="complete",
            finished_at=self._now_text(),
            log_begin=log_begin,
            log_end=end,
            files=files.summary(_NOT_LISTED),
        )
        manifests.save(self._ops, self._target, done)
        return done

    def _verify(self, done: Manifest) -> None:
        """Read every file of the backup again."""
        advance = self._listener.begin("verifying", sum(file.bytes for file in done.files))
        for file in done.files:
            covered, crc = checksum(self._ops, self._target / file.path, file.bytes)
            advance(covered)
            if (covered, crc) != (file.bytes, file.crc32):
                text = f"the first {file.bytes} bytes do not have the checksum {file.crc32:08x}"
                self._listener.damage(Finding(str(self._target / file.path), 0, text))

    # --- tables ----------------------------------------------------------------------------------

    def _read_tables(self, *, is_progress: bool) -> dict[str, bytes]:
        """Read the tables of the source: its progress, or all others."""
        place = self._source / names.CONFIG
        found: dict[str, bytes] = {}
        stems = {
            entry.name.removesuffix(names.BACKUP_SUFFIX)
            for entry in self._ops.entries(place)
            if not entry.is_dir and not entry.name.endswith(".tmp")
        }
        for name in sorted(stems):
            if name.startswith(_IS_PROGRESS) is is_progress:
                data = self._read_table(place / name)
                if data is not None:
                    found[name] = data
        tables = file_queues.read_tables(self._ops, place)
        found |= {
            name: data for name, data in tables if name.startswith(_IS_PROGRESS) is is_progress
        }
        return found

    def _read_table(self, path: Path) -> bytes | None:
        """Return a table, or the copy beside it where the table itself is of no use."""
        for candidate in (path, path.with_name(path.name + names.BACKUP_SUFFIX)):
            entry = self._ops.stat(candidate)
            if entry is None or entry.is_dir:
                continue
            reader = self._ops.open_reader(candidate)
            try:
                data = reader.read(0, min(entry.size, _TABLE_SIZE_MAX))
            finally:
                reader.close()
            if not path.name.endswith(".json") or _is_object(data):
                if candidate != path:
                    self._listener.note(f"{path} is missing or broken; {candidate.name} was taken")
                return data
        self._listener.damage(Finding(str(path), 0, "neither the table nor its copy can be read"))
        return None


def _is_object(data: bytes) -> bool:
    try:
        return bool(data.strip()) and isinstance(java_json.loads(data), dict)
    except ValueError:
        return False
