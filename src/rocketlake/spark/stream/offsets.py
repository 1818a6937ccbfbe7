"""What a checkpoint keeps of a stream: how far each queue, or each log, was read.

    {"begin": {"a": {"orders": {"1": 0}}},
     "queues": {"a": {"orders": {"0": 12, "1": 7}}}, "version": 1}
    {"log": {"a": 4096}, "version": 1}

Spark compares such texts letter by letter: keys are strings and sorted, numbers are whole. `begin`
says where a batch begins in a queue that does not go on where the batch before ended: a new one,
or one that lost messages. A batch that is read again after a crash so begins where it began.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from rocketlake.errors import StoreError

VERSION: Final = 1

_VERSION: Final = "version"
_QUEUES: Final = "queues"
_LOG: Final = "log"
_BEGIN: Final = "begin"
_INITIAL: Final = "initial"
_LOG_QUEUE: Final = -1


class Lane(Struct, frozen=True, order=True):
    """What is read in order: a queue of a broker's store, or its log."""

    broker: str
    topic: str = ""
    queue_id: int = _LOG_QUEUE

    @property
    def is_log(self) -> bool:
        """Whether it is a log, whose offsets are physical ones."""
        return self.queue_id == _LOG_QUEUE

    def __str__(self) -> str:
        if self.is_log:
            return f"the log of {self.broker}"
        return f"{self.topic} queue {self.queue_id} of {self.broker}"


class StreamOffset(Struct, frozen=True):
    """The offset behind the last message read, by lane."""

    ends: Mapping[Lane, int] = {}
    begins: Mapping[Lane, int] = {}
    """Where the batch that ends here begins, if not at the end of the batch before."""
    is_initial: bool = False
    """Whether no batch was made yet: the first one then pins this in the checkpoint."""

    def encode(self) -> dict[str, Any]:
        """Return the dictionary that Spark keeps as JSON."""
        members: dict[str, Any] = {}
        if self.begins:
            members[_BEGIN] = _encode(self.begins)
        if self.is_initial:
            members[_INITIAL] = True
        is_log = any(lane.is_log for lane in self.ends)
        members[_LOG if is_log else _QUEUES] = _encode(self.ends)
        members[_VERSION] = VERSION
        return members

    @classmethod
    def decode(cls, members: Mapping[str, Any]) -> "StreamOffset":
        """Read what `encode` returned.

        Raises:
            StoreError: it was made by another version, or by another source.
        """
        version = members.get(_VERSION)
        if version != VERSION:
            raise StoreError(
                f"the checkpoint holds offsets of version {version!r}, and this release knows"
                f" version {VERSION}: it was written by another release or another source; read"
                " with that one, or give the query a new checkpointLocation"
            )
        try:
            ends = members[_LOG] if _LOG in members else members[_QUEUES]
            return cls(
                dict(_decode(ends)),
                dict(_decode(members.get(_BEGIN, {}))),
                bool(members.get(_INITIAL, False)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"the checkpoint holds offsets that cannot be read ({error!r}): {dict(members)};"
                " give the query a new checkpointLocation"
            ) from error


def _encode(offsets: Mapping[Lane, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    # Queue ids are sorted as the texts they become.
    for lane in sorted(offsets, key=lambda lane: (lane.broker, lane.topic, str(lane.queue_id))):
        if lane.is_log:
            found[lane.broker] = offsets[lane]
        else:
            topics = found.setdefault(lane.broker, {})
            topics.setdefault(lane.topic, {})[str(lane.queue_id)] = offsets[lane]
    return found


def _decode(members: Mapping[str, Any]) -> Iterator[tuple[Lane, int]]:
    for broker, found in members.items():
        if isinstance(found, int):
            yield Lane(broker), found
            continue
        for topic, queues in found.items():
            for queue_id, offset in queues.items():
                yield Lane(broker, topic, int(queue_id)), int(offset)
