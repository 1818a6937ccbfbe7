"""What a profile finds, as values: small tables, and the whole report.

Times are milliseconds since 1970 (UTC), latencies milliseconds, sizes bytes in the log. A table
that had more rows than it may have says so in `ProfileTables.notes`.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from rocketlake.errors import ConfigError

OTHERS: Final = None
"""The topic of a row that stands for all topics not named in its table."""


class Summary(Struct, frozen=True, kw_only=True):
    """The store in one line."""

    store: str
    stores: list[str]
    selection: str
    messages: int
    bytes: int
    topics: int
    keyed: int
    retried: int
    first_ms: int | None
    last_ms: int | None
    step_ms: int
    size_p50: float | None
    size_p99: float | None
    size_max: int | None
    latency_p50: float | None
    latency_p90: float | None
    latency_p99: float | None
    latency_max: int | None
    latency_below_zero: int


class TopicRow(Struct, frozen=True, kw_only=True):
    """One topic; latencies and sizes only for the biggest ones."""

    topic: str
    messages: int
    bytes: int
    queues: int
    first_ms: int | None
    last_ms: int | None
    keyed: int
    retried: int
    size_max: int | None
    latency_max: int | None
    size_p50: float | None = None
    size_p99: float | None = None
    latency_p50: float | None = None
    latency_p99: float | None = None


class TimeRow(Struct, frozen=True, kw_only=True):
    """What was stored from `start_ms` on, for one step."""

    start_ms: int
    messages: int
    bytes: int
    latency_p50: float | None = None
    latency_p90: float | None = None
    latency_p99: float | None = None
    latency_max: int | None = None


class TopicTimeRow(Struct, frozen=True, kw_only=True):
    """The same for one of the biggest topics, or for all others together."""

    topic: str | None
    start_ms: int
    messages: int
    bytes: int


class BinRow(Struct, frozen=True, kw_only=True):
    """How many messages have a size, or a latency, of at least `first` and below `end`."""

    first: int
    end: int
    messages: int


class TagRow(Struct, frozen=True, kw_only=True):
    """The messages of a topic with a tag; None: without one."""

    topic: str
    tag: str | None
    messages: int
    bytes: int


class KeyRow(Struct, frozen=True, kw_only=True):
    """The messages of a topic with a key."""

    topic: str
    key: str
    messages: int
    bytes: int


class QueueRow(Struct, frozen=True, kw_only=True):
    """One queue."""

    broker: str
    topic: str
    queue_id: int
    messages: int
    bytes: int
    first_ms: int | None
    last_ms: int | None


class GroupRow(Struct, frozen=True, kw_only=True):
    """How far a consumer group has come in a topic; `missed` was deleted before it was consumed."""

    broker: str
    group: str
    topic: str
    queues: int
    lag: int
    missed: int


class Finding(Struct, frozen=True, kw_only=True):
    """Something that stands out. `is_warning`: look at it; else: good to know."""

    is_warning: bool
    kind: str
    text: str


class ProfileTables(Struct, frozen=True, kw_only=True):
    """All that was found; `tables()` has each part as an Arrow table."""

    summary: Summary
    findings: list[Finding]
    notes: list[str]
    topics: list[TopicRow]
    times: list[TimeRow]
    topic_times: list[TopicTimeRow]
    sizes: list[BinRow]
    latencies: list[BinRow]
    tags: list[TagRow]
    keys: list[KeyRow]
    queues: list[QueueRow]
    groups: list[GroupRow]

    def tables(self) -> dict[str, pa.Table]:
        """Return every table, by name."""
        rows: dict[str, tuple[type[Struct], list[Any]]] = {
            "summary": (Summary, [self.summary]),
            "findings": (Finding, self.findings),
            "topics": (TopicRow, self.topics),
            "times": (TimeRow, self.times),
            "topic_times": (TopicTimeRow, self.topic_times),
            "sizes": (BinRow, self.sizes),
            "latencies": (BinRow, self.latencies),
            "tags": (TagRow, self.tags),
            "keys": (KeyRow, self.keys),
            "queues": (QueueRow, self.queues),
            "groups": (GroupRow, self.groups),
        }
        return {name: _arrow(kind, items) for name, (kind, items) in rows.items()}

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Return every table as a DataFrame, by name."""
        return {name: spark.createDataFrame(table) for name, table in self.tables().items()}

    def to_json(self) -> bytes:
        """Return all of it as one JSON object."""
        return msgspec.json.encode(self)

    def save_tables(self, directory: Path) -> list[Path]:
        """Write one Parquet file for each table into a directory, which is made if need be."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            paths = []
            for name, table in self.tables().items():
                paths.append(directory / f"{name}.parquet")
                pq.write_table(table, paths[-1])
        except OSError as error:
            raise ConfigError(f"cannot write tables to {directory}: {error.strerror}") from error
        return paths


_ARROW: Final[dict[object, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


def _arrow(kind: type[Struct], rows: list[Any]) -> pa.Table:
    schema = pa.schema(
        [(field.name, _arrow_type(field.type)) for field in msgspec.structs.fields(kind)]
    )
    return pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema)


def _arrow_type(annotation: object) -> pa.DataType:
    if annotation == list[str]:
        return pa.list_(pa.string())
    plain = [kind for kind in getattr(annotation, "__args__", (annotation,)) if kind in _ARROW]
    return _ARROW[plain[0]]
