"""Table `queue`: the units of consume queues, as their files hold them or dispatch owes them."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import PlacesPart, QueuePart
from rocketlake.spark.reading.stores import ExecutorLog, apply_damage_policy
from rocketlake.spark.reading.tables.columns import to_batch
from rocketlake.spark.reading.units import UnitFiles, UnitRun, is_prefill
from rocketlake.spark.schema import arrow_schema
from rocketlake.store.offline import Places

_UNITS = 16_384


def read(
    part: QueuePart | PlacesPart, schema: StructType, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Read units, queue by queue."""
    wanted = arrow_schema(schema)
    broker = part.store.broker
    if isinstance(part, PlacesPart):
        places, numbers = part.unpack()
        for begin in range(0, len(places), _UNITS):
            end = begin + _UNITS
            yield _owed_batch(part, places[begin:end], numbers[begin:end], wanted)
        return
    with ExecutorLog(part.store) as source:
        files = UnitFiles(part.store.path, source.readers)
        for run in part.table.runs():
            yield from _run_batches(run, files, wanted, broker)
            for begin, end in files.lost(run):
                path, position = files.path(run, begin)
                text = f"units of {run.key} from {begin} to {end} are gone"
                source.damage.report(path, position, text)
            apply_damage_policy(source.damage.findings, options)
            source.damage.findings.clear()


def _run_batches(
    run: UnitRun, files: UnitFiles, wanted: pa.Schema, broker: str
) -> Iterator[pa.RecordBatch]:
    for index, units in files.pieces(run, _UNITS):
        keep = np.flatnonzero(~is_prefill(units))
        if not len(keep):
            continue
        path, position = files.path(run, index)
        chosen = units[keep]
        yield to_batch(
            wanted,
            len(chosen),
            {
                **_columns(chosen),
                "topic": run.topic,
                "queue_id": run.queue_id,
                "is_batch": run.is_batch,
                "is_owed": False,
                "file": str(path),
                "file_position": position + keep * run.kind.unit_size,
                "broker": broker,
            },
        )


def _owed_batch(
    part: PlacesPart, places: Places, numbers: npt.NDArray[np.int64], wanted: pa.Schema
) -> pa.RecordBatch:
    queues = [part.queues[number] for number in numbers.tolist()]
    return to_batch(
        wanted,
        len(places),
        {
            **_columns(places),
            "topic": [topic for topic, _ in queues],
            "queue_id": [queue_id for _, queue_id in queues],
            "is_batch": places["batch_size"] > 1,
            "is_owed": part.is_owed,
            "broker": part.store.broker,
        },
    )


def _columns(places: Places) -> dict[str, object]:
    names = ("queue_offset", "physical_offset", "size", "tags_code", "batch_size")
    return {name: places[name] for name in names}
