"""What the sink refuses, in which words, and that nothing is written then."""

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

import rocketlake
from rocketlake.clock import SystemClock
from rocketlake.errors import ConfigError, DiskFullError, FileAccessError, StoreError
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.sink.columns import check_columns
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.sink.plan import WriteKey, WritePlan
from rocketlake.spark.sink.rows import BadRowError
from rocketlake.spark.sink.writer import StagedRows, make_stream_writer, make_writer, stage
from support import forks
from support.sink_kit import Sink, batch_of, bodies, numbered, once, staged_files, stream

BODY = b"x"
YEAR_MS = 365 * 24 * 3_600_000

BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"body": None}, "column body is null"),
    ({"body": bytes(5000)}, "column body: 5000 bytes; maxMessageSize allows 4096"),
    ({"topic": ""}, "column topic = '' is empty; a message needs the name of a topic"),
    ({"topic": "two words"}, "column topic = 'two words' has characters"),
    ({"topic": "ü"}, "column topic = 'ü' has characters"),
    ({"topic": "t" * 128}, "column topic: topic of 128 bytes"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, "is the store's own"),
    ({"keys": ["a b"]}, "column keys has 'a b': a key is not empty and has no blank"),
    ({"keys": ["a", ""]}, "column keys has ''"),
    ({"keys": ["a\x01"]}, "column keys = 'a\\x01' holds \\x01 or \\x02"),
    ({"tags": "a\x02b"}, "column tags = 'a\\x02b' holds"),
    ({"unique_key": "u\x01"}, "holds \\x01 or \\x02"),
    ({"properties": {"a": "b\x02c"}}, "column properties['a'] = 'b\\x02c' holds"),
    ({"properties": {"a\x01": "b"}}, "column properties = 'a\\x01' holds"),
    ({"properties": {"": "b"}}, "column properties has an empty name"),
    ({"properties": {"a": "b" * 33_000}}, "column properties: 33010 bytes; a record holds 32767"),
    ({"queue_id": -1}, "column queue_id: -1: it is negative"),
    ({"queue_id": 4}, "column queue_id: 4: topic 'orders' has 4 queues, 0 to 3"),
    ({"delay_level": 19}, "column delay_level: 19: the store has the levels 1 to 18"),
    ({"delay_level": -1}, "column delay_level: -1"),
    (
        {"deliver_at": (SystemClock().now_ms() + YEAR_MS) * 1000},
        "is more than 3 days ahead, which is what timerMaxDelaySec allows",
    ),
]


@pytest.mark.parametrize(("bad", "words"), BAD_ROWS, ids=[words[:40] for _, words in BAD_ROWS])
def test_bad_row_is_named_before_anything_is_written(
    tmp_path: Path, bad: dict[str, Any], words: str
) -> None:
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("orders", 4)
    conf = {"maxMessageSize": 4096} if "body" in bad else {}
    sink = Sink(tmp_path / "s", options=json.dumps(conf))
    good = [{"body": BODY, "tags": "t", **{name: None for name in bad if name != "body"}}] * 6
    with pytest.raises(BadRowError) as caught:
        sink.stage(stream(0), [*good, {"body": BODY, "tags": "t", **bad}, *good])
    text = str(caught.value)
    assert words in text
    assert "row 6 of partition 0" in text
    assert text.endswith("Nothing was written")
    assert staged_files(tmp_path / "s") == []


def test_queue_of_a_topic_that_is_new_is_refused_by_the_commit(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    files = sink.stage(stream(0), numbered(0, 5), numbered(5, 9, queue_id=9))
    with pytest.raises(StoreError, match=r"queue_id: 9: topic 'orders' has 4 queues.*row 0 of"):
        sink.committer.commit(stream(0), files)
    assert list((tmp_path / "s" / "commitlog").iterdir()) == []


def test_topic_that_may_not_be_made_is_refused(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s", options='{"autoCreateTopicEnable": false}')
    with pytest.raises(StoreError, match=r"no topic 'orders'.*Nothing was appended"):
        sink.write(stream(0), numbered(0, 5))


def test_deliver_at_needs_a_timer(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s", options='{"timerWheelEnable": false}')
    with pytest.raises(BadRowError, match="has no timer"):
        sink.stage(stream(0), [{"body": b"1", "deliver_at": 0}])


def test_nulls_mean_nothing(tmp_path: Path) -> None:
    names = ("topic", "keys", "tags", "properties", "queue_id", "delay_level", "deliver_at")
    row = {"body": b"", **dict.fromkeys((*names, "flag", "unique_key", "ordering_key"))}
    Sink(tmp_path / "s").write(stream(0), [row, row])
    with rocketlake.open_store(tmp_path / "s") as store:
        (message,) = store.get("orders", 0, 0).messages
        assert (message.body, message.properties, message.flag) == (b"", {}, 0)
        assert store.max_offset("orders", 1) == 1


# --- columns, options, modes ---------------------------------------------------------------------


def schema(text: str) -> StructType:
    """Return `name type, name type`, without asking Spark."""
    kinds = {
        **{kind.simpleString(): kind for kind in (BinaryType(), StringType(), IntegerType())},
        "long": LongType(),
        "array<int>": ArrayType(IntegerType()),
        "map<string;int>": MapType(StringType(), IntegerType()),
    }
    fields = [part.split() for part in text.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in fields])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("topic string", "there is no column 'body'"),
        ("body binary", "no topic is given"),
        ("body binary, topic string, queue_offset long", "'queue_offset' is not a message column"),
        ("body int, topic string", "'body' is int; wanted binary or string: cast it"),
        ("body string, topic string, keys array<int>", "'keys' is array<int>; wanted array<string"),
        ("body string, topic string, deliver_at string", "'deliver_at' is string; wanted timesta"),
        ("body string, topic string, properties map<string;int>", "wanted map<string,string>"),
    ],
)
def test_columns_that_no_message_has_are_refused(columns: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(schema(columns), None)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "option path is missing"),
        ({"path": "a,b"}, "a write has one store"),
        ({"path": "x=/a,y=/b"}, "a write has one store"),
        ({"path": " , "}, "option path is missing"),
        ({"path": "a", "topc": "T"}, "no option 'topc' of a write; did you mean 'topic'?"),
        (
            {"path": "a", "startingOffsets": "earliest"},
            "no option 'startingOffsets' of a write; there are path",
        ),
        ({"path": "a", "topic": "a b"}, "option topic = 'a b' has characters"),
        ({"path": "a", "lockTimeout": "soon"}, "lockTimeout: 'soon' is not a duration"),
        ({"path": "a", "writeId": " "}, "writeId is empty"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse(options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("a=/data/store", "/data/store"),
        ("a=file:///data/a%20b", "/data/a b"),
        ("/data/day=1/store", "/data/day=1/store"),
        ("/data/store,", "/data/store"),
    ],
)
def test_a_write_goes_where_a_read_of_the_same_path_looks(path: str, root: str) -> None:
    assert SinkOptions.parse({"path": path}).path == root
    assert [place for _, place in SourceOptions.parse({"path": path}).paths] == [root]


def test_store_options_are_checked_when_a_write_is_planned(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "s"), "topic": "T", "options": '{"flushDiskTyp": "x"}'}
    with pytest.raises(ConfigError, match="flushDiskTyp"):
        WritePlan.make(SinkOptions.parse(options))


def test_overwrite_and_write_ids_of_streams_are_refused(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "s"), "topic": "T"}
    with pytest.raises(ConfigError, match="only appended to"):
        make_writer(options, schema("body string"), overwrite=True)
    with pytest.raises(ConfigError, match="writeId is for batch writes"):
        make_stream_writer({**options, "writeId": "w"}, schema("body string"), overwrite=False)


# --- the machine ---------------------------------------------------------------------------------


