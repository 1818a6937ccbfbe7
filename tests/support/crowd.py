"""Many writers and readers on one store, and what must hold of what they did.

    crowd = Crowd(store, writers=16, readers=4)
    crowd.run(each=300)      raises what went wrong in any thread
    crowd.check()

A body names its writer and number, so that a reader knows what it reads.
"""

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rocketlake.format.record import StoredMessage
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus, PutReceipt, PutStatus
from rocketlake.store.message_store import MessageStore
from support.engine import batch_request, request

Origin = tuple[int, int]
"""Writer and the number of its message."""

_QUEUES = tuple(QueueKey(topic, queue_id) for topic in ("A", "B") for queue_id in range(3))
_WAIT_S = 0.01


class Crowd:
    """Threads that put and get; each keeps its own notes, which are joined at the end."""

    def __init__(self, store: MessageStore, *, writers: int = 16, readers: int = 4) -> None:
        self._store = store
        self._writers = [_Writer(store, number) for number in range(writers)]
        self._readers = [_Reader(store, number) for number in range(readers)]
        self._has_ended = threading.Event()

    def run(self, each: int) -> None:
        """Let every writer put so many messages more, while the readers read all there is."""
        self._has_ended.clear()
        with ThreadPoolExecutor(len(self._writers) + len(self._readers)) as pool:
            reading = [pool.submit(reader.run, self._has_ended) for reader in self._readers]
            writing = [pool.submit(writer.run, each) for writer in self._writers]
            try:
                for work in writing:
                    work.result()
            finally:
                self._has_ended.set()
            for work in reading:
                work.result()

    def reopened(self, store: MessageStore) -> None:
        """Go on with the same messages on another object."""
        for writer in self._writers:
            writer.store = store
        for reader in self._readers:
            reader.store = store

    def check(self) -> int:
        """Hold what readers saw against what writers were told; return how many messages."""
        written: dict[QueueKey, dict[int, Origin]] = {key: {} for key in _QUEUES}
        for writer in self._writers:
            for key, offset, origin in writer.placed:
                assert offset not in written[key], f"two messages at {offset} of {key}"
                written[key][offset] = origin
        for key, placed in written.items():
            assert sorted(placed) == [*range(len(placed))], f"a gap in {key}"
        for reader in self._readers:
            for key, placed in written.items():
                seen = dict(enumerate(reader.seen[key]))
                assert seen == placed, f"reader {reader.number} saw others in {key}"
                _check_order(key, reader.seen[key])
        return sum(map(len, written.values()))


def _check_order(key: QueueKey, seen: list[Origin]) -> None:
    last: dict[int, int] = {}
    for writer, number in seen:
        assert number > last.get(writer, -1), f"{number} of writer {writer} comes late in {key}"
        last[writer] = number


class _Writer:
    """Puts its messages one by one, in batches, and without waiting."""

    def __init__(self, store: MessageStore, number: int) -> None:
        self.store = store
        self.number = number
        self.placed: list[tuple[QueueKey, int, Origin]] = []
        self._rng = random.Random(number)
        self._next = 0

    def run(self, each: int) -> None:
        end = self._next + each
        waiting: list[tuple[QueueKey, Origin, Future[PutReceipt]]] = []
        while self._next < end:
            key = self._rng.choice(_QUEUES)
            form = self._rng.random()
            if form < 0.15:
                count = min(self._rng.randint(1, 6), end - self._next)
                self._put_batch(key, count)
            elif form < 0.3:
                origin = self._take()
                put = request(key.topic, key.queue_id, self._body(origin), keys=[_key(origin)])
                waiting.append((key, origin, self.store.put_async(put)))
            else:
                origin = self._take()
                put = request(key.topic, key.queue_id, self._body(origin), keys=[_key(origin)])
                self._note(key, [origin], self.store.put(put))
        for key, origin, answer in waiting:
            self._note(key, [origin], answer.result())

    def _put_batch(self, key: QueueKey, count: int) -> None:
        origins = [self._take() for _ in range(count)]
        messages = [
            Message(topic=key.topic, body=self._body(origin), keys=[_key(origin)])
            for origin in origins
        ]
        self._note(key, origins, self.store.put_batch(batch_request(messages, key.queue_id)))

    def _take(self) -> Origin:
        self._next += 1
        return self.number, self._next - 1

    def _body(self, origin: Origin) -> bytes:
        return f"{origin[0]}:{origin[1]}:".encode() + self._rng.randbytes(self._rng.randrange(200))

    def _note(self, key: QueueKey, origins: list[Origin], receipt: PutReceipt) -> None:
        assert receipt.status is PutStatus.PUT_OK, receipt
        for number, origin in enumerate(origins):
            self.placed.append((key, receipt.queue_offset + number, origin))


class _Reader:
    """Reads every queue from its begin, as far as it goes."""

    def __init__(self, store: MessageStore, number: int) -> None:
        self.store = store
        self.number = number
        self.seen: dict[QueueKey, list[Origin]] = {key: [] for key in _QUEUES}
        self._rng = random.Random(1000 + number)

    def run(self, has_ended: threading.Event) -> None:
        while not has_ended.wait(0 if self._read_some() else _WAIT_S):
            pass
        self.store.catch_up()
        while self._read_some():
            pass

    def _read_some(self) -> bool:
        """Read a piece of each queue; tell whether there was anything."""
        return sum(map(self._read, _QUEUES)) > 0

    def _read(self, key: QueueKey) -> bool:
        offset = len(self.seen[key])
        wanted = self._rng.randint(1, 100)
        asked = GetRequest(
            topic=key.topic, queue_id=key.queue_id, offset=offset, max_messages=wanted
        )
        result = self.store.get(asked)
        if result.status is not GetStatus.FOUND:
            assert not result.messages, f"{result.status} with messages"
            return False
        assert len(result.messages) <= wanted
        for number, origin in enumerate(_origins(key, result.messages), offset):
            message = result.messages[number - offset]
            assert message.queue_offset == number, f"{message.queue_offset} stands at {number}"
            self.seen[key].append(origin)
        assert result.next_offset == len(self.seen[key])
        return True


def _origins(key: QueueKey, messages: Sequence[StoredMessage]) -> Iterator[Origin]:
    for message in messages:
        writer, number, _ = message.body.split(b":", 2)
        origin = int(writer), int(number)
        assert (message.topic, message.queue_id) == (key.topic, key.queue_id)
        assert message.keys == [_key(origin)]
        yield origin


def _key(origin: Origin) -> str:
    return f"{origin[0]}-{origin[1]}"
