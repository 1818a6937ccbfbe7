"""Consuming: progress after the batch, retries with their levels, dead letters, no retry twice."""

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError, StoreError, StoreLockedError
from rocketlake.spark.source import register
from rocketlake.spark.stream.consuming import Consuming
from rocketlake.spark.stream.journal import Intent, Journal, QueryState
from rocketlake.spark.stream.rows import Outcome, RetryLater
from spark.stream.stream_play import finished, started

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
AT_ONCE = " ".join(["0s"] * 18)


@pytest.fixture
def store(tmp_path):
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("orders", 2)
        for number in range(6):
            store.put(Message(topic="orders", body=str(number).encode()), queue_id=number % 2)
        store.flush()
        yield store


@pytest.fixture
def as_query(spark):
    """Make plain batches look like those of a streaming query."""
    context = spark.sparkContext
    register(spark)
    context.setLocalProperty("sql.streaming.queryId", "query-1")
    yield lambda name: context.setLocalProperty("sql.streaming.queryId", name)
    context.setLocalProperty("sql.streaming.queryId", None)


def read(spark, store, topic="orders"):
    reader = spark.read.format("rocketlake").option("path", str(store.path))
    return reader.option("topic", topic).load()


@pytest.fixture
def odd():
    """Fails for odd bodies, in three ways; made here for workers that cannot import tests."""

    def odd(row):
        number = int(row.body)
        if number == 1:
            raise ValueError("one is odd")
        if number == 3:
            raise RetryLater(1)
        return number % 2 == 0

    return odd


def test_rows_that_fail_are_sent_back_once_whatever_is_replayed(spark, store, as_query, odd):
    batch = read(spark, store)
    consuming = Consuming(store, "g", "orders", each=odd)
    consuming(batch, 0)
    assert [store.max_offset(SCHEDULE, q) for q in range(3)] == [1, 0, 2]  # level 1, and twice 3
    assert [(p.topic, p.queue_id, p.offset) for p in store.progress("g")][:2] == [
        ("orders", 0, 3),
        ("orders", 1, 3),
    ]
    consuming(batch, 0)  # Spark lost its commit log
    again = Consuming(store, "g", "orders", each=odd)  # and so did the process
    again(batch, 0)
    assert [store.max_offset(SCHEDULE, q) for q in range(3)] == [1, 0, 2]
    as_query("query-2")  # another checkpoint is another query: it consumes for itself
    again(batch, 0)
    assert [store.max_offset(SCHEDULE, q) for q in range(3)] == [2, 0, 4]


def test_a_crash_behind_any_message_that_is_sent_back(spark, store, as_query):
    """The journal says what failed, the store what was sent back; the function is not called."""

    def never(_):
        raise AssertionError("the batch was consumed before the crash")

    path = store.path / "config" / "consuming.g.json"
    failed = [store.get("orders", 1, n).messages[0].physical_offset for n in range(3)]
    outcome = Outcome(dict(zip(failed, (0, 0, -1), strict=True)), {"orders": {0: 3, 1: 3}})
    batch = read(spark, store)
    for sent in range(4):
        before = _back(store)
        intent = Consuming(store, "g", "orders", each=never)._intent(4 + sent, outcome)
        Journal(path).write("query-1", QueryState(3 + sent, intent))
        for place, level in intent.failed[:sent]:
            assert store.send_back("g", place, delay_level=level).is_ok
        store.send_back("other", failed[sent % 3])  # of another group: says nothing
        Consuming(store, "g", "orders", each=never)(batch, 4 + sent)
        assert _back(store) == sorted([*before, b"1", b"3", b"5"])
        assert Journal(path).find("query-1") == QueryState(4 + sent)
    assert store.progress("g")[0].offset == 3


def _back(store):
    """What was sent back to group g, whatever waits."""
    waiting = store.get(SCHEDULE, 2, 0, 32).messages
    dead = store.get("%DLQ%g", 0, 0, 32).messages
    mine = (m.body for m in waiting if m.properties["REAL_TOPIC"] == "%RETRY%g")
    return sorted([*mine, *(m.body for m in dead)])


