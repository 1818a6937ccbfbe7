"""open_store on real directories: what a program meets in its first five minutes, and later."""

import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from embedded_fakes import WAIT_S, bodies

import rocketlake
from rocketlake import GetStatus, Message, PutStatus
from rocketlake.errors import ConfigError, PutFailedError, StoreClosedError, StoreLockedError
from rocketlake.metadata import offsets as offset_table
from rocketlake.metadata import topics as topic_table
from rocketlake.store.api import GetRequest
from support.golden import sha256
from support.manual_clock import ManualClock

T0 = 1_700_000_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store"


@pytest.fixture
def store(path):
    with rocketlake.open_store(path) as opened:
        yield opened


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


def content(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): sha256(p) for p in sorted(root.rglob("*")) if p.is_file()}


# --- the first five minutes -----------------------------------------------------------------------


def test_the_whole_face(path):
    with rocketlake.open_store(path) as store:
        receipt = store.put(
            Message(topic="orders", body=b"first", tags="paid", keys=["o-1001"]), queue_id=0
        )
        assert (receipt.status, receipt.queue_offset) == (PutStatus.PUT_OK, 0)
        result = store.get("orders", queue_id=0, offset=receipt.queue_offset, max_messages=32)
        assert (result.status, bodies(result.messages)) == (GetStatus.FOUND, ["first"])
        assert (result.next_offset, result.min_offset, result.max_offset) == (1, 0, 1)
        found = store.query("orders", key="o-1001", max_messages=64)
        assert [(m.topic, m.keys, m.tags, m.msg_id) for m in found] == [
            ("orders", ["o-1001"], "paid", receipt.msg_id)
        ]
        assert store.offset_by_time("orders", 0, receipt.store_timestamp, boundary="lower") == 0
        assert store.message(receipt.msg_id).body == b"first"
        store.put_batch([order(body=b"2"), order(body=b"3")], queue_id=0)
        consumed = [m.body for m in store.consumer(group="billing", topic="orders", timeout=0)]
        assert consumed == [b"first", b"2", b"3"]
        columns = store.columns("orders", 0, 1).columns
        assert columns["queue_offset"].tolist() == [1, 2]
        assert store.lag("billing") == 0
        assert "putMessageTimesTotal" in store.info()
    assert not store.is_open
    assert not (path / "abort").exists()


def test_everything_is_there_after_a_restart(path):
    with rocketlake.open_store(path, clock=ManualClock(T0)) as store:
        store.put(order(body=b"1", keys=["k"]), queue_id=2)
        for _ in store.consumer("billing", "orders", timeout=0):
            pass
    with rocketlake.open_store(path, clock=ManualClock(T0 + 5000)) as store:
        store.put(order(body=b"2", keys=["k"]), queue_id=2)
        assert bodies(store.get("orders", 2, 0).messages) == ["1", "2"]
        assert bodies(store.query("orders", "k")) == ["1", "2"]
        assert bodies(store.query("orders", "k", begin=T0 + 1)) == ["2"]
        until = datetime.fromtimestamp(T0 / 1000, UTC)
        assert bodies(store.query("orders", "k", end=until)) == ["1"]
        assert store.offset_by_time("orders", 2, T0 + 1) == 1
        assert store.offset_by_time("orders", 2, T0 + 1, "upper") == 0
        assert bodies(list(store.consumer("billing", "orders", timeout=0))) == ["2"]


def test_an_empty_store_costs_next_to_nothing(path):
    rocketlake.open_store(path).close()
    assert sum(file.stat().st_blocks * 512 for file in path.rglob("*")) < 64 << 10


def test_public_names_are_there():
    assert set(rocketlake.__all__) <= set(dir(rocketlake))
    for name in rocketlake.__all__:
        assert getattr(rocketlake, name) is not None


