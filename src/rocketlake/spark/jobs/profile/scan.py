"""One pass over the messages, and small questions to what it leaves.

`gather` reads every message once and keeps counts in four groupings at the same time (queues over
time, sizes, latencies over time, tags). The result is small beside the store and stays in Spark;
each table of the profile is a question to it, with a limit on what comes to the driver.
"""

from functools import cached_property
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documents do
from pyspark.sql.types import StructType

from rocketlake.model.flags import TransactionType
from rocketlake.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlake.spark.jobs.profile.bins import bin_column
from rocketlake.spark.schema import MESSAGE_SCHEMA

COLUMNS: Final = (
    "broker",
    "topic",
    "queue_id",
    "store_timestamp",
    "born_timestamp",
    "keys",
    "tags",
    "reconsume_times",
    "sys_flag",
    "store_size",
)
"""What is read of a message; bodies stay where they are."""

KEY_COLUMNS: Final = ("topic", "keys", "store_size")

_SETS: Final = {
    "queue": ("broker", "topic", "queue_id", "bucket"),
    "size": ("topic", "size_bin"),
    "latency": ("topic", "bucket", "latency_bin"),
    "tag": ("topic", "tag"),
}
_DIMENSIONS: Final = ("topic", "broker", "queue_id", "bucket", "size_bin", "latency_bin", "tag")


def schema_of(names: tuple[str, ...]) -> StructType:
    """Return the part of a message's schema with these columns."""
    return StructType([MESSAGE_SCHEMA[name] for name in names])


class Facts:
    """The counts of one pass, kept in Spark until `close`."""

    def __init__(self, messages: DataFrame, step_ms: int) -> None:
        stored = F.unix_millis("store_timestamp")
        born = F.unix_millis("born_timestamp")
        latency = F.when(_is_of_a_producer(), stored - born)
        size = F.col("store_size").cast("bigint")
        rows = messages.select(
            "topic",
            "broker",
            "queue_id",
            F.floor(stored / step_ms).cast("bigint").alias("bucket"),
            bin_column(size).alias("size_bin"),
            bin_column(latency).alias("latency_bin"),
            F.col("tags").alias("tag"),
            stored.alias("stored"),
            latency.alias("latency"),
            size.alias("size"),
            (F.col("reconsume_times") > 0).cast("int").alias("retried"),
            (F.coalesce(F.size("keys"), F.lit(0)) > 0).cast("int").alias("keyed"),
        )
        groupings = [[F.col(name) for name in names] for names in _SETS.values()]
        self._facts = (
            rows.groupingSets(groupings, *(F.col(name) for name in _DIMENSIONS))
            .agg(
                F.grouping_id().alias("grouping"),
                F.count(F.lit(1)).alias("messages"),
                F.sum("size").alias("bytes"),
                F.sum("retried").alias("retried"),
                F.sum("keyed").alias("keyed"),
                F.min("stored").alias("first_ms"),
                F.max("stored").alias("last_ms"),
                F.max("size").alias("size_max"),
                F.max("latency").alias("latency_max"),
                F.count_if(F.col("latency").isNull()).alias("odd_times"),
            )
            .persist(StorageLevel.MEMORY_AND_DISK)
        )

    def close(self) -> None:
        """Let Spark forget it."""
        self._facts.unpersist()

    def set(self, name: str) -> DataFrame:
        """Return the counts of one grouping."""
        # Compat: a bit of grouping_id() is 1 where the column is summed over, first column first.
        mask = 0
        for dimension in _DIMENSIONS:
            mask = mask * 2 + (dimension not in _SETS[name])
        return self._facts.where(F.col("grouping") == mask)

    # --- questions -------------------------------------------------------------------------------

    @cached_property
    def totals(self) -> Row:
        """The whole store in one row. This is the question that makes Spark read."""
        row = (
            self.set("queue")
            .agg(
                F.count_distinct("topic").alias("topics"),
                *_sums(),
                F.min("bucket").alias("first_bucket"),
                F.max("bucket").alias("last_bucket"),
                F.sum("odd_times").alias("odd_times"),
            )
            .first()
        )
        assert row is not None
        return row

    def topics(self, limit: int) -> list[Row]:
        """Topics, most messages first."""
        queues = F.count_distinct("broker", "queue_id").alias("queues")
        found = self.set("queue").groupBy("topic").agg(queues, *_sums())
        return _top(found, limit, "topic")

    def queues(self, topics: list[str], limit: int) -> list[Row]:
        """Queues of some topics."""
        found = self._of("queue", topics).groupBy("topic", "broker", "queue_id").agg(*_sums())
        return found.orderBy("topic", "broker", "queue_id").limit(limit).collect()

    def times(self, topics: list[str], fold: int, window: tuple[int, int]) -> list[Row]:
        """Counts over time, by topic: those named, and all others together as null."""
        name = F.when(F.col("topic").isin(topics), F.col("topic")).alias("topic")
        bucket = F.floor(F.col("bucket") / fold).alias("bucket")
        found = self.set("queue").where(F.col("bucket").between(*window))
        return found.groupBy(name, bucket).agg(*_sums()).collect()

    def sizes(self, topics: list[str]) -> list[Row]:
        """Counts by size and topic, as `times`."""
        return self._binned("size", "size_bin", topics)

    def latencies(self, topics: list[str]) -> list[Row]:
        """Counts by latency and topic, as `times`."""
        return self._binned("latency", "latency_bin", topics)

    def latency_times(self, fold: int, window: tuple[int, int]) -> list[Row]:
        """Counts by latency over time."""
        bucket = F.floor(F.col("bucket") / fold).alias("bucket")
        found = self.set("latency").where(F.col("bucket").between(*window))
        return (
            found.groupBy(bucket, "latency_bin").agg(F.sum("messages").alias("messages")).collect()
        )

    def slowest_topic(self, latency_bin: int, window: tuple[int, int]) -> str | None:
        """The topic with most messages at or above a latency in a time."""
        found = self.set("latency").where(F.col("bucket").between(*window))
        slow = found.where(F.col("latency_bin") >= latency_bin).groupBy("topic")
        row = slow.agg(F.sum("messages").alias("messages")).orderBy(F.desc("messages")).first()
        return None if row is None else row["topic"]

    def tags(self, topics: list[str], each: int) -> list[Row]:
        """The most frequent tags of some topics."""
        rank = F.row_number().over(Window.partitionBy("topic").orderBy(F.desc("messages"), "tag"))
        ranked = self._of("tag", topics).withColumn("rank", rank).where(F.col("rank") <= each)
        return ranked.orderBy(F.desc("messages"), "topic", "tag").collect()

    def _of(self, name: str, topics: list[str]) -> DataFrame:
        return self.set(name).where(F.col("topic").isin(topics))

    def _binned(self, name: str, column: str, topics: list[str]) -> list[Row]:
        topic = F.when(F.col("topic").isin(topics), F.col("topic")).alias("topic")
        found = self.set(name).groupBy(topic, F.col(column).alias("bin"))
        return found.agg(F.sum("messages").alias("messages")).collect()


