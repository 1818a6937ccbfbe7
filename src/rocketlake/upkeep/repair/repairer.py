"""Repair a store: what verify found, as far as the log and the copies of tables can give it back.

1. Verify says what is wrong; `plan` says what can be done about it, and what cannot.
2. Queues and index are built anew beside the old ones and swapped in (`rebuild`, `swapping`).
   Bytes behind the log's end are zeroed and blank records written anew; a table is restored from
   its `.bak`; a checkpoint that is ahead of the log is set back.
3. A copy of all that is replaced stays under `<store>/repair/<time>/old`.
4. Verify runs again at the end.
"""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import StoreError
from rocketlake.files.json_file import backup_path, load_table
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_lock import StoreLock
from rocketlake.files.whole_file import write_whole
from rocketlake.format import layout, names
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.record import StopReason
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.store.disk.traits import refuse_rocksdb_queues
from rocketlake.store.inventory import InventoryFile
from rocketlake.store.offline.view import OfflineStore
from rocketlake.upkeep.repair.rebuild import Machine, index_shape, rebuild_index, rebuild_queues
from rocketlake.upkeep.repair.swap import Workshop, copy_file, finish_interrupted
from rocketlake.upkeep.salvage.cut_off import CutOff, find_cut_off, find_refused
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.store_layout import Layout
from rocketlake.upkeep.verify.tables import DECODERS
from rocketlake.upkeep.verify.verdict import Judge
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions, VerifySummary

_QUEUE_KINDS: Final = {Kind.UNIT, Kind.LACKS_UNITS, Kind.QUEUE_FILE, Kind.EXTENSION}
_LOG_KINDS: Final = {Kind.LOG_FILE, Kind.RECORD, Kind.LOG_END}
_INDEX_KINDS: Final = {Kind.INDEX, Kind.LACKS_KEYS}
_ZEROS: Final = bytes(1 << 20)


class Patch(Struct, frozen=True):
    """Bytes of a log file that are written anew: `data`, then zeros."""

    path: Path
    position: int
    size: int
    data: bytes
    text: str


