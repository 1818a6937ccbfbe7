"""A store behaves as a dictionary of lists does: put, get, query, roll, flush, reopen, kill."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Struct

from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus, PutStatus
from rocketlake.store.offline import Boundary, KeyQuery
from support.engine import batch_request, open_engine, request
from support.manual_clock import ManualClock

ALL = 1 << 30
SIZES = {
    "mapped_file_size_commit_log": 2048,
    "mapped_file_size_consume_queue": 5 * 20,
    "max_hash_slot_num": 4,
    "max_index_num": 12,
}

MODES = {
    "async": {},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "write buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
}

FIRST = QueueKey("T", 0)
# Most of what is done is done to one queue, so that reads have something to read.
queues = st.sampled_from([FIRST, FIRST, QueueKey("T", 1), QueueKey("%RETRY%g", 0)])
KEYS = ("Aa", "BB", "k", "ключ")  # the first two have one hash
keys = st.sampled_from(KEYS)
key_lists = st.lists(keys, max_size=2, unique=True)
bodies = st.binary(max_size=40) | st.integers(0, 1200).map(bytes)
tags = st.none() | st.sampled_from(["a", "тег"])
contents = st.tuples(bodies, tags, key_lists)


class Kept(Struct, frozen=True):
    """What the model remembers of a message."""

    body: bytes
    tags: str | None
    keys: list[str]
    stored: int
    physical_offset: int


class StoreMachine(RuleBasedStateMachine):
    """Does to a store what it does to a dictionary, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="rocketlake-model-"))
        self.opened = 0
        self.clock = ManualClock()
        self.model: dict[QueueKey, list[Kept]] = {}

    @initialize(mode=st.sampled_from(sorted(MODES)))
    def begin(self, mode: str) -> None:
        self.mode = mode
        self.store = self.open(self.place / "0")

    def open(self, root: Path):
        self.root = root
        return open_engine(root, self.clock, **SIZES, **MODES[self.mode])

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            self.store.close()
            shutil.rmtree(self.place)

    # --- writing ---------------------------------------------------------------------------------

    @rule(key=queues, content=contents)
    def put(self, key: QueueKey, content) -> None:
        body, tag, names = content
        receipt = self.store.put(request(key.topic, key.queue_id, body, tags=tag, keys=names))
        self.note(key, [content], receipt)
        assert (receipt.count, receipt.offsets) == (1, ())

    @rule(key=queues, count=st.integers(2, 15), names=key_lists)
    def put_many(self, key: QueueKey, count: int, names) -> None:
        for number in range(count):
            self.put(key, (str(number).encode(), None, names))
            self.clock.advance_ms(number % 2)

    @rule(
        key=queues.filter(lambda key: not key.topic.startswith("%")),
        batch=st.lists(st.tuples(st.binary(max_size=60), tags, key_lists), min_size=1, max_size=5),
    )
    def put_batch(self, key: QueueKey, batch) -> None:
        messages = [
            Message(topic=key.topic, body=body, tags=tag, keys=names) for body, tag, names in batch
        ]
        receipt = self.store.put_batch(batch_request(messages, key.queue_id))
        self.note(key, batch, receipt)
        assert receipt.count == len(batch)

    def note(self, key: QueueKey, contents, receipt) -> None:
        assert receipt.status is PutStatus.PUT_OK
        assert receipt.store_timestamp == self.clock.now_ms()
        kept = self.model.setdefault(key, [])
        assert receipt.queue_offset == len(kept)
        places = receipt.offsets or (receipt.physical_offset,)
        assert places[0] == receipt.physical_offset
        for (body, tag, names), place in zip(contents, places, strict=True):
            kept.append(Kept(body, tag, names, self.clock.now_ms(), place))

    @rule(size=st.integers(2 << 10, 5 << 20))
    def put_too_much(self, size: int) -> None:
        before = self.store.log.max_offset
        receipt = self.store.put(request("T", 0, bytes(size)))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL or size < 4 << 20
        assert not receipt.is_ok
        assert self.store.log.max_offset >= before

    @rule(milliseconds=st.integers(0, 3000))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)

    @rule()
    def roll(self) -> None:
        """Put what fills most of a file, so that the next one begins another."""
        self.put(FIRST, (bytes(1700), None, []))

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.parts.log_parts.files.flushed_where == self.store.log.wrote_where

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        self.store = self.open(self.root)
        self.check_all()

    @rule()
    def kill_and_reopen(self) -> None:
        """Go on with a copy of the files as they are at this moment."""
        if self.mode == "write buffers":
            self.store.flush()  # what is in a buffer only is lost
        self.opened += 1
        copy = self.place / str(self.opened)
        shutil.copytree(self.root, copy)
        self.store.close()
        shutil.rmtree(self.root)
        assert (copy / "abort").exists()
        self.store = self.open(copy)
        self.check_all()

    # --- reading ---------------------------------------------------------------------------------

    @rule(key=queues, data=st.data(), count=st.integers(1, 50))
    def get(self, key: QueueKey, data, count: int) -> None:
        offset = data.draw(st.integers(-1, len(self.model.get(key, [])) + 2))
        self.check_get(key, offset, count)

    def check_get(self, key: QueueKey, offset: int, count: int) -> int:
        """Read from an offset on; return where to go on."""
        kept = self.model.get(key, [])
        result = self.store.get(
            GetRequest(topic=key.topic, queue_id=key.queue_id, offset=offset, max_messages=count)
        )
        if not 0 <= offset < len(kept):
            assert not result.messages
            assert result.status is self.missed(key, offset)
            return offset
        assert result.status is GetStatus.FOUND
        assert 1 <= len(result.messages) <= count
        assert result.next_offset == offset + len(result.messages)
        assert (result.min_offset, result.max_offset) == (0, len(kept))
        for number, message in enumerate(result.messages, offset):
            self.compare(key, number, message)
        return result.next_offset

    def missed(self, key: QueueKey, offset: int) -> GetStatus:
        count = len(self.model.get(key, []))
        if not count:
            return GetStatus.NO_MATCHED_LOGIC_QUEUE
        if offset < 0:
            return GetStatus.OFFSET_TOO_SMALL
        is_next = offset == count
        return GetStatus.OFFSET_OVERFLOW_ONE if is_next else GetStatus.OFFSET_OVERFLOW_BADLY

    def compare(self, key: QueueKey, number: int, message) -> None:
        kept = self.model[key][number]
        assert (message.topic, message.queue_id, message.queue_offset) == (
            *(key.topic, key.queue_id, number),
        )
        assert (message.body, message.tags, message.keys) == (kept.body, kept.tags, kept.keys)
        assert message.store_timestamp == kept.stored
        assert message.physical_offset == kept.physical_offset

    @rule(topic=queues.map(lambda key: key.topic), key=keys)
    def query(self, topic: str, key: str) -> None:
        wanted = {
            kept.physical_offset
            for queue, messages in self.model.items()
            for kept in messages
            if queue.topic == topic and key in kept.keys
        }
        found = self.store.query(KeyQuery(topic=topic, key=key, limit=ALL)).messages
        offsets = [message.physical_offset for message in found]
        assert len(offsets) == len(set(offsets))
        assert set(offsets) == wanted
        assert all(key in message.keys and message.topic == topic for message in found)

    @rule(key=queues, data=st.data(), boundary=st.sampled_from(Boundary))
    def offset_by_time(self, key: QueueKey, data, boundary: Boundary) -> None:
        stored = [kept.stored for kept in self.model.get(key, [])]
        time = data.draw(st.sampled_from([*stored, self.clock.now_ms()]))
        self.check_time(key, time + data.draw(st.integers(-1, 1)), boundary)

    def check_time(self, key: QueueKey, time: int, boundary: Boundary) -> None:
        stored = [kept.stored for kept in self.model.get(key, [])]
        if boundary is Boundary.LOWER:
            wanted = sum(one < time for one in stored)
        else:
            wanted = max(sum(one <= time for one in stored) - 1, 0)
        assert self.store.offset_by_time(key, time, boundary) == wanted

    def check_all(self) -> None:
        """Read everything in every way."""
        for key, kept in self.model.items():
            offset = 0
            while offset < len(kept):
                offset = self.check_get(key, offset, 7)
            for time in {one.stored for one in kept}:
                for boundary in Boundary:
                    self.check_time(key, time, boundary)
        for topic in {key.topic for key in self.model}:
            for name in KEYS:
                self.query(topic, name)

    @rule(data=st.data())
    @precondition(lambda self: self.model)
    def message_at(self, data) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        number = data.draw(st.integers(0, len(self.model[key]) - 1))
        message = self.store.message_at(self.model[key][number].physical_offset)
        assert message is not None
        self.compare(key, number, message)

    @invariant()
    def bounds(self) -> None:
        for key, kept in self.model.items():
            assert self.store.queue_bounds(key) == (0, len(kept))


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    stateful_step_count=25, max_examples=settings.default.max_examples * 3 // 5
)