def biggest_keys(messages: DataFrame, limit: int) -> list[Row]:
    """Return the keys with most messages. The second pass, over topics and keys alone."""
    rows = messages.select("topic", "store_size", F.explode("keys").alias("key"))
    found = rows.groupBy("topic", "key").agg(
        F.count(F.lit(1)).alias("messages"), F.sum("store_size").alias("bytes")
    )
    return _top(found, limit, "topic", "key")


def _is_of_a_producer() -> Column:
    """Tell the messages that were stored because a producer sent them.

    Compat: SendMessageProcessor and EndTransactionProcessor copy the birth time of a message that
    comes back to a group, that a group gave up, or whose transaction is committed: the time from
    there to the store is no latency of a producer.
    """
    topic = F.col("topic")
    is_sent_back = topic.startswith(RETRY_PREFIX) | topic.startswith(DEAD_LETTER_PREFIX)
    is_again = F.coalesce("reconsume_times", F.lit(0)) > 0
    is_settled = F.coalesce("sys_flag", F.lit(0)).bitwiseAND(TransactionType.COMMIT) != 0
    return ~(is_sent_back | is_again | is_settled)


def _sums() -> list[Column]:
    return [
        *(F.sum(name).alias(name) for name in ("messages", "bytes", "retried", "keyed")),
        F.min("first_ms").alias("first_ms"),
        *(F.max(name).alias(name) for name in ("last_ms", "size_max", "latency_max")),
    ]


def _top(found: DataFrame, limit: int, *names: str) -> list[Any]:
    return found.orderBy(F.desc("messages"), *names).limit(limit).collect()
