"""Every exception this package raises on purpose.

RocketLakeError
├── ConfigError                 an option is unknown, malformed or contradicts the files
└── StoreError
    ├── StoreNotFoundError      the path is no store directory, or may not be read
    └── CorruptRecordError      one particular record was asked for and is bad
"""

from typing import ClassVar


class RocketLakeError(Exception):
    """Root of the tree; `retriable` tells a retry loop whether to try again."""

    retriable: ClassVar[bool] = False


class ConfigError(RocketLakeError):
    """An option is unknown, malformed or contradicts the files."""


class StoreError(RocketLakeError):
    """Something about a store directory is wrong."""


class StoreNotFoundError(StoreError):
    """The path is no store directory, or it may not be read."""


class CorruptRecordError(StoreError):
    """One particular record was asked for and is bad: where it lies and why."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason
