"""A store that lives for long: writers, readers and a group beside retention, topics and backups.

Every queue belongs to one writer, and the body of a message is made from its place. So each message
can be checked without a list of those that were put, and the memory of a long run is the store's.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

import rocketlake
from rocketlake.embedded.store import Store
from rocketlake.errors import StoreClosedError
from rocketlake.model.message import Message
from rocketlake.store.api import GetStatus, PutStatus

TOPIC = "life"
GROUP = "workers"
LATER = "later"
WRITERS = 3
READERS = 2
KEPT_BYTES = 24 << 20
"""More log than this is deleted."""
PAUSE_S = 0.0005
_PAGE = 100
_LATER_S = 60.0
SIZES = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 1000 * 20,
    "max_hash_slot_num": 5000,
    "max_index_num": 20_000,
}


class Sample(Struct, frozen=True, kw_only=True):
    """The process, at one moment."""

    anonymous_kib: int
    """Resident memory that is not a mapped file."""
    resident_kib: int
    descriptors: int
    threads: int
    maps: int

    def __str__(self) -> str:
        return (
            f"{self.resident_kib / 1024:.0f} MiB resident, {self.anonymous_kib / 1024:.1f} of them"
            f" not of files, {self.descriptors} descriptors, {self.threads} threads,"
            f" {self.maps} maps"
        )


def take_sample() -> Sample:
    """Look at this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return Sample(
        anonymous_kib=int(status["RssAnon"].split()[0]),
        resident_kib=int(status["VmRSS"].split()[0]),
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names only
        threads=len(os.listdir("/proc/self/task")),  # noqa: PTH208
        maps=len(Path("/proc/self/maps").read_text().splitlines()),
    )


class Counts(Struct):
    """What was done; each number has one thread that adds to it."""

    checked: int = 0
    consumed: int = 0
    missed: int = 0
    queries: int = 0
    later: int = 0
    topics: int = 0
    backups: int = 0
    deleted_files: int = 0
    opened: int = 0
    acked: list[int] = field(default_factory=lambda: [0] * WRITERS)
    """For each writer, which has a queue of its own."""
    read: list[int] = field(default_factory=lambda: [0] * READERS)

    def __str__(self) -> str:
        return (
            f"{sum(self.acked)} acknowledged, {self.checked + sum(self.read)} checked,"
            f" {self.consumed} consumed, {self.missed} deleted before that,"
            f" {self.queries} queries, {self.later} delayed, {self.topics} topics,"
            f" {self.deleted_files} files deleted, {self.backups} backups, {self.opened} openings"
        )


def body_of(queue_id: int, offset: int) -> bytes:
    """The body of the message at a place."""
    return b"%d:%d:" % (queue_id, offset) * (1 + offset % 40)


class Life:
    """One store through many openings."""

    def __init__(self, place: Path, seed: int, **options: object) -> None:
        self._root = place / "store"
        self._backup = place / "backup"
        self._options = {**SIZES, **options}
        self._rng = random.Random(seed)
        self._seed = seed
        self._failures: list[BaseException] = []
        self._has_ended = threading.Event()
        self._consumed_end = [0] * WRITERS
        self._later: dict[bytes, None] = {}
        self.counts = Counts()

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Open the store, check all that it holds, and close it."""
        with rocketlake.open_store(self._root, **self._options) as store:
            self.counts.opened += 1
            for topic in (TOPIC, LATER):
                if store.topic(topic) is None:
                    store.create_topic(topic, WRITERS)
            self.check_all(store)
            yield store
        assert not (self._root / "abort").exists()

    @contextmanager
    def working(self, store: Store) -> Iterator[None]:
        """Run writers, readers and the group beside the block.

        Raises:
            BaseException: what a thread raised.
        """
        self._has_ended.clear()
        works: list[tuple[Callable[..., None], tuple[object, ...]]] = [
            *((self._write, (store, number)) for number in range(WRITERS)),
            *((self._read, (store, number)) for number in range(READERS)),
            (self._consume, (store,)),
        ]
        threads = [threading.Thread(target=self._guard, args=work) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._has_ended.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise self._failures[0]

    @property
    def is_failing(self) -> bool:
        """Whether a thread has raised."""
        return bool(self._failures)

    def _guard(self, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised where the threads are joined
            self._failures.append(error)

    # --- threads ---------------------------------------------------------------------------------

    def _write(self, store: Store, queue_id: int) -> None:
        rng = random.Random(f"{self._seed} {queue_id} {self.counts.opened}")
        acked = self.counts.acked
        while not self._has_ended.wait(PAUSE_S):
            begin = acked[queue_id]
            count = rng.choice((1, 1, 1, 8))
            messages = [_message(queue_id, begin + number) for number in range(count)]
            if count > 1:
                receipt = store.put_batch(messages, queue_id)
            elif rng.random() < 0.3:
                receipt = store.put_async(messages[0], queue_id).result()
            else:
                receipt = store.put(messages[0], queue_id)
            assert receipt.status is PutStatus.PUT_OK, receipt
            assert receipt.queue_offset == begin, f"{receipt.queue_offset} instead of {begin}"
            acked[queue_id] = begin + count

    def _read(self, store: Store, number: int) -> None:
        rng = random.Random(f"{self._seed} reader {number} {self.counts.opened}")
        while not self._has_ended.wait(0.005):
            queue_id = rng.randrange(WRITERS)
            end = self.counts.acked[queue_id]
            if end == 0:
                continue
            offset = rng.randrange(min(store.min_offset(TOPIC, queue_id), end - 1), end)
            found = _check_page(store, queue_id, offset, end)
            self.counts.read[number] += found

    def _consume(self, store: Store) -> None:
        with store.consumer(GROUP, TOPIC, timeout=0) as consumer:
            known_missed = 0
            while not self._has_ended.is_set():
                try:
                    messages = consumer.poll(_PAGE, timeout=0.05)
                except StoreClosedError:
                    return
                skipped = {one.queue_id: one.end for one in [*consumer.missed][known_missed:]}
                self.counts.missed += sum(one.count for one in [*consumer.missed][known_missed:])
                known_missed = len(consumer.missed)
                for message in messages:
                    self._take(message.queue_id, message.queue_offset, message.body, skipped)
                consumer.commit()

    def _take(self, queue_id: int, offset: int, body: bytes, skipped: dict[int, int]) -> None:
        wanted = self._consumed_end[queue_id]
        is_next = offset <= wanted or offset <= skipped.get(queue_id, -1)
        assert is_next, f"the group got {offset} of queue {queue_id}, expected {wanted}"
        assert body == body_of(queue_id, offset)
        self._consumed_end[queue_id] = max(wanted, offset + 1)
        self.counts.consumed += 1

    # --- what is done now and then ---------------------------------------------------------------

    def look_after(self, store: Store) -> None:
        """Make and delete a topic, ask for keys, send something later, delete what is old."""
        name = f"passing-{self._rng.randrange(3)}"
        store.create_topic(name, 2)
        for number in range(5):
            receipt = store.put(Message(topic=name, body=b"%d" % number), 0)
            assert receipt.queue_offset == number, receipt
        assert len(store.get(name, 0, 0).messages) == 5
        store.delete_topic(name)
        self.counts.topics += 1
        self._ask(store)
        self._send_later(store)
        log = store._engine.log
        if log.max_offset - log.min_offset > KEPT_BYTES:
            self.await_later(store)  # or they would be deleted while they wait
            self.counts.deleted_files += store.delete_expired(hours=0).files

    def _ask(self, store: Store) -> None:
        for queue_id in range(WRITERS):
            offset = self.counts.acked[queue_id] - 1
            if offset >= 0:
                found = store.query(TOPIC, f"{queue_id}-{offset}")
                assert [one.queue_offset for one in found] == [offset], f"key of {offset}: {found}"
                self.counts.queries += 1

    def _send_later(self, store: Store) -> None:
        body = b"later %d" % self._rng.getrandbits(60)
        receipt = store.put(Message(topic=LATER, body=body, delay_level=1), 0)
        assert receipt.status is PutStatus.PUT_OK, receipt
        self._later[body] = None

    def await_later(self, store: Store) -> None:
        """Everything that was to come later has come."""
        with store.consumer("later", LATER) as consumer:
            while self._later:
                messages = consumer.poll(_PAGE, timeout=_LATER_S)
                assert messages, f"not delivered after {_LATER_S} s: {[*self._later][:3]}"
                for message in messages:
                    self.counts.later += message.body in self._later
                    self._later.pop(message.body, None)
            consumer.commit()

    def back_up(self) -> None:
        """Copy the store in use, as users do, and read the copy again."""
        command = [sys.executable, "-m", "rocketlake", "backup", "--prune", "--verify"]
        ended = subprocess.run(
            [*command, self._root, self._backup], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        self.counts.backups += 1

    # --- checks ----------------------------------------------------------------------------------

    def check_all(self, store: Store) -> None:
        """Every acknowledged message that was not deleted is there, and nothing else."""
        for queue_id, end in enumerate(self.counts.acked):
            assert store.max_offset(TOPIC, queue_id) == end
            offset = store.min_offset(TOPIC, queue_id)
            while offset < end:
                found = _check_page(store, queue_id, offset, end)
                assert found, f"{offset} of queue {queue_id} is not there"
                self.counts.checked += found
                offset += found

    def check_released(self) -> None:
        """A closed store has no file open, nothing mapped and no thread."""
        root = str(self._root)
        assert not [link for link in _open_files() if link.startswith(root)]
        assert root not in Path("/proc/self/maps").read_text()


def _open_files() -> Iterator[str]:
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one of this listing is gone
            yield str(path.readlink())


def _message(queue_id: int, offset: int) -> Message:
    return Message(topic=TOPIC, body=body_of(queue_id, offset), keys=[f"{queue_id}-{offset}"])


def _check_page(store: Store, queue_id: int, offset: int, end: int) -> int:
    """Read a page; return how many messages were as they must be, 0 if they were deleted."""
    result = store.get(TOPIC, queue_id, offset, _PAGE)
    if result.status is not GetStatus.FOUND:
        # Retention may delete log files between reading the first offset and the read.
        low = store.min_offset(TOPIC, queue_id)
        is_gone = offset < low or result.status is GetStatus.MESSAGE_WAS_REMOVING
        assert is_gone, f"{offset} of queue {queue_id}: {result.status}, from {low} to {end}"
        return 0
    assert not result.corrupt, result.corrupt
    for number, message in enumerate(result.messages, result.messages[0].queue_offset):
        assert message.queue_offset == number, f"{number} of queue {queue_id} is not there"
        assert message.body == body_of(queue_id, number), f"{number} of queue {queue_id}"
    return len(result.messages)
