"""The options that only a stream has."""

import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path
from rocketlake.model.size_text import parse_size
from rocketlake.model.time_text import parse_duration_ms
from rocketlake.spark.reading.options import (
    GROUP,
    LATEST,
    ReadBound,
    SourceOptions,
    Table,
    parsed,
)

MAX_DELAY_MS: Final = 15 * 60_000
"""How long a batch waits for `minOffsetsPerTrigger` rows at most; as Spark's Kafka source."""


class StreamOptions(Struct, frozen=True, kw_only=True):
    """How much a batch takes, and where a group's progress goes."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = MAX_DELAY_MS
    group: str | None = None
    progress_path: Path | None = None
    is_compact: bool = True
    """Whether offsets of many queues are a place in the log."""

    @classmethod
    def parse(cls, options: SourceOptions) -> "StreamOptions":
        """Read them, and refuse what a stream cannot do.

        Raises:
            ConfigError: one is malformed, or contradicts another.
        """
        _check_stream(options)
        given = options.stream
        group = given.get("group", "").strip() or None
        path = given.get("progressPath", "").strip()
        found = cls(
            max_rows=_rows(given, "maxOffsetsPerTrigger"),
            max_bytes=_size(given, "maxBytesPerTrigger"),
            min_rows=_rows(given, "minOffsetsPerTrigger"),
            max_delay_ms=_time(given, "maxTriggerDelay"),
            group=group,
            progress_path=_directory(path) if path else None,
            is_compact=_flag(given, "compactOffsets"),
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
        if path and not group:
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
        raise ConfigError(f"table {options.table} is no stream; read it as a batch")
    if options.key is not None:
        raise ConfigError("option key is for batches; filter a stream by its column keys")


def _flag(given: dict[str, str], name: str) -> bool:
    text = given.get(name, "true").strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"option {name} = {given[name]!r}: wanted true or false")
    return text == "true"


def _rows(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise ConfigError(f"option {name} = {text!r}: wanted a number of messages from 1 on")
    return int(text)


def _size(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    size = parsed(name, text, parse_size)
    if size < 1:
        raise ConfigError(f"option {name} = {text!r}: the least is 1")
    return size


def _time(given: dict[str, str], name: str) -> int:
    text = given.get(name)
    if text is None:
        return MAX_DELAY_MS
    return parsed(name, text, lambda given: parse_duration_ms(given, "ms"))


def _directory(text: str) -> Path:
    """Return a directory of this machine."""
    try:
        return absolute_path(text)
    except ConfigError as error:
        raise ConfigError(f"option progressPath: {error}") from error
