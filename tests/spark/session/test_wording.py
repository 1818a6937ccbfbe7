"""Errors of Spark in words: ours where one of ours is the cause, otherwise one short reason."""

import pytest
from pyspark.errors import PySparkException

from rocketlake import errors
from rocketlake.spark.wording import reason_of_start, reworded, rewording

JAVA = """
	at org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1136)
	at java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.EOFException
	at java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""
TRACEBACK = """Traceback (most recent call last):
  File "/x/y.py", line 42, in schema
    raise ConfigError("no")
          ^^^^^^^^^^^^^^^^^
"""
STREAM = """
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 42e43f82, runId = fcb4d207]
Current State: ACTIVE
"""
ABORTED = (
    "An error occurred while calling o120.collectToPython.\n: org.apache.spark.SparkException: "
)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: "
            f"{TRACEBACK}rocketlake.errors.ConfigError: no topic 'x'; there are a, b\n"
            " SQLSTATE: 38000",
            errors.ConfigError,
            "no topic 'x'; there are a, b",
        ),
        (
            f"An exception was thrown from the Python worker:\n{TRACEBACK}"
            "rocketlake.errors.StoreLockedError: /a is locked: process 12 has it open\n",
            errors.StoreError,
            "/a is locked: process 12 has it open",
        ),
        (
            f"[STREAM_FAILED] Query [id = 1] terminated with exception: {TRACEBACK}"
            f"rocketlake.errors.StoreNotFoundError: /a is no store:\ntwo lines{STREAM}",
            errors.StoreNotFoundError,
            "/a is no store:\ntwo lines",
        ),
        (
            f"{ABORTED}Job aborted due to stage failure: Task 0 in stage 4.0 failed 4 times, most"
            " recent failure: Lost task 0.1 (TID 9) (host executor driver): org.apache.spark.api."
            f"python.PythonException: {TRACEBACK}rocketlake.errors.DiskFullError: /a: no space\n"
            f"{JAVA}",
            errors.StoreError,
            "/a: no space",
        ),
        (
            f"{TRACEBACK}rocketlake.errors.ConfigError: first\n\nDuring handling of the above"
            f" exception, another exception occurred:\n\n{TRACEBACK}"
            "rocketlake.errors.StoreError: the last one counts\n",
            errors.StoreError,
            "the last one counts",
        ),
        (
            f"{TRACEBACK}ModuleNotFoundError: No module named 'rocketlake'\n",
            errors.ConfigError,
            "lacks the package rocketlake; on this machine `spark = rocketlake.spark.session()`",
        ),
        (
            f"An exception was thrown from the Python worker:\n{TRACEBACK}KeyError: 'bug'\n{JAVA}",
            errors.SparkError,
            "a Python worker of Spark failed: KeyError: 'bug'",
        ),
        (
            f"{ABORTED}Job aborted due to stage failure: Task 0 in stage 4.0 failed 2 times, most"
            " recent failure: Lost task 0.1 in stage 4.0 (TID 9) (192.0.2.2 executor driver): org."
            f"apache.spark.SparkException: Python worker exited unexpectedly (crashed).{JAVA}",
            errors.SparkError,
            "a Python worker of Spark died without a word",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03",
            errors.SparkError,
            "Spark: Path does not exist: file:/nowhere.",
        ),
        (
            "An error occurred while calling o165.load.\n: org.apache.spark."
            "SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: "
            f"rocketlake. Make sure the provider name is correct. SQLSTATE: 42K02{JAVA}",
            errors.SparkError,
            "`spark = rocketlake.spark.session()` cures both",
        ),
        (
            'o112.load.\n: java.io.IOException: Cannot run program "./environment/bin/python":'
            f" error=2, No such file or directory{JAVA}",
            errors.SparkError,
            "./environment/bin/python cannot be run",
        ),
        (
            f"{ABORTED}Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most"
            " recent failure: Lost task 0.3 in stage 1.0 (TID 5) (h executor 3):"
            " ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason:"
            f" Command exited with code 52\nDriver stacktrace:{JAVA}",
            errors.SparkError,
            "executors of Spark were lost, again and again: Command exited with code 52",
        ),
        (f"{ABORTED}something of its own{JAVA}", errors.SparkError, "Spark: something of its own"),
        (f"java.lang.OutOfMemoryError: Java heap space{JAVA}", errors.SparkError, "out of memory"),
        ("", errors.SparkError, "Spark: no reason given"),
    ],
)
def test_what_is_said(text, kind, words):
    error = reworded(PySparkException(text))
    assert type(error) is kind
    assert words in str(error)
    assert "\tat " not in str(error)
    assert "SQLSTATE" not in str(error)


def test_what_is_not_of_spark_leaves_as_it_is():
    for kind in (KeyError, KeyboardInterrupt, errors.ConfigError):
        with pytest.raises(kind), rewording():
            raise kind("x")


def test_all_that_spark_said_can_be_had():
    told = []
    with pytest.raises(errors.SparkError, match="of its own") as caught, rewording(told.append):
        raise PySparkException(f"{ABORTED}something of its own{JAVA}")
    assert told == [caught.value]
    assert "PythonRunner.scala:1136" in caught.value.details


def test_a_broken_connection_is_that_to_java():
    with pytest.raises(errors.SparkError, match="has ended or does not answer"), rewording():
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("Exception in thread \"main\" org.apache.spark.SparkException: Could not parse Master URL:"
         " 'nonsense'\n\tat x", "--master nonsense: Spark knows local[N]"),
        ("WARNING: x\nInvalid maximum heap size: -Xmx4zz\nError: Could not create the Java Virtual"
         " Machine.\nError: A fatal", "Invalid maximum heap size: -Xmx4zz"),
        ('Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or'
         " start with spark, k8s, or local\n\tat x", "--master: Spark knows local[N]"),
        ("", ""),
    ],
)  # fmt: skip
def test_why_java_did_not_start(log, reason):
    assert reason_of_start(log).startswith(reason)
