import msgspec
import pytest

from rocketlake.model import topics
from rocketlake.model.topics import Perm, TopicConfig, TopicFilterType


def test_names_of_retry_and_dead_letter_topics():
    assert topics.retry_topic("CG_1") == "%RETRY%CG_1"
    assert topics.dlq_topic("CG_1") == "%DLQ%CG_1"
    assert topics.is_retry_topic("%RETRY%CG_1")
    assert not topics.is_retry_topic("%DLQ%CG_1")
    assert topics.is_dlq_topic("%DLQ%CG_1")
    assert not topics.is_dlq_topic("TopicTest")


@pytest.mark.parametrize(
    "name",
    [
        # TopicValidator of 5.5.0, in its order.
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ],
)
def test_system_topic_is_known(name):
    assert topics.is_system_topic(name)


@pytest.mark.parametrize("name", ["TopicTest", "%RETRY%CG", "%DLQ%CG", "RMQ_SYS_", "tbw102", ""])
def test_other_topic_is_no_system_topic(name):
    assert not topics.is_system_topic(name)


def test_light_queues_are_known_by_their_prefix():
    assert topics.is_lmq("%LMQ%123")
    assert not topics.is_lmq("LMQ%123")


def test_defaults_are_those_of_the_reference():
    config = TopicConfig(name="x")
    assert (config.read_queue_count, config.write_queue_count) == (16, 16)
    assert (config.perm, config.sys_flag, config.order) == (6, 0, False)
    assert config.filter_type is TopicFilterType.SINGLE_TAG
    assert config.attributes == {}


def test_fields_have_the_names_of_the_reference():
    written = msgspec.to_builtins(TopicConfig(name="x"))
    assert sorted(written) == [
        "attributes",
        "order",
        "perm",
        "readQueueNums",
        "topicFilterType",
        "topicName",
        "topicSysFlag",
        "writeQueueNums",
    ]


@pytest.mark.parametrize(
    ("perm", "readable", "writable"),
    [(6, True, True), (4, True, False), (2, False, True), (1, False, False), (7, True, True)],
)
def test_permissions_are_bits(perm, readable, writable):
    config = TopicConfig(name="x", perm=perm)
    assert (config.is_readable, config.is_writable) == (readable, writable)
    assert bool(Perm(perm) & Perm.READ) is readable


def test_attributes_tell_the_kind_of_queue():
    assert TopicConfig(name="x", attributes={"queue.type": "BatchCQ"}).is_batch
    assert not TopicConfig(name="x", attributes={"queue.type": "SimpleCQ"}).is_batch
