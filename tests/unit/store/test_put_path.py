"""What a put answers, in the order of its checks; and what it leaves behind."""

import re
from threading import Thread

import pytest
from msgspec.structs import replace
from store_bench import batch, open_engine, read, request

from rocketlake.errors import FlushFailedError, StorePoisonedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.flags import INNER_BATCH, NEED_UNWRAP, TransactionType
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.running_flags import RunningFlag
from support.manual_clock import ManualClock


@pytest.fixture
def store(tmp_path):
    opened = open_engine(tmp_path)
    yield opened
    opened.close()


def everything(path):
    """Return the bytes of all files but `lock`, which reading would unlock."""
    return {
        file.relative_to(path): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def test_closed_store_is_not_available(store):
    store.close()
    receipt = store.put(request())
    assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert receipt.reason == "the store is closed"
    assert store.put_plain(Message(topic="T", body=b""), 0).status is receipt.status


def test_replica_takes_no_messages(tmp_path):
    store = open_engine(tmp_path, broker_role="SLAVE")
    receipt = store.put(request())
    assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "SLAVE" in receipt.reason
    store.close()


@pytest.mark.parametrize("flag", [f for f in RunningFlag if f is not RunningFlag.NOT_READABLE])
def test_store_that_is_not_writable_says_why(store, flag):
    store.put_plain(Message(topic="T", body=b""), 0)
    store.flags.mark(flag)
    for receipt in (store.put(request()), store.put_plain(Message(topic="T", body=b""), 0)):
        assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert flag.name in receipt.reason
    store.flags.clear(flag)
    assert store.put_plain(Message(topic="T", body=b""), 0).queue_offset == 1


@pytest.mark.parametrize(
    ("topic", "version", "is_taken"),
    [
        ("t" * 127, "5.3", True),
        ("t" * 128, "5.3", False),
        ("é" * 64, "5.3", False),
        ("%RETRY%" + "g" * 248, "5.3", True),
        ("%RETRY%" + "g" * 249, "5.3", False),
        ("é" * 63, "4.9", True),
        ("t" * 128, "4.9", False),
        ("%RETRY%" + "g" * 121, "4.6", False),
    ],
)
def test_topic_may_be_so_long(tmp_path, topic, version, is_taken):
    with open_engine(tmp_path, compat_version=version) as store:
        receipt = store.put(request(topic))
        assert (receipt.status is PutStatus.PUT_OK) is is_taken
        if not is_taken:
            assert receipt.status is PutStatus.MESSAGE_ILLEGAL
            assert topic in receipt.reason


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ({"properties": {"p": "v" * 32_765}}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ({"body": bytes((8 << 10) + 1)}, PutStatus.MESSAGE_ILLEGAL),
        (
            {"body": bytes(8 << 10), "properties": {"p": "v" * 9000}},
            PutStatus.MESSAGE_ILLEGAL,
        ),
    ],
)
def test_what_is_too_large_is_refused_and_leaves_nothing(tmp_path, message, status):
    with open_engine(tmp_path) as store:
        store.put(request())
        store.flush()
        store.catch_up()
        before = everything(tmp_path)
        plain = Message(**{"topic": "T", "body": b"", **message})
        for receipt in (
            store.put(request(**message)),
            store.put_plain(plain, 0),
            store.put_async(request(**message)).result(),
        ):
            assert receipt.status is status
            assert "bytes" in receipt.reason
        assert everything(tmp_path) == before
        assert store.put(request()).queue_offset == 1


def test_4_6_limits_the_record_and_not_the_body(tmp_path):
    with open_engine(tmp_path, compat_version="4.6", max_message_size=1000) as store:
        assert store.put(request(body=bytes(900))).is_ok
        refused = store.put(request(body=bytes(950)))
        assert refused.status is PutStatus.MESSAGE_ILLEGAL
        assert "record of" in refused.reason


@pytest.mark.parametrize(
    "message",
    [
        {"properties": {"a\x01b": "v"}},
        {"properties": {"": "v"}},
        {"tags": "a\x02"},
        {"keys": ["k\x01"]},
    ],
)
def test_what_has_no_status_raises_and_leaves_nothing(store, tmp_path, message):
    store.put(request())
    before = store.log.wrote_where
    with pytest.raises(ValueError, match="propert"):
        store.put(request(**message))
    with pytest.raises(ValueError, match="propert"):
        store.put_plain(Message(**{"topic": "T", "body": b"", **message}), 0)
    with pytest.raises(ValueError, match="propert"):
        store.put_async(request(**message)).result()
    assert store.log.wrote_where == before


