"""A stream on Spark: checkpoints, restarts, replays, lag."""

import json
import shutil

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.metadata import offsets as offset_table
from rocketlake.spark.source import register
from rocketlake.spark.stream.listener import LagListener, read_lag
from spark.stream.stream_play import finished, started
from support.store_builder import StoreBuilder


class Query:
    """A query over one topic whose rows end in `batches`; it can be run again and again."""

    def __init__(self, spark, root, checkpoint, **options):
        register(spark)
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = {"path": str(root), "topic": "T", **options}
        self.batches = {}
        self.fail_at = None

    def take(self, batch, number):
        rows = sorted(bytes(row.body).decode() for row in batch.select("body").collect())
        known = self.batches.setdefault(number, rows)
        assert known == rows, "a batch that is read again is the same"
        if number == self.fail_at:
            raise RuntimeError("the sink fails here")

    def start(self, **trigger):
        stream = self.spark.readStream.format("rocketlake").options(**self.options).load()
        writer = stream.writeStream.foreachBatch(self.take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self):
        return finished(lambda: self.start(availableNow=True))

    @property
    def rows(self):
        return sorted(row for rows in self.batches.values() for row in rows)

    def forget_commit(self):
        """Have the last batch lack its entry in the commit log: a crash behind the sink."""
        last = max((p for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit()),
                   key=lambda path: int(path.name))  # fmt: skip
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
        return int(last.name)


def names(begin, end):
    return [f"{number:03}" for number in range(begin, end)]


def filled(root, begin, end, builder=None):
    builder = builder or StoreBuilder(root)
    for number in range(begin, end):
        builder.record("T", number % 3, f"{number:03}".encode())
    builder.write()
    return builder


def test_restarts_and_crashes_at_every_step(spark, tmp_path):
    builder = filled(tmp_path / "s", 0, 20)
    query = Query(spark, tmp_path / "s", tmp_path / "ck", maxOffsetsPerTrigger="9")
    for step in range(4):  # each run goes one batch further, where its sink fails
        query.fail_at = step
        if step == 3:
            filled(tmp_path / "s", 20, 26, builder)
        with pytest.raises(Exception, match="the sink fails here"):
            query.run()
    query.fail_at = None
    query.run()
    assert query.rows == names(0, 26)
    assert len(query.batches) == 4
    assert query.forget_commit() == 3
    query.run()
    assert query.rows == names(0, 26)
    shutil.rmtree(tmp_path / "ck" / "commits")
    filled(tmp_path / "s", 26, 27, builder)
    query.run()
    assert query.rows == names(0, 27)


def test_a_group_and_its_lag_are_seen_from_outside(spark, tmp_path):
    filled(tmp_path / "s", 0, 12)
    seen = []
    listener = LagListener(seen.append)
    spark.streams.addListener(listener)
    try:
        options = {"group": "g", "maxOffsetsPerTrigger": "5"}
        query = Query(spark, tmp_path / "s", tmp_path / "ck", **options)
        done = query.run()
        # Spark's bus is asynchronous; an event that was posted is delivered in the end.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert [found.lag for found in seen] == [7, 2, 0]
    assert listener.newest()[done.id].lag == read_lag(done.lastProgress).lag == 0
    assert offset_table.load(tmp_path / "s" / "config").offsets == {"T@g": {0: 4, 1: 4, 2: 4}}
    with rocketlake.open_store(tmp_path / "s", read_only=True) as store:
        assert store.lag("g") == 0
    first, second = (tmp_path / "ck" / "offsets" / str(n) for n in (0, 1))
    assert json.loads(first.read_text().splitlines()[-1]) == {
        "begin": {"s": {"T": {"0": 0, "1": 0, "2": 0}}},
        "queues": {"s": {"T": {"0": 1, "1": 2, "2": 2}}},
        "version": 1,
    }
    assert "begin" not in json.loads(second.read_text().splitlines()[-1])


def test_a_store_that_is_written_while_the_query_runs(spark, tmp_path):
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("T", 2)
        query = Query(spark, tmp_path / "s", tmp_path / "ck", topic="T,Later")
        query.options.pop("topic")
        query.options["topicPattern"] = "T|Later"
        running = started(lambda: query.start(processingTime="0 seconds"))
        try:
            for number in range(40):
                topic = "Later" if number >= 30 else "T"
                store.put(Message(topic=topic, body=f"{number:03}".encode()))
                if number in (9, 19, 29):
                    running.processAllAvailable()
            running.processAllAvailable()
        finally:
            running.stop()
    assert query.rows == names(0, 40)
    assert len(query.batches) >= 4


def test_files_that_expire_under_a_running_query(spark, tmp_path):
    builder = StoreBuilder(tmp_path / "s", log_file_size=1200)
    filled(tmp_path / "s", 0, 12, builder)
    strict = Query(spark, tmp_path / "s", tmp_path / "ck1")
    lax = Query(spark, tmp_path / "s", tmp_path / "ck2", failOnDataLoss="false")
    strict.run()
    running = started(lambda: lax.start(processingTime="0 seconds"))
    try:
        # Order: messages 12 to ... come and go while the query does not look.
        for number in range(12, 60):
            builder.record("T", number % 3, f"{number:03}".encode())
        builder.expire(3).write()
        running.processAllAvailable()
    finally:
        running.stop()
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 3600)
    assert first > 13
    assert lax.rows == names(0, 12) + names(first, 60)
    with pytest.raises(Exception, match="data loss: messages 4 to") as caught:
        strict.run()
    assert "failOnDataLoss = false goes on without them" in str(caught.value)
    assert strict.rows == names(0, 12)


def test_bad_input_is_explained(spark, tmp_path):
    filled(tmp_path / "s", 0, 3)
    with pytest.raises(Exception, match=r"there is no topic 'U' in .*; there are T"):
        Query(spark, tmp_path / "s", tmp_path / "ck", topic="U").run()
    with pytest.raises(Exception, match="did you mean 'maxOffsetsPerTrigger'"):
        Query(spark, tmp_path / "s", tmp_path / "ck", maxOffsetPerTrigger="3").start(once=True)
