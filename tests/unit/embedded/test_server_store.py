"""A store as a server uses it: RocketMQ's defaults, tables, delays that follow the role."""

import json
import re
import threading

import pytest

import rocketlake
from rocketlake.embedded.server_store import open_server_store
from rocketlake.errors import ConfigError, StoreClosedError
from rocketlake.filters.message_filter import make_filter
from rocketlake.format.record import Check, scan
from rocketlake.metadata.groups import SubscriptionGroup
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TopicConfig
from rocketlake.store.api import GetRequest, GetStatus, PutReceipt, PutStatus, SendFields
from rocketlake.store.options import BrokerRole

HOST = Endpoint.parse("192.168.0.9:4321").encode()
SMALL = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 6000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "disk_ratio_enable": False,
}


@pytest.fixture
def store(tmp_path):
    with open_server_store(tmp_path / "store", **SMALL) as opened:
        yield opened


def send(store, body=b"body", properties="TAGS\x01a\x02", topic="T", queue_id=0):
    answer = store.engine.non_blocking.put_fields(
        SendFields(topic, queue_id, body, properties, HOST, 1)
    )
    return answer if isinstance(answer, PutReceipt) else answer.result(10)


def bodies(store, topic="T", wanted=None):
    request = GetRequest(topic=topic, queue_id=0, offset=0, is_limited=True)
    with store.engine.get_raw(request, wanted) as result:
        return [
            m.body
            for view in result.views
            for m in scan(view, checks=Check.SHAPE).columns.messages()
        ]


def test_defaults_are_rocketmqs(tmp_path):
    with open_server_store(tmp_path) as store:
        options = store.options
        assert options.mapped_file_size_commit_log == 1 << 30
        assert options.mapped_file_size_consume_queue == 300_000 * 20
        assert (options.max_hash_slot_num, options.max_index_num) == (5_000_000, 20_000_000)
        assert options.default_topic_queue_nums == 8
        assert options.auto_delete_enable


