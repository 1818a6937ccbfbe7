"""The options of the source: text from Spark in, one checked value out."""

import re
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct
from pyspark.sql.types import StructType

from rocketlake.errors import ConfigError
from rocketlake.model.time_text import parse_time, parse_zone
from rocketlake.spark.name_hints import unknown_column
from rocketlake.spark.named_paths import named_path, split_paths
from rocketlake.spark.option_texts import OptionTexts
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
    "queueIds",
    "startingOffsets",
    "endingOffsets",
    "archive",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
)
PARTITION_BYTES: Final = 128 << 20
_SMALLEST_PART: Final = 1024


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
    max_partition_bytes: int = PARTITION_BYTES
    archive: str | None = None
    columns: tuple[str, ...] | None = None
    """Of the table; None: all."""
    raw_body: bool = False
    on_damage: OnDamage = OnDamage.FAIL
    fail_on_data_loss: bool = True
    commit_log_path: str | None = None
    read_options: ReadOptions = ReadOptions()
    push_filters: bool = True
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
        self._given = OptionTexts.of(options, (*_OWN_KEYS, *STREAM_KEYS))

    def parse(self) -> SourceOptions:
        """Read every option."""
        given = self._given
        table = given.choice("table", Table, Table.MESSAGES)
        topics, pattern = self._topics()
        wanted = SourceOptions(
            paths=self._paths(),
            table=table,
            topics=topics,
            topic_pattern=pattern,
            queue_ids=self._queue_ids(),
            assigned=self._assigned(),
            starting=self._bound("starting", EARLIEST),
            ending=self._bound("ending", LATEST),
            no_match=given.choice("startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
            tags=self._tags(),
            sql=self._sql(),
            key=given.get("key"),
            min_partitions=given.number("minPartitions", highest=1_000_000) or 0,
            max_partition_bytes=given.size("maxPartitionBytes", lowest=_SMALLEST_PART)
            or PARTITION_BYTES,
            archive=given.get("archive"),
            columns=self._columns(table),
            raw_body=given.flag("rawBody", default=False),
            on_damage=given.choice("onDamage", OnDamage, OnDamage.FAIL),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            commit_log_path=given.directories("commitLogPath"),
            read_options=ReadOptions.of(StoreOptions.choose(given.get("options"))),
            push_filters=given.flag("pushFilters", default=True),
            stream={name: text for name, text in given.texts.items() if name in STREAM_KEYS},
        )
        _check_together(wanted, given.texts)
        return wanted

    # --- which stores --------------------------------------------------------------------------

    def _paths(self) -> tuple[tuple[str, str], ...]:
        texts = self._given.json("paths", list[str]) or []
        text = self._given.get("path")
        if text is not None:
            texts += split_paths(text)
        named = [named_path(text) for text in texts if text.strip()]
        if not named and "archive" not in self._given:
            raise ConfigError(
                'option "path" is missing: the directory of a store, or several as a,b or name=a'
            )
        return _with_own_names(named)  # none: the store is gone, its archive is not

    # --- which messages ------------------------------------------------------------------------

    def _topics(self) -> tuple[tuple[str, ...], str | None]:
        given = [name for name in _TOPICS if name in self._given]
        if len(given) > 1:
            raise ConfigError(f"give one of the options {' and '.join(given)}, not both")
        if not given:
            return (), None
        text = self._given.texts[given[0]]
        if given[0] in _TOPIC_PATTERNS:
            try:
                re.compile(text)
            except re.error as error:
                raise self._given.refusal(given[0], f"not a regular expression: {error}") from error
            return (), text
        names = self._assigned() or {} if given[0] == "assign" else text.split(",")
        topics = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
        if not topics:
            raise self._given.refusal(given[0], "it names no topic")
        return topics, None

    def _assigned(self) -> dict[str, frozenset[int]] | None:
        given = self._given.json(
            "assign", dict[str, list[int]], 'wanted JSON like {"topic": [0, 1]}'
        )
        if given is None:
            return None
        if "queueIds" in self._given:
            raise ConfigError("give one of the options assign and queueIds, not both")
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
            raise self._given.refusal("columns", "wanted names like queue_id,tags, each once")
        return names

    def _queue_ids(self) -> frozenset[int] | None:
        text = self._given.get("queueIds")
        if text is None:
            return None
        found: set[int] = set()
        for part in text.split(","):
            ends = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
            if ends is None or not 0 <= int(ends[2] or ends[1]) - int(ends[1]) <= 1 << 20:
                raise self._given.refusal("queueIds", "wanted numbers like 0,1 or 0-3")
            found.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
        return frozenset(found)

    def _bound(self, which: str, default: int) -> ReadBound:
        keys = (f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp")
        given = [key for key in keys if key in self._given]
        if len(given) > 1:
            raise ConfigError(f"give one of the options {' and '.join(given)}, not both")
        if not given:
            return ReadBound(default)
        text = self._given.texts[given[0]].strip()
        if given[0] == f"{which}Timestamp":
            zone = self._zone()
            time_ms = self._given.parsed(given[0], lambda text: parse_time(text, zone))
            if time_ms is None or time_ms < 0:
                raise self._given.refusal(given[0], "the least is 0, in 1970")
            return ReadBound(time_ms, is_time=True)
        words = {"earliest": EARLIEST, "latest": LATEST}
        if which == "starting":
            words["group"] = GROUP
        if given[0] == f"{which}Offsets" and text.lower() in words:
            return ReadBound(words[text.lower()])
        is_time = given[0].endswith("ByTimestamp")
        example = '{"topic": {"0": 1767225600000}}' if is_time else '{"topic": {"0": 12}}'
        hint = "" if is_time else "earliest, latest or "
        wanted = f"wanted {hint}JSON like {example}"
        by_queue = self._given.json(given[0], dict[str, dict[int, int]], wanted) or {}
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
        return self._given.parsed("timeZone", parse_zone)

    def _tags(self) -> str | None:
        from rocketlake.filters.tags import TagFilter  # noqa: PLC0415 - few need it

        self._given.parsed("tags", TagFilter.parse)
        return self._given.get("tags")

    def _sql(self) -> str | None:
        if "sql" in self._given:
            from rocketlake.filters.sql92 import SqlFilter  # noqa: PLC0415 - its parser is slow

            self._given.parsed("sql", SqlFilter)
        return self._given.get("sql")


def _with_own_names(named: Iterable[tuple[str | None, str]]) -> tuple[tuple[str, str], ...]:
    """Name each store: as given, else by the last parts of its path that make it the only one."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    for name, path in named:
        place = Path(path).resolve()
        if place in seen:
            raise ConfigError(
                f"option path: {path} is named twice, so that every message would be read twice;"
                " name it once"
            )
        seen.add(place)
        parts = [part for part in Path(path).parts if part != "/"] or [path]
        own = name or parts[-1]
        used = 1
        while name is None and own in found and used < len(parts):
            used += 1
            own = "/".join(parts[-used:])
        if own in found:
            raise ConfigError(f"option path: two stores are named {own!r}; name them as name=path")
        found[own] = path
    return tuple(found.items())


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
