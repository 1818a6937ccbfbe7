"""A scripted life of a program's store with everything that keeps progress or deletes.

Groups commit while the log is not flushed, delays and timers fire, tables are written, files
expire, one topic has batch queues, one is deleted and made again. Every acknowledged message is a
`Letter`; a `State` says what must hold if the power goes at this moment.
"""

import random
from itertools import count

from by_hand import Hands
from embedded_run import open_with
from msgspec import Struct
from platter import Image
from sim_disk import EMPTY, SimDisk
from small_wheel import ROLL_WINDOW

from rocketlake.embedded.store import Store
from rocketlake.model.message import Message
from rocketlake.store.api import PutReceipt
from support.manual_clock import ManualClock

PLAIN, BATCH, PASSING = "Orders", "Lots", "Passing"
TOPICS = (PLAIN, BATCH, PASSING)
KINDS: tuple[dict[str, str], ...] = ({}, {"queue.type": "BatchCQ"})
GROUP = "billing"
QUEUES = 2
SERVICES = ("delay levels", "timer")
MODES: dict[str, dict[str, object]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {},
    "buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
}
OPTIONS: dict[str, object] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_timer_log": 52 * 8 + 16,
    "mapper_file_size_batch_consume_queue": 5 * 46,
    "timer_roll_window_slot": ROLL_WINDOW,
    "default_topic_queue_nums": QUEUES,
}
STEPS = {
    "put": 10,
    "put_several": 4,
    "put_batch": 3,
    "put_delayed": 5,
    "put_timed": 6,
    "deliver": 7,
    "consume": 8,
    "make_topic": 1,
    "make_again": 3,
    "write_tables": 5,
    "flush": 2,
    "flush_some": 3,
    "flush_queues": 2,
    "flush_queues_and_checkpoint": 2,
    "expire": 3,
    "reopen": 1,
}


LAST = (
    *("put_several", "make_again", "put_several", "put_timed", "put_several", "deliver"),
    *("expire", "make_again", "consume", "write_tables"),
)
"""Units and progress that were not flushed, a log file that goes, a topic that begins anew."""


class Letter(Struct, frozen=True):
    """A message that was acknowledged."""

    topic: str
    queue_id: int
    body: bytes
    physical_offset: int
    queue_offset: int
    is_delayed: bool

    def __str__(self) -> str:
        text = self.body.split(b" ", 1)[0].decode()
        return f"message {text} of {self.topic}/{self.queue_id}, at {self.queue_offset}"


class State(Struct, frozen=True):
    """What must hold if the power goes now."""

    letters: tuple[Letter, ...] = ()
    """Acknowledged, in the order of the log."""
    safe: int = 0
    """So many of them are on the disk."""
    processed: frozenset[bytes] = frozenset()
    """What the group has got."""
    topics: frozenset[str] = frozenset()
    deleted: frozenset[bytes] = frozenset()
    """Bodies of messages whose topic was deleted: they do not come back."""

    def after_cut(self) -> "State":
        """What must hold in the next life: messages that were not safe may be there or not."""
        letters = self.letters[: self.safe]
        return State(letters, self.safe, self.processed, self.topics, self.deleted)


def open_program(disk: SimDisk, clock: ManualClock, mode: str) -> Store:
    """Open the store of the program."""
    return open_with(disk, clock, OPTIONS | MODES[mode])


def make_topics(store: Store) -> None:
    """Make the topics that are not there yet."""
    for topic, attributes in ((PLAIN, {}), (BATCH, {"queue.type": "BatchCQ"}), (PASSING, {})):
        if store.topic(topic) is None:
            store.create_topic(topic, QUEUES, attributes=attributes)


