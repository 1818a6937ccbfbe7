"""CompactPlan: which messages are the newest of their keys."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from rocketlake.clock import Clock, SystemClock
from rocketlake.files.local_path import absolute_path
from rocketlake.spark.jobs.compact.local_plan import KeyCounts, count_keys, is_countable_here
from rocketlake.spark.jobs.compact.settings import PROPERTY, CompactSettings, check
from rocketlake.spark.jobs.local_scan import scan_here
from rocketlake.spark.jobs.selection import Selection

PLACE: Final = ("broker", "topic", "queue_id", "queue_offset", "physical_offset")
"""What names a message in a log, and one more that decides between queues."""


class CompactPlan(Struct, frozen=True, kw_only=True):
    """What a compaction would keep."""

    selection: Selection
    target: str
    settings: CompactSettings
    id: str
    messages: int
    keys: int
    keyless: int
    tombstones: int | None
    """None: tombstones are kept."""
    kept: int

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        yield (
            f"{self.messages} messages of {self.selection.place()} have {self.keys} keys"
            f" ({self.settings.by}); {self.kept} are the newest of theirs, for {self.target}"
        )
        yield from odd_lines(self.settings, self.keyless, self.tombstones)


def odd_lines(settings: CompactSettings, keyless: int, tombstones: int | None) -> Iterator[str]:
    """Yield the text of messages that are not the newest of a key."""
    if keyless:
        end = "kept" if settings.keeps_keyless else "left out (--keep-keyless keeps such messages)"
        one = f"1 message has no key and is {end}"
        yield one if keyless == 1 else f"{keyless} messages have no key and are {end}"
    if tombstones:
        one = "1 key ends with an empty body and is left out"
        many = f"{tombstones} keys end with an empty body and are left out"
        yield one if tombstones == 1 else many


def plan_compact(
    spark: SparkSession,
    selection: Selection,
    target: str | Path,
    settings: CompactSettings | None = None,
    *,
    clock: Clock | None = None,
) -> CompactPlan:
    """Find out which messages are the newest of their keys. Nothing is changed.

    Raises:
        ConfigError: an option is wrong.
        StoreError: something cannot be read.
    """
    settings, target = settings or CompactSettings(), absolute_path(target)
    check(settings)
    selection = selection.until((clock or SystemClock()).now_ms())
    keyed = keyed_rows(selection.load(spark, columns(settings)), settings)
    has_key = sf.col("key").isNotNull()
    is_first = sf.coalesce(sf.col("number"), sf.lit(0)) == 0
    counts = keyed.agg(
        sf.count_if(is_first).alias("messages"),
        sf.count_if(~has_key).alias("keyless"),
    ).first()
    best = newest(keyed)
    found = best.agg(
        sf.count("*").alias("keys"), sf.count_if("is_tombstone").alias("tombstones")
    ).first()
    assert counts is not None, "an aggregate has one row"
    assert found is not None, "an aggregate has one row"
    kept = kept_places(keyed, settings).count()
    counted = KeyCounts(counts.messages, found.keys, counts.keyless, found.tombstones, kept)
    return _plan(selection, target, settings, counted)


def plan_compact_here(
    selection: Selection,
    target: str | Path,
    settings: CompactSettings | None = None,
    *,
    clock: Clock | None = None,
) -> CompactPlan | None:
    """Do the same in this process, without Spark; None if there are too many messages.

    Raises:
        ConfigError, StoreError: as `plan_compact`.
    """
    settings, target = settings or CompactSettings(), absolute_path(target)
    check(settings)
    if not is_countable_here(settings):
        return None
    selection = selection.until((clock or SystemClock()).now_ms())
    table = scan_here(selection, columns(settings))
    if table is None:
        return None
    return _plan(selection, target, settings, count_keys(table, settings))


def _plan(
    selection: Selection, target: str | Path, settings: CompactSettings, counted: KeyCounts
) -> CompactPlan:
    return CompactPlan(
        selection=selection,
        target=str(target),
        settings=settings,
        id=settings.id or uuid.uuid4().hex[:16],
        messages=counted.messages,
        keys=counted.keys,
        keyless=counted.keyless,
        tombstones=counted.tombstones if settings.drops_tombstones else None,
        kept=counted.kept,
    )


def columns(settings: CompactSettings) -> tuple[str, ...]:
    """Return what must be read to tell which messages are the newest: no body, if it can be."""
    ruling = (settings.by, settings.order)
    found = [*PLACE, "store_timestamp", *(["body"] if settings.drops_tombstones else [])]
    found += ["properties" if value.startswith(PROPERTY) else value for value in ruling]
    return tuple(dict.fromkeys(found))


def keyed_rows(frame: DataFrame, settings: CompactSettings) -> DataFrame:
    """Return place, key, rank and tombstone: a row for each key of a message, or one with none."""
    if settings.by == "keys":
        keys = sf.posexplode_outer(sf.array_distinct("keys")).alias("number", "key")
    else:
        keys = sf.posexplode_outer(sf.array(_value(settings.by))).alias("number", "key")
    order = _value(settings.order)
    if settings.order.startswith(PROPERTY):
        order = order.try_cast("double")
    others = ("store_timestamp", "physical_offset", "broker", "queue_id")
    rank = sf.struct(order.alias("order"), *others).alias("rank")
    is_empty = sf.length("body") == 0 if settings.drops_tombstones else sf.lit(False)  # noqa: FBT003 - a column
    return frame.select(*PLACE, keys, rank, is_empty.alias("is_tombstone"))


def newest(keyed: DataFrame) -> DataFrame:
    """Return the newest message of each key."""
    place = sf.struct(*PLACE, "is_tombstone")
    found = keyed.where(sf.col("key").isNotNull()).groupBy("key")
    return found.agg(sf.max_by(place, "rank").alias("place")).select("key", "place.*")


def kept_places(keyed: DataFrame, settings: CompactSettings) -> DataFrame:
    """Return the places of all messages that stay."""
    found = newest(keyed)
    if settings.drops_tombstones:
        found = found.where(~sf.col("is_tombstone"))
    kept = found.select(*PLACE)
    if settings.keeps_keyless:
        kept = kept.union(keyed.where(sf.col("key").isNull()).select(*PLACE))
    return kept.distinct()


def _value(name: str) -> Column:
    if name.startswith(PROPERTY):
        return sf.col("properties").getItem(name.removeprefix(PROPERTY))
    return sf.col(name)
