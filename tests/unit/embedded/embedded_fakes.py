"""A store of lists: what consumers stand on, without files and without threads."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from rocketlake.clock import SystemClock
from rocketlake.embedded.consumer.consumer import Consumer
from rocketlake.embedded.consumer.groups import Groups
from rocketlake.embedded.consumer.plan import ConsumerPlan
from rocketlake.embedded.selection import parse_selection
from rocketlake.embedded.shared_filters import SharedFilters
from rocketlake.embedded.store import Store, StoreParts
from rocketlake.embedded.tables import TableKeeper
from rocketlake.embedded.topic_registry import TopicRegistry
from rocketlake.errors import StoreClosedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.format.record import StoredMessage, crc31, encode_properties, message_properties
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.groups import GroupBook
from rocketlake.metadata.offsets import OffsetBook
from rocketlake.metadata.topics import TopicBook
from rocketlake.model import properties as names
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.model.unix_time import to_unix_ms
from rocketlake.store.api import (
    AppendRequest,
    BatchRequest,
    CorruptUnit,
    GetRequest,
    GetResult,
    GetStatus,
    PutReceipt,
    PutStatus,
    QueryResult,
)
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.options import StoreOptions, embedded
from rocketlake.store.ports import Arrival, ArrivalListener
from rocketlake.store.queue.times import Boundary

HOST = Endpoint.parse("127.0.0.1:10911")
WAIT_S = 20  # how long a test waits before it fails


def stored(
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    *,
    body: bytes = b"x",
    tags: str | None = None,
    store_timestamp: int = 1000,
    sys_flag: int = 0,
    physical_offset: int = 0,
    extra: dict[str, str] | None = None,
) -> StoredMessage:
    properties = {**(extra or {}), **({} if tags is None else {names.TAGS: tags})}
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_size=100,
        store_timestamp=store_timestamp,
        born_timestamp=store_timestamp,
        born_host=HOST,
        store_host=HOST,
        flag=0,
        sys_flag=sys_flag,
        body_crc=crc31(body),
        reconsume_times=0,
        prepared_transaction_offset=0,
        properties=properties,
        raw_properties=encode_properties(properties, True),
        stored_body=body,
    )


class MemoryEngine:
    """Queues that are lists. What was put is visible at once, unless `is_held_back`."""

    def __init__(self, **options: object) -> None:
        self.options = StoreOptions.from_source(None, preset=embedded(), **options)
        self.clock = SystemClock()
        self.queues: dict[QueueKey, list[StoredMessage]] = defaultdict(list)
        self.first: dict[QueueKey, int] = defaultdict(int)
        self.corrupt: dict[QueueKey, set[int]] = defaultdict(set)
        self.waiting: list[tuple[QueueKey, StoredMessage]] = []
        self.listeners: list[ArrivalListener] = []
        self.requests: list[AppendRequest | BatchRequest] = []
        self.gets = 0
        self.pending: list[tuple[Future[PutReceipt], PutReceipt]] = []
        self.flushes = 0
        self.is_slow = False
        self.is_held_back = False
        self.is_closed = False
        self.answer: PutStatus = PutStatus.PUT_OK
        self.late_status: PutStatus = PutStatus.PUT_OK  # of messages that are stored
        self.error: Exception | None = None
        self.lock = threading.RLock()
        self.count = 0
        self.before_get: Callable[[], None] = lambda: None

    # --- writing -------------------------------------------------------------------------------

    def add(self, count: int = 1, topic: str = "orders", queue_id: int = 0, **fields) -> None:
        """Put messages whose bodies are `queue:offset`."""
        key = QueueKey(topic, queue_id)
        for _ in range(count):
            with self.lock:
                at = self._end(key)
                body = fields.get("body", f"{queue_id}:{at}".encode())
                self._append(key, stored(topic, queue_id, at, **{**fields, "body": body}))

    def _end(self, key: QueueKey) -> int:
        owed = sum(1 for waiting, _ in self.waiting if waiting == key)
        return self.first[key] + len(self.queues[key]) + owed

    def _append(self, key: QueueKey, message: StoredMessage) -> None:
        self.waiting.append((key, message))
        if not self.is_held_back:
            self.catch_up()

    def expire(self, count: int, topic: str = "orders", queue_id: int = 0) -> None:
        key = QueueKey(topic, queue_id)
        with self.lock:
            del self.queues[key][:count]
            self.first[key] += count

    def put(self, request: AppendRequest) -> PutReceipt:
        if self.is_closed:
            raise StoreClosedError("closed")
        if self.error is not None:
            raise self.error
        _encode(request.message)
        with self.lock:
            self.requests.append(request)
            if self.answer is not PutStatus.PUT_OK:
                return PutReceipt(status=self.answer)
            message, key = request.message, QueueKey(request.message.topic, request.queue_id)
            at = self._end(key)
            self._append(key, _stored_of(message, key, at, self.count))
            self.count += 1
            return PutReceipt(
                status=self.late_status,
                queue_offset=at,
                physical_offset=self.count * 100,
                store_timestamp=request.born_timestamp,
                size=100,
                count=1,
                store_host=HOST.encode(),
            )

    def put_plain(self, message: Message, queue_id: int) -> PutReceipt:
        return self.put(
            AppendRequest(
                message=message,
                queue_id=queue_id,
                born_timestamp=self.clock.now_ms(),
                born_host=HOST,
            )
        )

    def put_plain_async(self, message: Message, queue_id: int) -> Future[PutReceipt]:
        _encode(message)
        return self._later(lambda: self.put_plain(message, queue_id))

    def put_batch(self, batch: BatchRequest) -> PutReceipt:
        for message in batch.messages:
            _encode(message)
        receipts = [self.put_plain(message, batch.queue_id) for message in batch.messages]
        self.requests.append(batch)
        return receipts[0]

    def put_async(self, request: AppendRequest) -> Future[PutReceipt]:
        return self._later(lambda: self.put(request))

    def put_batch_async(self, batch: BatchRequest) -> Future[PutReceipt]:
        return self._later(lambda: self.put_batch(batch))

    def _later(self, put: Callable[[], PutReceipt]) -> Future[PutReceipt]:
        future: Future[PutReceipt] = Future()
        try:
            receipt = put()
        except Exception as error:  # noqa: BLE001 - told by the future
            future.set_exception(error)
            return future
        if self.is_slow and receipt.is_ok:
            self.pending.append((future, receipt))
        else:
            future.set_result(receipt)
        return future

    def settle(self) -> None:
        """Answer the puts that wait for the disk."""
        while self.pending:
            future, receipt = self.pending.pop(0)
            future.set_result(receipt)

    def drop_topic(self, topic: str) -> int:
        with self.lock:
            mine = [key for key in self.queues if key.topic == topic]
            for key in mine:
                del self.queues[key]
                self.first.pop(key, None)
            return len(mine)

    def runtime_info(self) -> dict[str, str]:
        return {"puts": str(self.count)}

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self.is_closed = True

    # --- reading -------------------------------------------------------------------------------

    def queue_bounds(self, key: QueueKey) -> tuple[int, int]:
        with self.lock:
            return self.first[key], self.first[key] + len(self.queues[key])

    def offset_by_time(self, key: QueueKey, timestamp: int, boundary: Boundary) -> int:
        with self.lock:
            times = [m.store_timestamp for m in self.queues[key]]
            found = sum(t < timestamp for t in times)
            return self.first[key] + found

    def query(self, query: KeyQuery) -> QueryResult:
        with self.lock:
            found = [m for queue in self.queues.values() for m in queue if query.wants(m)]
        found.sort(key=lambda message: message.physical_offset)
        return QueryResult(messages=found[-query.limit :])

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        with self.lock:
            found = [m for queue in self.queues.values() for m in queue]
        return next((m for m in found if m.physical_offset == physical_offset), None)

    def catch_up(self) -> None:
        if self.is_closed:
            raise StoreClosedError("closed")
        with self.lock:
            arrived, self.waiting = self.waiting, []
            for key, message in arrived:
                self.queues[key].append(message)
        if arrived:
            for listener in self.listeners:
                listener.arrived([_arrival(key, m) for key, m in arrived])

    def get(self, request: GetRequest, message_filter=None) -> GetResult:
        self.before_get()
        if self.is_closed:
            raise StoreClosedError("closed")
        self.gets += 1
        key = QueueKey(request.topic, request.queue_id)
        with self.lock:
            low, high = self.queue_bounds(key)
            status, at = _judge(request.offset, low, high)
            if status is not None:
                return GetResult(status=status, next_offset=at, min_offset=low, max_offset=high)
            return self._read(request, key, message_filter)

    def _read(self, request: GetRequest, key: QueueKey, message_filter) -> GetResult:
        low, high = self.queue_bounds(key)
        found: list[StoredMessage] = []
        corrupt = []
        at = request.offset
        for message in self.queues[key][request.offset - low :][:50]:
            end = message.queue_offset + int(message.properties.get(names.INNER_NUM, "1"))
            if end <= at:
                continue
            if len(found) >= request.max_messages:
                break
            at = end
            if message.queue_offset in self.corrupt[key]:
                corrupt.append(
                    CorruptUnit(
                        path="log", position=1, reason="bad", queue_offset=message.queue_offset
                    )
                )
            elif message_filter is None or message_filter.matches(message):
                found.append(message)
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(
            status=status,
            messages=found,
            next_offset=at,
            min_offset=low,
            max_offset=high,
            corrupt=corrupt,
        )


def _encode(message: Message) -> None:
    """Raise what the real one raises for what a record cannot express."""
    memoryview(message.body)
    message_properties(message, True)
    if message.deliver_at is not None:
        to_unix_ms(message.deliver_at, "deliver_at")


def _judge(offset: int, low: int, high: int) -> tuple[GetStatus | None, int]:
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None, offset


def _arrival(key: QueueKey, message: StoredMessage) -> Arrival:
    return Arrival(
        topic=key.topic,
        queue_id=key.queue_id,
        next_offset=message.queue_offset + 1,
        tags_code=0,
        store_timestamp=message.store_timestamp,
        bitmap=None,
        properties=message.properties,
    )


def _stored_of(message: Message, key: QueueKey, at: int, number: int) -> StoredMessage:
    extra = dict(message.properties)
    if message.keys:
        extra[names.KEYS] = " ".join(message.keys)
    return stored(
        key.topic,
        key.queue_id,
        at,
        body=bytes(message.body),
        tags=message.tags,
        physical_offset=(number + 1) * 100,
        extra=extra,
    )


class MemoryProgress:
    """Offsets in a dictionary."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], dict[int, int]] = {}
        self.commits: list[tuple[int, int]] = []

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        return self.table.get((topic, group), {}).get(queue_id)

    def offsets(self, topic: str, group: str) -> dict[int, int]:
        return dict(self.table.get((topic, group), {}))

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        self.table.setdefault((topic, group), {})[queue_id] = offset
        self.commits.append((queue_id, offset))


