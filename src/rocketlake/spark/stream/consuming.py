"""Consuming: a streaming query that consumes as a RocketMQ consumer group, with retries.

    def charge(order):                  # a row; raising, or returning False, is a failure
        ...

    with Consuming("data/store", "billing", "orders", each=charge) as billing:
        billing.start(spark, "data/checkpoints/billing").awaitTermination()

1. After each batch the group's progress is in the store's table.
2. A failed message goes to `%RETRY%billing` with its delay level, which the query reads too; after
   16 retries it goes to `%DLQ%billing`.
3. This process has the store open for writing and is its only writer; executors read files.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from rocketlake.closing import Closing
from rocketlake.embedded.open_store import open_store
from rocketlake.embedded.store import Store
from rocketlake.errors import ConfigError, PutFailedError, Receipt, StoreError
from rocketlake.format import names as file_names
from rocketlake.model import properties as names
from rocketlake.model.topics import SCHEDULE_TOPIC, dlq_topic, retry_topic
from rocketlake.spark.name_hints import unknown_column
from rocketlake.spark.schema import MESSAGE_SCHEMA
from rocketlake.spark.source import register
from rocketlake.spark.stream.journal import Intent, Journal, Offsets, QueryState
from rocketlake.spark.stream.listener import LagListener, QueryLag
from rocketlake.spark.stream.rows import (
    NEEDED,
    EachRow,
    Outcome,
    RetryLater,
    collect_failed,
    run_rows,
)

__all__ = ["Consuming", "RetryLater"]

log = logging.getLogger(__name__)

RowFunction = Callable[[Row], object]
BatchFunction = Callable[[DataFrame, int], DataFrame | None]

_QUERY_ID: Final = "sql.streaming.queryId"
_READ: Final = 1000


class Consuming(Closing):
    """A consumer group on Spark; `start` makes its query, or pass it to `foreachBatch`.

    Thread-safety: the batches of one query run one after the other; `_lock` serialises them with
    the listener.
    """

    def __init__(
        self,
        store: str | PathLike[str] | Store,
        group: str,
        topics: str | Sequence[str],
        *,
        each: RowFunction | None = None,
        batch: BatchFunction | None = None,
        max_times: int | None = None,
        **options: object,
    ) -> None:
        """Name the store, the group, what it consumes, and one function.

        `each` is called on executors for every row. `batch` is called here with a DataFrame and
        the number of the batch, and returns the rows that failed: any DataFrame with their
        `physical_offset`, and optionally a `delay_level`. `max_times` is how often a message is
        retried (None: the group's setting, 16 by default). An open store is used as it is; a path
        is opened with `options`, and closed by `close`.

        Raises:
            ConfigError: not exactly one function is given, or no topic.
            StoreLockedError: another process has the store open for writing.
        """
        if (each is None) == (batch is None):
            raise ConfigError(
                "Consuming needs one function: each=... for rows, or batch=... for DataFrames"
            )
        listed = topics.split(",") if isinstance(topics, str) else topics
        self.topics = tuple(topic.strip() for topic in listed if topic.strip())
        if not self.topics:
            raise ConfigError("Consuming needs at least one topic")
        self.group = group
        self._each = each
        self._batch = batch
        self._max_times = max_times
        self._lock = threading.Lock()
        self._listening: list[tuple[SparkSession, LagListener]] = []
        self._is_mine = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, **options)  # type: ignore[call-overload]
        """The store, open for writing: messages may be put into it while the query runs."""
        try:
            self._retries = self.store.join_group(group).retry_queue_count
            path = self.store.path / file_names.CONFIG / f"consuming.{group}.json"
            self._journal = Journal(Path(path))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the store, if it was opened here. Stop the query first."""
        for spark, listener in self._listening:
            with suppress(Exception):  # a stopped session has no listeners
                spark.streams.removeListener(listener)
        self._listening.clear()
        if self._is_mine:
            self.store.close()

    # --- the query -----------------------------------------------------------------------------

    def stream(
        self, spark: SparkSession, *, columns: Sequence[str] | None = None, **options: str
    ) -> DataFrame:
        """Return the stream of the topics and the retry topic, from the group's progress on.

        `columns` are those that the function needs; fewer are faster. `options` are options of the
        source. Of a queue that the group has not consumed, the stream begins at the first message.
        """
        register(spark)
        self.store.flush()  # the source reads files: new messages and topics must be there
        given = {
            "path": str(self.store.path),
            "topics": ",".join((*self.topics, retry_topic(self.group))),
            "startingOffsets": json.dumps(self._positions()),
            "compactOffsets": "false",  # progress is taken from the offsets, queue by queue
            **{key: str(value) for key, value in options.items()},
        }
        reader = spark.readStream.format("rocketlake").options(**given)
        return reader.schema(_schema(columns)).load() if columns is not None else reader.load()

    def start(
        self,
        spark: SparkSession,
        checkpoint: str | PathLike[str],
        *,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        columns: Sequence[str] | None = None,
        **options: str,
    ) -> StreamingQuery:
        """Start the query; `trigger` is as in Spark: `{"availableNow": True}`.

        Raises:
            ConfigError: the session is one of Spark Connect, whose batches are handled elsewhere.
        """
        if is_remote():
            raise ConfigError(
                "Consuming handles batches in this process, where the store is open; over Spark"
                " Connect they are handled on the server: run it there"
            )
        listener = LagListener(self._note_lag)
        spark.streams.addListener(listener)
        self._listening.append((spark, listener))
        stream = self.stream(spark, columns=columns, **options)
        writer = stream.writeStream.foreachBatch(self)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.queryName(name).start() if name else writer.start()

    def _positions(self) -> Offsets:
        """Return the group's progress in the queues it has consumed, within their bounds."""
        wanted = {*self.topics, retry_topic(self.group)}
        found: Offsets = {}
        for at in self.store.progress(self.group):
            if at.topic in wanted and at.offset is not None:
                offset = min(max(at.offset, at.min_offset), at.max_offset)
                found.setdefault(at.topic, {})[at.queue_id] = offset
        return found

    # --- a batch -------------------------------------------------------------------------------

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Consume a batch: call the function, send failed messages back, commit.

        Raises:
            ConfigError: the batch has no query or lacks columns, or the function returned
                something else than failed rows.
            StoreError: a message could not be sent back; nothing is committed.
        """
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if not query_id:
            raise ConfigError("Consuming is for foreachBatch of a streaming query")
        _check_columns(batch)
        with self._lock:
            state = self._journal.find(query_id)
        if batch_id <= state.done:
            log.info("batch %d of query %s was consumed before", batch_id, query_id)
            return
        intent = state.intent
        if intent is None or intent.batch != batch_id:
            intent = self._intent(batch_id, self._handle(batch, batch_id))
            if intent.failed:
                with self._lock:
                    self._journal.write(query_id, QueryState(state.done, intent))
            sent: set[tuple[str, int]] = set()
        else:
            sent = self._already_sent(intent)
        self._send_back(intent, sent)
        with self._lock:
            self._commit(intent.next)
            self.store.flush()
            self._journal.write(query_id, QueryState(batch_id))

    def _handle(self, batch: DataFrame, batch_id: int) -> Outcome:
        retry = retry_topic(self.group)
        if self._batch is None:
            return run_rows(batch, EachRow(self._each, retry))
        batch.persist()
        try:
            seen = run_rows(batch.select(*NEEDED), EachRow(None, retry))
            failed = self._batch(_shown(batch, retry), batch_id)
            return Outcome(collect_failed(failed), seen.next)
        finally:
            batch.unpersist()

    # --- sending back --------------------------------------------------------------------------

    def _intent(self, batch_id: int, outcome: Outcome) -> Intent:
        before: Offsets = {}
        if outcome.failed:
            # Order: the messages below these offsets must survive a crash, or messages sent back
            # after it would lie before them.
            self.store.flush()
            before = {
                topic: {queue: self.store.max_offset(topic, queue) for queue in queues}
                for topic, queues in self._targets().items()
            }
        return Intent(
            batch=batch_id,
            failed=sorted(outcome.failed.items()),
            before=before,
            next=outcome.next,
        )

    def _targets(self) -> dict[str, range]:
        """Return all queues that a message may be sent back to."""
        levels = len(self.store.options.message_delay_level.split())
        return {
            SCHEDULE_TOPIC: range(levels),
            retry_topic(self.group): range(max(self._retries, 1)),
            dlq_topic(self.group): range(1),
        }

    def _already_sent(self, intent: Intent) -> set[tuple[str, int]]:
        """Return what was sent back before a crash: id of the original, and times consumed."""
        mine = {retry_topic(self.group), dlq_topic(self.group)}
        found: set[tuple[str, int]] = set()
        for topic, queues in intent.before.items():
            for queue_id, begin in queues.items():
                offset = begin
                while offset < self.store.max_offset(topic, queue_id):
                    result = self.store.get(topic, queue_id, offset, _READ)
                    for message in result.messages:
                        properties = message.properties
                        real = (
                            properties.get(names.REAL_TOPIC) if topic == SCHEDULE_TOPIC else topic
                        )
                        if real in mine:
                            origin = properties.get(names.ORIGIN_MESSAGE_ID, "")
                            found.add((origin, message.reconsume_times))
                    offset = max(result.next_offset, offset + 1)
        return found

    def _send_back(self, intent: Intent, sent: set[tuple[str, int]]) -> None:
        for physical_offset, level in intent.failed:
            message = self.store.message_at(physical_offset)
            if message is None:
                log.error(
                    "message at %d of %s failed, and cannot be sent back: it has expired",
                    physical_offset,
                    self.store.path,
                )
                continue
            origin = message.properties.get(names.ORIGIN_MESSAGE_ID) or message.msg_id
            if (origin, message.reconsume_times + 1) in sent:
                continue
            self._put_back(physical_offset, level)

    def _put_back(self, physical_offset: int, level: int) -> None:
        try:
            receipt: Receipt = self.store.send_back(
                self.group, physical_offset, delay_level=level, max_times=self._max_times
            )
        except PutFailedError as error:
            receipt = error.receipt
        # A message that is stored but not durable yet counts: progress is written after a flush.
        if receipt.physical_offset < 0:
            raise StoreError(
                f"the message at {physical_offset} of {self.store.path} failed and could not be"
                f" sent back to {self.group}: {receipt.status} {receipt.reason}"
            )

    # --- progress ------------------------------------------------------------------------------

    def _commit(self, ends: Offsets) -> None:
        for topic, queues in ends.items():
            config = self.store.topic(topic)
            count = 0 if config is None else config.read_queue_count
            # A queue that was removed from its topic is read to its end, but has no consumers.
            known = {queue: offset for queue, offset in queues.items() if queue < count}
            if known:
                self.store.reset_offsets(self.group, topic, known)

    def _note_lag(self, found: QueryLag) -> None:
        """Commit past messages that filters left out: the rows of a batch do not show them."""
        with self._lock:
            if not self.store.is_open or self._journal.find(found.query_id).done < found.batch_id:
                return
            at = {(p.topic, p.queue_id): p.offset or 0 for p in self.store.progress(self.group)}
            ahead: Offsets = {}
            for end in found.ends:
                for source, offset in end.ends.items():
                    if offset > at.get((source.topic, source.queue_id), 0):
                        ahead.setdefault(source.topic, {})[source.queue_id] = offset
            self._commit(ahead)


def _schema(columns: Sequence[str]) -> StructType:
    unknown = [name for name in columns if name not in MESSAGE_SCHEMA.names]
    if unknown:
        raise ConfigError(
            f"columns: there is no column {unknown[0]!r};"
            f" {unknown_column(unknown[0], MESSAGE_SCHEMA.names)}"
        )
    wanted = {*columns, *NEEDED, "properties"}
    return StructType([field for field in MESSAGE_SCHEMA.fields if field.name in wanted])


def _check_columns(batch: DataFrame) -> None:
    missing = [name for name in NEEDED if name not in batch.columns]
    if missing:
        raise ConfigError(
            f"the stream lacks the column {missing[0]}: Consuming needs {', '.join(NEEDED)}"
        )


def _shown(batch: DataFrame, retry: str) -> DataFrame:
    """Return a batch as the handler gets it: retried messages have the topic they came from."""
    if "properties" not in batch.columns:
        return batch
    first = sf.when(sf.col("topic") == retry, sf.col("properties")[names.RETRY_TOPIC])
    return batch.withColumn("topic", sf.coalesce(first, sf.col("topic")))
