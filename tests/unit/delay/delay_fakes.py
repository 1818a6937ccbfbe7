"""A store in memory that keeps what is put, dispatches at once, and fails when a test wants it."""

import numpy as np

from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import (
    Envelope,
    StoredMessage,
    decode_properties,
    encode,
    scan,
    seal,
    version_for,
)
from rocketlake.model import properties as names
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.hashes import tags_code
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.api import AppendRequest, PutReceipt, PutStatus

BORN_HOST = Endpoint.parse("192.168.0.1:1234")
STORE_HOST = Endpoint.parse("10.0.0.2:10911")
DELAYS_MS = (1_000, 5_000, 10_000, 30_000)


class MemoryStore:
    """Implements DelayStore; `hook` is asked before each put."""

    def __init__(self, clock, delays_ms=DELAYS_MS):
        self.clock = clock
        self.delays_ms = delays_ms
        self.log = bytearray()
        self.queues = {}
        self.next_offsets = {}
        self.hook = None
        self.listeners = []
        self.refuse = lambda _request: None  # returns a status, raises, or lets pass
        self.syncs = 0
        self.puts = 0
        self.synced_to = 0
        self.ends_properties = True
        self.stamps = []  # store times of the next records; then the clock's
        self.lost = set()  # physical offsets of records that are gone

    # --- DelayStore ------------------------------------------------------------------------------

    def put(self, request):
        if self.hook is not None:
            answer = self.hook.before_put(request)
            if isinstance(answer, PutReceipt):
                return answer
            request = answer or request
        status = self.refuse(request)
        if status is not None:
            return PutReceipt(status=status, reason="the test wants it")
        self.puts += 1
        return self.append(request)

    def queue_units(self, key, queue_offset, count):
        units = self.queues.get(key, [])[queue_offset : queue_offset + count]
        return np.array(units, UNIT_DTYPE)

    def dispatched_bounds(self, key):
        return 0, len(self.queues.get(key, []))

    def message_at(self, physical_offset, size):
        if physical_offset in self.lost or physical_offset + size > len(self.log):
            return None
        found = scan(self.log, physical_offset, physical_offset + size)
        if len(found.columns) != 1 or found.columns["size"][0] != size:
            return None
        return found.columns.message(0)

    def log_bounds(self):
        return 0, len(self.log)

    def sync(self):
        self.syncs += 1
        self.synced_to = len(self.log)

    # --- for tests -------------------------------------------------------------------------------

    def append(self, request: AppendRequest) -> PutReceipt:
        now = self.stamps.pop(0) if self.stamps else self.clock.now_ms()
        store_host = request.store_host or STORE_HOST
        record = encode(
            request.message,
            Envelope(
                queue_id=request.queue_id,
                born_timestamp=request.born_timestamp,
                born_host=request.born_host,
                store_host=store_host,
                sys_flag=request.sys_flag,
                reconsume_times=request.reconsume_times,
                prepared_transaction_offset=request.prepared_transaction_offset,
                version=version_for(request.message.topic),
                trailing_separator=self.ends_properties,
            ),
        )
        key = QueueKey(request.message.topic, request.queue_id)
        at = len(self.log)
        queue_offset = len(self.queues.setdefault(key, []))
        seal(record, 0, queue_offset, at, now, False)
        self.log += record
        self.queues[key].append((at, len(record), self._code(request.message, now)))
        for listener in self.listeners:
            listener.arrived(())
        return PutReceipt(
            status=PutStatus.PUT_OK,
            queue_offset=queue_offset,
            physical_offset=at,
            store_timestamp=now,
            size=len(record),
            count=1,
            store_host=store_host.encode(),
        )

    def send(self, topic="T", body=b"x", *, queue_id=0, sys_flag=0, **fields) -> PutReceipt:
        """Put a message as a producer would."""
        return self.put(
            AppendRequest(
                message=Message(topic=topic, body=body, **fields),
                queue_id=queue_id,
                born_timestamp=self.clock.now_ms() - 1,
                born_host=BORN_HOST,
                sys_flag=sys_flag,
            )
        )

    def messages(self, topic="T", queue_id=0) -> list[StoredMessage]:
        units = self.queues.get(QueueKey(topic, queue_id), [])
        return [self.message_at(at, size) for at, size, _ in units]

    def bodies(self, topic="T", queue_id=0):
        return [message.stored_body for message in self.messages(topic, queue_id)]

    def _code(self, message, now):
        level = message.properties.get(names.DELAY)
        if message.topic == SCHEDULE_TOPIC and level:
            return now + self.delays_ms[min(int(level), len(self.delays_ms)) - 1]
        return tags_code(message.tags or message.properties.get(names.TAGS))


def ordered_names(message):
    return list(decode_properties(message.raw_properties))