def test_a_batch_function_returns_what_failed(spark, store, as_query):
    seen = []

    def handle(batch, number):
        seen.append((number, batch.count(), {row.topic for row in batch.collect()}))
        bad = batch.where(sf.col("body").cast("string").cast("int") > 3)
        return bad.withColumn("delay_level", sf.when(sf.col("queue_id") == 0, -1))

    consuming = Consuming(store, "g", "orders", batch=handle)
    consuming(read(spark, store), 0)
    assert seen == [(0, 6, {"orders"})]
    assert store.max_offset(SCHEDULE, 2) == 1
    (dead,) = store.get("%DLQ%g", 0, 0).messages
    assert dead.body == b"4"
    consuming(read(spark, store, "%DLQ%g").where("false"), 1)
    nothing = Consuming(store, "g", "orders", batch=lambda batch, number: batch.select("body"))
    with pytest.raises(ConfigError, match="wanted the failed rows with their column"):
        nothing(read(spark, store), 2)
    nothing = Consuming(store, "g", "orders", batch=lambda batch, number: None)
    nothing(read(spark, store), 3)


def test_what_makes_no_sense_is_refused(spark, store, tmp_path, odd):
    with pytest.raises(ConfigError, match="needs one function"):
        Consuming(store, "g", "orders")
    with pytest.raises(ConfigError, match="needs at least one topic"):
        Consuming(store, "g", " , ", each=odd)
    with pytest.raises(StoreLockedError):
        Consuming(store.path, "g", "orders", each=odd)
    register(spark)
    consuming = Consuming(store, "g", "orders", each=odd)
    with pytest.raises(ConfigError, match="for foreachBatch of a streaming query"):
        consuming(read(spark, store), 0)
    with pytest.raises(ConfigError, match="there is no column 'boddy'"):
        consuming.stream(spark, columns=["boddy"])
    path = tmp_path / "journal.json"
    path.write_text("{")
    with pytest.raises(StoreError, match="a batch may be consumed again"):
        Journal(path)


def test_a_journal_keeps_the_newest_queries(tmp_path):
    path = tmp_path / "j" / "journal.json"
    intent = Intent(batch=1, failed=[(7, -1)], before={"T": {0: 1}}, next={"T": {3: 4}})
    for number in range(20):
        Journal(path).write(f"q{number}", QueryState(number, intent))
    journal = Journal(path)
    assert journal.find("q0") == QueryState()
    assert journal.find("q19") == QueryState(19, intent)
    assert len(json.loads(path.read_text())["queries"]) == 16


def test_retries_to_the_end_in_a_running_query(spark, tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()

    def work(row, calls=str(calls)):
        assert row.topic == "orders"  # that of the first time, whatever it is stored in
        name = f"{row.body.decode()}-{row.reconsume_times}"
        Path(calls, name).touch(exist_ok=False)
        if row.tags == "sick" and row.reconsume_times < 2:
            return False
        if row.tags == "dead":
            raise ValueError("never")
        return None

    root = tmp_path / "s"
    with Consuming(root, "g", "orders", each=work, message_delay_level=AT_ONCE) as consuming:
        store = consuming.store
        store.create_topic("orders", 2)
        for number, tag in enumerate(["well", "sick", "dead", "well"]):
            store.put(Message(topic="orders", body=str(number).encode(), tags=tag))
        columns = ["body", "tags", "reconsume_times"]
        query = started(lambda: consuming.start(spark, tmp_path / "ck", columns=columns))
        try:
            for dead in store.consumer("watch", "%DLQ%g", timeout=120):
                assert (dead.body, dead.reconsume_times) == (b"2", 17)
                break
            query.processAllAvailable()
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        finally:
            query.stop()
        assert query.exception() is None
        assert store.lag("g") == 0
        assert store.max_offset("%RETRY%g", 0) == 2 + 16
    times = {"0": 1, "1": 3, "2": 17, "3": 1}
    wanted = {f"{body}-{n}" for body, count in times.items() for n in range(count)}
    assert {path.name for path in calls.iterdir()} == wanted


def test_a_group_goes_on_where_it_was_with_a_new_checkpoint(spark, store, tmp_path):
    def some(batch, number):
        found.append(sorted(bytes(row.body).decode() for row in batch.collect()))

    found = []
    store.reset_offsets("g", "orders", {0: 2, 1: 1})
    consuming = Consuming(store, "g", "orders", batch=some)
    now = {"availableNow": True}
    finished(lambda: consuming.start(spark, tmp_path / "ck", trigger=now, tags="*"))
    assert found == [["3", "4", "5"]]
    assert [p.offset for p in store.progress("g") if p.topic == "orders"] == [3, 3]
    consuming.close()
    assert store.is_open  # it is not ours
