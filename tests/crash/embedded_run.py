"""A scripted life of a store as programs use it: topics, groups, delayed messages, tables."""

import random
from collections.abc import Mapping

from by_hand import Hands
from msgspec import Struct
from sim_disk import SimDisk
from sim_store import ROOT, SIZES

from rocketlake.embedded.open_store import OpenSettings, open_writable
from rocketlake.embedded.store import Store
from rocketlake.model.message import Message
from rocketlake.store.options import StoreOptions
from support.manual_clock import ManualClock

TOPIC = "Orders"
GROUP = "billing"
CHOICE = StoreOptions.choose(
    None,
    **SIZES,
    flush_disk_type="SYNC_FLUSH",
    timer_wheel_enable=False,
    default_topic_queue_nums=2,
)
STEPS = {
    "put": 8,
    "put_delayed": 6,
    "deliver": 6,
    "consume": 6,
    "make_topic": 4,
    "write_tables": 4,
    "flush": 2,
    "flush_queues_and_checkpoint": 2,
    "reopen": 2,
}


class Certain(Struct, frozen=True):
    """What must be there after a crash."""

    bodies: frozenset[bytes] = frozenset()
    """Of messages that were acknowledged."""
    delayed: frozenset[bytes] = frozenset()
    """Of messages that were acknowledged and come later: at least once."""
    topics: frozenset[str] = frozenset()
    committed: int = 0
    """How much the group has consumed, as far as it was written."""
    committed_max: int = 0
    """How much it has consumed at most."""


def open_embedded(disk: SimDisk, clock: ManualClock) -> Store:
    """Open the store of a program on a disk."""
    return open_writable(ROOT, CHOICE, OpenSettings(ops=disk, clock=clock))


def open_with(disk: SimDisk, clock: ManualClock, options: Mapping[str, object]) -> Store:
    """Open the store of a program on a disk, with small files and some options."""
    choice = StoreOptions.choose(None, **{**SIZES, **options})
    return open_writable(ROOT, choice, OpenSettings(ops=disk, clock=clock))


class EmbeddedRun:
    """Plays a script: which one, a seed says."""

    def __init__(self, hands: Hands, seed: object) -> None:
        self.clock = ManualClock()
        self.disk = SimDisk(now_ms=self.clock.now_ms)
        self._hands = hands
        self._random = random.Random(f"embedded {seed}")
        self._bodies: set[bytes] = set()
        self._delayed: set[bytes] = set()
        self._topics: set[str] = set()
        self._written = self._committed = 0
        self.store = open_embedded(self.disk, self.clock)
        self.store.create_topic(TOPIC, 1)
        self._topics.add(TOPIC)

    def play(self, steps: int) -> None:
        for name in self._random.choices(list(STEPS), list(STEPS.values()), k=steps):
            getattr(self, name)()
            self.disk.note(self._certain())
        self.store.close()
        self._written = self._committed
        self.disk.note(self._certain())

    def put(self) -> None:
        self._bodies.add(self._put(0))

    def put_delayed(self) -> None:
        self._delayed.add(self._put(self._random.choice((1, 2))))

    def deliver(self) -> None:
        """Let time pass, and the levels have what is due."""
        self.clock.advance_ms(self._random.choice((500, 2000, 15_000)))
        self._hands.run("rocketlake-dispatch")
        self._hands.run("delay levels")

    def consume(self) -> None:
        with self.store.consumer(GROUP, TOPIC) as consumer:
            messages = consumer.poll(self._random.randrange(1, 4))
            self._committed = max(
                (one.queue_offset + 1 for one in messages), default=self._committed
            )
            self.disk.note(self._certain())
            consumer.commit()

    def make_topic(self) -> None:
        name = f"Topic{len(self._topics)}"
        self.store.create_topic(name, 2)
        self._topics.add(name)

    def write_tables(self) -> None:
        self._hands.run("table-keeper")
        self._written = self._committed

    def flush(self) -> None:
        self.store.flush()
        self._written = self._committed

    def flush_queues_and_checkpoint(self) -> None:
        self.clock.advance_ms(61_000)
        self._hands.run("rocketlake-queue-flush")

    def reopen(self) -> None:
        self.store.close()
        self._written = self._committed
        self.store = open_embedded(self.disk, self.clock)

    def _put(self, level: int) -> bytes:
        body = b"%d " % (len(self._bodies) + len(self._delayed)) + self._random.randbytes(300)
        receipt = self.store.put(Message(topic=TOPIC, body=body, delay_level=level), 0)
        assert receipt.is_ok, receipt
        return body

    def _certain(self) -> Certain:
        return Certain(
            frozenset(self._bodies),
            frozenset(self._delayed),
            frozenset(self._topics),
            self._written,
            self._committed,
        )
