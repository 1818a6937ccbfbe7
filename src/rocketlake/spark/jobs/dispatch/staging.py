"""What executors made of a part, as Arrow files in a directory that the driver reads.

`<number>.keys.arrow` has an entry for each key, `<number>.units.arrow` a row for each queue, and in
its metadata what the walk came upon. The second one appears last, whole, under its name: then the
part is done. Tasks that run twice write the same bytes.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketlake.format.dispatch import KeyEntries
from rocketlake.model.queues import QueueKey
from rocketlake.spark.jobs.dispatch.unit_blocks import Block, PartFacts, PartResult

UNITS: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("units", pa.large_binary(), nullable=False),
        pa.field("queue_offsets", pa.large_binary(), nullable=False),
        pa.field("store_timestamps", pa.large_binary(), nullable=False),
        pa.field("counts", pa.large_binary(), nullable=False),
        pa.field("bitmaps", pa.list_(pa.binary()), nullable=False),
    ]
)
"""A row for each queue: its units as the queue will have them, and what else they need."""

KEYS: Final = pa.schema(
    [
        pa.field("key_hash", pa.int32(), nullable=False),
        pa.field("physical_offset", pa.int64(), nullable=False),
        pa.field("store_timestamp", pa.int64(), nullable=False),
    ]
)
"""A row for each key, in the order of the log."""

_FACTS: Final = b"rocketlake.part"

Arrow: TypeAlias = Any
"""pyarrow has no types."""


def stage(result: PartResult, place: Path) -> None:
    """Write a part into a directory."""
    number = result.facts.part.number
    place.mkdir(parents=True, exist_ok=True)
    keys = result.keys
    columns = [keys.hashes, keys.physical_offsets, keys.store_timestamps]
    batch = pa.record_batch([pa.array(column) for column in columns], schema=KEYS)
    _write(place / f"{number:06d}.keys.arrow", batch)
    facts = {_FACTS: msgspec.json.encode(result.facts)}
    rows = [
        [block.key.topic for block in result.blocks],
        [block.key.queue_id for block in result.blocks],
        [block.kind for block in result.blocks],
        [block.first_offset for block in result.blocks],
        [block.units for block in result.blocks],
        *(
            [getattr(block, name).tobytes() for block in result.blocks]
            for name in ("offsets", "timestamps", "counts")
        ),
        [list(block.bitmaps) for block in result.blocks],
    ]
    arrays = [pa.array(row, field.type) for row, field in zip(rows, UNITS, strict=True)]
    batch = pa.record_batch(arrays, schema=UNITS.with_metadata(facts))
    _write(place / f"{number:06d}.units.arrow", batch)


def is_staged(place: Path, number: int) -> bool:
    """Tell whether a part is done."""
    return (place / f"{number:06d}.units.arrow").exists()


def load(place: Path, number: int) -> PartResult:
    """Read a part; its arrays are views of the mapped files."""
    units = _read(place / f"{number:06d}.units.arrow")
    keys = _read(place / f"{number:06d}.keys.arrow")
    facts = msgspec.json.decode(units.schema.metadata[_FACTS], type=PartFacts)
    entries = KeyEntries(*(column.to_numpy() for column in keys.columns))
    return PartResult(facts=facts, blocks=list(_blocks(units)), keys=entries)


def drop(place: Path, number: int) -> None:
    """Remove a part that was taken."""
    for kind in ("units", "keys"):
        (place / f"{number:06d}.{kind}.arrow").unlink(missing_ok=True)


def _blocks(batch: Arrow) -> Iterator[Block]:
    topic, queue_id, kind, first, units, offsets, times, counts, bitmaps = batch.columns
    for row in range(batch.num_rows):
        yield Block(
            key=QueueKey(topic[row].as_py(), queue_id[row].as_py()),
            kind=kind[row].as_py(),
            first_offset=first[row].as_py(),
            units=memoryview(units[row].as_buffer()).cast("B"),
            offsets=_numbers(offsets[row]),
            timestamps=_numbers(times[row]),
            counts=_numbers(counts[row]),
            bitmaps=bitmaps[row].as_py(),
        )


def _numbers(value: Arrow) -> npt.NDArray[np.int64]:
    return np.frombuffer(value.as_buffer(), np.int64)


def _write(path: Path, batch: Arrow) -> None:
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with pa.OSFile(str(fresh), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        # Order: whole, then under its name. A crash leaves nothing that counts, so no sync.
        os.replace(fresh, path)  # noqa: PTH105 - replaces what a task before has left
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _read(path: Path) -> Arrow:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        return reader.get_batch(0)
