"""`rebuild` and `dispatch` of every golden log give RocketMQ's own queues and index.

All of them in this process, cut into small parts; a few through Spark. Queues are compared byte for
byte from the first record that the log holds, the index in content. Where a start of RocketMQ would
change the store first, both sides are compared after one of ours, whose bounds are RocketMQ's.
"""

import json

import pytest
from golden_jobs import (
    entries_of,
    index_shape,
    name_batch_topics,
    read_options,
    store_options,
    units_from,
    without_queues,
)
from local_runner import LocalRunner

import rocketlake
from rocketlake.spark.jobs.dispatch.job import DispatchJob
from rocketlake.spark.jobs.rebuild import plan_rebuild, run_rebuild
from rocketlake.store.offline import OfflineStore
from support.golden import Golden, GoldenStores, case_names
from support.manual_clock import ManualClock

PART_BYTES = 1000  # a few records: nearly every cut is in the middle of one
ON_SPARK = (
    "v5-roll",
    "v55-index",
    "v4-ext",
    "v5-batchcq",
    "v5-lmq",
    "v46-index",
    "v5-unclean-torn",
)


def recovered(golden: Golden) -> Golden:
    """Open a store as its options say, once, and close it."""
    rocketlake.open_store(golden.root, store_options(golden)).close()
    return golden


def assert_same(made: Golden, place) -> None:
    """Compare queues and index with RocketMQ's."""
    case = made.case
    theirs = GoldenStores.copy(case.name, place / "theirs")
    name_batch_topics(theirs)
    if case.recovered is not None:
        recovered(theirs)
        recovered(made)
        with OfflineStore(made.root) as store:
            for queue in case.recovered["queues"]:
                found = store.queues[rocketlake.QueueKey(queue["topic"], queue["queueId"])]
                assert (found.min_offset, found.max_offset) == (
                    queue["minOffset"],
                    queue["maxOffset"],
                )
    low, high = case.log_bounds
    ours = units_from(made.root, low)
    wanted = units_from(theirs.root, low)
    assert sorted(ours) == sorted(wanted)
    for name, data in wanted.items():
        assert ours[name] == data, name
    slots = case.spec["options"]["maxHashSlotNum"]
    assert entries_of(made.root, slots, low, high) == entries_of(theirs.root, slots, low, high)
    assert ours


@pytest.mark.parametrize("name", case_names())
def test_rebuild_gives_what_rocketmq_wrote(name, tmp_path):
    golden = GoldenStores.copy(name, tmp_path)
    with OfflineStore(golden.root, options=read_options(golden)) as store:
        lost = index_shape(golden) if name.endswith("-noqueue") else None
        plan = plan_rebuild(store, part_bytes=PART_BYTES, shape_of_index=lost)
    report = run_rebuild(LocalRunner(), plan, clock=ManualClock())
    assert report.records > 0
    assert report.parts > 1
    assert_same(golden, tmp_path)


@pytest.mark.parametrize("name", case_names())
def test_dispatch_gives_what_rocketmq_wrote(name, tmp_path):
    golden = without_queues(name, tmp_path)
    job = DispatchJob(LocalRunner(), golden.root, store_options(golden), part_bytes=PART_BYTES)
    report = job.run()
    assert report.records > 0
    assert_same(golden, tmp_path)
    assert job.run().records == report.records, "a second run has nothing to do"


def test_spark_gives_the_same(spark, tmp_path):
    for name in ON_SPARK:
        place = tmp_path / name
        golden = without_queues(name, place)
        DispatchJob(spark, golden.root, store_options(golden), part_bytes=PART_BYTES * 8).run()
        assert_same(golden, place / "dispatched")
        with OfflineStore(golden.root, options=read_options(golden)) as store:
            plan = plan_rebuild(store, part_bytes=PART_BYTES * 8)
        report = run_rebuild(spark, plan, clock=ManualClock())
        assert report.parts > 1
        assert_same(golden, place / "rebuilt")
        journal = json.loads((golden.root / "repair").glob("*/repair.json").__next__().read_bytes())
        assert journal["state"] == "done"
