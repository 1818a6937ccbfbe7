"""Positions and queue keys: the four kinds of offset never mix."""

from typing import NewType

from msgspec import Struct

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte in the whole commit log."""

QueueOffset = NewType("QueueOffset", int)
"""The number of a message in its queue."""

BaseOffset = NewType("BaseOffset", int)
"""The offset of a file's first byte: its name."""

FilePosition = NewType("FilePosition", int)
"""A byte in one file."""


class QueueKey(Struct, frozen=True, order=True, gc=False):
    """A queue of a topic."""

    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"