class TestHooks:
    class Hook:
        name = "test"

        def __init__(self, answer):
            self.answer = answer
            self.seen = []

        def before_put(self, asked):
            self.seen.append(asked.message.body)
            return self.answer(asked) if callable(self.answer) else self.answer

    def test_first_answer_wins(self, store):
        refusal = PutReceipt(PutStatus.WHEEL_TIMER_FLOW_CONTROL, reason="too many")
        hooks = [self.Hook(None), self.Hook(refusal), self.Hook(None)]
        for hook in hooks:
            store.add_hook(hook)
        assert store.put(request(body=b"1")) is refusal
        assert store.put_plain(Message(topic="T", body=b"2"), 0) is refusal
        assert [hook.seen for hook in hooks] == [[b"1", b"2"], [b"1", b"2"], []]
        assert store.log.wrote_where == 0

    def test_refusal_without_words_says_whose_it_is(self, store):
        store.add_hook(self.Hook(PutReceipt(PutStatus.MESSAGE_ILLEGAL)))
        for receipt in (store.put(request()), store.put_plain(Message(topic="T", body=b""), 0)):
            assert receipt == PutReceipt(
                PutStatus.MESSAGE_ILLEGAL, reason="the hook 'test' said so"
            )

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ("no", "'no' is str; wanted AppendRequest, PutReceipt or None"),
            (PutReceipt("MESSAGE_ILLEGAL"), "status = 'MESSAGE_ILLEGAL' is str; wanted PutStatus"),
            (replace(request(), queue_id="0"), "queue_id = '0' is str; wanted int"),
            (replace(request(), born_host=b"x"), "born_host = b'x' is bytes; wanted Endpoint"),
            (replace(request(), message=None), "message = None is NoneType; wanted Message"),
            (request(body=7), "message.body = 7 is int; wanted bytes"),
            (request(topic=None), "message.topic = None is NoneType; wanted str"),
            (request(keys="k"), "message.keys = 'k' is str; wanted a list of str"),
            (request(properties={"a": 1}), "message.properties['a'] = 1 is int; wanted str"),
        ],
    )
    def test_answer_that_is_none_names_hook_and_field(self, store, answer, words):
        store.add_hook(self.Hook(answer))
        end = store.log.wrote_where
        with pytest.raises(TypeError, match=f"answer of the hook 'test': .*{re.escape(words)}"):
            store.put(request())
        assert store.log.wrote_where == end

    def test_answer_to_a_batch_names_the_field(self, store):
        hook = self.Hook(None)
        hook.before_put_batch = lambda asked: replace(asked, messages=[request().message, b"x"])
        store.add_hook(hook)
        with pytest.raises(TypeError, match=r"messages\[1\] = b'x' is bytes; wanted Message"):
            store.put_batch(batch([b"a"]))

    def test_hook_can_replace_the_request(self, store):
        store.add_hook(self.Hook(lambda asked: request("Other", asked.message.body, 2)))
        assert store.put(request(body=b"x")).is_ok
        assert [message.body for message in read(store, "Other", 2)] == [b"x"]

    def test_hook_first_in_the_list(self, store):
        order = []
        store.add_hook(self.Hook(lambda _: order.append("second")))
        store.add_hook(self.Hook(lambda _: order.append("first")), is_first=True)
        store.put(request())
        assert order == ["first", "second"]


class TestTransactions:
    @pytest.mark.parametrize("kind", [TransactionType.PREPARED, TransactionType.ROLLBACK])
    def test_prepared_and_rolled_back_get_no_queue_offset(self, store, kind):
        store.put(request())
        receipt = store.put(request(body=b"half", fields={"sys_flag": int(kind)}))
        assert (receipt.status, receipt.queue_offset) == (PutStatus.PUT_OK, 0)
        assert store.put(request(body=b"next")).queue_offset == 1
        assert [message.body for message in read(store)] == [b"body", b"next"]
        assert store.message_at(receipt.physical_offset).body == b"half"

    def test_committed_enters_its_queue(self, store):
        fields = {"sys_flag": int(TransactionType.COMMIT), "prepared_transaction_offset": 77}
        store.put(request(fields=fields))
        (message,) = read(store)
        assert message.prepared_transaction_offset == 77