class Plan(Struct, kw_only=True):
    """What a repair will do, and which findings it can do nothing about."""

    queues: dict[QueueKey, int] = field(default_factory=dict)
    """The queues to build anew, each from the records at or behind an offset."""
    index: bool = False
    patches: list[Patch] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    hopeless: list[Fault] = field(default_factory=list)
    cut_off: CutOff | None = None
    """Good records behind a bad one that a start would cut off."""
    refused: str | None = None
    """Which file of the log keeps a start from opening the store."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.queues or self.index or self.patches or self.tables or self.checkpoint)

    def texts(self) -> Iterator[str]:
        """Say in words what will be done."""
        for patch in self.patches:
            yield f"{patch.path} at {patch.position}: {patch.text}"
        for key in sorted(self.queues):
            yield f"queue {key} is built anew from the log"
        if self.index:
            yield "the index is built anew from the log"
        for name in self.tables:
            yield f"{name} is restored from {name}{names.BACKUP_SUFFIX}"
        if self.checkpoint is not None:
            yield "the checkpoint is set back to what the log holds"

    def next_commands(self, root: Path) -> Iterator[str]:
        """Say what to do about what cannot be repaired: a command, and what it does."""
        kinds = {fault.kind for fault in self.hopeless}
        place, log = (shlex.quote(str(path)) for path in (root, root / names.COMMIT_LOG))
        if self.refused is not None:
            yield (
                f"rocketlake salvage NEW --from {log} --replay: puts every good"
                f" record of the log into a new store NEW; a start refuses this one, since"
                f" {self.refused}"
            )
        elif self.cut_off is not None:
            yield (
                f"rocketlake salvage {place}: lists the good records behind the bad one, which a"
                " start would cut off; --out FILE exports them, --replay opens the store and puts"
                " them again"
            )
        elif kinds & _LOG_KINDS:
            yield (
                f"rocketlake salvage --from {log} --out FILE: exports every"
                " good record of the log; take damaged ones from a replica or a backup"
            )
        if kinds & _QUEUE_KINDS:
            yield (
                f"rocketlake export {place} FILE: writes the messages that can be read; a queue"
                " that cannot be built anew is right again when its damaged records have expired"
            )
        if Kind.TABLE in kinds:
            yield (
                f"put a good copy of the table into {root / names.CONFIG}, from a backup; a start"
                " refuses a table that it cannot read, and makes a new one where there is none"
            )
        if Kind.PROGRESS in kinds:
            yield "store.reset_offsets(group, topic, 'last'): lets the group go on at the end"


class Repairer:
    """Repairs one store; the lock is held from `start` to `close`."""

    def __init__(
        self,
        open_store: Callable[[], OfflineStore],
        root: Path,
        *,
        what: str = "all",
        jobs: int = 0,
        ops: FileOps | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`what` is `all`, `queues` or `index`."""
        self._open = open_store
        self.root = root
        self._what = what
        self._options = VerifyOptions(jobs=jobs, is_locked=True)
        self._machine = Machine(ops or PosixFileOps(), clock or SystemClock())
        self._lock = StoreLock(self._machine.ops, root)
        self._found: Layout | None = None
        self._is_4x = False
        self._has_keys = False
        self.faults: list[Fault] = []

    def start(self) -> None:
        """Take the lock.

        Raises:
            StoreNotFoundError: there is no store.
            StoreLockedError: the store is open.
            StoreError: queues or tables are in RocksDB.
        """
        with self._open() as store:  # a path that is no store gets no lock file
            refuse_rocksdb_queues(store.directory)
            log_dirs = store.directory.log_dirs
        self._lock = StoreLock(self._machine.ops, self.root, log_dirs)
        self._lock.acquire()

    def close(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def finish_interrupted(self) -> list[Path]:
        """Bring a repair that was interrupted to its end."""
        return finish_interrupted(self._machine.ops, self.root)

    def verify(self, on_bytes: Callable[[int], None] | None = None) -> tuple[VerifySummary, Plan]:
        """Check the store, and plan what to do."""
        with self._open() as store:
            self._is_4x = store.traits.is_4x
            verifier = Verifier(store, self._options)
            summary = verifier.run(on_bytes=on_bytes)
            cut_off, refused = find_cut_off(store), find_refused(store)
        assert verifier.layout is not None, "verify has run"
        assert verifier.judge is not None, "verify has run"
        self._found = verifier.layout
        self._has_keys = summary.keys > 0
        self.faults = verifier.ledger.faults
        planner = _Planner(verifier.layout, verifier.judge, self._what, self._machine.ops)
        plan = planner.plan(self.faults)
        plan.cut_off, plan.refused = cut_off, refused
        return summary, plan

    def act(self, plan: Plan, on_bytes: Callable[[int], None] | None = None) -> Path:
        """Do what was planned; return the directory with the copies of what was replaced.

        Raises:
            StoreError: something cannot be written; what was there stays, or is found in the copy.
        """
        assert self._found is not None, "what is wrong is known"
        found, machine = self._found, self._machine
        shop = Workshop.make(machine.ops, self.root, machine.clock)
        places: list[str] = []
        if plan.queues:
            rebuild_queues(found, plan.queues, shop.new, machine, on_bytes=on_bytes)
            places += _queue_places(machine.ops, self.root, shop.new, plan.queues)
        if plan.index:
            if self._has_keys:
                rebuild_index(found, shop.new / names.INDEX, machine, on_bytes=on_bytes)
            places.append(names.INDEX)  # without keys it only goes: a start makes an empty one
        for name in plan.tables:
            place = f"{names.CONFIG}/{name}"
            copy_file(machine.ops, backup_path(self.root / place), shop.new / place)
            places.append(place)
        if plan.checkpoint is not None:
            machine.ops.mkdirs(shop.new)
            write_whole(machine.ops, shop.new / names.CHECKPOINT, plan.checkpoint.encode())
            places.append(names.CHECKPOINT)
        for patch in plan.patches:
            self._patch(patch, shop)
        shop.swap(places, list(plan.texts()), names_process=not self._is_4x)
        return shop.path

    def _patch(self, patch: Patch, shop: Workshop) -> None:
        ops = self._machine.ops
        InventoryFile(ops, self.root).remove()
        saved = shop.old / names.COMMIT_LOG / f"{patch.path.name}@{patch.position}"
        copy_file(ops, patch.path, saved, (patch.position, patch.size))
        writer = ops.open_writer(patch.path)
        try:
            at, end = patch.position + len(patch.data), patch.position + patch.size
            while at < end:
                writer.write(at, _ZEROS[: end - at])
                at += min(len(_ZEROS), end - at)
            if patch.data:
                # Order: what it covers is gone before the blank record says that nothing follows.
                writer.sync()
                writer.write(patch.position, patch.data)
            writer.sync()
        finally:
            writer.close()


class _Planner:
    def __init__(self, found: Layout, judge: Judge, what: str, ops: FileOps) -> None:
        self._found = found
        self._judge = judge
        self._what = what
        self._ops = ops

    def plan(self, faults: list[Fault]) -> Plan:
        plan = Plan()
        if self._what == "all":
            plan.patches = list(self._patches())
            self._follow_the_cut(plan)
        patched = {(str(patch.path), patch.position) for patch in plan.patches}
        for fault in faults:
            if not self._take(plan, fault, patched):
                plan.hopeless.append(fault)
        if plan.index and self._has_keys and (reason := self._unknown_shape()):
            plan.index = False
            place = str(self._found.root / names.INDEX)
            plan.hopeless.append(Fault(place, 0, reason, kind=Kind.INDEX, about="index"))
        return plan

    def _follow_the_cut(self, plan: Plan) -> None:
        """Plan what must follow where the log's end is cut: queues, index and checkpoint."""
        parts = [part for report in self._judge.reports for part in report.bad]
        if not parts or parts[-1].has_record_behind or not self._found.is_cleanly_stopped:
            return
        for number, place in self._judge.last_lost.items():
            if place >= parts[-1].begin:
                queue = self._found.queues[number]
                start = queue.first_physical if self._judge.earlier[number] else 0
                plan.queues[queue.key] = start
        if self._judge.last_lost and plan.queues:
            plan.index = bool(self._found.index)
            plan.checkpoint = self._set_back()

    @property
    def _has_lost_records(self) -> bool:
        is_short = any(fault.kind is Kind.LOG_FILE for fault in self._found.faults)
        return is_short or any(report.bad for report in self._judge.reports)

    @property
    def _has_keys(self) -> bool:
        return any(report.keys for report in self._judge.reports)

    def _unknown_shape(self) -> str | None:
        try:
            index_shape(self._found)
        except StoreError as error:
            return str(error)
        return None

    def _take(self, plan: Plan, fault: Fault, patched: set[tuple[str, int]]) -> bool:
        if fault.kind in _QUEUE_KINDS and self._what in ("all", "queues"):
            if is_lmq(fault.about) and self._has_lost_records:
                return False  # the numbers of light queues would shift
            plan.queues.update(self._queues_of(fault))
            return True
        if fault.kind in _INDEX_KINDS and self._what in ("all", "index"):
            plan.index = True
            return True
        if self._what != "all":
            return False
        return self._take_rest(plan, fault, patched)

    def _take_rest(self, plan: Plan, fault: Fault, patched: set[tuple[str, int]]) -> bool:
        if fault.kind is Kind.TABLE:
            return self._restore(plan, fault.about)
        if fault.kind is Kind.CHECKPOINT:
            plan.checkpoint = self._set_back()
            return True
        places = [position for path, position in patched if path == fault.path]
        is_of_log = fault.kind in (Kind.RECORD, Kind.LOG_END)
        return is_of_log and any(position <= fault.position for position in places)

    def _queues_of(self, fault: Fault) -> Iterator[tuple[QueueKey, int]]:
        """Yield the queues a finding speaks of, and from where on to build them."""
        by_name = {queue.name: queue for queue in self._found.queues}
        named = [fault.about] if "/" in fault.about else list(by_name)
        for name in named:
            topic, _, queue_id = name.rpartition("/")
            queue = by_name.get(name)
            start = 0
            if queue is not None and self._judge.earlier[queue.number]:
                start = queue.first_physical
            yield QueueKey(topic, int(queue_id)), start

    def _restore(self, plan: Plan, name: str) -> bool:
        path = self._found.root / names.CONFIG / name
        if load_table(path, DECODERS[name], ops=self._ops).source != "backup":
            return False
        if name not in plan.tables:
            plan.tables.append(name)
        return True

    def _set_back(self) -> Checkpoint:
        page, newest, end = self._found.checkpoint, self._judge.newest, self._judge.log_limit
        return Checkpoint(
            min(max(page.physical_timestamp, 0), newest),
            min(max(page.queue_timestamp, 0), newest),
            min(max(page.index_timestamp, 0), newest),
            min(max(page.primary_flushed_offset, 0), end),
            min(max(page.confirm_offset, 0), end),
            min(max(page.queue_physical_offset, 0), end),
        )

    def _patches(self) -> Iterator[Patch]:
        """Yield what to write into log files: zeros behind the end, and blank records."""
        for report in self._judge.reports:
            file = self._found.log_files[report.number]
            goes_on = self._judge.goes_on(report)
            position = report.end - file.base_offset
            left = self._found.log_file_size - position
            # A blank record says in four bytes how long it is: no log has larger files.
            if file.size != self._found.log_file_size or left > layout.MAX_I32:
                continue
            blank = left.to_bytes(4, "big") + layout.MAGIC_BLANK.to_bytes(4, "big", signed=True)
            last = report.bad[-1] if report.bad else None
            if report.stop is StopReason.END_OF_FILE:
                if report.has_bad_blank:
                    text = "the blank record is written anew"
                    yield Patch(file.path, position, len(blank), blank, text)
            elif last is not None and not last.has_record_behind:
                at = last.begin - file.base_offset
                size = max(last.written_end - last.begin, len(blank))
                left = self._found.log_file_size - at
                blank = left.to_bytes(4, "big") + blank[4:]
                if goes_on and left >= len(blank):
                    text = f"{size} bytes that are no records become a blank record"
                    yield Patch(file.path, at, min(size, left), blank, text)
                elif not goes_on and self._found.is_cleanly_stopped:
                    text = f"{size} bytes behind the end of the log become zeros"
                    yield Patch(file.path, at, min(size, left), b"", text)
            elif goes_on and left >= len(blank):
                text = "a blank record is written behind the file's last record"
                yield Patch(file.path, position, len(blank), blank, text)
            elif report.rest_position >= 0 and self._found.is_cleanly_stopped:
                size = file.size - report.rest_position
                text = "the bytes behind the end of the log become zeros"
                yield Patch(file.path, report.rest_position, size, b"", text)


def _queue_places(
    ops: FileOps, root: Path, new: Path, queues: dict[QueueKey, int]
) -> Iterator[str]:
    """Yield the directories of queues that were built, below the store.

    A queue that nothing in the log belongs to stays as it is: without its old units, the next
    message would get a number that was given before.
    """
    families = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE, names.CONSUME_QUEUE_EXT)
    for key in queues:
        places = [f"{family}/{key.topic}/{key.queue_id}" for family in families]
        if any(ops.stat(new / place) is not None for place in places):
            both = (root, new)
            yield from (p for p in places if any(ops.stat(base / p) is not None for base in both))
