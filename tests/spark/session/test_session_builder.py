"""`rocketlake.spark.session()`: the format is found from cron and in threads, or a cure named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import rocketlake.spark
from rocketlake.errors import ConfigError
from rocketlake.spark import session_builder, worker_python
from rocketlake.spark.session import check_java
from support.store_builder import StoreBuilder

PROGRAM = Path(__file__).with_name("plain_program.py")
MESSAGES = 20
CURE = "`spark = rocketlake.spark.session()` cures both"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = StoreBuilder(tmp_path_factory.mktemp("plain") / "broker-a")
    for number in range(MESSAGES):
        builder.record("orders", number % 2, b"order %d" % number)
    return builder.write()


@pytest.fixture(scope="module")
def bare_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH whose `python3` finds none of our packages, as that of cron; Java is on it."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.base_prefix}/bin/python3" -S "$@"\n')
    (folder / "python3").chmod(0o755)
    return f"{folder}{os.pathsep}{os.defpath}"


def run(kind: str, store: Path, path: str) -> dict[str, object]:
    check_java()
    kept = ("PYTHONPATH", "HOME", "JAVA_HOME", "ROCKETLAKE_KERNEL")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(store)],
        capture_output=True,
        text=True,
        env={"PATH": path, **{key: os.environ[key] for key in kept if key in os.environ}},
        cwd=store.parent,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_from_cron_and_in_threads(store: Path, bare_path: str) -> None:
    """Issue 14: workers ran another `python3`; bug 6: other threads could not write."""
    found = run("ours", store, bare_path)
    assert found["count"] == MESSAGES
    assert found["zips"] == [], "PySpark is not compiled again in each of Spark's processes"
    assert str(found["thread"]).startswith("refused: this Spark has not found the format")
    assert CURE in str(found["thread"])
    assert found["thread with session"] is None
    assert found["written"] == MESSAGES
    assert found["again"] is True
    assert found["set"] == "3"
    assert f"rocketlake: path {store}, topic orders; pushed filters: " in str(found["pushed"])
    assert "EqualTo(queue_id,1); columns: queue_id, tags" in str(found["pushed"])
    assert "keeps its catalog in memory" in str(found["catalog"])


def test_a_session_of_sparks_own_names_the_cure(store: Path, bare_path: str) -> None:
    found = run("theirs", store, bare_path)
    assert str(found["count"]).startswith("refused: "), found
    assert "rocketlake.spark.session()" in str(found["count"])


def test_a_running_session_with_another_python_is_refused(store: Path, bare_path: str) -> None:
    found = run("both", store, bare_path)
    text = str(found["session"])
    assert "starts its Python processes with python3, which lacks rocketlake" in text
    assert f"PYSPARK_PYTHON={sys.executable}" in text


def test_a_session_that_is_there_is_the_one(spark: SparkSession) -> None:
    assert rocketlake.spark.session() is spark
    assert rocketlake.spark.session("local[9]", memory="64g").sparkContext.master == "local[2, 2]"


def test_what_a_running_session_cannot_change_is_told(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    rocketlake.spark.session(conf={"spark.driver.cores": "7"})
    assert "cannot change spark.driver.cores" in caplog.text


def test_settings_of_a_new_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert session_builder._defaults("local[2]", "3g")["spark.driver.memory"] == "3g"
    assert session_builder._defaults("local[2]", None)["spark.driver.memory"].endswith("g")
    assert "spark.driver.memory" not in session_builder._defaults("yarn", None)
    made = session_builder._catalog(tmp_path / "cat", {"spark.driver.extraJavaOptions": "-Xss4m"})
    assert made["spark.sql.catalogImplementation"] == "hive"
    assert made["spark.driver.extraJavaOptions"].startswith("-Xss4m -Dderby.stream.error.file=")
    with pytest.raises(ConfigError, match="allows no blanks"):
        session_builder._catalog(tmp_path / "my cat", {})


def test_the_python_of_workers_leaves_the_zips_out_and_nothing_else(tmp_path: Path) -> None:
    library = Path(pyspark.__file__).parent / "python" / "lib"
    given = [
        str(tmp_path / "a b"),
        str(library / "pyspark.zip"),
        str(library / "py4j-src.zip"),
        "*",
    ]
    shown = subprocess.run(
        [worker_python.worker_python(), "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env={"PYTHONPATH": os.pathsep.join(given)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.rstrip("\n") == f"{tmp_path / 'a b'}:*"


def test_a_python_without_pyspark_beside_it_keeps_the_zips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert worker_python._make(sys.executable) is None
