"""The options of the sink: text from Spark in, one checked value out."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from rocketlake.embedded.checks import check_topic_for_put
from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path
from rocketlake.spark.named_paths import named_path, split_paths
from rocketlake.spark.option_texts import OptionTexts

_NAMES: Final = (
    "path",
    "topic",
    "stagingPath",
    "writeId",
    "lockTimeout",
    "options",
    "commitLogPath",
)
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
        given = OptionTexts.of(options, _NAMES, ignored=_OF_SPARK, where=" of a write")
        root = _root(given)
        timeout_ms = given.duration_ms("lockTimeout", "s")
        return cls(
            path=str(root),
            topic=_topic(given.get("topic")),
            staging_path=str(given.directory("stagingPath") or root / ROOM / "staging"),
            write_id=_write_id(given.get("writeId")),
            lock_timeout_s=LOCK_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000,
            conf=given.get("options"),
            commit_log_path=given.directories("commitLogPath"),
        )

    @property
    def store_options(self) -> dict[str, object]:
        """What a store is opened with beside its configuration."""
        if self.commit_log_path is None:
            return {}
        return {"store_path_commit_log": self.commit_log_path}


def known_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of a table's options that a write knows; the others are for reads."""
    known = {name.lower() for name in _NAMES}
    return {key: value for key, value in options.items() if key.lower() in known}


def new_token() -> str:
    """Return a name that nothing else has."""
    return uuid.uuid4().hex


def _root(given: OptionTexts) -> Path:
    """Return the directory of the one store that `path` names, as a read of it would."""
    parts = [part for part in split_paths(given.get("path") or "") if part.strip()]
    if not parts:
        raise ConfigError('option path is missing: .option("path", "data/store")')
    if len(parts) > 1:
        raise given.refusal("path", "a write has one store; several can only be read")
    return absolute_path(named_path(parts[0])[1])


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
