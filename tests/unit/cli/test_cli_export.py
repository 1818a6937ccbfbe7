"""`rocketlake export`: formats, whole files or none, damage, wrong usage."""

import base64
import csv
import gzip
import io
import json
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import zstandard

from rocketlake.errors import DiskFullError
from rocketlake.files.descriptor import PosixWriter
from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.upkeep.export import writers as exports
from support import command
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=4000)


@pytest.fixture
def store(builder):
    for number in range(10):
        builder.record(
            "T",
            number % 2,
            b"body %d" % number,
            tags="A" if number % 3 else None,
            keys=[f"k{number}", "all"] if number % 2 else [],
            properties={"UNIQ_KEY": f"U{number}", "name": 'a "quoted", text\n'},
        )
    packed = deflate(b"packed " * 20, Compression.ZSTD)
    builder.record("T", 0, packed, sys_flag=flagged(0, Compression.ZSTD))
    return builder.write()


def export(store, out, *arguments, code=0):
    ran = command.run("export", store, out, *arguments)
    assert ran.code == code, ran.err
    return ran


def exported(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_json_lines(store, tmp_path):
    out = tmp_path / "out.jsonl"
    ran = export(store, out)
    assert "11 messages in " in ran.err
    assert ran.out == ""
    lines = exported(out)
    assert [(line["queue_id"], line["queue_offset"]) for line in lines] == [
        *((0, n) for n in range(6)),
        *((1, n) for n in range(5)),
    ]
    second = lines[6]
    assert base64.b64decode(second["body"]) == b"body 1"
    assert (second["keys"], second["tags"], second["unique_key"]) == (["k1", "all"], "A", "U1")
    assert second["properties"]["name"] == 'a "quoted", text\n'
    assert base64.b64decode(lines[5]["body"]) == b"packed " * 20
    assert second["store_timestamp"] > 1_500_000_000_000


def test_parquet_has_the_same_rows_with_types(store, tmp_path):
    out, lines = tmp_path / "out.parquet", tmp_path / "out.jsonl"
    export(store, out)
    export(store, lines)
    table = pq.read_table(out)
    assert str(table.schema.field("store_timestamp").type) == "timestamp[ms, tz=UTC]"
    assert str(table.schema.field("body").type) == "binary"
    assert str(table.schema.field("keys").type) == "list<element: string>"
    rows = table.to_pylist()
    for row, line in zip(rows, exported(lines), strict=True):
        row["store_timestamp"] = round(row["store_timestamp"].timestamp() * 1000)
        row["born_timestamp"] = round(row["born_timestamp"].timestamp() * 1000)
        row["body"] = base64.b64encode(row["body"]).decode()
        row["properties"] = dict(row["properties"])
        assert row == line
        assert list(row) == list(line)


def test_parquet_comes_in_row_groups(store, tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "_GROUP_ROWS", 4)
    export(store, tmp_path / "rows.parquet")
    found = pq.ParquetFile(tmp_path / "rows.parquet").metadata
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [4, 4, 3]
    monkeypatch.setattr(exports, "_GROUP_BYTES", 1)
    export(store, tmp_path / "bytes.parquet")
    assert pq.ParquetFile(tmp_path / "bytes.parquet").metadata.num_row_groups == 11


def test_an_empty_selection_is_a_file_all_the_same(store, tmp_path):
    export(store, tmp_path / "none.parquet", "--tag", "Z")
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
    export(store, tmp_path / "none.jsonl", "--limit", "0")
    assert (tmp_path / "none.jsonl").read_bytes() == b""


def test_csv(store, tmp_path):
    export(store, tmp_path / "out.csv", "--body", "text")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text(), newline="")))
    assert len(rows) == 11
    assert rows[6]["keys"] == "k1 all"
    assert rows[6]["body"] == "body 1"
    assert json.loads(rows[6]["properties"])["name"] == 'a "quoted", text\n'


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_compressed_streams(store, tmp_path, name):
    for suffix in ("", ".gz", ".zst"):
        export(store, tmp_path / f"out.{name}{suffix}")
    plain = (tmp_path / f"out.{name}").read_bytes()
    assert gzip.decompress((tmp_path / f"out.{name}.gz").read_bytes()) == plain
    packed = (tmp_path / f"out.{name}.zst").read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == plain


