"""The options that only a stream has."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.errors import ConfigError
from rocketlake.spark.option_texts import OptionTexts
from rocketlake.spark.reading.options import (
    GROUP,
    LATEST,
    ReadBound,
    SourceOptions,
    Table,
)

MAX_DELAY_MS: Final = 15 * 60_000
"""How long a batch waits for `minOffsetsPerTrigger` rows at most, as in Spark's Kafka source."""


class StreamOptions(Struct, frozen=True, kw_only=True):
    """How much a batch takes, and where a group's progress is written."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = MAX_DELAY_MS
    group: str | None = None
    progress_path: Path | None = None
    is_compact: bool = True
    """Whether offsets of many queues are stored as a place in the log."""

    @classmethod
    def parse(cls, options: SourceOptions) -> "StreamOptions":
        """Parse the options, and refuse what a stream cannot do.

        Raises:
            ConfigError: one is malformed, or contradicts another.
        """
        _check_stream(options)
        given = OptionTexts(options.stream)
        group = given.word("group")
        delay_ms = given.duration_ms("maxTriggerDelay", "ms")
        found = cls(
            max_rows=given.number("maxOffsetsPerTrigger"),
            max_bytes=given.size("maxBytesPerTrigger"),
            min_rows=given.number("minOffsetsPerTrigger"),
            max_delay_ms=MAX_DELAY_MS if delay_ms is None else delay_ms,
            group=group,
            progress_path=given.directory("progressPath"),
            is_compact=given.flag("compactOffsets", default=True),
        )
        if found.min_rows and found.max_rows and found.min_rows > found.max_rows:
            raise ConfigError(
                f"option minOffsetsPerTrigger = {found.min_rows} is above maxOffsetsPerTrigger ="
                f" {found.max_rows}"
            )
        if group and not options.has_topic:
            raise ConfigError(
                "option group needs a topic: a log as a whole has no consumer's progress"
            )
        if group and not options.paths:
            raise ConfigError(
                "option group keeps its progress in the store: give path beside archive"
            )
        if found.progress_path and not group:
            raise ConfigError("option progressPath keeps a group's progress: name the option group")
        if options.starting.default == GROUP and not group:
            raise ConfigError("option startingOffsets = group needs the option group")
        return found


def _check_stream(options: SourceOptions) -> None:
    if options.ending != ReadBound(LATEST):
        raise ConfigError(
            "a stream has no end: leave endingOffsets and endingTimestamp out, or read a batch"
        )
    if options.table is not Table.MESSAGES:
        raise ConfigError(f"table {options.table} is not a stream; read it as a batch")
    if options.key is not None:
        raise ConfigError("option key is for batches; filter a stream by its column keys")
