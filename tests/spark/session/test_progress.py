"""`watching` tells of every task of the jobs inside its block, and of no others."""

import time
from pathlib import Path

import pytest

from rocketlake.spark.progress import watching


def run_job(spark, tasks: int) -> None:
    spark.sparkContext.parallelize(range(tasks), tasks).count()


def test_all_tasks_of_the_block_are_told_and_none_before(spark):
    run_job(spark, 3)
    told = []
    with watching(spark, lambda done, total: told.append((done, total))):
        run_job(spark, 2)
        run_job(spark, 4)
    assert told[-1] == (6, 6)
    run_job(spark, 1)
    assert told[-1] == (6, 6)


def test_tasks_are_told_while_a_job_runs(spark, tmp_path):
    gate = str(tmp_path / "gate")

    def wait_for_gate(number):
        deadline = time.monotonic() + 60
        while number == 3 and not Path(gate).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return number

    told = []

    def open_gate(done, total):
        told.append((done, total))
        if done:
            (tmp_path / "gate").touch()

    with watching(spark, open_gate, every_s=0.02):
        spark.sparkContext.parallelize(range(4), 4).map(wait_for_gate).collect()
    assert told[0][1] == 4
    assert told[0][0] < 4
    assert told[-1] == (4, 4)
    assert told == sorted(told)


def test_skipped_stages_do_not_keep_it_from_its_end(spark):
    pairs = (
        spark.sparkContext.parallelize(range(8), 2).map(lambda n: (n % 2, n)).reduceByKey(max, 2)
    )
    pairs.collect()
    told = []
    with watching(spark, lambda done, total: told.append((done, total))):
        pairs.collect()
    assert told[-1] == (2, 2)


def test_a_failing_listener_does_not_fail_the_job(spark):
    def fail(done, total):
        raise ValueError((done, total))

    with watching(spark, fail, every_s=0.01):
        run_job(spark, 2)


def test_what_the_block_raises_comes_out(spark):
    with pytest.raises(KeyError), watching(spark, print):
        raise KeyError


def test_nobody_listening_is_fine():
    with watching(None, None):
        pass
