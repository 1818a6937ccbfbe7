"""ReplayPlan: the messages that would be written again, and their targets."""

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from rocketlake.clock import Clock, SystemClock
from rocketlake.embedded.bulk_store import preview_store
from rocketlake.errors import ConfigError, StoreError
from rocketlake.files.local_path import absolute_path
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.whole_file import replace_whole
from rocketlake.spark.jobs.local_scan import scan_here
from rocketlake.spark.jobs.replay.local_plan import count_flows
from rocketlake.spark.jobs.replay.rows import NARROW, FlowRow, fits, is_batch, target_topic
from rocketlake.spark.jobs.selection import Selection

ROOM: Final = Path("rocketlake") / "replay"
"""Where a store keeps what replays into it were asked for."""
PIECE_S: Final = 5.0
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ReplaySettings(Struct, frozen=True, kw_only=True):
    """How messages are written again."""

    to_topic: str | None = None
    """None: to the topic they are of; dead letters and retries to the one they came from."""
    keeps_queues: bool | None = None
    """Into the queue of the same number; None: but for dead letters, which go in turn."""
    rate: float | None = None
    """Messages a second; None: as fast as it goes."""
    id: str | None = None
    """A replay of the same name goes on where it was killed; None: a new name."""
    sink_options: dict[str, str] = {}


class Asked(Struct, frozen=True, kw_only=True):
    """What a replay was asked for, kept so that a repeat is the same."""

    id: str
    selection: Selection
    settings: ReplaySettings
    is_done: bool = False
    messages: int = 0


class Flow(Struct, frozen=True):
    """Messages that go from one topic to another."""

    topic: str
    target: str | None
    messages: int
    bytes: int
    queues: int
    """One more than the highest number of a source queue."""


class ReplayPlan(Struct, frozen=True, kw_only=True):
    """What a replay would do."""

    target: str
    asked: Asked
    flows: tuple[Flow, ...] = ()
    batches: int = 0
    """Records with several messages in one body: they are left out."""
    too_large: int = 0
    """Messages whose properties no record has room for, as bytes that are no text grow."""
    queue_counts: dict[str, int] = {}
    """Of the target's topics."""

    @property
    def messages(self) -> int:
        """How many messages go."""
        return sum(flow.messages for flow in self.flows if flow.target is not None)

    @property
    def homeless(self) -> int:
        """The number of messages without an original topic."""
        return sum(flow.messages for flow in self.flows if flow.target is None)

    def topic(self) -> Column:
        """Return the topic a message goes to."""
        return target_topic(self.asked.settings.to_topic)

    def queue(self) -> Column:
        """Return the queue a message goes to; null: the sink chooses."""
        keeps = self.asked.settings.keeps_queues
        if not (self.asked.selection.dead_letters is None if keeps is None else keeps):
            return sf.lit(None)
        queue = sf.col("queue_id")
        targets = sorted({flow.target for flow in self.flows if flow.target is not None})
        known = [(name, self.queue_counts[name]) for name in targets if name in self.queue_counts]
        if not known:
            return queue
        counts = sf.create_map(*(sf.lit(value) for pair in known for value in pair))
        count = counts[self.topic()]
        return sf.when(count.isNotNull(), queue % count).otherwise(queue)

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        rate = self.asked.settings.rate
        paced = f", {rate:g} a second: {self.messages / rate:.0f} s" if rate else ""
        yield (
            f"{self.messages} messages from {self.asked.selection.place()} to {self.target}{paced}"
        )
        for flow in self.flows:
            where = flow.target or "(unknown; name a topic)"
            yield f"{flow.topic} -> {where}: {flow.messages} messages, {flow.bytes} bytes"
        if self.batches:
            yield f"{self.batches} records hold several messages each and are left out"
        if self.too_large:
            yield f"{self.too_large} messages have properties too large to write and are left out"
        if self.asked.is_done:
            yield f"replay {self.asked.id!r} was done before: nothing is written again"


