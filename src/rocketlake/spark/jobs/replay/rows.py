"""The topic a message goes back to, and the columns that are written again."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from rocketlake.format.layout import MAX_I16
from rocketlake.model import properties as names
from rocketlake.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

_ROOM: Final = MAX_I16
"""Bytes of properties that a record holds."""
SURELY_FITS: Final = 10_000
"""Records below this size have properties that fit, whatever becomes of their bytes."""

_COLUMNS: Final = frozenset({names.KEYS, names.TAGS, names.UNIQUE_KEY})
_OTHER_NAMES: Final = """
    TIMER_DELAY_LEVEL __STARTDELIVERTIME DLQ_ORIGIN_MESSAGE_ID RECONSUME_TIME MAX_RECONSUME_TIMES
    CONSUME_START_TIME MSG_REGION TRACE_ON CLUSTER MSG_TYPE ARRIVE_TIME TRAN_MSG PGROUP
    TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES MIN_OFFSET MAX_OFFSET TRANSFER_FLAG
    CORRECTION_FLAG MQ2_FLAG POP_CK POP_CK_OFFSET 1ST_POP_TIME PROPERTY_FORWARD_QUEUE_ID REDIRECT
"""
_NOT_CARRIED: Final = frozenset(_OTHER_NAMES.split()) | {
    names.WAIT,
    names.DELAY,
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.RETRY_TOPIC,
    names.TIMER_DELAY_S,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
    names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
    names.TIMER_ROLL_TIMES,
    names.TIMER_DELETE_KEY,
    names.MULTI_DISPATCH,
    names.MULTI_QUEUE_OFFSET,
    names.RECORD_CRC,
    names.INNER_NUM,
    names.INNER_BASE,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
}
"""Properties that a broker or a client's machinery set: they are about the first life of a message.

Compat: names of MessageConst.
"""

OF_THE_BROKER: Final = _NOT_CARRIED | _COLUMNS
"""The same, and those that have columns of their own."""

NEEDED: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "msg_id",
    "unique_key",
    "keys",
    "tags",
    "body",
    "properties",
    "flag",
    "broker",
    "store_size",
)
"""Columns that a message is written again from."""
NARROW: Final = ("topic", "queue_id", "properties", "store_size")
"""Columns that a plan is made from."""


class FlowRow(Struct, frozen=True):
    """Messages of one topic that go to another, as they are counted."""

    topic: str
    target: str | None
    is_batch: bool
    fits: bool
    """Whether a record has room for the properties that are written again."""
    messages: int
    bytes: int
    queue: int
    """The highest number of a source queue."""


def target_topic(to_topic: str | None) -> Column:
    """Return where messages go: as asked, else where they were first; null if unknown."""
    if to_topic is not None:
        return sf.lit(to_topic)
    topic = sf.col("topic")
    own = sf.when(topic.startswith(DEAD_LETTER_PREFIX) | topic.startswith(RETRY_PREFIX), _origin())
    is_system = topic.isin(*sorted(SYSTEM_TOPICS)) | topic.startswith(SYSTEM_PREFIX)
    return own.when(is_system, _property(names.REAL_TOPIC)).otherwise(topic)


def is_batch() -> Column:
    """Tell whether a record holds several messages in one body."""
    return _property(names.INNER_NUM).isNotNull()


def fits() -> Column:
    """Tell whether a record has room for the properties of a message that is written again.

    Bytes that are no text grow: each becomes three.
    """
    is_small = sf.col("store_size") < SURELY_FITS
    return sf.when(is_small, sf.lit(True)).otherwise(_carried_size() <= _ROOM)  # noqa: FBT003 - a column


def do_fit(properties: Iterable[tuple[str, str]]) -> bool:
    """The same as `fits`, for the properties of one large record."""
    carried = (pair for pair in properties if pair[0] not in _NOT_CARRIED)
    return sum(len(part.encode()) + 1 for pair in carried for part in pair) <= _ROOM


def _carried_size() -> Column:
    """Return how many bytes the properties take that are written again."""
    kept = sf.map_filter(sf.col("properties"), lambda name, _: ~name.isin(*sorted(_NOT_CARRIED)))
    return sf.aggregate(
        sf.map_entries(kept),
        sf.lit(0),
        lambda size, entry: size + _property_size(entry["key"], entry["value"]),
    )


def _property_size(name: Column, value: Column) -> Column:
    return sf.octet_length(name) + sf.octet_length(value) + 2  # and what ends name and value


def _origin() -> Column:
    # Compat: the topic of a dead letter is in DLQ_ORIGIN_TOPIC, or, from brokers that do not write
    # it, in RETRY_TOPIC, which the first return to the broker sets.
    return sf.coalesce(_property(DLQ_ORIGIN_TOPIC), _property(names.RETRY_TOPIC))


def _property(name: str) -> Column:
    found = sf.col("properties").getItem(name)
    return sf.when(found != "", found)


def as_messages(frame: DataFrame, target: Column, queue: Column) -> DataFrame:
    """Return rows for the sink, and beside them the places they come from, by which to sort."""
    kept = sf.map_filter(
        sf.col("properties"), lambda name, _: (name != "") & ~name.isin(*sorted(OF_THE_BROKER))
    )
    origin = sf.coalesce(_property(ORIGIN_MESSAGE_ID), sf.col("msg_id"))
    added = sf.create_map(sf.lit(ORIGIN_MESSAGE_ID), origin)
    # Why: without room for it the message itself is worth more than where it came from.
    whole = _carried_size() + _property_size(sf.lit(ORIGIN_MESSAGE_ID), origin)
    has_room = (sf.col("store_size") < SURELY_FITS) | (whole <= _ROOM)
    written = sf.when(has_room, sf.map_concat(kept, added)).otherwise(kept)
    return frame.select(
        target.alias("topic"),
        sf.col("body"),
        sf.when(sf.size("keys") > 0, sf.col("keys")).alias("keys"),
        sf.col("tags"),
        written.alias("properties"),
        queue.cast("int").alias("queue_id"),
        sf.col("flag"),
        sf.col("unique_key"),
        *(sf.col(name) for name in ("store_timestamp", "broker", "queue_offset")),
        sf.col("topic").alias("source"),
        sf.col("queue_id").alias("source_queue"),
    )
