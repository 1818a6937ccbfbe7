"""The offsets of a stream in a checkpoint: how far each queue, or each log, was read.

    {"begin": {"a": {"orders": {"1": 0}}},
     "queues": {"a": {"orders": {"0": 12, "1": 7}}}, "version": 1}
    {"log": {"a": 4096}, "version": 1}
    {"at": {"a": [1048576, 10000, 5231]}, "queues": {"a": {"orders": {"0": 12}}}, "version": 2}

Spark compares such texts byte by byte: keys are sorted strings, numbers are integers. `begin` says
where a batch begins in a queue that does not continue where the batch before ended: a new one, or
one that lost messages. So a batch that is read again after a crash begins where it began.

Version 2 is for many queues. `at` holds, by broker, a place in the log up to which all queues but
the named ones were read, the number of those queues, and a sum over them (`positions`). More than a
few named queues are packed: a text instead of the object.
"""

import json
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from msgspec import Struct

from rocketlake.errors import StoreError

NAMED_MAX: Final = 128
"""Up to so many queues are named one by one; more are packed."""

_NAMED_VERSION: Final = 1
_PACKED_VERSION: Final = 2

BEHIND: Final = "behind"
"""Member of a reported offset: how far behind it the query is. Checkpoints do not have it."""

_VERSION: Final = "version"
_AT: Final = "at"
_QUEUES: Final = "queues"
_LOG: Final = "log"
_BEGIN: Final = "begin"
_INITIAL: Final = "initial"
_LOG_QUEUE: Final = -1
_KEPT: Final = 4


class StreamSource(Struct, frozen=True, order=True):
    """A queue of a broker's store, or its whole log: what a stream reads in order."""

    broker: str
    topic: str = ""
    queue_id: int = _LOG_QUEUE

    @property
    def is_log(self) -> bool:
        """Whether this is a log, whose offsets are physical offsets."""
        return self.queue_id == _LOG_QUEUE

    def __str__(self) -> str:
        if self.is_log:
            return f"the log of {self.broker}"
        return f"{self.topic} queue {self.queue_id} of {self.broker}"


class Position(Struct, frozen=True):
    """A place in the log of a broker's store, up to which its queues were read."""

    offset: int
    queues: int
    """The number of queues it stands for."""
    digest: int
    """The sum over their names and ends."""


