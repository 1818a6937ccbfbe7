"""The options of the source: text from Spark in, one checked value out."""

import re
from collections.abc import Callable, Mapping
from datetime import tzinfo
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from pyspark.sql.types import StructType

from rocketlake.errors import ConfigError
from rocketlake.model.size_text import parse_size
from rocketlake.model.time_text import parse_time, parse_zone
from rocketlake.spark.name_hints import unknown_column, unknown_option
from rocketlake.spark.reading.store_paths import is_dir, named_path, with_own_names
from rocketlake.spark.reading.tables import schemas
from rocketlake.spark.reading.terms import Term
from rocketlake.spark.schema import RAW_TIMES
from rocketlake.store.options import ReadOptions, StoreOptions

EARLIEST: Final = -2
LATEST: Final = -1
GROUP: Final = -3
"""Where a consumer group is; streams know."""

STREAM_KEYS: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "compactOffsets",
    "group",
    "progressPath",
)
"""What only a stream knows; `SourceOptions.stream` holds their texts."""

_OWN_KEYS: Final = (
    "path",
    "paths",
    "table",
    "topic",
    "topics",
    "topicPattern",
    "subscribe",
    "subscribePattern",
    "assign",
    "queueIds",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "timeZone",
    "tags",
    "sql",
    "key",
    "minPartitions",
    "maxPartitionBytes",
    "archive",
    "columns",
    "rawBody",
    "onDamage",
    "failOnDataLoss",
    "commitLogPath",
    "options",
    "pushFilters",
)
_TOPIC_LISTS: Final = ("topic", "topics", "subscribe")
_TOPIC_PATTERNS: Final = ("topicPattern", "subscribePattern")
_TOPICS: Final = (*_TOPIC_LISTS, *_TOPIC_PATTERNS, "assign")
"""`subscribe`, `subscribePattern` and `assign` are what Kafka's source calls them."""
_SELECTING: Final = frozenset(
    {*_TOPICS, "queueIds", "tags", "sql", "key", "rawBody", "archive"}
    | {f"{which}{rest}" for which in ("starting", "ending") for rest in ("Offsets", "Timestamp")}
    | {"startingOffsetsByTimestamp", "endingOffsetsByTimestamp"}
    | {"startingOffsetsByTimestampStrategy"}
)
_OF_QUEUES: Final = _SELECTING - {"tags", "sql", "key", "rawBody", "archive"}
_OF_TOPIC: Final = (
    *("queueIds", "startingOffsets", "endingOffsets", "archive"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
)
_KNOWN: Final = {name.lower(): name for name in (*_OWN_KEYS, *STREAM_KEYS)}
_SMALLEST_PART: Final = 1024

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")


class Table(StrEnum):
    """Which stage of the store is read."""

    MESSAGES = "messages"
    LOG = "log"
    QUEUE = "queue"
    INDEX = "index"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    DAMAGE = "damage"


class OnDamage(StrEnum):
    """What to do about a record that is not good."""

    FAIL = "fail"
    SKIP = "skip"
    """Read everything else: the log and the queues behind it too."""
    AS_RECOVERED = "asRecovered"
    """Read what a start of the store would leave: the log up to its first bad record."""


class NoMatch(StrEnum):
    """What to do if nothing was stored at a starting time or later."""

    ERROR = "error"
    LATEST = "latest"


_ALLOWED: Final = {
    Table.LOG: frozenset({"startingTimestamp", "endingTimestamp", "rawBody"}),
    Table.QUEUE: _OF_QUEUES,
    Table.PROGRESS: frozenset({*_TOPICS, "queueIds"}),
}


class ReadBound(Struct, frozen=True):
    """Where to begin or to end: an offset or a time for every queue, and others for some.

    `default` is an offset (EARLIEST, LATEST), or a time if `is_time`.
    """

    default: int
    is_time: bool = False
    by_queue: dict[str, dict[int, int]] = {}

    def of(self, topic: str, queue_id: int) -> tuple[int, bool]:
        """Return the offset or time of a queue, and whether it is a time."""
        given = self.by_queue.get(topic, {}).get(queue_id)
        if given is not None:
            return given, self.is_time
        # Queues that a JSON of times does not name are read from end to end, as offsets are.
        return self.default, self.is_time and self.default >= 0


class SourceOptions(Struct, frozen=True, kw_only=True):
    """Everything a read was asked for."""

    paths: tuple[tuple[str, str], ...]
    """Broker name and directory of each store."""
    table: Table = Table.MESSAGES
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    queue_ids: frozenset[int] | None = None
    assigned: Mapping[str, frozenset[int]] | None = None
    """The wanted queues of each topic, where these differ; None: `queue_ids` of all."""
    starting: ReadBound = ReadBound(EARLIEST)
    ending: ReadBound = ReadBound(LATEST)
    no_match: NoMatch = NoMatch.ERROR
    tags: str | None = None
    sql: str | None = None
    key: str | None = None
    min_partitions: int = 0
    max_partition_bytes: int = 128 << 20
    archive: str | None = None
    columns: tuple[str, ...] | None = None
    """Of the table; None: all."""
    raw_body: bool = False
    on_damage: OnDamage = OnDamage.FAIL
    fail_on_data_loss: bool = True
    commit_log_path: str | None = None
    read_options: ReadOptions = ReadOptions()
    push_filters: bool | None = None
    """None: where the session allows it."""
    stream: dict[str, str] = {}
    terms: tuple[Term, ...] = ()
    """What Spark pushed down, beside `pushed_tags` and `unique_key`."""
    pushed_tags: tuple[str, ...] | None = None
    unique_key: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Read the options as Spark hands them over.

        Raises:
            ConfigError: one is unknown, malformed, or contradicts another.
        """
        return _Parser(options).parse()

    @property
    def schema(self) -> StructType:
        """The columns that are asked for, of the table that is asked for."""
        whole = schemas.of_table(self.table)
        return whole if self.columns is None else StructType([whole[name] for name in self.columns])

    @property
    def selectable(self) -> StructType:
        """The columns that a schema may ask for."""
        if self.table in (Table.MESSAGES, Table.LOG):
            return StructType([*self.schema.fields, *RAW_TIMES.fields])
        return self.schema

    @property
    def has_topic(self) -> bool:
        """Whether topics are named, so that queues decide which records are read."""
        return bool(self.topics) or self.topic_pattern is not None

    def wants_topic(self, topic: str) -> bool:
        """Tell whether a topic is one of those asked for; without any, all are."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return not self.topics or topic in self.topics

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Tell whether a queue is one of those asked for."""
        return self.wants_topic(topic) and self.wants_queue_id(topic, queue_id)

    def wants_queue_id(self, topic: str, queue_id: int) -> bool:
        """Tell whether a queue of a wanted topic is one of those asked for."""
        if self.assigned is not None:
            return queue_id in self.assigned[topic]
        return self.queue_ids is None or queue_id in self.queue_ids


class _Parser:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._given: dict[str, str] = {}
        for key, value in options.items():
            name = _KNOWN.get(key.lower())
            if name is None:
                raise unknown_option(key, _KNOWN.values())
            if value is not None:
                self._given[name] = str(value)

    def parse(self) -> SourceOptions:
        """Read every option."""
        table = self._choice("table", Table, Table.MESSAGES)
        starting = self._bound("starting", EARLIEST)
        ending = self._bound("ending", LATEST)
        topics, pattern = self._topics()
        wanted = SourceOptions(
            paths=self._paths(),
            table=table,
            topics=topics,
            topic_pattern=pattern,
            queue_ids=self._queue_ids(),
            assigned=self._assigned(),
            starting=starting,
            ending=ending,
            no_match=self._choice("startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
            tags=self._tags(),
            sql=self._sql(),
            key=self._given.get("key"),
            min_partitions=self._number("minPartitions", 0, 1, 1_000_000),
            max_partition_bytes=self._size("maxPartitionBytes", 128 << 20),
            archive=self._given.get("archive"),
            columns=self._columns(table),
            raw_body=self._flag("rawBody", default=False) is True,
            on_damage=self._choice("onDamage", OnDamage, OnDamage.FAIL),
            fail_on_data_loss=self._flag("failOnDataLoss", default=True) is True,
            commit_log_path=self._given.get("commitLogPath"),
            read_options=self._read_options(),
            push_filters=self._flag("pushFilters", default=None),
            stream={name: self._given[name] for name in STREAM_KEYS if name in self._given},
        )
        _check_together(wanted, self._given)
        return wanted

    # --- which stores --------------------------------------------------------------------------

    def _paths(self) -> tuple[tuple[str, str], ...]:
        texts = self._json("paths", list[str]) if "paths" in self._given else []
        if "path" in self._given:
            text = self._given["path"]
            texts += [text] if is_dir(text) else text.split(",")
        named = [named_path(text.strip()) for text in texts if text.strip()]
        if not named and "archive" in self._given:
            return ()  # the store is gone, its archive is not
        if not named:
            raise ConfigError(
                'option "path" is missing: the directory of a store, or several as a,b or name=a'
            )
        return with_own_names(named)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.of(StoreOptions.choose(self._given.get("options")))

    # --- which messages ------------------------------------------------------------------------

    def _topics(self) -> tuple[tuple[str, ...], str | None]:
        given = [name for name in _TOPICS if name in self._given]
        if len(given) > 1:
            raise ConfigError(f"give one of the options {' and '.join(given)}, not both")
        if not given:
            return (), None
        text = self._given[given[0]]
        if given[0] in _TOPIC_PATTERNS:
            try:
                re.compile(text)
            except re.error as error:
                raise ConfigError(
                    f"option {given[0]} = {text!r} is no regular expression: {error}"
                ) from error
            return (), text
        names = self._assigned() or {} if given[0] == "assign" else text.split(",")
        topics = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
        if not topics:
            raise ConfigError(f"option {given[0]} = {text!r} names no topic")
        return topics, None

    def _assigned(self) -> dict[str, frozenset[int]] | None:
        if "assign" not in self._given:
            return None
        if "queueIds" in self._given:
            raise ConfigError("give one of the options assign and queueIds, not both")
        given = self._json("assign", dict[str, list[int]], 'wanted JSON like {"topic": [0, 1]}')
        for topic, queues in given.items():
            if not queues or min(queues) < 0:
                raise ConfigError(
                    f"option assign: {queues} of topic {topic}: wanted queue numbers from 0 on"
                )
        return {topic.strip(): frozenset(queues) for topic, queues in given.items()}

    def _columns(self, table: Table) -> tuple[str, ...] | None:
        text = self._given.get("columns")
        if text is None:
            return None
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        known = schemas.of_table(table).fieldNames()
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"option columns: there is no column {name!r}; {unknown_column(name, known)}"
                )
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"option columns = {text!r}: wanted names like queue_id,tags, each once"
            )
        return names

    def _queue_ids(self) -> frozenset[int] | None:
        text = self._given.get("queueIds")
        if text is None:
            return None
        found: set[int] = set()
        for part in text.split(","):
            ends = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
            if ends is None or int(ends[2] or ends[1]) - int(ends[1]) > 1 << 20:
                raise ConfigError(f"option queueIds = {text!r}: wanted numbers like 0,1 or 0-3")
            found.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
        return frozenset(found)

    def _bound(self, which: str, default: int) -> ReadBound:
        keys = (f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp")
        given = [key for key in keys if key in self._given]
        if len(given) > 1:
            raise ConfigError(f"give one of the options {' and '.join(given)}, not both")
        if not given:
            return ReadBound(default)
        text = self._given[given[0]].strip()
        if given[0] == f"{which}Timestamp":
            zone = self._zone()
            time_ms = parsed(given[0], text, lambda text: parse_time(text, zone))
            if time_ms < 0:
                raise ConfigError(f"option {given[0]} = {text!r}: the least is 0, in 1970")
            return ReadBound(time_ms, is_time=True)
        words = {"earliest": EARLIEST, "latest": LATEST}
        if which == "starting":
            words["group"] = GROUP
        if given[0] == f"{which}Offsets" and text.lower() in words:
            return ReadBound(words[text.lower()])
        is_time = given[0].endswith("ByTimestamp")
        example = '{"topic": {"0": 1767225600000}}' if is_time else '{"topic": {"0": 12}}'
        hint = "" if is_time else "earliest, latest or "
        by_queue = self._json(
            given[0], dict[str, dict[int, int]], f"wanted {hint}JSON like {example}"
        )
        lowest = 0 if is_time else EARLIEST
        for topic, offsets in by_queue.items():
            for queue_id, value in offsets.items():
                if value < lowest:
                    raise ConfigError(
                        f"option {given[0]}: {value} of queue {topic}/{queue_id} is below {lowest}"
                    )
        return ReadBound(default, is_time=is_time, by_queue=by_queue)

    def _zone(self) -> tzinfo | None:
        """Return the zone of times that name none; None: local time.

        Why: Spark tells a Python source nothing of its session. Local time is what the session has
        unless `spark.sql.session.timeZone` is set.
        """
        text = self._given.get("timeZone")
        return None if text is None else parsed("timeZone", text.strip(), parse_zone)

    def _tags(self) -> str | None:
        from rocketlake.filters.tags import TagFilter  # noqa: PLC0415 - few need it

        text = self._given.get("tags")
        if text is not None:
            parsed("tags", text, TagFilter.parse)
        return text

    def _sql(self) -> str | None:
        text = self._given.get("sql")
        if text is not None:
            from rocketlake.filters.sql92 import SqlFilter  # noqa: PLC0415 - its parser is slow

            parsed("sql", text, SqlFilter)
        return text

    # --- kinds of values -----------------------------------------------------------------------

    def _choice(self, name: str, kind: type[E], default: E) -> E:
        text = self._given.get(name)
        if text is None:
            return default
        for value in kind:
            if value.lower() == text.strip().lower():
                return value
        known = ", ".join(kind)
        raise ConfigError(f"option {name} = {text!r}: wanted one of {known}")

    def _flag(self, name: str, *, default: bool | None) -> bool | None:
        text = self._given.get(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise ConfigError(f"option {name} = {text!r}: wanted true or false")
        return text.strip().lower() == "true"

    def _number(self, name: str, default: int, lowest: int, highest: int) -> int:
        text = self._given.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or not lowest <= int(text) <= highest:
            raise ConfigError(f"option {name} = {text!r}: wanted a number from {lowest} on")
        return int(text)

    def _size(self, name: str, default: int) -> int:
        text = self._given.get(name)
        if text is None:
            return default
        size = parsed(name, text, parse_size)
        if size < _SMALLEST_PART:
            raise ConfigError(f"option {name} = {text!r}: the least is {_SMALLEST_PART}")
        return size

    def _json(self, name: str, kind: type[T], wanted: str = "wanted JSON") -> T:
        try:
            return msgspec.json.decode(self._given[name], type=kind, strict=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                f"option {name} = {self._given[name]!r}: {wanted} ({error})"
            ) from None


def parsed(name: str, text: str, parse: Callable[[str], T]) -> T:
    """Return what a parser makes of an option's text.

    Raises:
        ConfigError: the parser refuses it.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"option {name}: {error}") from error


def _check_together(wanted: SourceOptions, given: Mapping[str, str]) -> None:
    """Refuse what a table cannot be asked, and what needs a topic."""
    if wanted.table is Table.MESSAGES:
        for name in _OF_TOPIC if not wanted.has_topic else ():
            if name in given and given[name].strip().lower() not in ("earliest", "latest"):
                raise ConfigError(
                    f"option {name} needs a topic: give topic, topics or topicPattern"
                )
        return
    allowed = _ALLOWED.get(wanted.table, frozenset())
    for name in given:
        if name in _SELECTING and name not in allowed:
            raise ConfigError(f"option {name} does not go with table = {wanted.table.value}")
