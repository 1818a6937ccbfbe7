"""Rows with the columns of Kafka's sink become the messages that their own columns would make."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import rocketlake
from rocketlake.errors import ConfigError
from rocketlake.spark.sink.columns import check_columns
from rocketlake.spark.sink.rows import BadRowError
from rocketlake.spark.sink.writer import stage
from support.sink_kit import Sink, staged_files, stream

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "partition": pa.int32(),
    "topic": pa.string(),
    "ordering_key": pa.string(),
}


def batch(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    names = [name for name in TYPES if any(name in row for row in rows)]
    return pa.record_batch(
        {n: pa.array([r.get(n) for r in rows], types.get(n, TYPES[n])) for n in names}
    )


def write(path: Path, rows: list[dict[str, Any]], **types: pa.DataType) -> list[Any]:
    sink = Sink(path)
    rows_staged = stage(sink.plan, stream(0), 0, iter([batch(rows, **types)])).file
    assert rows_staged is not None
    sink.committer.commit(stream(0), [rows_staged])
    with rocketlake.open_store(path, read_only=True) as store:
        found = []
        for queue in range(4):
            found += store.get("orders", queue_id=queue, offset=0, max_messages=99).messages
    return sorted(found, key=lambda message: message.physical_offset)


def test_key_value_and_headers_are_keys_body_and_properties(tmp_path: Path) -> None:
    rows = [
        {"key": b"o-1", "value": b"one", "headers": [{"key": "trace", "value": b"7"}]},
        {"key": None, "value": b"two", "headers": None},
        {
            "key": b"",
            "value": b"",
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        },
        {"key": b"o-1", "value": b"four", "headers": []},
    ]
    first, second, third, fourth = write(tmp_path / "s", rows)
    assert [m.body for m in (first, second, third, fourth)] == [b"one", b"two", b"", b"four"]
    assert [list(m.keys) for m in (first, second, third, fourth)] == [["o-1"], [], [], ["o-1"]]
    assert first.properties["trace"] == "7"
    assert third.properties["a"] == "1"
    assert "b" not in third.properties
    assert first.queue_id == fourth.queue_id


def test_rows_of_a_key_share_a_queue_unless_a_partition_is_named(tmp_path: Path) -> None:
    keyed = write(tmp_path / "a", [{"key": b"k%d" % (n % 3), "value": b"x"} for n in range(30)])
    queues = {
        key: {m.queue_id for m in keyed if list(m.keys) == [key]} for key in ("k0", "k1", "k2")
    }
    assert all(len(found) == 1 for found in queues.values())
    assert len(set.union(*queues.values())) > 1
    rows = [{"key": b"same", "value": b"x", "partition": n % 4} for n in range(8)]
    assert [m.queue_id for m in write(tmp_path / "b", rows)] == [0, 1, 2, 3] * 2


def test_key_and_value_may_be_strings(tmp_path: Path) -> None:
    (found,) = write(
        tmp_path / "s", [{"key": "ü", "value": "ö"}], key=pa.string(), value=pa.string()
    )
    assert (list(found.keys), found.body) == (["ü"], "ö".encode())


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"key": b"\xff\xfe"}, r"column key: b'\xff\xfe' is not UTF-8 text"),
        ({"key": b"a b"}, "column keys has 'a b': a key is not empty and has no blank"),
        ({"headers": [{"key": "h", "value": b"\xff"}]}, r"column headers: b'\xff' is not UTF-8"),
        ({"headers": [{"key": None, "value": b"v"}]}, "column headers: a header has no key"),
        ({"value": None}, "column body is null"),
    ],
)
def test_bad_value_is_named_with_its_row(tmp_path: Path, bad: dict[str, Any], words: str) -> None:
    good = {"key": b"k", "value": b"v", "headers": [{"key": "a", "value": b"b"}]}
    rows = [good, good, {**good, **bad}]
    with pytest.raises(BadRowError) as caught:
        write(tmp_path / "s", rows)
    text = str(caught.value)
    assert words in text
    assert "row 2 of partition 0" in text
    assert staged_files(tmp_path / "s") == []


def test_error_in_a_renamed_column_says_which_it_was(tmp_path: Path) -> None:
    with pytest.raises(BadRowError, match="body is the column value"):
        write(tmp_path / "s", [{"value": b"x"}, {"value": None}])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("value binary, body binary", "'value' is Kafka's name for 'body', and both are given"),
        ("value binary, key string, keys array<string>", "'key' is Kafka's name for 'keys'"),
        (
            "value binary, headers map<string,string>",
            "wanted array<struct<key:string,value:binary>>",
        ),
        ("value binary, timestamp timestamp", "'timestamp' is not a message column"),
        ("key binary", "there is no column 'body'"),
        ("valeu binary", "did you mean 'value'?"),
    ],
)
@pytest.mark.usefixtures("spark")  # which reads types
def test_columns_that_do_not_go_together_are_refused(columns: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(StructType.fromDDL(columns), "orders")
    assert words in str(caught.value)


@pytest.mark.usefixtures("spark")
def test_columns_of_kafka_are_known() -> None:
    ddl = "key binary, value binary, topic string, partition int"
    check_columns(
        StructType.fromDDL(f"{ddl}, headers array<struct<key:string,value:binary>>"), None
    )