def test_stdout(store, tmp_path):
    export(store, tmp_path / "out.jsonl")
    assert export(store, "-").out == (tmp_path / "out.jsonl").read_text()
    assert export(store, "-", "--format", "csv").out.startswith("topic,queue_id,")


def test_body_column(store, tmp_path):
    text = tmp_path / "text.parquet"
    export(store, text, "--body", "text")
    assert pq.read_table(text)["body"].to_pylist()[0] == "body 0"
    export(store, tmp_path / "none.parquet", "--body", "none")
    assert "body" not in pq.read_table(tmp_path / "none.parquet").column_names
    export(store, tmp_path / "raw.jsonl", "--raw")
    raw = base64.b64decode(exported(tmp_path / "raw.jsonl")[5]["body"])
    assert zstandard.ZstdDecompressor().decompress(raw) == b"packed " * 20


def test_selection_and_limit(store, tmp_path):
    out = tmp_path / "out.jsonl"
    export(store, out, "--queue", "1", "--from-offset", "2", "--limit", "2")
    assert [line["queue_offset"] for line in exported(out)] == [2, 3]


# --- damage ----------------------------------------------------------------------------------


def test_damage_is_told_and_the_rest_exported(store, builder, tmp_path):
    builder.roll().record("T", 0, b"in the next file").flip_body(3).write()
    ran = export(store, tmp_path / "out.jsonl", code=1)
    (told,) = [line for line in ran.problems if line.startswith("damage: ")]
    assert "message 1 of T/1 is left out" in told
    assert len(exported(tmp_path / "out.jsonl")) == 11


def test_a_body_that_cannot_be_inflated_is_damage(store, builder, tmp_path):
    builder.record("Bad", 0, b"no zlib at all", sys_flag=flagged(0, Compression.ZLIB))
    builder.write()
    ran = export(store, tmp_path / "out.jsonl", "--topic", "Bad", code=1)
    assert "the body cannot be inflated and is exported as it is stored" in ran.err
    (line,) = exported(tmp_path / "out.jsonl")
    assert base64.b64decode(line["body"]) == b"no zlib at all"
    export(store, tmp_path / "raw.jsonl", "--topic", "Bad", "--raw")


# --- whole files or none ---------------------------------------------------------------------


def test_what_is_there_is_not_replaced_unasked(store, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    assert "--force replaces it" in export(store, out, code=2).err
    assert out.read_text() == "precious"
    export(store, out, "--force")
    assert len(exported(out)) == 11


def test_a_full_disk_leaves_what_was_there(store, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    out.write_text("precious")

    def full(self, position, data):
        raise DiskFullError(str(out), len(data), 0)

    monkeypatch.setattr(PosixWriter, "write", full)
    assert "no space left" in export(store, out, "--force", code=2).err
    assert out.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "store"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("out", "does not tell the format"),
        ("out.parquet.gz", "leave .gz away"),
        ("missing/out.csv", "there is no directory"),
    ],
)
def test_wrong_names_are_told(store, tmp_path, name, text):
    assert text in export(store, tmp_path / name, code=2).err


def test_a_directory_is_no_file(store, tmp_path):
    (tmp_path / "out.csv").mkdir()
    assert "name a file in it" in export(store, tmp_path / "out.csv", code=2).err


def test_missing_pyarrow_names_the_command(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = export(store, tmp_path / "out.parquet", code=2)
    assert "pip install 'rocketlake[parquet]'" in ran.err
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("arguments", [("export", "-"), ("grep", ".", "--json"), ("grep", ".")])
def test_a_pipe_that_closes_early_is_no_error(tmp_path, arguments):
    builder = StoreBuilder(tmp_path / "store", log_file_size=4 << 20)
    for number in range(30):
        builder.record("T", 0, b"%d " % number * 20_000)
    name, *rest = arguments
    process = subprocess.Popen(
        [*command.COMMAND, name, str(builder.write()), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(command.TIMEOUT_S) in {0, -signal.SIGPIPE}
