"""The parts of a store as a checker needs them: plain values that can be sent to another process.

1. `look` opens a store and notes files, bounds and rules, once and before anything is checked: what
   a running broker adds meanwhile is behind these bounds.
2. A piece of work is a function of a `Layout` and a number, or of one of its parts.
"""

import bisect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps
from rocketlake.files.store_dir import OffsetFile, StoreDir
from rocketlake.format import layout, names
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.index import IndexHeader
from rocketlake.format.record import Check, scan, scan_at
from rocketlake.metadata import table, topics
from rocketlake.model.queues import QueueKey
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.damage import Damage, Finding
from rocketlake.store.disk.index import IndexView
from rocketlake.store.disk.log import Readers
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.offline.view import OfflineStore
from rocketlake.store.options import parse_delay_levels
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN, UnitKind
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.index_guess import GUESS_MAX, guess_slots

_HEAD_UNITS = 4096
_SAMPLE = 256 << 10
_SAMPLE_ROWS = 256

Units = npt.NDArray[np.void]


class QueuePlace(Struct, frozen=True, kw_only=True):
    """One queue: its files and bounds, counted in units from the start of the queue."""

    number: int
    key: QueueKey
    is_batch: bool
    directory: Path
    files: list[OffsetFile]
    file_size: int
    first_index: int
    end_index: int
    end_offset: int
    """The queue offset that the units end with."""
    first_real: int
    """The first unit that is no pre-fill; `end_index` if there is none."""
    first_physical: int
    max_physical_offset: int
    ext_files: list[OffsetFile]

    @property
    def kind(self) -> UnitKind:
        """Plain or batch."""
        return BATCHED if self.is_batch else PLAIN

    @property
    def name(self) -> str:
        """The name of the queue in findings."""
        return f"{self.key.topic}/{self.key.queue_id}"

    def place_of(self, index: int) -> tuple[str, int]:
        """Return path and position of a unit."""
        position = index * self.kind.unit_size
        base = position // self.file_size * self.file_size
        for file in self.files:
            if file.base_offset == base:
                return str(file.path), position - base
        return str(self.directory / names.offset_name(base)), position - base

    def next_held(self, index: int) -> int:
        """Return the first unit at an index or behind it that a file holds; the end if none is."""
        size, per_file = self.kind.unit_size, self.file_size // self.kind.unit_size
        found = (
            max(f.base_offset // size, index)
            for f in self.files
            if f.base_offset // size + per_file > index
        )
        return min(found, default=self.end_index)

    def read(self, readers: Readers, index: int, count: int) -> Units:
        """Return units from an index on; zeros where no file holds them."""
        size = self.kind.unit_size
        parts: list[bytes] = []
        begin, end = index * size, (index + count) * size
        while begin < end:
            base = begin // self.file_size * self.file_size
            wanted = min(end, base + self.file_size) - begin
            file = next((f for f in self.files if f.base_offset == base), None)
            data = readers.read(file.path, begin - base, wanted) if file is not None else b""
            parts.append(data.ljust(wanted, b"\0"))
            begin += wanted
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        return self.kind.decode(joined)


class IndexPlace(Struct, frozen=True, kw_only=True):
    """One index file."""

    path: Path
    size: int
    slots: int
    """0 where an empty file leaves it unknown."""
    header: IndexHeader
    is_growing: bool = False
    """A running broker adds to it, so that only what its header counts can be looked at."""
    before_end_timestamp: int | None
    """The time the file before it ended with; None if there is none any more."""

    @property
    def count(self) -> int:
        """The number behind the last entry that the file has room for; entries count from 1."""
        room = (self.size - self.position(0)) // layout.INDEX_ENTRY_SIZE
        return max(min(self.header.entry_count, room), 1)

    def position(self, number: int) -> int:
        """Return where an entry lies."""
        return (
            layout.INDEX_HEADER_SIZE
            + self.slots * layout.INDEX_SLOT_SIZE
            + number * layout.INDEX_ENTRY_SIZE
        )


class Layout(Struct, frozen=True, kw_only=True):
    """A store as it was found: everything a piece of work needs to know."""

    root: Path
    is_clean: bool
    held_by: int | None
    log_files: list[OffsetFile]
    log_file_size: int
    queues: list[QueuePlace]
    index: list[IndexPlace]
    index_sizes: list[int]
    """The sizes of all index files, of those too that a start does not trust."""
    index_slots: int | None
    """The slot count that options give."""
    is_5x: bool
    is_5_5: bool = False
    """The index has tags beside keys."""
    checks: int
    delays_ms: list[int]
    configured_topics: frozenset[str] | None
    """The topics of the table; None if it cannot be read."""
    checkpoint: Checkpoint
    deleted: DeletedTopics = NO_TOPICS
    earlier_queues: list[QueueKey] = []
    """Queues of an earlier life of their topic, which a start removes; not among `queues`."""
    what: frozenset[str] = frozenset({"log", "queues", "index", "tables"})
    faults: list[Fault] = []

    @property
    def is_cleanly_stopped(self) -> bool:
        """Whether nothing is left for a start to finish: stopped cleanly, and not running."""
        return self.is_clean and self.held_by is None

    @property
    def log_min(self) -> int:
        """The first byte of the log."""
        return self.log_files[0].base_offset if self.log_files else 0

    @property
    def dispatched(self) -> int:
        """How far into the log the queues reach; -1 if there are none."""
        limit = self.log_files[-1].base_offset + self.log_files[-1].size if self.log_files else 0
        ends = (queue.max_physical_offset for queue in self.queues)
        return max((end for end in ends if end <= limit), default=-1)

    def is_gone(self, place: int, ops: FileOps) -> bool:
        """Tell whether a running broker has deleted the log file of an offset meanwhile."""
        number = bisect.bisect_right([file.base_offset for file in self.log_files], place) - 1
        if self.held_by is None or number < 0:
            return False
        return ops.stat(self.log_files[number].path) is None

    def room(self, number: int) -> int:
        """Return how many bytes of a log file count: up to the next one."""
        file = self.log_files[number]
        if number + 1 < len(self.log_files):
            return min(file.size, self.log_files[number + 1].base_offset - file.base_offset)
        return file.size


def look(
    store: OfflineStore,
    what: frozenset[str] = frozenset({"log", "queues", "index", "tables"}),
    *,
    is_locked: bool = False,
) -> Layout:
    """Note what a store has; what is wrong with the shapes of its files is among the faults.

    `is_locked` says that the caller has the store's lock, so that no process writes.
    """
    faults = [_of_shape(finding) for finding in store.damage.findings]
    if store.traits.has_rocksdb_queues:
        what -= {"queues"}
    if store.traits.has_dledger_log:
        what -= {"queues", "index"}  # they point into the log that is not read
    readers = Readers(store.directory.ops)
    try:
        queues = list(_queues(store, readers, faults)) if "queues" in what else []
        deleted = store.load_deleted()  # Order: behind the queues, as the view has it
    finally:
        readers.close()
    earlier = {q.key for q in queues if deleted.is_earlier(q.key.topic, q.first_physical)}
    kept = (queue for queue in queues if queue.key not in earlier)
    queues = [structs.replace(queue, number=number) for number, queue in enumerate(kept)]
    options = store.options
    held_by = None if is_locked else store.traits.held_by
    return Layout(
        root=store.directory.root,
        is_clean=store.traits.is_clean,
        held_by=held_by,
        log_files=store.log.files,
        log_file_size=store.log.file_size,
        queues=queues,
        index=_index(store, faults, is_live=held_by is not None) if "index" in what else [],
        index_sizes=[entry.size for entry in store.directory.index_files()],
        index_slots=options.max_hash_slot_num,
        is_5x=store.traits.is_5x,
        is_5_5=store.traits.is_5_5,
        checks=int(Check.OFFSET | Check.BODY_CRC | _record_crc(store)),
        delays_ms=list(parse_delay_levels(options.message_delay_level)),
        configured_topics=_configured(store.directory),
        checkpoint=store.checkpoint,
        deleted=deleted,
        earlier_queues=sorted(earlier),
        what=what,
        faults=faults,
    )


def _record_crc(store: OfflineStore) -> Check:
    """Return how to check whole-record checksums.

    They are checked where options ask for it, or where the store visibly has them. In another
    store a forwarded message may carry the checksum of its first store.
    """
    if store.options.force_verify_prop_crc:
        return Check.RECORD_CRC_REQUIRED
    if store.options.enabled_append_prop_crc:
        return Check.RECORD_CRC
    files = [*store.log.files[:1], *store.log.files[-2:]]
    return Check.RECORD_CRC if any(_has_record_crc(store, file) for file in files) else Check.SHAPE


def _has_record_crc(store: OfflineStore, file: OffsetFile) -> bool:
    """Tell whether one of the first records of a file has a good whole-record checksum."""
    data = store.log.read(file.base_offset, _SAMPLE)
    found = scan(data, base_offset=file.base_offset, checks=Check.OFFSET, rows_max=_SAMPLE_ROWS)
    columns = found.columns
    names_ = ("position", "size", "physical_offset")
    claims = np.stack([columns[name].astype(np.int64) for name in names_], axis=1)
    _, reasons = scan_at(data, claims, checks=Check.RECORD_CRC_REQUIRED)
    return bool((reasons == 0).any())


def _of_shape(finding: Finding) -> Fault:
    return Fault(finding.path, finding.position, finding.reason, kind=Kind.LOG_FILE, about="log")


def _configured(directory: StoreDir) -> frozenset[str] | None:
    path = directory.path(names.CONFIG) / topics.FILE_NAME
    try:
        found = table.find(path, topics.decode, ops=directory.ops)
    except StoreError:
        return None
    return frozenset(found.value.topics) if found.value is not None else None


# --- queues ------------------------------------------------------------------------------------


def _queues(store: OfflineStore, readers: Readers, faults: list[Fault]) -> Iterator[QueuePlace]:
    directory, options = store.directory, store.options
    ext: dict[QueueKey, list[OffsetFile]] = {
        QueueKey(place.topic, place.queue_id): directory.offset_files(place.path)
        for place in directory.queue_dirs(names.CONSUME_QUEUE_EXT)
    }
    families = (
        (names.BATCH_CONSUME_QUEUE, BATCHED, options.mapper_file_size_batch_consume_queue),
        (names.CONSUME_QUEUE, PLAIN, options.mapped_file_size_consume_queue),
    )
    seen: set[QueueKey] = set()
    for family, kind, file_size in families:
        for place in directory.queue_dirs(family):
            key = QueueKey(place.topic, place.queue_id)
            files = [file for file in directory.offset_files(place.path) if file.size]
            if key in seen and not files:
                continue
            damage = Damage()
            view = QueueView(key, kind, readers, files, file_size=file_size)
            view.load(damage)
            if store.traits.is_clean:
                _take_all_written(view, readers)
            faults += _queue_shapes(key, view, damage)
            if key in seen:
                reason = f"{_name(key)} has units in two families"
                faults.append(_queue_fault(str(place.path), 0, reason, key))
                continue
            seen.add(key)
            found = _queue_place(place.path, view, readers, ext.get(key, []))
            yield structs.replace(found, number=len(seen) - 1)


def _name(key: QueueKey) -> str:
    return f"queue {key.topic}/{key.queue_id}"


def _queue_fault(path: str, position: int, reason: str, key: QueueKey) -> Fault:
    return Fault(path, position, reason, kind=Kind.QUEUE_FILE, about=f"{key.topic}/{key.queue_id}")


def _queue_shapes(key: QueueKey, view: QueueView, damage: Damage) -> Iterator[Fault]:
    for finding in damage.findings:
        yield _queue_fault(finding.path, finding.position, f"{_name(key)}: {finding.reason}", key)
    for file in view.files:
        rest = file.size % view.kind.unit_size
        if file.size not in (view.file_size, view.file_size + rest):
            reason = f"{_name(key)}: the file has {file.size} bytes, not {view.file_size}"
            yield _queue_fault(str(file.path), min(file.size, view.file_size), reason, key)
        if file.base_offset % view.file_size:
            reason = f"{_name(key)}: no file of {view.file_size} bytes begins there"
            yield _queue_fault(str(file.path), 0, reason, key)


def _take_all_written(view: QueueView, readers: Readers) -> None:
    """Let a queue end behind the last unit that is not zero: after a clean stop all of them count.

    A start would cut the queue at the first invalid one; here each is looked at.
    """
    size = view.kind.unit_size
    for file in reversed(view.files):
        first = file.base_offset // size
        begin = max(view.end_index - first, 0) * size
        step = _HEAD_UNITS * size
        last = -1
        for position in range(begin, min(file.size, view.file_size), step):
            data = readers.read(file.path, position, min(step, view.file_size - position))
            used = np.flatnonzero(np.frombuffer(data, np.uint8))
            last = position + int(used[-1]) if len(used) else last
        if last >= 0:
            view.end_index = first + last // size + 1
            return


def _queue_place(
    directory: Path, view: QueueView, readers: Readers, ext_files: list[OffsetFile]
) -> QueuePlace:
    place = QueuePlace(
        number=0,
        directory=directory,
        key=view.key,
        is_batch=view.kind.is_batch,
        files=view.files,
        file_size=view.file_size,
        first_index=view.first_index,
        end_index=view.end_index,
        end_offset=view.next_offset,
        first_real=view.first_index,
        first_physical=-1,
        max_physical_offset=view.max_physical_offset,
        ext_files=ext_files,
    )
    index = view.first_index
    while index < view.end_index:
        units = place.read(readers, index, min(_HEAD_UNITS, view.end_index - index))
        real = np.flatnonzero(~is_prefill(units))
        if len(real):
            first = int(units["physical_offset"][real[0]])
            return structs.replace(place, first_real=index + int(real[0]), first_physical=first)
        index += len(units)
    return structs.replace(place, first_real=view.end_index, first_physical=-1)


def is_prefill(units: Units) -> npt.NDArray[np.bool_]:
    """Mark the units that stand for messages their queue never held."""
    mask: npt.NDArray[np.bool_] = (units["physical_offset"] == 0) & (
        units["size"] == layout.PREFILL_SIZE
    )
    return mask


# --- index -------------------------------------------------------------------------------------


def _index(store: OfflineStore, faults: list[Fault], *, is_live: bool) -> list[IndexPlace]:
    """Return the files to check; after an unclean stop those that the next start keeps."""
    found: list[IndexPlace] = []
    # Where nothing has expired yet, no file can have been before the first.
    before = 0 if store.log.min_offset == 0 else None
    known = {view.size: view.slots for view in store.index_files if view.slots is not None}
    for view in store.index_files:
        header = view.header
        if not _is_kept(store, view):
            break
        slots = view.slots or known.get(view.size)
        if slots is None and header.entries_used and view.size <= GUESS_MAX:
            slots = guess_slots(store.read_file(view.path, view.size))
        is_growing = is_live and view is store.index_files[-1]
        if slots is None and header.entries_used and is_growing:
            break  # chains that change while they are read prove nothing
        if slots is None and header.entries_used:
            reason = "the slot count cannot be proven from the chains (give maxHashSlotNum)"
            faults.append(Fault(str(view.path), 0, reason, kind=Kind.INDEX, about="index"))
        else:
            found.append(
                IndexPlace(
                    path=view.path,
                    size=view.size,
                    slots=slots or 0,
                    header=header,
                    before_end_timestamp=before,
                    is_growing=is_growing,
                )
            )
        before = header.end_timestamp
    return found


def _is_kept(store: OfflineStore, view: IndexView) -> bool:
    if store.traits.is_clean or store.traits.held_by is not None:
        return True
    return view.header.end_timestamp <= store.checkpoint.index_timestamp
