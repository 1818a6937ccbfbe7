"""Queues and index made anew from the log, in another directory, by the store's own dispatch code.

What comes out is byte for byte what live dispatch writes, from the first record that the log holds.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.format import layout, names
from rocketlake.format.index import entries_for
from rocketlake.format.record import RecordColumns
from rocketlake.metadata import filters
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.store.disk.log import Readers
from rocketlake.store.dispatch.filter_bits import FilterBits, SqlSubscription
from rocketlake.store.dispatch.placement import Placement, PlacementRules, Records
from rocketlake.store.dispatch.unit_builder import UnitBuilder
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.index.index_file import IndexShape
from rocketlake.store.ports import DispatchSlice
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape
from rocketlake.upkeep.repair.gap_filler import Gap, GapFiller
from rocketlake.upkeep.verify.log_file_walk import BadPart, LogFileWalk
from rocketlake.upkeep.verify.store_layout import Layout

log = logging.getLogger(__name__)

Rows = npt.NDArray[np.intp]


class Machine(Struct, frozen=True):
    """What rebuilding needs of the machine."""

    ops: FileOps
    clock: Clock


def walk_log(
    store: Layout,
    ops: FileOps,
    on_bytes: Callable[[int], None] | None = None,
    bad: list[BadPart] | None = None,
) -> Iterator[RecordColumns]:
    """Yield all good records of a log in order; the parts between them are added to `bad`."""
    readers = Readers(ops)
    seen = [] if bad is None else bad
    try:
        for number in range(len(store.log_files)):
            walk = LogFileWalk(store, number, readers, on_bytes)
            count = len(seen)
            for columns in walk.records():
                seen[count:] = walk.bad
                yield columns
    finally:
        readers.close()


def rebuild_queues(
    store: Layout,
    wanted: Mapping[QueueKey, int],
    into: Path,
    machine: Machine,
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Make queues anew below a directory, each from the records at or behind an offset.

    Raises:
        StoreError: they cannot be written.
    """
    ops = machine.ops
    queues = ConsumeQueueSet(StoreDir.make(ops, into), machine.clock, queue_shape(store))
    batch_topics = {queue.key.topic for queue in store.queues if queue.is_batch}
    builder = UnitBuilder(
        queues,
        batch_topics.__contains__,
        PlacementRules(
            delays_ms=store.delays_ms, has_light_queues=any(is_lmq(key.topic) for key in wanted)
        ),
        lambda: store.deleted,
    )
    bits = filter_bits(store.root / names.CONFIG) if _has_ext(store) else None
    readers = Readers(ops)
    bad: list[BadPart] = []
    filler = GapFiller(queues, {queue.key: queue for queue in store.queues}, readers, bad)

    def placed(columns: RecordColumns) -> Placement:
        placement = builder.place(Records(columns))
        _leave_out_unwanted(placement, wanted)
        return placement

    def put(placement: Placement) -> None:
        bitmaps: dict[int, bytes] = {}
        if bits is not None:
            bits.dispatch(DispatchSlice(placement.records.columns, bitmaps))
        builder.put(placement, bitmaps)

    try:
        for columns in walk_log(store, ops, on_bytes, bad):
            placement = placed(columns)
            gaps = filler.find(placement)
            if not gaps:
                put(placement)
                continue
            for gap, part in _parts(columns, gaps):
                if gap is not None:
                    filler.fill(gap)
                if len(part):
                    put(placed(part))
        queues.flush(0)
    finally:
        readers.close()
        queues.close()


def rebuild_index(
    store: Layout,
    into: Path,
    machine: Machine,
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Make the index anew in a directory.

    Raises:
        StoreError: it cannot be written, or the shape of its files is not known.
    """
    machine.ops.mkdirs(into)
    index = IndexFileSet(machine.ops, machine.clock, into, index_shape(store))
    try:
        for columns in walk_log(store, machine.ops, on_bytes):
            index.put(columns)
    finally:
        index.close()


def index_shape(store: Layout) -> IndexShape:
    """Return what the index files of a store look like.

    Raises:
        StoreError: the files do not tell; the option maxHashSlotNum would.
    """
    for place in store.index:
        entries = entries_for(place.size, place.slots) if place.slots else None
        if entries is not None:
            return _shape(store, place.slots, entries)
    sizes = {size for size in store.index_sizes if size}
    default = _shape(store, layout.DEFAULT_INDEX_SLOTS, layout.DEFAULT_INDEX_ENTRIES)
    if not sizes or sizes == {default.file_size}:
        return default
    slots = store.index_slots
    entries = entries_for(min(sizes), slots) if slots else None
    if slots is None or entries is None:
        raise StoreError(
            f"{store.root / names.INDEX}: the files do not tell how many slots they have; give "
            "maxHashSlotNum with --options, or remove all index files: the next start makes them "
            "anew from the log"
        )
    return _shape(store, slots, entries)


def _shape(store: Layout, slots: int, entries: int) -> IndexShape:
    """Return the shape in the way of the release that wrote the store."""
    return IndexShape(slots=slots, entries=entries, counts_empty=store.is_5x, has_tags=store.is_5_5)


def _parts(
    columns: RecordColumns, gaps: Sequence[Gap]
) -> Iterator[tuple[Gap | None, RecordColumns]]:
    """Cut records before each gap."""
    cuts = [0, *(gap.row for gap in gaps), len(columns)]
    for gap, (start, stop) in zip([None, *gaps], pairwise(cuts), strict=True):
        yield gap, RecordColumns(columns.buffer, columns.rows[start:stop])


def _has_ext(store: Layout) -> bool:
    return any(queue.ext_files for queue in store.queues)


def queue_shape(store: Layout) -> QueueShape:
    """Return what the queue files of a store look like; those of RocketMQ if there are none."""
    plain = [queue.file_size for queue in store.queues if not queue.is_batch and queue.files]
    batch = [queue.file_size for queue in store.queues if queue.is_batch and queue.files]
    ext = [file.size for queue in store.queues for file in queue.ext_files]
    return QueueShape(
        file_size=max(plain, default=layout.DEFAULT_QUEUE_FILE_SIZE),
        batch_file_size=max(batch, default=layout.DEFAULT_BATCH_QUEUE_FILE_SIZE),
        ext_file_size=max(ext, default=layout.DEFAULT_EXT_FILE_SIZE),
        has_ext=bool(ext),
        is_4x=not store.is_5x,
    )


def _leave_out_unwanted(placement: Placement, wanted: Mapping[QueueKey, int]) -> None:
    """Keep the units of the queues that are made, from the offset on where each begins."""
    is_wanted = np.zeros(len(placement.records.columns), np.bool_)
    for block in placement.own_blocks():
        start = wanted.get(block.key)
        if start is not None:
            is_wanted[block.rows] = block.column("physical_offset") >= start
    placement.rows = placement.rows[is_wanted[placement.rows]]


def filter_bits(config: Path) -> FilterBits | None:
    """Return what computes the bits of extension units, for the subscriptions of the table.

    None if the table is broken: without bits, a filter looks at each message.
    """
    try:
        table = filters.load(config)
    except StoreError as error:
        log.warning("extension units get no filter bits reason=%s", error)
        return None
    compiled = {
        topic: [
            SqlSubscription(SqlFilter(found.expression), found.bloom_filter_data.bit_pos)
            for found in groups.values()
            if found.expression and found.bloom_filter_data is not None
        ]
        for topic, groups in table.topics.items()
    }
    return FilterBits(BloomFilter.sized(), lambda topic: compiled.get(topic, []))