class Bench:
    """A store of lists with one topic, and consumers on it."""

    def __init__(self, queue_count: int = 1) -> None:
        self.engine = MemoryEngine()
        self.progress = MemoryProgress()
        self.queue_count = queue_count
        self.groups = Groups(lambda topic: self.queue_count)
        self.engine.listeners.append(self.groups)

    def consumer(self, group: str = "g", *, tags=None, sql=None, **plan) -> Consumer:
        plan.setdefault("timeout_s", 0.0)
        plan.setdefault("selection", parse_selection(tags, sql))
        wanted = ConsumerPlan(group=group, topic="orders", **plan)
        assignment = self.groups.assignment(group, "orders")
        return Consumer(wanted, assignment, self.engine, self.progress, clock=SystemClock())

    def progress_of(self, group: str = "g") -> dict[int, int]:
        return self.progress.offsets("orders", group)


def open_memory_store(config_dir: Path, engine: MemoryEngine | None = None, **options) -> Store:
    """A store whose messages are in memory and whose tables are files."""
    engine = engine or MemoryEngine(**options)
    place = TableLocation(PosixFileOps(), engine.clock, config_dir)
    book, offsets = TopicBook.load(place), OffsetBook.load(place)
    worker = ShieldedWorker("store of a test")
    topics = TopicRegistry(
        book,
        worker,
        default_queues=engine.options.default_topic_queue_nums,
        may_create=engine.options.auto_create_topic_enable,
    )
    groups = Groups(topics.readable_queues)
    topics.on_change = groups.topic_changed
    engine.listeners.append(groups)
    keeper = TableKeeper([book, offsets], interval_ms=5000)
    filters = SharedFilters(place, engine.options)
    parts = StoreParts(
        core=None,
        topics=topics,
        offsets=offsets,
        groups=groups,
        filters=filters,
        group_book=GroupBook.load(place),
        delay=None,
        services=(keeper,),
        worker=worker,
    )
    return Store(engine, parts, path=config_dir)


def bodies(messages: Sequence[StoredMessage]) -> list[str]:
    return [message.body.decode() for message in messages]
