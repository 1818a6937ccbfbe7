"""What a killed process has promised: every acknowledged message, and how far groups came.

The parent keeps it from the lines that the child wrote into a pipe; the next child, a fork of the
parent, finds it in its memory and compares the store with it.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from rocketlake.model.message import Message

TOPICS = {"plain": 3, "busy": 1}
GROUP = "workers"
SIZES = (0, 20, 100, 300, 1500, 3500)
LEVELS = (1, 2)  # of a second, and of five
KEYS_SHARED = 7
_NEW_TOPIC = 0.05

Place = tuple[str, int, int]
"""Topic, queue and queue offset."""


class Event(Struct, array_like=True, tag_field="kind"):
    """One line of a child."""


class Opened(Event, tag="opened"):
    """The store is open: recovered, or new."""


class Acked(Event, tag="acked"):
    """A put was answered with PUT_OK."""

    writer: int
    number: int
    topic: str
    queue_id: int
    queue_offset: int
    offsets: list[int]
    """Where the records lie in the log."""


class Done(Event, tag="done"):
    """A consumer has processed a message; it commits it afterwards."""

    topic: str
    queue_id: int
    queue_offset: int
    name: str


class Saved(Event, tag="saved"):
    """A flush returned: the progress of the group from before it is in the file."""

    offsets: dict[str, dict[int, int]]


class Committed(Event, tag="committed"):
    """So much of the log has left the write buffers."""

    offset: int


class Inspected(Event, tag="inspected"):
    """What the store has beyond, and short of, what it must have."""

    places: list[tuple[str, int, int, str]]
    """Messages under way when the process was killed, and delayed ones that were delivered."""
    lost: list[str]
    lost_bytes: int
    split_batches: int


class Wrong(Event, tag="wrong"):
    """The store broke a promise."""

    text: str


class Closed(Event, tag="closed"):
    """The store was closed in good order."""


AnyEvent = Opened | Acked | Done | Saved | Committed | Inspected | Wrong | Closed
decode_event = msgspec.json.Decoder(AnyEvent).decode
encode_event = msgspec.json.encode


class Put(Struct, frozen=True):
    """One put of a child, made of nothing but numbers: whoever knows them knows its bytes."""

    cycle: int
    writer: int
    number: int

    @property
    def rng(self) -> random.Random:
        return random.Random(f"{self.cycle}.{self.writer}.{self.number}")

    @property
    def kind(self) -> str:
        return self.rng.choices(("one", "batch", "level", "time"), (10, 3, 2, 1))[0]

    @property
    def names(self) -> list[str]:
        count = self.rng.randint(2, 6) if self.kind == "batch" else 1
        return [f"{self.cycle}.{self.writer}.{self.number}.{part}" for part in range(count)]

    @property
    def topic(self) -> str:
        return topic_of(self.names[0])

    @property
    def is_delayed(self) -> bool:
        return self.kind in {"level", "time"}

    def messages(self, now_ms: int, *, has_timer: bool) -> list[Message]:
        fields: dict[str, Any] = {}
        if self.is_delayed:
            fields["delay_level"] = self.rng.choice(LEVELS)
        if self.kind == "time" and has_timer:
            del fields["delay_level"]
            moment = (now_ms + self.rng.randint(200, 3000)) / 1000
            fields["deliver_at"] = datetime.fromtimestamp(moment, UTC)
        return [
            Message(topic=self.topic, body=body_of(name), tags="t", keys=keys_of(name), **fields)
            for name in self.names
        ]


def topic_of(name: str) -> str:
    """The parts of a batch have one topic; now and then it is one that nobody has made before."""
    put = name.rpartition(".")[0]
    rng = random.Random(f"{put}/topic")
    if rng.random() < _NEW_TOPIC:
        return f"new-{int(put.partition('.')[0]) // 4}"
    return rng.choice([*TOPICS])


def body_of(name: str) -> bytes:
    rng = random.Random(name)
    return name.encode() + b":" + rng.randbytes(rng.choice(SIZES))


def keys_of(name: str) -> list[str]:
    return [f"k-{name}", f"shared-{len(body_of(name)) % KEYS_SHARED}"]


def name_of(body: bytes) -> str:
    return body.partition(b":")[0].decode()


class Ledger(Struct):
    """What is known of one store."""

    places: dict[Place, str] = field(default_factory=dict)
    """Messages that must be there, by their places in the queues."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Where their records begin in the log."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Delayed messages that were acknowledged, and their topics."""
    flying: set[str] = field(default_factory=set)
    """Messages that may be there: their put was under way at a kill."""
    batches: dict[str, list[str]] = field(default_factory=dict)
    """The parts of batches that were under way."""
    processed: dict[tuple[str, int], int] = field(default_factory=dict)
    """The highest queue offset that a consumer has processed."""
    saved: dict[tuple[str, int], int] = field(default_factory=dict)
    """The progress that was surely written."""
    committed: int = 0
    next_numbers: dict[int, int] = field(default_factory=dict)

    def begin(self, writers: int) -> None:
        """A new process begins to put."""
        self.next_numbers = dict.fromkeys(range(writers), 0)

    def note(self, cycle: int, event: AnyEvent) -> None:
        """Take a line of the child."""
        match event:
            case Acked():
                self._note_ack(Put(cycle, event.writer, event.number), event)
            case Done():
                self.places[event.topic, event.queue_id, event.queue_offset] = event.name
                queue = event.topic, event.queue_id
                self.processed[queue] = max(self.processed.get(queue, -1), event.queue_offset)
            case Saved():
                for topic, found in event.offsets.items():
                    self.saved |= {(topic, queue): offset for queue, offset in found.items()}
            case Committed():
                self.committed = event.offset
            case Inspected():
                self._note_inspection(event)

    def end(self, cycle: int) -> None:
        """The process is gone: one put of each writer may have been under way."""
        for writer, number in self.next_numbers.items():
            put = Put(cycle, writer, number)
            if put.is_delayed:
                # Not acknowledged, it may still be delivered.
                self.waiting |= dict.fromkeys(put.names, "")
            else:
                self.flying.update(put.names)
                if len(put.names) > 1:
                    self.batches[put.names[0]] = put.names
        self.next_numbers = {}

    def due(self) -> Iterator[str]:
        """Delayed messages that must have been delivered when all time has passed."""
        delivered = {*self.places.values()}
        return (name for name, topic in self.waiting.items() if topic and name not in delivered)

    def _note_ack(self, put: Put, event: Acked) -> None:
        self.next_numbers[event.writer] = event.number + 1
        self.offsets |= dict(zip(put.names, event.offsets, strict=True))
        if put.is_delayed:
            self.waiting[put.names[0]] = event.topic
            return
        for part, name in enumerate(put.names):
            self.places[event.topic, event.queue_id, event.queue_offset + part] = name

    def _note_inspection(self, event: Inspected) -> None:
        gone = {*event.lost}
        self.places = {place: name for place, name in self.places.items() if name not in gone}
        self.waiting = {name: topic for name, topic in self.waiting.items() if name not in gone}
        for name in gone & self.offsets.keys():
            del self.offsets[name]
        self.places |= {(topic, queue, at): name for topic, queue, at, name in event.places}
        self.flying, self.batches = set(), {}
