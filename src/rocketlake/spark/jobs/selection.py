"""The messages of a job, from a store, from an archive, or from both as one table."""

from pathlib import Path
from typing import Final

from msgspec import Struct, structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import local_path
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.archive_manifest import MANIFEST
from rocketlake.model.topics import dlq_topic
from rocketlake.spark.reading.archive.planning import plan_joined
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.queue_spans import check_topics
from rocketlake.spark.reading.stores import StoreSet
from rocketlake.spark.schema import MESSAGE_SCHEMA

_NAMES: Final = {
    "topic": "topic",
    "topic_pattern": "topicPattern",
    "queue_ids": "queueIds",
    "starting_offsets": "startingOffsets",
    "ending_offsets": "endingOffsets",
    "starting_timestamp": "startingTimestamp",
    "ending_timestamp": "endingTimestamp",
    "tags": "tags",
    "sql": "sql",
    "key": "key",
}


class Selection(Struct, frozen=True, kw_only=True):
    """Messages of a source; texts are those of the source's options of that name."""

    path: str | None = None
    """One store or several; None: the archive alone."""
    archive: str | None = None
    topic: str | None = None
    topic_pattern: str | None = None
    dead_letters: str | None = None
    """The dead letters of this group."""
    queue_ids: str | None = None
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    tags: str | None = None
    sql: str | None = None
    key: str | None = None
    source_options: dict[str, str] = {}

    def options(self) -> dict[str, str]:
        """Return the options of the source.

        Raises:
            ConfigError: nothing says which topic, or two things do.
        """
        given = {
            option: getattr(self, name)
            for name, option in _NAMES.items()
            if getattr(self, name) is not None
        }
        if self.dead_letters is not None:
            if "topic" in given or "topicPattern" in given:
                raise ConfigError("give a topic or the group of dead letters, not both")
            given["topic"] = dlq_topic(self.dead_letters)
        if not given.keys() & {"topic", "topicPattern"}:
            raise ConfigError(
                "no topic is named: give topic, a pattern, or dead letters of a group"
            )
        if "startingTimestamp" in given:
            # A queue without a message that young has nothing to give.
            given["startingOffsetsByTimestampStrategy"] = "latest"
        if given.keys() & {"startingTimestamp", "endingTimestamp"}:
            given.update(_session_zone())
        places = {"path": self.path, "archive": self.archive}
        return {
            **{k: v for k, v in places.items() if v is not None},
            **given,
            **self.source_options,
        }

    def check(self) -> None:
        """Make sure that the selection exists, without Spark.

        Raises:
            ConfigError: an option is wrong, or a topic is not there.
            StoreError: a store or an archive cannot be read.
        """
        options = SourceOptions.parse(self.options())
        if options.archive is not None:
            plan_joined(options)
            return
        with StoreSet.open(options) as stores:
            check_topics(stores.stores, options)

    def until(self, now_ms: int) -> "Selection":
        """Return the same, without what is stored after a time, unless it names an end itself.

        Why: a job that reads twice, or writes where it reads, must see the same messages again.
        """
        if self.ending_timestamp is not None or self.ending_offsets is not None:
            return self
        return structs.replace(self, ending_timestamp=str(now_ms + 1))

    def load(self, spark: SparkSession, columns: tuple[str, ...] | None = None) -> DataFrame:
        """Return the messages; only some columns, if they are named."""
        reader = spark.read.format("rocketlake").options(**self.options())
        if columns is not None:
            fields = {field.name: field for field in MESSAGE_SCHEMA.fields}
            reader = reader.schema(StructType([fields[name] for name in columns]))
        return reader.load()

    def place(self) -> str:
        """Say where the messages come from."""
        return " and ".join(place for place in (self.path, self.archive) if place is not None)


def _session_zone() -> dict[str, str]:
    """Return the session's time zone as an option: Spark does not pass it to the source."""
    session = SparkSession.getActiveSession()
    zone = None if session is None else session.conf.get("spark.sql.session.timeZone")
    return {} if zone is None else {"timeZone": zone}


def places_of(source: str | Path, archive: str | Path | None = None) -> dict[str, str]:
    """Return `path` and `archive`; the manifest in a directory makes it an archive."""
    text = str(source)
    is_archive = PosixFileOps().stat(local_path(text) / MANIFEST) is not None
    if is_archive and archive is not None:
        raise ConfigError(f"{source} and {archive} are both archives; name one, and a store")
    if is_archive:
        return {"archive": text}
    return {"path": text, **({"archive": str(archive)} if archive is not None else {})}