class ProgramRun:
    """Plays a script: which one, a seed says."""

    def __init__(
        self,
        mode: str,
        hands: Hands,
        seed: object,
        *,
        clock: ManualClock | None = None,
        image: Image = EMPTY,
        first: State | None = None,
    ) -> None:
        """Go on with what a power cut has left: an image, and what must be in it."""
        self.mode = mode
        self.clock = clock or ManualClock()
        self.disk = SimDisk(image, now_ms=self.clock.now_ms)
        self.first = first or State()
        self._hands = hands
        self._random = random.Random(f"program {seed}")
        self._letters = list(self.first.letters)
        self._safe = self.first.safe
        self._processed = set(self.first.processed)
        self._topics = set(self.first.topics)
        self._deleted = set(self.first.deleted)
        self._numbers = count(len(self._letters) + len(self._deleted))
        self.expired = 0
        self.store = open_program(self.disk, self.clock, mode)
        make_topics(self.store)
        self._topics |= {*TOPICS}

    def play(self, steps: int) -> None:
        """Do so many things, and at the end what matters most; the store stays open."""
        chosen = self._random.choices(list(STEPS), list(STEPS.values()), k=steps)
        for name in (*chosen, *LAST):
            getattr(self, name)()
            self.note()
            self.clock.advance_ms(self._random.choice((0, 1, 300)))
        self.disk.look()

    def note(self) -> None:
        """Write into the journal what is certain now."""
        self.disk.note(
            State(
                tuple(self._letters),
                self._safe,
                frozenset(self._processed),
                frozenset(self._topics),
                frozenset(self._deleted),
            )
        )

    # --- steps -----------------------------------------------------------------------------------

    def put(self) -> None:
        self._put()

    def put_several(self) -> None:
        for _ in range(self._random.randrange(3, 9)):
            self._put()

    def put_batch(self) -> None:
        """Put several messages as one record of a batch queue."""
        queue_id = self._random.randrange(QUEUES)
        bodies = [self._random.randbytes(40) for _ in range(3)]
        receipt = self.store.put_batch(
            [Message(topic=BATCH, body=body) for body in bodies], queue_id
        )
        assert receipt.is_ok, receipt
        (found,) = self.store.get(BATCH, queue_id, receipt.queue_offset, max_messages=1).messages
        assert all(body in found.body for body in bodies)
        self._acknowledge(BATCH, queue_id, found.body, receipt, is_delayed=False)

    def put_delayed(self) -> None:
        self._put(delay_level=self._random.choice((1, 1, 2)))

    def put_timed(self) -> None:
        ahead_ms = self._random.choice((1, 1_500, 4_000, 20_000, (ROLL_WINDOW + 50) * 1000))
        self._put(deliver_at=self.clock.now_ms() + ahead_ms)

    def deliver(self) -> None:
        """Let time pass, and levels and timer do what is due; also write their progress."""
        self.clock.advance_ms(self._random.choice((500, 2_000, 11_000)))
        for name in ("rocketlake-dispatch", *SERVICES):
            self._hands.run(name)

    def consume(self) -> None:
        """Process some messages, then commit them; the log may not be flushed up to them."""
        self._hands.run("rocketlake-dispatch")
        with self.store.consumer(GROUP, self._random.choice(TOPICS)) as consumer:
            messages = consumer.poll(self._random.randrange(1, 9))
            self._processed |= {message.body for message in messages}
            self.note()
            consumer.commit()

    def make_topic(self) -> None:
        name = f"Topic{len(self._topics)}"
        self.store.create_topic(name, 1)
        self._topics.add(name)

    def make_again(self) -> None:
        """Delete a topic and make it again; meanwhile it may be there as it was, or be empty."""
        gone = {letter.body for letter in self._letters if letter.topic == PASSING}
        letters = [letter for letter in self._letters if letter.topic != PASSING]
        self._safe = sum(one.topic != PASSING for one in self._letters[: self._safe])
        self._letters = letters
        self._topics.discard(PASSING)
        self.note()
        self.store.delete_topic(PASSING)
        self._deleted |= gone
        self._safe = len(letters)  # the deletion is on the disk, and so is the log before it
        self.note()
        self.store.create_topic(PASSING, QUEUES, attributes=self._random.choice(KINDS))
        self._topics.add(PASSING)
        self.note()
        for _ in range(self._random.randrange(4)):
            self._put(PASSING)

    def write_tables(self) -> None:
        self._hands.run("table-keeper")

    def flush(self) -> None:
        self.store.flush()
        self._safe = len(self._letters)

    def flush_some(self) -> None:
        for name in ("rocketlake-commit", "rocketlake-flush", "rocketlake-group-commit"):
            if name in self._hands.names:
                self._hands.run(name)

    def flush_queues(self) -> None:
        self._hands.run("rocketlake-queue-flush")

    def flush_queues_and_checkpoint(self) -> None:
        self.clock.advance_ms(61_000)
        self._hands.run("rocketlake-queue-flush")

    def expire(self) -> None:
        self.expired += self.store.delete_expired(0).files

    def reopen(self) -> None:
        self.store.close()
        self._safe = len(self._letters)
        self.note()
        self.store = open_program(self.disk, self.clock, self.mode)

    # --- private ---------------------------------------------------------------------------------

    def _put(self, topic: str | None = None, **delay: int) -> None:
        # A delayed message of a topic that is deleted meanwhile comes to the one made again.
        topic = topic or self._random.choice((PLAIN, BATCH) if delay else TOPICS)
        queue_id = self._random.randrange(QUEUES)
        how = "-".join([str(next(self._numbers)), *(f"{key}={at}" for key, at in delay.items())])
        body = how.encode() + b" " + self._random.randbytes(150)
        receipt = self.store.put(Message(topic=topic, body=body, **delay), queue_id)
        assert receipt.is_ok, receipt
        self._acknowledge(topic, queue_id, body, receipt, is_delayed=bool(delay))

    def _acknowledge(
        self, topic: str, queue_id: int, body: bytes, receipt: PutReceipt, *, is_delayed: bool
    ) -> None:
        place = (receipt.physical_offset, receipt.queue_offset)
        self._letters.append(Letter(topic, queue_id, body, *place, is_delayed=is_delayed))
        if self.mode == "sync":
            self._safe = len(self._letters)
