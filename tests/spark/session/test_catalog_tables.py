"""Tables of Spark's catalog: made in one session, used in the next; dropped, the stores stay."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rocketlake.errors import ConfigError, StoreError
from rocketlake.spark.catalog_table import (
    keep_options,
    kept_table,
    options_of_create,
    options_of_read,
)
from rocketlake.spark.schema import MESSAGE_SCHEMA
from rocketlake.spark.session import check_java
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.sink.target import message_rows, target_of
from support.store_builder import StoreBuilder

PROGRAM = Path(__file__).with_name("catalog_program.py")
MESSAGES = 40
CREATED = {
    "provider": "rocketlake",
    "location": "file:/data/store",
    "path": "file:/data/store",
    "owner": "root",
    "external": "true",
    "comment": "of the shop",
    "team": "billing",
    "topic": "orders",
    "option.topic": "orders",
}


def outcomes(step: str, root: Path) -> dict[str, object]:
    """Run the program with no more of an environment than cron gives."""
    kept = ("PYTHONPATH", "HOME", "JAVA_HOME", "ROCKETLAKE_KERNEL")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), step, str(root)],
        capture_output=True,
        text=True,
        env={"PATH": os.defpath, **{key: os.environ[key] for key in kept if key in os.environ}},
        cwd=root,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def assert_outcomes(found: dict[str, object], wanted: dict[str, object]) -> None:
    others = {name: found[name] for name, value in wanted.items() if not fits(found[name], value)}
    assert others == {}, json.dumps({name: wanted[name] for name in others})


def fits(found: object, wanted: object) -> bool:
    if not isinstance(wanted, str) or not wanted.startswith("refused: "):
        return found == wanted
    text = str(found)
    return text.startswith("refused: ") and wanted.removeprefix("refused: ") in text


def test_tables_live_through_sessions_and_dropping_them_deletes_no_store(tmp_path: Path) -> None:
    """Issue 14, bug 1: no persistent table was possible."""
    check_java()
    builder = StoreBuilder(tmp_path / "broker-a")
    for number in range(MESSAGES):
        builder.record("orders", number % 2, b"order %d" % number, keys=[f"k{number}"])
    builder.write()
    before = sorted(path for path in (tmp_path / "broker-a").rglob("*") if path.name != "lock")
    assert_outcomes(
        outcomes("make", tmp_path),
        {
            **dict.fromkeys(("create", "queue", "external", "target", "with columns"), "done"),
            "made": False,
            "typo": "refused: there is no option 'topc'; did you mean 'topic'?",
            "no path": "refused: a table of the catalog needs the option path",
            "relative": "refused: give 'b' as an absolute path",
            "read with columns": "refused: a table of the catalog is created without columns",
            "view": "done",
            "count": MESSAGES,
        },
    )
    found = outcomes("use", tmp_path)
    assert_outcomes(
        found,
        {
            "tables": ["bodies", "lake", "late", "orders", "own", "target", "units"],
            "comment": f"rocketlake: path {tmp_path}/broker-a, topic orders",
            "select": MESSAGES,
            "view": MESSAGES // 2,
            "units": MESSAGES,
            "late": 0,
            "narrowed": MESSAGES // 2,
            **dict.fromkeys(("insert", "insert by name", "once", "append"), "done"),
            "target": ["79", b"by frame".hex().upper()],
            "target count": MESSAGES + 2,
            "positional": "refused: column queue_offset has a value, but the store assigns it",
            "from lake": "refused: column queue_offset has a value",
            "literals": "refused: ",
            "into units": "refused: a table with the option table = queue is only read",
            "overwrite": "refused: a store is only appended to",
            "ctas": "refused: not AS SELECT",
            "alias": "refused: column queue_offset has a value",
            "orders after": MESSAGES,
            "stream": MESSAGES,
            "temporary": "done",
            "by view": "done",
            "stores": [True, True, True],
            "warehouse": [],
        },
    )
    after = sorted(path for path in (tmp_path / "broker-a").rglob("*") if path.name != "lock")
    assert after == before
    assert not (tmp_path / "derby.log").exists(), "the catalog keeps to its directory"


def test_options_of_a_create_are_the_users() -> None:
    assert options_of_create({"path": "/data/store"}) is None
    assert options_of_create(CREATED) == {"path": "/data/store", "topic": "orders"}
    several = {**CREATED, "path": "a=/x,b=/y"}
    assert options_of_create(several) == {"path": "a=/x,b=/y", "topic": "orders"}
    with pytest.raises(ConfigError, match="needs the option path"):
        options_of_create({**CREATED, "path": ""})


def test_a_relative_path_of_one_store_is_one_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = options_of_create({**CREATED, "path": "data/store"})
    assert options is not None
    assert options["path"] == f"{tmp_path}/data/store"


def test_a_percent_that_spark_makes_ambiguous_is_refused() -> None:
    given = {**CREATED, "path": "file:/data/a%20b"}  # for '/data/a%20b' and 'file:///data/a%20b'
    with pytest.raises(ConfigError, match=r"write '/data/a b' .* path 'a=/data/a%20b'"):
        options_of_create(given)
    with pytest.raises(ConfigError, match="path 'a=/data/a%20b'"):
        options_of_create({**given, "path": "file:/data/a%20b,/data/c"})
    for path, wanted in {
        "file:/data/a b": "/data/a b",
        "file:/data/100%": "/data/100%",
        "a=/data/a%20b": "a=/data/a%20b",
    }.items():
        created = options_of_create({**given, "path": path})
        assert created is not None
        assert created["path"] == wanted


def test_an_insert_goes_to_the_one_store_that_a_table_names(tmp_path: Path) -> None:
    options = {"path": f"a={tmp_path}/store", "topic": "orders"}
    target = target_of({}, keep_options(MESSAGE_SCHEMA, options))
    assert SinkOptions.parse(target.options).path == f"{tmp_path}/store"
    several = {**options, "path": f"a={tmp_path}/store,b=/x"}
    with pytest.raises(ConfigError, match="a write has one store; several can only be read"):
        SinkOptions.parse(target_of({}, keep_options(MESSAGE_SCHEMA, several)).options)


def test_columns_carry_options_while_they_are_all_there() -> None:
    options = {"path": "/data/store", "topic": "orders"}
    schema = StructType.fromJson(json.loads(keep_options(MESSAGE_SCHEMA, options).json()))
    kept = kept_table(schema)
    assert kept is not None
    assert kept.options == options
    assert kept_table(StructType(schema.fields[:-1])) is None
    assert kept_table(StructType([*schema.fields, StructField("more", BinaryType())])) is None
    other = keep_options(MESSAGE_SCHEMA, {**options, "topic": "other"})
    assert kept_table(StructType([*schema.fields[:5], *other.fields[5:]])) is None
    assert kept_table(StructType([])) is None


def test_a_read_prefers_its_own_options_and_sheds_those_of_writes() -> None:
    kept = {"path": "/data/store", "topic": "orders", "locktimeout": "5s"}
    schema = keep_options(MESSAGE_SCHEMA, kept)
    options, plain = options_of_read({"topic": "other"}, schema)
    assert options == {"path": "/data/store", "topic": "other"}
    assert plain == MESSAGE_SCHEMA
    assert options_of_read({"path": "/x"}, schema)[0] == {"path": "/x"}


def test_a_write_by_its_own_path_does_not_go_to_the_table_its_rows_come_from() -> None:
    schema = keep_options(MESSAGE_SCHEMA, {"path": "/data/store", "topic": "orders"})
    body = StructType([schema["body"]])
    target = target_of({"path": "/x", "topic": "copy"}, body)
    assert target.options == {"path": "/x", "topic": "copy"}
    with pytest.raises(ConfigError, match="In SQL name the columns"):
        target_of({}, body)
    narrow = StructType([field for field in MESSAGE_SCHEMA if field.name in ("topic", "body")])
    with pytest.raises(ConfigError, match="has no column queue_offset"):
        target_of({}, keep_options(narrow, {"path": "/data/store"}))


def test_rows_with_columns_that_a_store_makes_are_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x", b"y"], "queue_offset": pa.nulls(2)})
    (rows,) = message_rows(iter([batch]), ["queue_offset"])
    assert rows.schema.names == ["body"]
    bad = pa.RecordBatch.from_pydict({"body": [b"x", b"y"], "queue_offset": [None, 1]})
    with pytest.raises(StoreError, match="column queue_offset has a value"):
        next(message_rows(iter([bad]), ["queue_offset"]))
