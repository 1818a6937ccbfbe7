"""The Python blocks of docs/spark/from-kafka.md and bodies.md run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlake.errors import ConfigError
from rocketlake.spark.bodies import json_schema
from rocketlake.spark.session import check_java
from support.spark_jars import module_jar
from support.store_builder import StoreBuilder

PAGES = Path(__file__).resolve().parents[3] / "docs" / "spark"
TIMEOUT_S = 300


@pytest.fixture
def java() -> None:
    """Skip, with a word, where Spark finds no Java."""
    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))


def blocks(page: str) -> dict[str, list[str]]:
    """Return the Python blocks below each heading; those before the first are below ''."""
    found: dict[str, list[str]] = {}
    heading = ""
    for part in re.split(r"^(?=## )", (PAGES / page).read_text(), flags=re.MULTILINE):
        if part.startswith("## "):
            heading = part.partition("\n")[0].removeprefix("## ")
        found[heading] = re.findall(r"^```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    return found


def run_blocks(code: list[str], folder: Path, *, jar: Path | None = None) -> None:
    jars = f"--jars {jar} " if jar is not None else ""
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"{jars}--driver-memory 1g --conf spark.ui.enabled=false"
        " --conf spark.sql.shuffle.partitions=2 pyspark-shell",
    }
    script = folder / "page.py"
    script.write_text("\n".join(code))
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.usefixtures("java")
def test_page_for_those_who_come_from_kafka(tmp_path: Path) -> None:
    found = blocks("from-kafka.md")
    assert [len(found[name]) for name in ("", "Reading", "Streams", "Writing")] == [1, 2, 1, 1]
    run_blocks([block for part in found.values() for block in part], tmp_path)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("section", ["JSON", "Avro", "Protobuf"])
def test_bodies_are_decoded_as_the_page_says(tmp_path: Path, section: str) -> None:
    jar = None
    if section == "Avro" and (jar := module_jar("spark-avro")) is None:
        pytest.skip("from_avro needs the jar spark-avro, which Maven could not get")
    if section == "Protobuf":
        pytest.importorskip("google.protobuf", reason="decoding needs the package protobuf")
    found = blocks("bodies.md")
    assert found[section]
    run_blocks([*found[""], *found[section]], tmp_path, jar=jar)


@pytest.mark.usefixtures("java")
def test_from_protobuf_of_spark(tmp_path: Path) -> None:
    """Spark's own from_protobuf on messages of a topic, where its jar can be had."""
    jar = module_jar("spark-protobuf")
    if jar is None:
        pytest.skip("from_protobuf needs the jar spark-protobuf, which Maven could not get")
    found = blocks("bodies.md")
    own = """
from pyspark.sql.protobuf.functions import from_protobuf
files = descriptor_pb2.FileDescriptorSet()
order_class().DESCRIPTOR.file.CopyToProto(files.file.add())
open("orders.desc", "wb").write(files.SerializeToString())
order = from_protobuf("body", "Order", descFilePath="orders.desc", options={"mode": "PERMISSIVE"})
assert read("shipments").select(order.alias("o")).agg(sf.sum("o.id")).first()[0] == 45
"""
    run_blocks([*found[""], *found["Protobuf"], own], tmp_path, jar=jar)


def test_schema_of_a_topic_that_has_no_json_is_refused(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s")
    for number in range(4):
        builder.record("plain", 0, b"no json")
        builder.record("orders", 0, b'{"id": %d}' % number)
    builder.write()
    assert json_schema(tmp_path / "s", "orders") == "`id` bigint"
    with pytest.raises(ConfigError, match="0 of 4 sampled bodies of plain are JSON"):
        json_schema(tmp_path / "s", "plain")
    with pytest.raises(ConfigError, match=r"no topic 'order'.*did you mean 'orders'"):
        json_schema(tmp_path / "s", "order")