def test_options_may_come_in_any_way(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\nlistenPort=1\n", encoding="utf-8")
    with open_server_store(tmp_path / "a", conf, default_topic_queue_nums=3) as store:
        assert store.options.mapped_file_size_commit_log == 1 << 20
        assert store.options.default_topic_queue_nums == 3
    with pytest.raises(ConfigError, match="mappedFileSizeComitLog"):
        open_server_store(tmp_path / "b", {"mappedFileSizeComitLog": 1})


def test_messages_go_in_as_fields_and_come_out_as_bytes(store):
    for number in range(40):
        tags = "ab"[number % 2]
        receipt = send(store, b"%d" % number, f"TAGS\x01{tags}\x02n\x01{number}\x02")
        assert (receipt.status, receipt.queue_offset) == (PutStatus.PUT_OK, number)
    assert bodies(store) == [b"%d" % number for number in range(32)]
    assert bodies(store, wanted=make_filter("b"))[:3] == [b"1", b"3", b"5"]
    assert bodies(store, wanted=make_filter(sql="n > 36")) == [b"37", b"38", b"39"]


def test_refused_message_is_a_status(store):
    assert send(store, bytes(5 << 20)).status is PutStatus.MESSAGE_ILLEGAL


def test_arrival_wakes_who_holds_a_poll(tmp_path):
    arrived = threading.Event()

    class Polls:
        def arrived(self, arrivals):
            if any(arrival.topic == "T" for arrival in arrivals):
                arrived.set()

    with open_server_store(tmp_path, arrival_listeners=[Polls()], **SMALL) as store:
        send(store)
        assert arrived.wait(10)


def test_tables_are_written_in_rocketmqs_form(tmp_path):
    with open_server_store(tmp_path, **SMALL) as store:
        store.groups.create(SubscriptionGroup(name="billing"))
        store.offsets.commit("T", "billing", 0, 7)
        store.persist()
        config = tmp_path / "config"
        groups = json.loads((config / "subscriptionGroup.json").read_text(encoding="utf-8"))
        assert "billing" in groups["subscriptionGroupTable"]
    offsets = (config / "consumerOffset.json").read_text(encoding="utf-8")
    assert '"T@billing":{0:7' in offsets


def test_closed_store_can_be_opened_by_a_program(tmp_path):
    with open_server_store(tmp_path, **SMALL) as store:
        send(store)
    assert not store.is_open
    assert not (tmp_path / "abort").exists()
    with pytest.raises(StoreClosedError):
        store.persist()
    assert send(store).status is PutStatus.SERVICE_NOT_AVAILABLE
    with rocketlake.open_store(tmp_path) as program:
        assert [m.body for m in program.get("T", 0, 0).messages] == [b"body"]


# --- delays and the role --------------------------------------------------------------------------


class Arrived:
    """Says when a topic has so many messages."""

    def __init__(self):
        self._has_come = threading.Condition()
        self._ends = {}

    def arrived(self, arrivals):
        with self._has_come:
            for arrival in arrivals:
                self._ends[arrival.topic] = arrival.next_offset
            self._has_come.notify_all()

    def wait(self, topic, end):
        with self._has_come:
            return self._has_come.wait_for(lambda: self._ends.get(topic, 0) >= end, 20)


def test_delays_are_delivered_while_the_store_takes_puts_and_not_by_a_replica(tmp_path):
    arrived = Arrived()
    with open_server_store(tmp_path, arrival_listeners=[arrived], **SMALL) as store:
        assert send(store, b"first", "DELAY\x011\x02").status is PutStatus.PUT_OK
        assert arrived.wait("T", 1)
        store.change_role(BrokerRole.SLAVE)
        assert store.role is BrokerRole.SLAVE
        assert "{1:1" in (tmp_path / "config" / "delayOffset.json").read_text(encoding="utf-8")
        assert send(store, b"refused", "DELAY\x011\x02").status is PutStatus.SERVICE_NOT_AVAILABLE
        names = {thread.name for thread in threading.enumerate()}
        assert not any("delay" in name for name in names), names
        store.change_role(BrokerRole.ASYNC_MASTER)
        assert send(store, b"second", "DELAY\x011\x02").status is PutStatus.PUT_OK
        assert arrived.wait("T", 2)
        assert bodies(store) == [b"first", b"second"]


def test_replica_delivers_what_its_primary_left_when_it_takes_over(tmp_path):
    with open_server_store(tmp_path / "primary", **SMALL) as primary:
        primary.delay.close()  # its primary dies before it delivers
        for _ in range(3):
            assert send(primary, b"late", "DELAY\x011\x02").status is PutStatus.PUT_OK
        with primary.engine.log.slice(0) as held:
            data = bytes(held.view)
    arrived = Arrived()
    role = {"broker_role": "SLAVE"}
    with open_server_store(
        tmp_path / "replica", arrival_listeners=[arrived], **SMALL, **role
    ) as replica:
        assert replica.engine.append_raw(0, data).is_whole
        replica.engine.catch_up()
        assert bodies(replica) == []
        replica.change_role(BrokerRole.ASYNC_MASTER)
        assert arrived.wait("T", 3)
        assert bodies(replica) == [b"late"] * 3
        key = QueueKey("SCHEDULE_TOPIC_XXXX", 0)
        assert replica.engine.queue_bounds(key) == (0, 3)


def test_store_that_is_closed_as_a_replica_delivers_nothing(tmp_path):
    with open_server_store(tmp_path, **SMALL, broker_role="SLAVE") as store:
        request = GetRequest(topic="T", queue_id=0, offset=0)
        assert store.engine.get_raw(request).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("orders", "config = 'orders' is str; wanted TopicConfig"),
        (TopicConfig(name=7), "name = 7 is int; wanted str"),
        (TopicConfig(name="t", read_queue_count="4"), "read_queue_count = '4' is str; wanted int"),
        (TopicConfig(name="t", write_queue_count=2.0), "write_queue_count = 2.0 is float; wanted"),
        (TopicConfig(name="t", perm="RW"), "perm = 'RW' is str; wanted int"),
        (TopicConfig(name="t", order="no"), "order = 'no' is str; wanted bool"),
        (TopicConfig(name="t", sys_flag=None), "sys_flag = None is NoneType; wanted int"),
        (TopicConfig(name="t", filter_type="SINGLE_TAG"), "is str; wanted TopicFilterType"),
        (TopicConfig(name="t", attributes=None), "attributes = None is NoneType; wanted a dict"),
        (TopicConfig(name="t", attributes={"a": 1}), "attributes has 'a': 1; wanted str for both"),
    ],
)
def test_topic_with_a_field_of_another_type_is_refused(store, config, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        store.topics.create(config)
    assert store.topics.book.get("t") is None
