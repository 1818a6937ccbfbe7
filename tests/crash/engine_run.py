"""A scripted life of a store on a simulated disk: everything it does is in the disk's journal."""

import random
from collections.abc import Sequence

from by_hand import Hands
from crash_model import Progress, Sent
from platter import Image
from sim_disk import EMPTY, Before, SimDisk
from sim_store import open_on

from rocketlake.errors import RocketLakeError
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import PutReceipt, PutStatus
from support.engine import batch_request, request
from support.manual_clock import ManualClock

QUEUES = (QueueKey("T", 0), QueueKey("T", 0), QueueKey("T", 1), QueueKey("Other", 0))
UNIFORM_SIZE = 250
KEYS = ("Aa", "BB", "k")  # the first two have one hash

REFUSED = {PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.SERVICE_NOT_AVAILABLE}
"""What a put may be told whose message is then nowhere."""

STEPS = {
    "put": 30,
    "put_large": 6,
    "put_batch": 5,
    "dispatch": 6,
    "flush": 2,
    "flush_some": 6,
    "flush_queues": 4,
    "flush_queues_and_checkpoint": 3,
    "flush_index": 3,
    "feed_pages": 2,
    "reopen": 2,
}


class EngineRun:
    """Plays a script: which one, a seed says.

    It may go on with what a crash has left: an image, and the messages that are in it.
    """

    def __init__(
        self,
        mode: str,
        hands: Hands,
        seed: object,
        *,
        clock: ManualClock | None = None,
        image: Image = EMPTY,
        sent: Sequence[Sent] = (),
        safe: int = 0,
        is_uniform: bool = False,
        before: Before | None = None,
    ) -> None:
        """`safe` is how many messages must survive a crash before the store is open.

        Uniform messages have records of one size: one that is put behind a cut ends just where the
        next old one began.
        """
        self.mode = mode
        self.clock = clock or ManualClock()
        self.disk = SimDisk(image, now_ms=self.clock.now_ms, before=before)
        self.sent = list(sent)
        self.first = self.progress = Progress(len(self.sent), safe)
        self.refused: list[PutReceipt] = []
        self._is_uniform = is_uniform
        self._hands = hands
        self._random = random.Random(f"run {seed}")
        self._next: dict[QueueKey, int] = {}
        for one in self.sent:
            self._next[one.key] = one.queue_offset + 1
        self.store = open_on(self.disk, self.clock, mode)
        # A start leaves nothing of what it found to chance.
        self._note(safe=len(self.sent))

    def play(self, steps: int) -> None:
        """Do so many things, then close the store."""
        for name in self.script(steps):
            getattr(self, name)()
            self.clock.advance_ms(self._random.choice((0, 1, 700)))
        self.store.close()
        self._note(safe=len(self.sent))

    def script(self, steps: int) -> list[str]:
        """Choose what to do."""
        return self._random.choices(list(STEPS), list(STEPS.values()), k=steps)

    def play_on(self, steps: int) -> list[RocketLakeError]:
        """Do so many things on a disk that fails, then close the store; return what was raised."""
        errors = []
        for name in (*self.script(steps), "close"):
            is_poisoned = self.store.parts.log_parts.poison.error is not None
            if not self.store.is_open or (is_poisoned and name == "reopen"):
                break  # nobody knows how much a store holds that could not be closed
            try:
                getattr(self, name)()
            except RocketLakeError as error:
                errors.append(error)
            self.clock.advance_ms(self._random.choice((0, 1, 700)))
        try:
            self.store.close()
        except RocketLakeError as error:
            errors.append(error)
        return errors

    def close(self) -> None:
        self.store.close()
        self._note(safe=len(self.sent))

    # --- steps -----------------------------------------------------------------------------------

    def put(self) -> None:
        self._put(self._random.randrange(400))

    def put_large(self) -> None:
        self._put(self._random.randrange(2000, 6000))

    def put_batch(self) -> None:
        key = self._random.choice(QUEUES)
        new = [self._new(key, self._random.randrange(200)) for _ in range(3)]
        messages = [
            Message(topic=key.topic, body=one.body, keys=list(one.keys), tags=one.tags)
            for one in new
        ]
        receipt = self.store.put_batch(batch_request(messages, key.queue_id))
        self._acknowledge(receipt, new[0])

    def dispatch(self) -> None:
        self._hands.run("rocketlake-dispatch")

    def flush(self) -> None:
        self.store.flush()
        self._note(safe=len(self.sent))

    def flush_some(self) -> None:
        """Let commit and flush of the log do their round, as their threads would."""
        for name in ("rocketlake-commit", "rocketlake-flush", "rocketlake-group-commit"):
            if name in self._hands.names:
                self._hands.run(name)

    def flush_queues(self) -> None:
        self._hands.run("rocketlake-queue-flush")

    def flush_queues_and_checkpoint(self) -> None:
        self.clock.advance_ms(61_000)
        self._hands.run("rocketlake-queue-flush")

    def flush_index(self) -> None:
        self._hands.run("index-flush")

    def feed_pages(self) -> None:
        self._hands.run("rocketlake-page-prefetcher")

    def reopen(self) -> None:
        self.store.close()
        self._note(safe=len(self.sent))
        self.store = open_on(self.disk, self.clock, self.mode)

    # --- private ---------------------------------------------------------------------------------

    def _put(self, size: int) -> None:
        new = self._new(self._random.choice(QUEUES), size)
        place = (new.key.topic, new.key.queue_id)
        receipt = self.store.put(request(*place, new.body, keys=list(new.keys), tags=new.tags))
        self._acknowledge(receipt, new)

    def _new(self, key: QueueKey, size: int) -> Sent:
        """Make a message, and count it as tried."""
        number = len(self.sent)
        offset = self._next.get(key, 0)
        self._next[key] = offset + 1
        if self._is_uniform:
            body = b"%05d " % number + self._random.randbytes(UNIFORM_SIZE - len(key.topic))
            new = Sent(key, offset, body, (self._random.choice(KEYS[:2]),), "tag")
        else:
            body = b"%d " % number + self._random.randbytes(size)
            keys = tuple(self._random.sample(KEYS, self._random.randrange(3)))
            new = Sent(key, offset, body, keys, self._random.choice((None, "tag")))
        self.sent.append(new)
        self._note(safe=self.progress.safe)
        return new

    def _acknowledge(self, receipt: PutReceipt, first: Sent) -> None:
        if receipt.status in REFUSED:
            self.refused.append(receipt)
            while self.sent[-1] != first:
                self._take_back()
            self._take_back()
            return
        assert receipt.is_ok, receipt
        assert receipt.queue_offset == first.queue_offset
        self._note(safe=len(self.sent) if self.mode == "sync" else self.progress.safe)

    def _take_back(self) -> None:
        """Count a message as never tried: it was refused, and is nowhere."""
        self._next[self.sent.pop().key] -= 1

    def _note(self, *, safe: int) -> None:
        self.progress = Progress(len(self.sent), safe)
        self.disk.note(self.progress)