def test_store_in_use_is_named_and_the_rows_wait(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    with rocketlake.open_store(tmp_path / "s"):
        files = sink.stage(stream(0), numbered(0, 10))
        told = forks.run(lambda tell: tell(_refusal(sink, files))).lines
    assert f"process {os.getpid()} has it open" in told[0]
    assert "A store has one writer" in told[0]
    assert sink.committer.commit(stream(0), files) == 10


def _refusal(sink: Sink, files: list[Any]) -> str:
    with pytest.raises(StoreError) as caught:
        sink.committer.commit(stream(0), files)
    return str(caught.value).replace("\n", " ")


def test_commit_waits_for_a_store_that_is_closed_soon(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s", lockTimeout="60s")
    files = sink.stage(stream(0), numbered(0, 10))
    reading, writing = os.pipe()

    def hold(tell: forks.Tell) -> None:
        with rocketlake.open_store(tmp_path / "s"):
            tell("open")
            os.write(writing, b".")

    child = os.fork()
    if child == 0:
        hold(lambda _: None)
        os._exit(0)
    try:
        os.read(reading, 1)
        assert sink.committer.commit(stream(0), files) == 10
    finally:
        os.waitpid(child, 0)


def test_staging_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    sink = Sink(tmp_path / "s", stagingPath=str(tmp_path / "file" / "below"))
    with pytest.raises(FileAccessError, match="file/below"):
        sink.stage(stream(0), numbered(0, 3))


def test_full_disk_leaves_nothing_staged(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")

    def work(tell: forks.Tell) -> None:
        # A file that may not grow is refused with EFBIG, as a full disk is with ENOSPC.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises((DiskFullError, FileAccessError)) as caught:
            sink.stage(stream(0), numbered(0, 1000))
        tell(str(caught.value))

    told = forks.run(work).lines
    assert "staging" in told[0]
    assert staged_files(tmp_path / "s") == []


def test_staged_rows_that_are_gone_or_damaged_are_not_committed(tmp_path: Path) -> None:
    sink, path = Sink(tmp_path / "s"), tmp_path / "s"
    files = sink.stage(stream(0), numbered(0, 100), numbered(100, 200))
    data = bytearray(Path(files[1].path).read_bytes())
    data[50] ^= 1
    Path(files[1].path).write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged.*Committing it again appends"):
        sink.committer.commit(stream(0), files)
    data[50] ^= 1
    Path(files[1].path).write_bytes(data)
    sink.committer.commit(stream(0), sink.stage(stream(0), numbered(0, 3)))
    assert bodies(path) == once(range(200))
    lost = sink.stage(stream(1), numbered(200, 210))
    Path(lost[0].path).unlink()
    with pytest.raises(StoreError, match="staged rows are gone"):
        sink.committer.commit(stream(1), lost)
    assert bodies(path) == once(range(200))


def test_options_that_changed_since_rows_were_staged_are_told(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "s")
    files = sink.stage(stream(0), numbered(0, 10))
    other = Sink(tmp_path / "s", options='{"enabledAppendPropCRC": true}')
    with pytest.raises(StoreError, match="staged for other options"):
        other.committer.commit(stream(0), files)


def test_task_without_rows_stages_nothing(tmp_path: Path) -> None:
    plan = Sink(tmp_path / "s").plan
    empty = batch_of([{"body": b"x"}]).slice(1)
    key = WriteKey("job", "j")
    assert stage(plan, key, 3, iter([empty, empty])) == StagedRows(key, 3, None)
    assert not (tmp_path / "s").exists()


def test_rows_of_slices_and_large_types_are_themselves(tmp_path: Path) -> None:
    rows = [{"body": b"%d" % n, "tags": f"t{n}", "properties": {"n": str(n)}} for n in range(40)]
    plan = Sink(tmp_path / "s").plan
    whole = batch_of(rows, body=pa.large_binary(), tags=pa.large_string())
    file = stage(plan, stream(0), 0, iter([whole.slice(3, 10), whole.slice(30)])).file
    assert file is not None
    Sink(tmp_path / "s").committer.commit(stream(0), [file])
    with rocketlake.open_store(tmp_path / "s") as store:
        found = [m for queue in range(4) for m in store.get("orders", queue, 0).messages]
    found.sort(key=lambda message: message.physical_offset)
    assert [m.body for m in found] == [b"%d" % n for n in (*range(3, 13), *range(30, 40))]
    assert all(m.tags == f"t{m.body.decode()}" for m in found)
    assert all(m.properties["n"] == m.body.decode() for m in found)
