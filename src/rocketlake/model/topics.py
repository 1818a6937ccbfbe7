"""Topic configuration, reserved topics, retry and dead-letter names."""

from enum import IntFlag, StrEnum
from typing import Final

from msgspec import Struct, field

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECKED_TOO_OFTEN_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        CHECKED_TOO_OFTEN_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_OFFSET_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    }
)
"""What TopicValidator knows by name; the timer's topic and others have the system prefix."""

TOPIC_SIZE_MAX: Final = 127
"""Bytes in the name of a topic, except a retry topic; in 4.x of every topic."""
RETRY_TOPIC_SIZE_MAX: Final = 255
GROUP_SIZE_MAX: Final = 120
"""Characters in the name of a consumer group."""
QUEUE_NAME_SIZE_MAX: Final = 255
"""Bytes in the name of a directory, on every file system in use."""
QUEUES_MAX: Final = 65_536
"""Queues of one topic; a table may claim more."""

QUEUE_TYPE: Final = "queue.type"


class Perm(IntFlag):
    """What may be done with the queues of a topic."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class TopicFilterType(StrEnum):
    """Whether a message of a topic has one tag or several."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Struct, frozen=True, kw_only=True):
    """What the broker keeps about a topic; defaults are those of the reference's class."""

    name: str = field(name="topicName")
    read_queue_count: int = field(default=16, name="readQueueNums")
    write_queue_count: int = field(default=16, name="writeQueueNums")
    perm: int = int(Perm.READ | Perm.WRITE)
    filter_type: TopicFilterType = field(default=TopicFilterType.SINGLE_TAG, name="topicFilterType")
    sys_flag: int = field(default=0, name="topicSysFlag")
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def is_readable(self) -> bool:
        """Tell whether consumers may read."""
        return bool(self.perm & Perm.READ)

    @property
    def is_writable(self) -> bool:
        """Tell whether producers may send."""
        return bool(self.perm & Perm.WRITE)

    @property
    def is_batch(self) -> bool:
        """Tell whether the queues of the topic are batch consume queues."""
        return self.attributes.get(QUEUE_TYPE) == "BatchCQ"


def retry_topic(group: str) -> str:
    """Return the topic of messages that a group will consume again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of messages that a group has given up."""
    return DEAD_LETTER_PREFIX + group


def topic_size_max(topic: str) -> int:
    """Return how many bytes the name of a topic may have."""
    # Compat: as in HookUtils#checkBeforePutMessage.
    return RETRY_TOPIC_SIZE_MAX if is_retry_topic(topic) else TOPIC_SIZE_MAX


def is_retry_topic(name: str) -> bool:
    """Tell whether a topic holds messages to be consumed again."""
    return name.startswith(RETRY_PREFIX)


def is_dlq_topic(name: str) -> bool:
    """Tell whether a topic holds messages given up."""
    return name.startswith(DEAD_LETTER_PREFIX)


def is_system_topic(name: str) -> bool:
    """Tell whether a topic is the broker's own.

    Compat: a running broker also counts topics named after itself and its cluster; a name alone
    cannot show that.
    """
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def can_name_queues(name: str) -> bool:
    """Tell whether a topic or light queue can have queues: each is a directory of that name.

    Compat: the reference takes any name, and fails or makes directories inside each other when it
    makes the queue. Names that its clients allow are all possible.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode("utf-8", "surrogateescape")) <= QUEUE_NAME_SIZE_MAX
    except UnicodeEncodeError:
        return False


def is_lmq(name: str) -> bool:
    """Tell whether a name, of a topic or of a group, belongs to a light message queue."""
    return name.startswith(LIGHT_QUEUE_PREFIX)