class StreamOffset(Struct, frozen=True):
    """The offset behind the last message that was read, by source."""

    ends: Mapping[StreamSource, int] = {}
    begins: Mapping[StreamSource, int] = {}
    """The start of the batch that ends here, where it is not the end of the batch before."""
    is_initial: bool = False
    """Whether there was no batch yet: the first one pins this offset in the checkpoint."""
    at: Mapping[str, Position] = {}
    """The position of the queues that `ends` does not name, by broker."""

    def encode(self, *, is_packing: bool = True) -> dict[str, Any]:
        """Return the members that Spark stores as JSON; `is_packing` allows packed queues."""
        names_max = NAMED_MAX if is_packing else 1 << 62
        members: dict[str, Any] = {}
        if self.at:
            members[_AT] = {
                broker: [at.offset, at.queues, at.digest] for broker, at in sorted(self.at.items())
            }
        if self.begins:
            members[_BEGIN] = _encode(self.begins, names_max)
        if self.is_initial:
            members[_INITIAL] = True
        is_log = any(source.is_log for source in self.ends)
        members[_LOG if is_log else _QUEUES] = _encode(self.ends, names_max)
        is_packed = self.at or any(isinstance(value, str) for value in members.values())
        members[_VERSION] = _PACKED_VERSION if is_packed else _NAMED_VERSION
        return members

    @classmethod
    def decode(cls, members: Mapping[str, Any]) -> "StreamOffset":
        """Read what `encode` returned.

        Raises:
            StoreError: another version or another source made it.
        """
        version = members.get(_VERSION)
        if version not in (_NAMED_VERSION, _PACKED_VERSION):
            raise StoreError(
                f"the checkpoint holds offsets of version {version!r}, and this release knows"
                f" versions {_NAMED_VERSION} and {_PACKED_VERSION}: it was written by another"
                " release or another source; read with that one, or give the query a new"
                " checkpointLocation"
            )
        try:
            ends = members[_LOG] if _LOG in members else members[_QUEUES]
            return cls(
                dict(_decode(ends)),
                dict(_decode(members.get(_BEGIN, {}))),
                bool(members.get(_INITIAL, False)),
                {broker: _position(*found) for broker, found in members.get(_AT, {}).items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError, zlib.error) as error:
            raise StoreError(
                f"the checkpoint holds offsets that cannot be read ({error!r}): {dict(members)};"
                " give the query a new checkpointLocation"
            ) from error


class ParsedOffsets:
    """The last few offsets, each beside the members that Spark holds of it. Owned by one thread.

    Why: Spark hands the offset of a batch back several times. To decode it again costs as much as
    the store has queues, and its position in the log has to be looked up.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[dict[str, Any], StreamOffset]] = deque(maxlen=_KEPT)

    def note(self, members: dict[str, Any], offset: StreamOffset) -> None:
        """Add an offset; the oldest one is dropped."""
        self._entries.append((members, offset))

    def members_of(self, offset: StreamOffset) -> dict[str, Any] | None:
        """Return the members of this very object; None if they are not known."""
        return next((members for members, known in self._entries if known is offset), None)

    def offset_of(self, members: dict[str, Any]) -> StreamOffset | None:
        """Return the offset that was noted with equal members; None if none was."""
        return next((known for other, known in self._entries if other == members), None)


def _position(offset: int, queues: int, digest: int) -> Position:
    return Position(int(offset), int(queues), int(digest))


def _in_order(offsets: Mapping[StreamSource, int]) -> list[StreamSource]:
    # Queue ids are sorted as the texts they become.
    return sorted(offsets, key=lambda source: (source.broker, source.topic, str(source.queue_id)))


def _encode(offsets: Mapping[StreamSource, int], names_max: int) -> dict[str, Any] | str:
    if len(offsets) > names_max:
        return _pack(offsets)
    found: dict[str, Any] = {}
    for source in _in_order(offsets):
        if source.is_log:
            found[source.broker] = offsets[source]
        else:
            topics = found.setdefault(source.broker, {})
            topics.setdefault(source.topic, {})[str(source.queue_id)] = offsets[source]
    return found


def _decode(members: Mapping[str, Any] | str) -> Iterator[tuple[StreamSource, int]]:
    if isinstance(members, str):
        yield from _unpack(members)
        return
    for broker, found in members.items():
        if isinstance(found, int):
            yield StreamSource(broker), found
            continue
        for topic, queues in found.items():
            for queue_id, offset in queues.items():
                yield StreamSource(broker, topic, int(queue_id)), int(offset)


def _pack(offsets: Mapping[StreamSource, int]) -> str:
    """Return the names once, then name, queue and offset as columns of differences, as text."""
    sources = _in_order(offsets)
    names = list(dict.fromkeys((source.broker, source.topic) for source in sources))
    numbers = {name: number for number, name in enumerate(names)}
    rows = [
        (numbers[source.broker, source.topic], source.queue_id, offsets[source])
        for source in sources
    ]
    columns = np.diff(np.array(rows, "<i8").T, axis=1, prepend=0).astype("<i8")
    head = json.dumps(names).encode()
    data = len(head).to_bytes(4, "big") + head + columns.tobytes()
    return b64encode(zlib.compress(data, 6)).decode()


def _unpack(text: str) -> Iterator[tuple[StreamSource, int]]:
    try:
        data = zlib.decompress(b64decode(text, validate=True))
    except Base64Error as error:
        raise ValueError(str(error)) from error
    size = int.from_bytes(data[:4], "big")
    names = json.loads(data[4 : 4 + size])
    columns = np.frombuffer(data[4 + size :], "<i8").reshape(3, -1)
    codes, queue_ids, offsets = (column.tolist() for column in np.cumsum(columns, axis=1))
    for code, queue_id, offset in zip(codes, queue_ids, offsets, strict=True):
        broker, topic = names[code]
        yield StreamSource(broker, topic, queue_id), offset