@pytest.mark.parametrize(
    "options",
    [
        {"flush_disk_type": "SYNC_FLUSH"},
        {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
        {"flush_disk_type": "SYNC_FLUSH", "flush_interval_commit_log": 1000},
        {"compat_version": "4.9"},
        {"message_index_enable": False},
    ],
)
def test_who_put_it_sees_it_whatever_holds_it_back(path, options):
    with rocketlake.open_store(path, **options) as store:
        for number in range(5):
            assert store.put(order(body=str(number).encode(), wait=False), queue_id=0).is_ok
            assert store.max_offset("orders", 0) == number + 1
            assert len(store.get("orders", 0, 0).messages) == number + 1
        assert len(store.consumer("g", "orders").poll()) == 5
        future = store.put_async(order(), queue_id=0)
        assert future.result(WAIT_S).is_ok


def test_read_that_does_not_catch_up_waits_for_nobody(path):
    request = GetRequest(topic="orders", queue_id=0, offset=0, catches_up=False)
    with rocketlake.open_store(path) as store:
        store.put(order(), queue_id=0)
        assert len(store.get("orders", 0, 0).messages) == 1
        engine = store._engine

        def read() -> int:
            store.put(order(), queue_id=0)
            return len(engine.get(request).messages)

        assert engine.dispatcher.exclusively(read) == 1  # nothing is dispatched meanwhile
        assert len(store.get("orders", 0, 0).messages) == 2
    with pytest.raises(StoreClosedError):
        engine.get(request)


def test_many_puts_may_be_on_their_way(path):
    with rocketlake.open_store(path, flush_disk_type="SYNC_FLUSH") as store:
        store.create_topic("orders", queues=1)
        futures = [store.put_async(order(body=str(n).encode())) for n in range(200)]
        receipts = [future.result(WAIT_S) for future in futures]
        assert [receipt.queue_offset for receipt in receipts] == list(range(200))
        assert {receipt.status for receipt in receipts} == {PutStatus.PUT_OK}
        late = store.put_batch_async([order(body=b"a"), order(body=b"b")])
        assert late.result(WAIT_S).queue_offset == 200


# --- options --------------------------------------------------------------------------------------


def test_unknown_option_is_refused_and_nothing_is_made(path):
    with pytest.raises(
        ConfigError, match="unknown option 'flush_disk_typ'; did you mean 'flush_di"
    ):
        rocketlake.open_store(path, flush_disk_typ="SYNC_FLUSH")
    with pytest.raises(ConfigError, match="maxIndexNum = 1"):
        rocketlake.open_store(path, max_index_num=1)
    assert not path.exists()


def test_option_without_meaning_here_is_accepted_and_listed(path, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerClusterName = Default\nbrokerName=a\nflushDiskType=SYNC_FLUSH\n")
    with rocketlake.open_store(path, conf, listen_port=10911, max_message_size=100) as store:
        assert store.unused_options == ("brokerClusterName", "brokerName", "listenPort")
        assert store.options.flush_disk_type == "SYNC_FLUSH"
        with pytest.raises(PutFailedError, match="maxMessageSize allows 100"):
            store.put(order(body=bytes(101)))
    with rocketlake.open_store(path, conf, flush_disk_type="ASYNC_FLUSH") as store:
        assert store.options.flush_disk_type == "ASYNC_FLUSH"


def test_path_may_come_with_the_options(path):
    with rocketlake.open_store(conf={"storePathRootDir": str(path)}) as store:
        assert store.path == path
    with pytest.raises(ConfigError, match=r'no path: open_store\("data/store"\), or set storePath'):
        rocketlake.open_store()
    with pytest.raises(ConfigError, match="no path"):
        rocketlake.open_store("")


def test_store_keeps_its_file_sizes(path):
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000}
    with rocketlake.open_store(path, **sizes) as store:
        store.put(order(keys=["k"]))
    with rocketlake.open_store(path) as store:
        assert store.options.mapped_file_size_commit_log == 1 << 20
        assert store.options.mapped_file_size_consume_queue == 2000
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog = 1048576, asked for 2097152"):
        rocketlake.open_store(path, mapped_file_size_commit_log=2 << 20)
    with pytest.raises(ConfigError, match="maxHashSlotNum = 50000, asked for 7"):
        rocketlake.open_store(path, max_hash_slot_num=7)
    rocketlake.open_store(path, **sizes).close()


def test_log_may_lie_in_several_directories(path, tmp_path):
    dirs = f"{tmp_path}/a,{tmp_path}/b"
    options = {"store_path_commit_log": dirs, "mapped_file_size_commit_log": 4096}
    with rocketlake.open_store(path, **options) as store:
        for _ in range(100):
            store.put(order(), queue_id=0)
    assert {p.parent.name for p in tmp_path.glob("?/0*")} == {"a", "b"}
    with rocketlake.open_store(path, **options) as store:
        assert store.max_offset("orders", 0) == 100
    with rocketlake.open_store(path, read_only=True, store_path_commit_log=dirs) as store:
        assert len(store.get("orders", 0, 0, 200).messages) == 100


# --- one writer -----------------------------------------------------------------------------------


def test_second_writer_is_refused(store, path):
    with pytest.raises(StoreLockedError, match="this process has it open already"):
        rocketlake.open_store(path)
    script = f"import rocketlake; rocketlake.open_store({str(path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "StoreLockedError" in done.stderr
    assert store.put(order()).is_ok


def test_program_that_forgets_to_close_leaves_a_closed_store(path):
    script = f"""
        import rocketlake
        from rocketlake import Message
        store = rocketlake.open_store({str(path)!r})
        store.put(Message(topic="orders", body=b"1"), queue_id=0)
        next(store.consumer("billing", "orders"))
        store.put(Message(topic="orders", body=b"2"), queue_id=0)
        consumer = store.consumer("audit", "orders", timeout=0)
        list(consumer)
        raise SystemExit(3)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == 3
    assert not (path / "abort").exists()
    with rocketlake.open_store(path) as store:
        assert store.max_offset("orders", 0) == 2
        assert (store.lag("audit"), store.lag("billing")) == (0, 2)


def test_fork_of_the_program_harms_nothing(path):
    script = f"""
        import os, rocketlake
        from rocketlake import Message
        with rocketlake.open_store({str(path)!r}) as store:
            store.put(Message(topic="orders", body=b"1"), queue_id=0)
            list(store.consumer("g", "orders", timeout=0))
            if (child := os.fork()) == 0:
                for call in (
                    lambda: store.put(Message(topic="orders", body=b"child"), queue_id=0),
                    lambda: store.create_topic("child"),
                ):
                    try:
                        call()
                    except rocketlake.StoreClosedError as error:
                        assert "belongs to the parent" in str(error)
                    else:
                        raise AssertionError("it worked")
                raise SystemExit(0)
            assert os.waitpid(child, 0)[1] == 0
            store.put(Message(topic="orders", body=b"2"), queue_id=0)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with rocketlake.open_store(path) as store:
        assert bodies(store.get("orders", 0, 0).messages) == ["1", "2"]
        assert [t.name for t in store.topics()] == ["orders"]
        assert store.lag("g") == 1


def test_closed_store_refuses_reads_and_puts(path):
    store = rocketlake.open_store(path)
    store.put(order())
    store.close()
    store.close()
    with pytest.raises(StoreClosedError, match="is closed; open_store"):
        store.put(order())
    with pytest.raises(StoreClosedError):
        store.get("orders", 0, 0)
    with pytest.raises(StoreClosedError):
        list(store.consumer("g", "orders"))
    rocketlake.open_store(path).close()


# --- refused messages -----------------------------------------------------------------------------


def test_refused_message_leaves_the_store_unchanged(store, path):
    store.put(order(keys=["k"]))
    store.flush()
    before = content(path)
    refused = [
        (order(body=bytes(5 << 20)), PutStatus.MESSAGE_ILLEGAL),
        (order(topic="t" * 200), PutStatus.MESSAGE_ILLEGAL),
        (order(topic="new", body=bytes(5 << 20)), PutStatus.MESSAGE_ILLEGAL),
        (order(properties={"p": "v" * 40_000}), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ]
    for message, status in refused:
        with pytest.raises(PutFailedError) as raised:
            store.put(message)
        assert raised.value.status is status
    bad = [
        order(body="text"),
        order(keys="k"),
        order(keys=["a b"]),
        order(tags="a\x01"),
        order(properties={"p": 5}),
        order(properties={"p": "\ud800"}),
        order(topic="new", properties={"p": "\x02"}),
        order(topic=""),
        order(flag=1 << 40),
    ]
    for message in bad:
        for put in (store.put, lambda m: store.put_batch([order(), m]), store.put_async):
            with pytest.raises((TypeError, ValueError)):
                put(message)
    store.flush()
    assert content(path) == before
    assert [t.name for t in store.topics()] == ["orders"]


# --- topics ---------------------------------------------------------------------------------------


def test_table_of_topics_that_was_lost_is_made_from_the_queues(path):
    with rocketlake.open_store(path) as store:
        store.create_topic("wide", queues=9)
        store.put(order(topic="wide"), queue_id=7)
        store.put(order(), queue_id=0)
    for file in (path / "config").iterdir():
        file.unlink()
    with rocketlake.open_store(path) as store:
        assert [(t.name, t.read_queue_count) for t in store.topics()] == [
            ("orders", 4),
            ("wide", 8),
        ]
        assert len(list(store.consumer("g", "wide", timeout=0))) == 1
    assert set(topic_table.load(path / "config").topics) == {"orders", "wide"}


def test_deleted_topic_begins_anew(store, path):
    for _ in range(3):
        store.put(order(), queue_id=0)
    consumer = store.consumer("g", "orders", timeout=0)
    assert len(list(consumer)) == 3
    store.delete_topic("orders")
    assert (store.topics(), consumer.poll(), consumer.assigned) == ([], [], [])
    assert store.get("orders", 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.put(order(body=b"new"), queue_id=0).queue_offset == 0
    assert bodies(list(consumer)) == ["new"]
    assert not offset_table.load(path / "config").offsets


def test_batch_topic_is_consumed_message_by_message(store):
    store.create_topic("b", queues=1, attributes={"queue.type": "BatchCQ"})
    batch = [Message(topic="b", body=str(n).encode(), tags=f"t{n % 2}") for n in range(5)]
    receipt = store.put_batch(batch)
    assert receipt.is_ok
    store.put(Message(topic="b", body=b"5"))
    assert store.max_offset("b", 0) == 6
    consumer = store.consumer("g", "b", timeout=0)
    found = list(consumer)
    assert bodies(found) == ["0", "1", "2", "3", "4", "5"]
    assert [m.queue_offset for m in found] == list(range(6))
    store.reset_offsets("g", "b", {0: 3})
    assert bodies(list(consumer)) == ["3", "4", "5"]


# --- plug-ins -------------------------------------------------------------------------------------


class Counting(rocketlake.PluginMessageStore):
    """Counts puts; as a program would write one."""

    seen = 0

    def put(self, request):
        type(self).seen += 1
        return super().put(request)


def test_plug_in_of_the_options_is_around_the_engine(path):
    Counting.seen = 0
    name = f"{__name__}.Counting"
    with rocketlake.open_store(path, message_store_plug_in=name) as store:
        assert store.put(order(), queue_id=0).is_ok
        assert bodies(store.get("orders", 0, 0).messages) == ["x"]
        assert len(list(store.consumer("g", "orders", timeout=0))) == 1
        store.delete_topic("orders")
    assert Counting.seen == 1


def test_plug_in_that_cannot_be_loaded_stops_the_start_and_makes_nothing(path):
    with pytest.raises(ConfigError, match=r"messageStorePlugIn: no\.such\.Thing cannot be loaded"):
        rocketlake.open_store(path, message_store_plug_in="no.such.Thing")
    assert not path.exists()


def test_plug_in_that_cannot_be_made_leaves_the_store_closed(path):
    with pytest.raises(ConfigError, match=r"datetime\.date cannot be made"):
        rocketlake.open_store(path, message_store_plug_in="datetime.date")
    rocketlake.open_store(path).close()


# --- threads --------------------------------------------------------------------------------------


def test_producers_and_consumers_in_threads(store):
    store.create_topic("orders", queues=6)
    total, seen = 2000, []
    done = threading.Event()

    def produce(number: int) -> None:
        for count in range(total // 4):
            store.put(order(body=f"{number}:{count}".encode(), ordering_key=str(number)))

    def consume() -> None:
        for message in store.consumer("g", "orders"):
            seen.append(message.body.decode())
            if len(seen) >= total:
                done.set()

    threads = [threading.Thread(target=consume) for _ in range(3)]
    threads += [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert done.wait(WAIT_S)
    store.close()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert sorted(seen) == sorted(f"{n}:{c}" for n in range(4) for c in range(total // 4))
    for number in range(4):
        mine = [int(body.split(":")[1]) for body in seen if body.startswith(f"{number}:")]
        assert mine == sorted(mine)


# --- delay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [100])
def test_delayed_messages_come_to_a_waiting_consumer(path, precision):
    options = {"message_delay_level": "1s 2s", "timer_precision_ms": precision}
    with rocketlake.open_store(path, **options) as store:
        begin = store.put(order(body=b"now"), queue_id=0).store_timestamp
        soon = datetime.fromtimestamp((begin + 300) / 1000, UTC)
        assert store.put(order(body=b"level", delay_level=1), queue_id=1).is_ok
        assert store.put(order(body=b"time", deliver_at=soon), queue_id=2).is_ok
        assert store.put(order(body=b"ms", deliver_at=begin + 400), queue_id=3).is_ok
        seen = {}
        for message in store.consumer("g", "orders", timeout=WAIT_S):
            seen[message.body] = (message.queue_id, message.store_timestamp - begin)
            if len(seen) == 4:
                break
        assert {body: queue for body, (queue, _) in seen.items()} == {
            b"now": 0,
            b"level": 1,
            b"time": 2,
            b"ms": 3,
        }
        assert seen[b"level"][1] >= 1000
        assert seen[b"time"][1] >= 300
        assert seen[b"ms"][1] >= 400
        assert [topic.name for topic in store.topics()] == ["orders"]
        assert store.info()["scheduleMessageOffset_1"] == "1,1"


def test_delayed_message_survives_a_restart(path):
    with rocketlake.open_store(path, message_delay_level="1s") as store:
        assert store.put(order(body=b"late", delay_level=1), queue_id=0).is_ok
        assert store.get("orders", 0, 0).status is not GetStatus.FOUND
    with rocketlake.open_store(path, message_delay_level="1s") as store:
        assert next(store.consumer("g", "orders", timeout=WAIT_S)).body == b"late"


def test_message_for_a_time_too_far_is_refused_with_its_status(store):
    late = order(topic="late", deliver_at=store.put(order()).store_timestamp + 10**12)
    with pytest.raises(PutFailedError, match=r"timerMaxDelaySec.*timer_max_delay_sec") as raised:
        store.put(late)
    assert raised.value.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert store.topic("late") is None
