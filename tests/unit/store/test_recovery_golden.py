"""Stores that RocketMQ wrote, recovered: they end where RocketMQ's own start leaves them."""

import shutil

import pytest
from recovery_fakes import FakeIndex, RecoveryBench

from rocketlake.store.options import StoreOptions
from support.golden import GoldenStores, case_names

UNCLEAN = [name for name in case_names() if "unclean" in name]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return GoldenStores(tmp_path_factory.mktemp("recovery"))


@pytest.fixture
def open_case(stores, tmp_path):
    def open_case(name):
        golden = stores.copy(name, tmp_path / name)
        for path in golden.root.glob("timerwheel*"):
            path.unlink()  # large, and nothing to recovery
        options = StoreOptions.from_source(golden.case.options(golden.root))
        dirs = golden.log_dirs if len(golden.log_dirs) > 1 else ()
        return golden, RecoveryBench(golden.root, options, index=FakeIndex(), log_dirs=dirs)

    yield open_case
    shutil.rmtree(tmp_path)


def ends(report):
    return {(key.topic, key.queue_id): offset for key, offset in report.queue_offsets.items()}


@pytest.mark.parametrize("name", case_names())
def test_golden_store_recovers_to_what_rocketmq_makes_of_it(open_case, name):
    golden, bench = open_case(name)
    before = bench.log_bytes()
    report = bench.recover()
    assert (report.log_min, report.log_end) == golden.case.log_bounds
    assert report.is_clean == (name not in UNCLEAN)
    expected = {key: end for key, (_, end) in golden.case.bounds.items()}
    assert {key: ends(report)[key] for key in expected} == expected
    assert bench.positions == (report.log_end,) * 3
    size = bench.options.mapped_file_size_commit_log
    for base, data in bench.log_bytes().items():
        kept = min(max(report.log_end - int(base), 0), size)
        assert data[:kept] == before[base][:kept]
        assert not any(data[kept:])


@pytest.mark.parametrize("name", UNCLEAN)
def test_start_of_rocketmq_recovers_the_same(open_case, name):
    golden, bench = open_case(name)
    report = bench.recover()
    recovered = golden.case.recovered
    assert (report.log_min, report.log_end) == (
        recovered["commitLogMin"],
        recovered["commitLogMax"],
    )
    queues = {(q["topic"], q["queueId"]): q["maxOffset"] for q in recovered["queues"]}
    assert ends(report) == queues


@pytest.mark.parametrize("name", case_names())
def test_recovering_twice_is_recovering_once(open_case, name):
    _, bench = open_case(name)
    first = bench.recover()
    log_bytes, units = bench.log_bytes(), {k: q.units for k, q in bench.queues.items()}
    keys = sorted(bench.index.offsets)
    again = bench.recover()
    assert (again.log_min, again.log_end) == (first.log_min, first.log_end)
    assert again.queue_offsets == first.queue_offsets
    assert (again.cut_bytes, again.redispatched) == (0, 0)
    assert bench.log_bytes() == log_bytes
    assert {k: q.units for k, q in bench.queues.items()} == units
    assert sorted(bench.index.offsets) == keys
