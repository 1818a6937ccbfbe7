"""ConsumerPlan: the arguments of a consumer, checked."""

from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct

from rocketlake.embedded.checks import check_group, check_topic
from rocketlake.embedded.selection import Selection
from rocketlake.model.unix_time import Timestamp, to_unix_ms

Start: TypeAlias = Literal["first", "last"] | Timestamp
"""The first message, after the last one, or the first one not before a time."""


class ConsumerPlan(Struct, frozen=True, kw_only=True):
    """What a consumer reads, where it starts, and how it waits and commits."""

    group: str
    topic: str
    selection: Selection
    start: Literal["first", "last"] | int = "first"
    timeout_s: float | None = None
    auto_commit: bool = True
    batch: int = 32
    queues: frozenset[int] | None = None

    def __post_init__(self) -> None:
        """Check the arguments.

        Raises:
            TypeError, ValueError: one is wrong; the message names it and its value.
        """
        check_group(self.group)
        check_topic(self.topic)
        if self.timeout_s is not None and not self.timeout_s >= 0:
            raise ValueError(f"timeout = {self.timeout_s!r}: wanted seconds, or None for ever")
        if self.batch < 1:
            raise ValueError(f"batch = {self.batch!r}: wanted at least 1 message")


def parse_start(start: Start, name: str = "start") -> Literal["first", "last"] | int:
    """Return where to start; a time as Unix milliseconds.

    Raises:
        TypeError, ValueError: it is neither 'first', 'last' nor a time.
    """
    if isinstance(start, str):
        if start not in ("first", "last"):
            raise ValueError(f"{name} = {start!r}: wanted 'first', 'last' or a time")
        return start
    return to_unix_ms(start, name)


def parse_queues(queues: Collection[int] | None) -> frozenset[int] | None:
    """Return the queue ids.

    Raises:
        TypeError, ValueError: one is not a queue id, or there is none.
    """
    if queues is None:
        return None
    found: Collection[object] = queues
    for queue in found:
        if isinstance(queue, bool) or not isinstance(queue, int) or queue < 0:
            raise ValueError(f"queues has {queue!r}: wanted numbers of queues, from 0 on")
    if not queues:
        raise ValueError("queues is empty: wanted numbers of queues, or None for all")
    return frozenset(queues)
