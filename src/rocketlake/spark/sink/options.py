"""The options of the sink: text from Spark in, one checked value out."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from rocketlake.embedded.checks import check_topic_for_put
from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path
from rocketlake.model.time_text import parse_duration_ms
from rocketlake.spark.name_hints import unknown_option

_KNOWN: Final = {
    name.lower(): name
    for name in (
        *("path", "topic", "stagingPath", "writeId", "lockTimeout", "options", "commitLogPath"),
    )
}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""What Spark itself may pass on."""
LOCK_TIMEOUT_S: Final = 30.0

ROOM: Final = Path("rocketlake") / "sink"
"""Where the sink keeps its own files, below a store."""


class SinkOptions(Struct, frozen=True, kw_only=True):
    """Everything a write was asked for."""

    path: str
    topic: str | None = None
    """Of rows that name none."""
    staging_path: str
    write_id: str | None = None
    lock_timeout_s: float = LOCK_TIMEOUT_S
    conf: str | None = None
    """A broker.conf, or JSON: the options that the store is opened with."""
    commit_log_path: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a write.

        Raises:
            ConfigError: one is unknown, missing or wrong; the text names it and the way out.
        """
        given = _known(options)
        path = given.get("path", "").strip()
        if not path:
            raise ConfigError('option path is missing: .option("path", "data/store")')
        if "," in path or "=" in Path(path).name:
            raise ConfigError(
                f"option path = {path!r}: a write has one store; several can only be read"
            )
        root = absolute_path(path)
        staging = given.get("stagingPath", "").strip()
        return cls(
            path=str(root),
            topic=_topic(given.get("topic")),
            staging_path=str(absolute_path(staging) if staging else root / ROOM / "staging"),
            write_id=_write_id(given.get("writeId")),
            lock_timeout_s=_seconds(given.get("lockTimeout")),
            conf=given.get("options"),
            commit_log_path=given.get("commitLogPath"),
        )

    @property
    def store_options(self) -> dict[str, object]:
        """What a store is opened with beside its configuration."""
        if self.commit_log_path is None:
            return {}
        return {"store_path_commit_log": self.commit_log_path}


def known_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of a table's options that a write knows; the others are for reads."""
    return {key: value for key, value in options.items() if key.lower() in _KNOWN}


def new_token() -> str:
    """Return a name that nothing else has."""
    return uuid.uuid4().hex


def _known(options: Mapping[str, str]) -> dict[str, str]:
    given = {}
    for key, value in options.items():
        name = _KNOWN.get(key.lower())
        if name is not None:
            given[name] = value
        elif key.lower() not in _OF_SPARK:
            raise unknown_option(key, _KNOWN.values(), of=" of a write")
    return given


def _topic(topic: str | None) -> str | None:
    if topic is None:
        return None
    try:
        check_topic_for_put(topic)
    except ValueError as error:
        raise ConfigError(f"option {error}") from error
    return topic


def _write_id(text: str | None) -> str | None:
    if text is not None and not 0 < len(text.strip()) <= 512:
        raise ConfigError("option writeId is empty or longer than 512 characters")
    return text


def _seconds(text: str | None) -> float:
    if text is None:
        return LOCK_TIMEOUT_S
    try:
        return parse_duration_ms(text, "s") / 1000
    except ValueError as error:
        raise ConfigError(f"option lockTimeout: {error}") from error