def plan_replay(
    spark: SparkSession,
    selection: Selection,
    target: str | Path,
    settings: ReplaySettings | None = None,
    *,
    clock: Clock | None = None,
) -> ReplayPlan:
    """Find out which messages would go where. Nothing is changed.

    Raises:
        ConfigError: an option is wrong.
        StoreError: something cannot be read, or a replay of that name was asked for other things.
    """
    settings = settings or ReplaySettings()
    asked = _ask(target, selection, settings, clock)
    frame = asked.selection.load(spark, NARROW)
    found = (
        frame.withColumn("target", target_topic(settings.to_topic))
        .groupBy("topic", "target", is_batch().alias("is_batch"), fits().alias("fits"))
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("store_size").alias("bytes"),
            sf.max("queue_id").alias("queue"),
        )
        .orderBy("topic", "target")
        .collect()
    )
    rows = [
        FlowRow(row.topic, row.target, row.is_batch, row.fits, row.messages, row.bytes, row.queue)
        for row in found
    ]
    return _plan(target, asked, rows)


def plan_replay_here(
    selection: Selection,
    target: str | Path,
    settings: ReplaySettings | None = None,
    *,
    clock: Clock | None = None,
) -> ReplayPlan | None:
    """Do the same in this process, without Spark; None if there are too many messages.

    Raises:
        ConfigError, StoreError: as `plan_replay`.
    """
    settings = settings or ReplaySettings()
    asked = _ask(target, selection, settings, clock)
    table = scan_here(asked.selection, NARROW)
    return None if table is None else _plan(target, asked, count_flows(table, settings.to_topic))


def _ask(
    target: str | Path, selection: Selection, settings: ReplaySettings, clock: Clock | None
) -> Asked:
    _check(settings)
    return _asked(absolute_path(target), selection, settings, clock or SystemClock())


def _plan(target: str | Path, asked: Asked, rows: Sequence[FlowRow]) -> ReplayPlan:
    root = absolute_path(target)
    seen = preview_store(str(root), asked.settings.sink_options.get("options"))
    return ReplayPlan(
        target=str(root),
        asked=asked,
        flows=tuple(
            Flow(row.topic, row.target, row.messages, row.bytes, row.queue + 1)
            for row in rows
            if row.fits and not row.is_batch
        ),
        too_large=sum(row.messages for row in rows if not (row.fits or row.is_batch)),
        batches=sum(row.messages for row in rows if row.is_batch),
        queue_counts=dict(seen.queue_counts),
    )


def _check(settings: ReplaySettings) -> None:
    if settings.rate is not None and not 0 < settings.rate < 1e9:
        raise ConfigError(f"rate {settings.rate!r}: wanted messages a second, above 0")
    if settings.id is not None and not _NAME.fullmatch(settings.id):
        raise ConfigError(f"id {settings.id!r}: wanted 1 to 64 letters, digits, '.', '_' or '-'")
    unknown = settings.sink_options.keys() - {"stagingPath", "lockTimeout", "options"}
    if unknown:
        raise ConfigError(f"sink option {min(unknown)!r} is not for a replay")


def _asked(root: Path, selection: Selection, settings: ReplaySettings, clock: Clock) -> Asked:
    """Return what is asked for: if it was before, with the end it had then."""
    name = settings.id or uuid.uuid4().hex[:16]
    before = _load(root, name)
    end = before.selection.ending_timestamp if before is not None else None
    selection = selection.until(int(end) - 1 if end and end.isdigit() else clock.now_ms())
    settings = structs.replace(settings, id=name)
    if before is None:
        return Asked(id=name, selection=selection, settings=settings)
    if (before.selection, before.settings) != (selection, settings):
        raise StoreError(
            f"a replay {name!r} into {root} was asked for other messages or with other settings;"
            " repeat those, or give another id"
        )
    return before


def record_path(root: Path, name: str) -> Path:
    """Return where a replay of a name is kept."""
    return root / ROOM / f"{name}.json"


def _load(root: Path, name: str) -> Asked | None:
    path = record_path(root, name)
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Asked)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} cannot be read ({error}); give another id") from error


def keep(root: Path, asked: Asked) -> None:
    """Write down what was asked for, at once and for good."""
    ops = PosixFileOps()
    path = record_path(root, asked.id)
    ops.mkdirs(path.parent)
    replace_whole(ops, path, msgspec.json.format(msgspec.json.encode(asked), indent=1))