class TestInnerBatch:
    FLAGS = INNER_BATCH | NEED_UNWRAP

    def test_number_without_the_flag_is_illegal(self, store):
        receipt = store.put(request(properties={"INNER_NUM": "3"}))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL

    def test_flag_for_a_plain_topic_is_illegal(self, store):
        receipt = store.put(request(properties={"INNER_NUM": "3"}, fields={"sys_flag": self.FLAGS}))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL
        assert "BatchCQ" in receipt.reason

    def test_queue_offset_grows_by_the_number_of_messages(self, tmp_path):
        with open_engine(tmp_path, batch_topics=["B"]) as store:
            fields = {"sys_flag": self.FLAGS}
            receipts = [
                store.put(request("B", properties={"INNER_NUM": str(n)}, fields=fields))
                for n in (3, 2)
            ]
            assert [receipt.queue_offset for receipt in receipts] == [0, 3]
            assert store.put(request("B")).queue_offset == 5
            first, second, _ = read(store, "B")
            assert first.properties["INNER_BASE"] == "0"
            assert second.properties["INNER_BASE"] == "3"


def test_light_queues_get_offsets_of_their_own(tmp_path):
    with open_engine(tmp_path, enable_lmq=True, enable_multi_dispatch=True) as store:
        for queues in ("%LMQ%a,%LMQ%b", "%LMQ%b"):
            store.put(request(properties={"INNER_MULTI_DISPATCH": queues}))
        assert [len(read(store, name)) for name in ("T", "%LMQ%a", "%LMQ%b")] == [2, 1, 2]
        offsets = [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in read(store)]
        assert offsets == ["0,0", "1"]
        assert not read(store, "%LMQ%c")


class TestBatch:
    def test_messages_are_records_of_their_own(self, store):
        store.put(request(body=b"0"))
        receipt = store.put_batch(batch([b"1", b"2"], tags="t", keys=["k"]))
        assert (receipt.queue_offset, receipt.count) == (1, 2)
        found = read(store)
        assert [message.body for message in found] == [b"0", b"1", b"2"]
        assert receipt.msg_id == ",".join(message.msg_id for message in found[1:])
        assert str(found[1].born_host) == "192.168.0.1:1234"

    @pytest.mark.parametrize("fields", [{"delay_level": 1}, {"deliver_at": 99}])
    def test_delayed_messages_are_illegal(self, store, fields):
        receipt = store.put_batch(batch([b"1", b"2"], **fields))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL
        assert store.log.wrote_where == 0

    def test_transaction_is_illegal(self, store):
        receipt = store.put_batch(batch([b"1"], fields={"sys_flag": 4}))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL

    def test_batch_that_is_too_large_is_illegal(self, store):
        receipt = store.put_batch(batch([bytes(3000)] * 3))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL
        assert "maxMessageSize" in receipt.reason

    def test_message_of_another_topic_raises(self, store):
        wrong = batch([b"1"], fields={"topic": "U"})
        with pytest.raises(ValueError, match=r"'U'.*'T'"):
            store.put_batch(wrong)

    def test_future_gives_the_same(self, store):
        assert store.put_batch_async(batch([b"1", b"2"])).result().count == 2


class FailingSync(PosixFileOps):
    """Files whose sync fails once a test says so: all, or those of one directory."""

    def __init__(self, place=""):
        self.fails = False
        self._place = place

    def _wrap(self, path, writer):
        if self._place not in path.parts and self._place:
            return writer
        outer, sync = self, writer.sync

        class Wrapped:
            def __getattr__(self, name):
                return getattr(writer, name)

            def sync(self):
                if outer.fails:
                    raise FlushFailedError("log", "Input/output error")
                sync()

        return Wrapped()

    def create(self, path, size, *, is_sparse=False):
        return self._wrap(path, super().create(path, size, is_sparse=is_sparse))

    def open_writer(self, path):
        return self._wrap(path, super().open_writer(path))


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_failed_flush_poisons_the_store(tmp_path, mode):
    ops = FailingSync()
    store = open_engine(tmp_path, ops=ops, flush_disk_type=mode)
    assert store.put(request()).is_ok
    ops.fails = True
    if mode == "SYNC_FLUSH":
        with pytest.raises(StorePoisonedError, match="Input/output error"):
            store.put_plain(Message(topic="T", body=b"lost"), 0)
        with pytest.raises(StorePoisonedError):
            store.put_async(request()).result()
    else:
        with pytest.raises(StorePoisonedError):
            store.flush()
    ops.fails = False
    for put in (
        lambda: store.put(request()),
        lambda: store.put_plain(Message(topic="T", body=b""), 0),
        lambda: store.put_batch(batch([b"a"])),
        lambda: store.put_async(request()).result(),
    ):
        with pytest.raises(StorePoisonedError, match="open it again"):
            put()
    with pytest.raises(StorePoisonedError):
        store.close()
    assert (tmp_path / "abort").exists()


