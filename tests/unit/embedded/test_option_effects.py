"""What options do to a store that is opened: defaults, limits, and those without effect."""

from pathlib import Path

import pytest
from msgspec.structs import fields

import rocketlake
from rocketlake import Message, PutFailedError
from rocketlake.store.options import UNREAD, StoreOptions

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store"


def test_option_that_no_store_reads_is_listed_and_logged(path, caplog):
    with rocketlake.open_store(path, {"longPollingEnable": False}, topic_queue_lock_num=4) as store:
        assert store.unused_options == ("longPollingEnable", "topicQueueLockNum")
    assert "option has no effect key=longPollingEnable reason=read by a broker" in caplog.text
    assert "key=topicQueueLockNum reason=without effect: one lock orders" in caplog.text


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_each_option_that_no_store_reads_is_told_of_in_three_places(path, caplog, name):
    field = next(field for field in fields(StoreOptions) if field.name == name)
    with rocketlake.open_store(path, **{name: field.default}) as store:
        assert store.unused_options == (field.encode_name,)
    assert f"key={field.encode_name} reason={UNREAD[name]}" in caplog.text
    page = (ROOT / "docs" / "operations" / "options.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| `{field.encode_name}` |")]
    assert any(str(UNREAD[name].reader) in row for row in rows)


def test_broker_conf_sets_nothing_that_rocketmq_does_not(path, tmp_path):
    """Defaults are held against those of RocketMQ's packages in test_store_options."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    with rocketlake.open_store(path, conf) as store:
        assert store.options == StoreOptions()


def test_broker_conf_means_the_defaults_of_rocketmq(path, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    with rocketlake.open_store(path, conf) as store:
        options = store.options
        assert options.mapped_file_size_commit_log == 1 << 30
        assert options.mapped_file_size_consume_queue == 300_000 * 20
        assert (options.max_hash_slot_num, options.max_index_num) == (5_000_000, 20_000_000)
        assert options.default_topic_queue_nums == 8


def test_mapping_means_the_embedded_preset(path):
    with rocketlake.open_store(path, {"flushDiskType": "SYNC_FLUSH"}) as store:
        assert store.options.mapped_file_size_commit_log == 8 << 20
        assert store.options.default_topic_queue_nums == 4


def test_broker_conf_keeps_to_the_files_of_a_small_store(path, tmp_path):
    with rocketlake.open_store(path) as store:
        store.put(Message(topic="t", body=b"x"))
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    with rocketlake.open_store(path, conf) as store:
        assert store.options.mapped_file_size_commit_log == 8 << 20
        assert store.options.default_topic_queue_nums == 8


def test_broker_conf_without_a_path_means_the_store_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nmappedFileSizeCommitLog=65536\n")
    with rocketlake.open_store(conf=conf) as store:
        assert store.path == tmp_path / "store"
    conf.write_text(f"storePathRootDir={tmp_path / 'other'}\nmappedFileSizeCommitLog=65536\n")
    with rocketlake.open_store(conf=conf) as store:
        assert store.path == tmp_path / "other"


def test_query_returns_as_many_as_max_msgs_num_batch_says(path):
    with rocketlake.open_store(path, max_msgs_num_batch=2) as store:
        for _ in range(3):
            store.put(Message(topic="t", body=b"x", keys=["k"]))
        assert len(store.query("t", "k")) == 2
        assert len(store.query("t", "k", 3)) == 3
    with rocketlake.open_store(path, read_only=True, max_msgs_num_batch=2) as view:
        assert len(view.query("t", "k")) == 2


def put_light(store, queue):
    message = Message(topic="t", body=b"x", properties={"INNER_MULTI_DISPATCH": queue})
    return store.put(message).status


def test_refusal_for_too_many_light_queues_names_the_option(path):
    light = {"enable_lmq": True, "enable_multi_dispatch": True, "max_lmq_consume_queue_num": 1}
    with rocketlake.open_store(path, enable_lmq_quota=True, **light) as store:
        put_light(store, "%LMQ%a")
        with pytest.raises(PutFailedError) as caught:
            put_light(store, "%LMQ%b")
    assert "the store has 1 light queues; maxLmqConsumeQueueNum allows 1" in caught.value.reason
    assert "a larger max_lmq_consume_queue_num (maxLmqConsumeQueueNum)" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "statuses"),
    [
        ({"compat_version": "5.3"}, ["PUT_OK"] * 4),
        ({"enable_lmq_quota": True}, ["PUT_OK", "PUT_OK", "EXCEEDED", "PUT_OK"]),
        ({"compat_version": "4.9"}, ["PUT_OK", "PUT_OK", "PUT_OK", "EXCEEDED"]),
    ],
)
def test_too_many_light_queues_are_refused_as_each_release_does(path, options, statuses):
    light = {"enable_lmq": True, "enable_multi_dispatch": True, "max_lmq_consume_queue_num": 2}
    with rocketlake.open_store(path, raise_on_failure=False, **light, **options) as store:
        found = [put_light(store, f"%LMQ%{name}") for name in ("a", "b", "c", "a")]
    wanted = [text.replace("EXCEEDED", "LMQ_CONSUME_QUEUE_NUM_EXCEEDED") for text in statuses]
    assert found == wanted
    with rocketlake.open_store(path, raise_on_failure=False, **light, **options) as store:
        assert put_light(store, "%LMQ%a") == wanted[3]  # counted anew from the files


def keyed(store):
    return [message.body for message in store.query("t", "k")]


def test_index_is_not_written_where_that_is_off(path):
    with rocketlake.open_store(path, index_file_write_enable=False) as store:
        store.put(Message(topic="t", body=b"1", keys=["k"]))
        assert keyed(store) == []
        assert store.unused_options == ()
    assert not list((path / "index").glob("*"))
    with rocketlake.open_store(path) as store:  # it is made from the log, once it is on
        store.put(Message(topic="t", body=b"2", keys=["k"]))
        assert keyed(store)[-1] == b"2"


def test_index_is_written_and_not_read_where_that_is_off(path):
    with rocketlake.open_store(path, index_file_read_enable=False) as store:
        store.put(Message(topic="t", body=b"1", keys=["k"]))
        assert keyed(store) == []
    assert list((path / "index").glob("*"))
    with rocketlake.open_store(path) as store:
        assert keyed(store) == [b"1"]
