"""Requests and results of the store's public face.

1. What the reference has a status for is returned with it; members have its spelling.
2. An offset or a time that there is none of is -1.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from rocketlake.format.record import RecordColumns, StoredMessage
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.ids import offset_message_id
from rocketlake.model.message import Message

NO_OFFSET = -1
NO_TIME = -1

PULL_SIZE_MAX = 128 << 20
"""Bytes one read may return when it names no limit (MessageStore's MAX_PULL_MSG_SIZE)."""


class PutStatus(StrEnum):
    """How a put ended (PutMessageStatus)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class GetStatus(StrEnum):
    """How a read ended (GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class AppendRequest(Struct, frozen=True, kw_only=True):
    """A message on its way into the log, with what a sender says beside it (MessageExtBrokerInner).

    Put hooks see it and may answer with another one.
    """

    message: Message
    queue_id: int
    born_timestamp: int
    born_host: Endpoint
    store_host: Endpoint | None = None
    """None: that of the store."""
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class SendFields(Struct, frozen=True, gc=False):
    """A message as its client's request has it: nothing of it is decoded.

    `body` and `properties` are taken as they are; a server's own properties come from its edits
    (`MessageStore.edit_properties`).
    """

    topic: str
    queue_id: int
    body: bytes | bytearray | memoryview
    properties: str | bytes
    """The property string of the request."""
    born_host: bytes
    """Address and port of the client, as a record has them: 8 bytes, or 20."""
    born_timestamp: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0


class BatchRequest(Struct, frozen=True, kw_only=True):
    """Messages of one topic on their way into the log together (MessageExtBatch).

    Each becomes a record of its own; all of them are appended, behind each other, or none.
    """

    messages: Sequence[Message]
    topic: str
    queue_id: int
    born_timestamp: int
    born_host: Endpoint
    store_host: Endpoint | None = None
    """None: that of the store."""
    sys_flag: int = 0
    wait: bool = True


class ReplicaAnswer(Struct, frozen=True):
    """What replicas say to a put: a status, and why."""

    status: PutStatus
    reason: str = ""


class PutReceipt(Struct, frozen=True, gc=False):
    """How a put ended, and where its records are if they were appended.

    Of a batch, offsets are those of the first record, `size` and `count` those of all;
    `offsets` has the physical offset of each and is empty for a single record.
    """

    status: PutStatus
    queue_offset: int = NO_OFFSET
    physical_offset: int = NO_OFFSET
    store_timestamp: int = NO_TIME
    size: int = 0
    count: int = 0
    store_host: bytes = b""
    """Address and port, as the records hold them."""
    offsets: tuple[int, ...] = ()
    reason: str = ""
    """Why the put was refused, where the status alone does not tell."""

    @property
    def is_ok(self) -> bool:
        """Tell whether the records are in the log.

        Compat: as PutMessageResult#isOk, so that a put whose flush or replicas took too long is ok.
        """
        return self.physical_offset >= 0

    @property
    def msg_id(self) -> str:
        """The id of the record; of a batch the ids of all, separated by commas; or nothing."""
        if self.offsets:
            return ",".join(offset_message_id(self.store_host, at) for at in self.offsets)
        return offset_message_id(self.store_host, self.physical_offset) if self.is_ok else ""


class GetRequest(Struct, frozen=True, kw_only=True):
    """Which messages of a queue are wanted."""

    topic: str
    queue_id: int
    offset: int
    max_messages: int = 32
    max_bytes: int = PULL_SIZE_MAX
    group: str = ""
    is_limited: bool = False
    """Keep to what the store's options allow one read to transfer, as a broker does."""
    catches_up: bool = True
    """See everything that was put before; otherwise what dispatch has come to, without waiting."""


class CorruptUnit(Struct, frozen=True, kw_only=True):
    """A record that a read skipped: its place and what is wrong."""

    path: str
    position: int
    reason: str
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.path} at {self.position}: {self.reason} (queue offset {self.queue_offset})"


class Gone(Struct, frozen=True):
    """Messages of a queue that a read stepped over because they were deleted."""

    first: int
    """Queue offset of the first of them."""
    end: int
    """Queue offset behind the last of them."""


class GetResult(Struct, frozen=True, kw_only=True):
    """How a read ended: the messages, where to go on, and where the queue begins and ends."""

    status: GetStatus
    messages: Sequence[StoredMessage] = ()
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    suggest_replica: bool = False
    """The messages are no longer in memory: a replica may be asked instead."""
    corrupt: Sequence[CorruptUnit] = ()
    gone: Sequence[Gone] = ()

    @property
    def is_found(self) -> bool:
        """Tell whether there are messages."""
        return self.status is GetStatus.FOUND


class ColumnsResult(Struct, frozen=True):
    """How a read of columns ended; the column `queue_offset` has the numbers in the queue."""

    status: GetStatus
    columns: RecordColumns
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    corrupt: Sequence[CorruptUnit] = ()


class QueryResult(Struct, frozen=True, kw_only=True):
    """Messages that have a key, and how far the index had come."""

    messages: Sequence[StoredMessage] = ()
    index_timestamp: int = NO_TIME
    """Store time of the newest record in the index."""
    index_physical_offset: int = NO_OFFSET
    """Physical offset of the newest record in the index."""
