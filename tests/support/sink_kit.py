"""What tests of the sink share: batches of rows, staged and committed without Spark."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import rocketlake
from rocketlake.clock import Clock
from rocketlake.spark.sink.committer import Committer
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.sink.plan import WriteKey, WritePlan
from rocketlake.spark.sink.staging import StagedFile
from rocketlake.spark.sink.writer import stage
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions

TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "keys": pa.list_(pa.field("element", pa.string(), nullable=False)),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "queue_id": pa.int32(),
    "delay_level": pa.int32(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
    "flag": pa.int32(),
    "unique_key": pa.string(),
    "ordering_key": pa.string(),
}


def batch_of(rows: Sequence[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    """Return rows as Spark passes them; columns are those that some row has."""
    names = [name for name in TYPES if any(name in row for row in rows)]
    return pa.record_batch(
        {
            name: pa.array([row.get(name) for row in rows], types.get(name, TYPES[name]))
            for name in names
        }
    )


class Sink:
    """A write to one store, step by step."""

    def __init__(self, path: Path, clock: Clock | None = None, **options: str) -> None:
        given = {"path": str(path), "topic": "orders", "lockTimeout": "0", **options}
        self.options = SinkOptions.parse(given)
        self.clock = clock

    @property
    def plan(self) -> WritePlan:
        return WritePlan.make(self.options)

    def stage(
        self, key: WriteKey, *partitions: Sequence[dict[str, Any]], **types: pa.DataType
    ) -> list[StagedFile]:
        """Stage partitions of rows, as tasks do."""
        plan = self.plan
        batches = (
            stage(plan, key, number, iter([batch_of(rows, **types)]), clock=self.clock).file
            for number, rows in enumerate(partitions)
        )
        return [file for file in batches if file is not None]

    @property
    def committer(self) -> Committer:
        return Committer(self.options, clock=self.clock)

    def write(self, key: WriteKey, *partitions: Sequence[dict[str, Any]], **types: Any) -> int:
        return self.committer.commit(key, self.stage(key, *partitions, **types))


def stream(batch: int, query: str = "q") -> WriteKey:
    return WriteKey("stream", query, batch)


def numbered(first: int, end: int, **more: Any) -> list[dict[str, Any]]:
    return [{"body": b"%06d" % n, **more} for n in range(first, end)]


def bodies(path: Path, topic: str = "orders") -> Counter[bytes]:
    """Return how often a consumer gets each body."""
    with OfflineStore(path) as store:
        return Counter(
            message.body
            for key in store.queues
            if key.topic == topic
            for batch in store.messages(key)
            for message in batch.columns.messages()
        )


def queue_counts(path: Path, topic: str = "orders") -> list[int]:
    with rocketlake.open_store(path, read_only=True) as store:
        config = store.topic(topic)
        count = 0 if config is None else config.write_queue_count
        return [store.max_offset(topic, queue) for queue in range(count)]


def assert_sound(path: Path) -> None:
    """Every record, unit and index entry is where it should be."""
    with OfflineStore(path) as store:
        verifier = Verifier(store, VerifyOptions(jobs=1))
        assert verifier.run().is_sound, verifier.ledger.faults


def staged_files(path: Path) -> list[str]:
    """Return the staged files there are; folders stay until the driver's abort removes them."""
    return [name for name in leftovers(path) if name.endswith((".part", ".rows"))]


def leftovers(path: Path) -> list[str]:
    """Return what there is of staged files and their folders."""
    staging = path / "rocketlake" / "sink" / "staging"
    return sorted(str(file.relative_to(staging)) for file in staging.rglob("*"))


def once(numbers: Iterable[int]) -> Counter[bytes]:
    return Counter({b"%06d" % n: 1 for n in numbers})
