"""Table `index`: the entries of the index files, with the chains that lead to them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from rocketlake.format import index as index_format
from rocketlake.format import layout
from rocketlake.spark.reading.options import OnDamage, SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.reading.stores import ExecutorLog, StoreRef, apply_damage_policy
from rocketlake.spark.reading.tables.columns import to_batch
from rocketlake.spark.schema import arrow_schema
from rocketlake.store.offline import Finding, IndexView, OfflineStore

_ENTRIES = 16_384


class IndexPart(Struct, frozen=True, tag=True):
    """Entries of one index file, from a number to another."""

    store: StoreRef
    file: str
    slots: int
    begin_timestamp: int
    begin: int
    end: int


def plan(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return partitions that hold every entry of every index file.

    Raises:
        StoreError: the shape of a file cannot be proven, and the policy is to fail.
    """
    ref = StoreRef.of(broker, store)
    step = max(options.max_partition_bytes // layout.INDEX_ENTRY_SIZE, 1)
    total = sum(file.header.entries_used for file in store.index_files)
    if options.min_partitions:
        step = max(min(step, -(-total // options.min_partitions)), 1)
    parts = []
    for file in store.index_files:
        if file.slots is None:
            _refuse(file, options)
            continue
        behind = _last(file) + 1
        parts += [
            Partition(
                IndexPart(
                    store=ref,
                    file=str(file.path),
                    slots=file.slots,
                    begin_timestamp=file.header.begin_timestamp,
                    begin=begin,
                    end=min(begin + step, behind),
                )
            )
            for begin in range(1, behind, step)
        ]
    return parts


def _last(file: IndexView) -> int:
    """Return the number of the last entry that the file has room for."""
    room = index_format.entries_for(file.size, file.slots or 1) or 0
    return min(file.header.entries_used, max(room - 1, 0))


def _refuse(file: IndexView, options: SourceOptions) -> None:
    if file.header.entries_used:
        text = "its slot count cannot be proven; give maxHashSlotNum (option options)"
        apply_damage_policy([Finding(str(file.path), 0, text)], options)
        assert options.on_damage is OnDamage.SKIP, "the other policy has raised"


def read(part: IndexPart, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read entries by number."""
    wanted = arrow_schema(schema)
    path = Path(part.file)
    with ExecutorLog(part.store) as source:
        for begin in range(part.begin, part.end, _ENTRIES):
            count = min(_ENTRIES, part.end - begin)
            at = index_format.entry_position(part.slots, begin)
            data = source.readers.read(path, at, count * layout.INDEX_ENTRY_SIZE)
            entries = np.frombuffer(
                data, index_format.ENTRY_DTYPE, len(data) // layout.INDEX_ENTRY_SIZE
            )
            if not len(entries):
                return
            numbers = np.arange(begin, begin + len(entries))
            hashes = entries["key_hash"].astype(np.int64)
            slots = hashes % part.slots
            diffs = entries["time_diff_s"].astype(np.int64)
            columns = {
                "file": part.file,
                "entry": numbers,
                "slot": slots,
                "key_hash": hashes,
                "physical_offset": entries["physical_offset"].astype(np.int64),
                "store_timestamp": part.begin_timestamp + diffs * 1000,
                "previous": entries["previous"].astype(np.int64),
                "broker": part.store.broker,
            }
            if "is_newest" in wanted.names:
                columns["is_newest"] = _heads(source, part, slots) == numbers
            yield to_batch(wanted, len(entries), columns)


def _heads(source: ExecutorLog, part: IndexPart, slots: np.ndarray) -> np.ndarray:
    """Return the newest entry of each slot, as the slots say."""
    found, own = np.unique(slots, return_inverse=True)
    size = layout.INDEX_SLOT_SIZE
    heads = np.zeros(len(found), np.int64)
    # Slots of many entries are spread over the whole table: it is read in pieces that hold some.
    step = 16_384
    first = 0
    while first < len(found):
        low = int(found[first])
        last = int(np.searchsorted(found, low + step))
        at = layout.INDEX_HEADER_SIZE + low * size
        data = source.readers.read(Path(part.file), at, (int(found[last - 1]) - low + 1) * size)
        table = np.frombuffer(data, ">i4", len(data) // size)
        inside = found[first:last] - low
        known = inside < len(table)
        heads[first:last][known] = table[inside[known]]
        first = last
    return heads[own]
