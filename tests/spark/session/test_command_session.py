"""What a person sees of Spark's start and end in our commands: nothing, or one sentence."""

import contextlib
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketlake.cli.spark_options import SparkArguments
from rocketlake.errors import ConfigError, SparkError, StoreError
from rocketlake.spark import session as sessions

SMALL_JOB = Path(__file__).with_name("small_job.py")


def java(folder: Path, says: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return folder


def test_a_terminal_sees_the_results_alone_and_ctrl_c_ends_it():
    """One start of Spark for both: it takes seconds."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(SMALL_JOB), "job", "--master", "local[2]"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    with process, os.fdopen(screen, "rb", buffering=0) as shown:
        seen = b""
        while b"counted 3" not in seen:
            seen += shown.read(4096)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes get it
        with contextlib.suppress(OSError):  # at its end, the terminal has no other side
            while piece := shown.read(4096):
                seen += piece
    assert seen.split() == [b"counted", b"3"]
    assert process.returncode == 130


def test_no_java_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs Java 17 or newer, and none was found; install"):
        sessions.check_java()


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11; Spark needs 17 or newer"),
        ("echo gibberish >&2", "is a Java that does not report its version; Spark needs 17"),
        ("exit 1", "is a Java that does not report its version"),
    ],
)
def test_java_that_is_too_old_or_none(monkeypatch, tmp_path, says, words):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, says)))
    with pytest.raises(ConfigError, match=words) as caught:
        sessions.check_java()
    assert f"(JAVA_HOME is {tmp_path})" in str(caught.value)


def test_java_home_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"does not run \(No such file or directory\)"):
        sessions.check_java()


def test_spark_home_of_another_spark(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no Spark there"):
        sessions.check_spark_home()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    with pytest.raises(ConfigError, match=r"is Spark 3\.5\.1, but the package pyspark is"):
        sessions.check_spark_home()


def test_a_master_that_does_not_answer_is_told_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=f"no Spark master answers \\({place}: Connection ref"
        ):
            sessions.check_master(f"spark://{place}")
        taken.listen()
        sessions.check_master(f"spark://127.0.0.1:1,{place}")
    with pytest.raises(ConfigError, match="wanted spark://HOST:PORT"):
        sessions.check_master("spark://host")
    sessions.check_master("yarn")


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named_with_the_extra(package, tmp_path):
    """As a user sees it: an environment in which the package cannot be imported."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\nfrom rocketlake.cli.main import run\nrun()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "archive", str(tmp_path / "none"), str(tmp_path / "to")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"rocketlake: this command runs on Spark, and the package {package} is missing;"
        " pip install 'rocketlake[spark]'\n"
    )


def test_pandas_is_asked_for_before_spark_misses_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="the package pandas is missing; pip install"), _session():
        pass


def test_python_of_an_archive_must_be_there_for_planning(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    conf = {"spark.pyspark.python": "./environment/bin/python"}
    with pytest.raises(ConfigError, match=r"type `ln -s \S+ environment` and try again"):
        sessions._choose_python("spark://host:7077", conf)
    (tmp_path / "environment").symlink_to(sys.prefix)
    sessions._choose_python("spark://host:7077", conf)
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"


def test_workers_of_local_mode_run_this_interpreter(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    sessions._choose_python("spark://host:7077", {})
    assert "PYSPARK_PYTHON" not in os.environ
    sessions._choose_python("local[2]", {})
    shown = subprocess.run(
        [os.environ["PYSPARK_PYTHON"], "-c", "import sys; print(sys.executable, sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == [sys.executable, sys.prefix]


def test_options_of_a_command_become_settings():
    spark = SparkArguments(
        "yarn", ("a=b", "c=d=e"), py_files="x.zip,y.py", archives="env.tar.gz#environment"
    )
    assert spark.conf == {
        "a": "b",
        "c": "d=e",
        "spark.submit.pyFiles": "x.zip,y.py",
        "spark.archives": "env.tar.gz#environment",
    }


def test_a_session_that_is_there_is_used_and_left(spark: SparkSession):
    with SparkArguments("local[1]").session("job") as session:
        assert session.range(2).count() == 2
    assert spark.range(2).count() == 2


def test_errors_of_a_block_come_out_in_words(spark: SparkSession, tmp_path, monkeypatch):
    def fail(_):
        raise StoreError("a sentence of ours")

    def bug(_):
        return {}["nothing"]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(StoreError, match=r"^a sentence of ours$"), _session():
        spark.sparkContext.parallelize([1], 1).foreach(fail)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SparkError, match="failed: KeyError: 'nothing'\n") as caught, _session():
        spark.sparkContext.parallelize([1], 1).foreach(bug)
    (kept,) = tmp_path.iterdir()
    assert str(kept) in str(caught.value)
    assert "Traceback (most recent call last)" in kept.read_text()


def _session():
    return SparkArguments("local[1]").session("job")