def test_close_tells_of_a_flush_that_fails_then(tmp_path):
    """A put that did not wait for the disk was told that all is well: its caller must hear."""
    ops = FailingSync("commitlog")
    store = open_engine(tmp_path, ops=ops)
    assert store.put(request()).is_ok
    ops.fails = True
    with pytest.raises(StorePoisonedError, match="Input/output error"):
        store.close()
    assert not store.is_open
    assert (tmp_path / "abort").exists()


def test_close_completes_every_future(tmp_path):
    store = open_engine(tmp_path, flush_disk_type="SYNC_FLUSH")
    futures = [store.put_async(request(body=str(i).encode())) for i in range(200)]
    store.close()
    assert {future.result(0).status for future in futures} == {PutStatus.PUT_OK}
    with open_engine(tmp_path) as again:
        assert len(read(again)) == 200


def test_repeated_refusals_are_logged_sparsely_with_a_count(tmp_path, caplog):
    clock = ManualClock()
    with open_engine(tmp_path, clock=clock) as store:
        for _ in range(5):
            store.put(request("t" * 200))
        clock.advance_ms(11_000)
        store.put(request("t" * 200))
    told = [record.message for record in caplog.records if "put ended" in record.message]
    assert len(told) == 2
    assert "MESSAGE_ILLEGAL" in told[0]
    assert "left_out=4" in told[1]


def test_counters_are_sampled_and_told(tmp_path):
    clock = ManualClock()
    with open_engine(tmp_path, clock=clock) as store:
        for _ in range(11):
            store.put(request(body=bytes(100)))
            clock.advance_ms(1000)
            store.parts.sampler.run_once()
        store.put(request("t" * 200))
        read(store)
        info = store.runtime_info()
        assert info["putMessageTimesTotal"] == "11"
        assert info["putMessageFailedTimes"] == "1"
        assert info["putTps"].split()[0] == "1.0"
        assert int(info["getMessageTransferredMsgCount"]) == 11
        assert info["dispatchBehindBytes"] == "0"
        assert store.stats.topics["T"].count == 11


def test_plain_puts_are_timed_in_part_and_slow_ones_always(store):
    for _ in range(64):
        store.put_plain(Message(topic="T", body=b""), 0)
    assert store.stats.put.total >= 48
    assert store.stats.lock.total >= 3
    assert store.stats.copy.total == store.stats.lock.total


def test_log_is_dispatched_only_as_far_as_it_is_confirmed(tmp_path):
    with open_engine(tmp_path, duplication_enable=True) as store:
        receipts = [store.put(request()) for _ in range(3)]
        assert store.queue_bounds(QueueKey("T", 0)) == (0, 0)
        store.log.set_confirm_offset(receipts[2].physical_offset)
        assert store.queue_bounds(QueueKey("T", 0)) == (0, 2)
        store.log.set_confirm_offset(1 << 40)
        assert store.queue_bounds(QueueKey("T", 0)) == (0, 3)


def test_every_put_of_many_threads_is_counted(store):
    def write(queue_id):
        for _ in range(500):
            store.put_plain(Message(topic="T", body=b""), queue_id)

    threads = [Thread(target=write, args=(number % 2,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.stats.put_count == 4000


def test_put_that_meets_a_close_is_in_the_log_or_refused(tmp_path):
    for round_ in range(5):
        store = open_engine(tmp_path / str(round_))
        ok = []

        def write(store=store, ok=ok):
            while (receipt := store.put_plain(Message(topic="T", body=b"x"), 0)).is_ok:
                ok.append(receipt.queue_offset)
            assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE

        threads = [Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(ok) < 100:
            pass
        store.close()
        for thread in threads:
            thread.join()
        with open_engine(tmp_path / str(round_)) as again:
            assert again.recovery.is_clean
            assert again.recovery.redispatched == 0
            assert len(read(again)) == len(ok)
