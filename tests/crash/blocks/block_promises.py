"""What a workload was promised, each promise with its place in the block log.

An event is stamped with the number of block entries that the device had been given. A cut behind
`cut` entries happens after every event whose stamp is at most `cut`: the promise counts, whatever
the device makes of the entries that no flush had followed.
"""

import random
from collections.abc import Iterable

import msgspec
from msgspec import Struct, field

GROUP = "workers"
TOPICS = {"orders": 2, "single": 1}
"""Topics that are consumed and never deleted."""
BUNDLES = "bundles"
"""A topic with batch queues."""
PASSING = "passing"
"""A topic that is deleted and made again."""
SIZES = (0, 40, 200, 900, 2500)
LATE = ("level", "timed")
_FOREVER = 1 << 62

Place = tuple[str, int, int]
"""Topic, queue and queue offset."""
Queue = tuple[str, int]


class Event(Struct, array_like=True, tag_field="kind", kw_only=True):
    """Something the workload saw, behind so many block entries."""

    at: int


class Acked(Event, tag="acked", kw_only=True):
    """PUT_OK. With SYNC_FLUSH the messages are durable now."""

    names: list[str]
    topic: str
    queue_id: int
    queue_offset: int
    """Of the first; -1 for a message that is delivered later."""
    offset: int
    """Where the first record begins in the log."""


class Flushed(Event, tag="flushed", kw_only=True):
    """`flush` or `close` returned; `progress` is that of the group before the call."""

    progress: list[tuple[str, int, int]]


class Expiring(Event, tag="expiring", kw_only=True):
    """`delete_expired` is about to be called: all that is in the log may go."""


class Expired(Event, tag="expired", kw_only=True):
    """`delete_expired` returned: the log begins here."""

    floor: int


class Dropping(Event, tag="dropping", kw_only=True):
    """`delete_topic` is about to be called."""

    topic: str


class Dropped(Event, tag="dropped", kw_only=True):
    """`delete_topic` returned: the messages that the topic had do not come back."""


class Consumed(Event, tag="consumed", kw_only=True):
    """The group has processed messages, and will commit them."""

    topic: str
    queue_id: int
    names: list[str]


class Failed(Event, tag="failed", kw_only=True):
    """The workload raised."""

    text: str


AnyEvent = Acked | Flushed | Expiring | Expired | Dropping | Dropped | Consumed | Failed
encode_event = msgspec.json.encode
_decode = msgspec.json.Decoder(AnyEvent).decode


def read_events(data: bytes) -> list[AnyEvent]:
    return [_decode(line) for line in data.splitlines()]


class Promises(Struct):
    """What must be there after a cut."""

    places: dict[Place, str] = field(default_factory=dict)
    """Messages that must be at their places."""
    late: dict[str, str] = field(default_factory=dict)
    """Delayed and timed messages that must be delivered at least once, and their topics."""
    ends: dict[Queue, int] = field(default_factory=dict)
    """Queue offsets that no new message may have: those below were acknowledged and durable."""
    known: dict[Place, str] = field(default_factory=dict)
    """Every acknowledged message by its place, durable or not."""
    consumed: dict[Queue, set[str]] = field(default_factory=dict)
    saved: dict[Queue, int] = field(default_factory=dict)
    """Progress of the group that was surely written."""
    gone: set[str] = field(default_factory=set)
    """Messages of topics that were deleted."""


def promises_at(cut: int, events: Iterable[AnyEvent], *, is_sync: bool) -> Promises:
    """Collect what was promised before a cut."""
    collector = _Collector(is_sync)
    for event in events:
        if event.at <= cut:
            collector.take(event)
    return collector.promises()


class _Collector:
    def __init__(self, is_sync: bool) -> None:
        self._is_sync = is_sync
        self._durable: list[Acked] = []
        self._waiting: list[Acked] = []
        self._all: list[Acked] = []
        self._floor = 0
        self._is_expiring = False
        self._dropping: set[str] = set()
        self._found = Promises()

    def take(self, event: AnyEvent) -> None:
        match event:
            case Acked():
                self._all.append(event)
                (self._durable if self._is_sync else self._waiting).append(event)
            case Flushed():
                self._durable += self._waiting
                self._waiting = []
                self._found.saved = {(t, q): offset for t, q, offset in event.progress}
            case Expiring():
                self._is_expiring = True
            case Expired():
                self._is_expiring, self._floor = False, max(self._floor, event.floor)
            case Dropping():
                own = (one.names for one in self._all if one.topic == event.topic)
                self._dropping = {name for names in own for name in names}
                for kept in (self._durable, self._waiting, self._all):
                    kept[:] = [one for one in kept if one.topic != event.topic]
            case Dropped():
                self._found.gone |= self._dropping
            case Consumed():
                queue = event.topic, event.queue_id
                self._found.consumed.setdefault(queue, set()).update(event.names)
            case Failed():
                pass

    def promises(self) -> Promises:
        found = self._found
        floor = _FOREVER if self._is_expiring else self._floor
        for one in self._all:
            found.known |= _places(one)
        for one in self._durable:
            if one.queue_offset >= 0:
                queue = one.topic, one.queue_id
                end = one.queue_offset + len(one.names)
                found.ends[queue] = max(found.ends.get(queue, 0), end)
            if one.offset < floor:
                continue
            if one.queue_offset >= 0:
                found.places |= _places(one)
            else:
                found.late |= dict.fromkeys(one.names, one.topic)
        return found


def _places(one: Acked) -> dict[Place, str]:
    if one.queue_offset < 0:
        return {}
    numbered = enumerate(one.names, one.queue_offset)
    return {(one.topic, one.queue_id, number): name for number, name in numbered}


# --- messages -----------------------------------------------------------------------------------


def body_of(name: str) -> bytes:
    rng = random.Random(name)
    return name.encode() + b":" + rng.randbytes(rng.choice(SIZES))


def name_of(body: bytes) -> str:
    return body.partition(b":")[0].decode(errors="replace")


def is_late(name: str) -> bool:
    return name.startswith(LATE)
