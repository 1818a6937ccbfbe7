"""Recovery with real queues, index and dispatch: on the disk is what readers must find."""

import shutil

import pytest
from real_bench import RealBench

from rocketlake import failpoint
from rocketlake.format.queue_unit import QueueUnit, is_ext_address
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.options import StoreOptions
from support.golden import GoldenStores, case_names
from support.reading import bodies, bounds
from support.store_builder import StoreBuilder

SIZE = 1000
UNITS = 20
SLOTS, ENTRIES = 10, 40


# --- stores of RocketMQ --------------------------------------------------------------------------


@pytest.fixture
def open_case(tmp_path):
    def open_case(name):
        golden = GoldenStores.copy(name, tmp_path / name)
        for path in golden.root.glob("timerwheel*"):
            path.unlink()  # large, and nothing to recovery
        version = {"v55": "5.5", "v5": "5.3", "v4": "4.9", "v46": "4.6"}[name.partition("-")[0]]
        given = golden.case.options(golden.root)
        options = StoreOptions.from_source(given, compat_version=version)
        dirs = golden.log_dirs if len(golden.log_dirs) > 1 else ()
        bench = RealBench(golden.root, options, log_dirs=dirs)
        bench.asked = [(query["topic"], query["key"]) for query in golden.case.key_queries]
        return golden, bench

    yield open_case
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("name", case_names())
def test_golden_store_has_the_bounds_and_keys_that_rocketmq_finds(open_case, name):
    golden, bench = open_case(name)
    report = bench.recover()
    assert (report.log_min, report.log_end) == golden.case.log_bounds
    assert bench.bounds == golden.case.bounds
    answers = {
        (query["topic"], query["key"]): query["physicalOffsets"]
        for query in golden.case.key_queries
    }
    for pair, offsets in answers.items():
        # RocketMQ gives a record once for each time it has the key, and leaves out what expired.
        found = [offset for offset in bench.keys[pair] if offset >= report.log_min]
        assert found == sorted(set(offsets))


@pytest.mark.parametrize("name", case_names())
def test_recovered_golden_store_reads_as_rocketmq_reads_it(open_case, name):
    """From the files alone, by a reader that finds nothing left to mend."""
    golden, bench = open_case(name)
    bench.recover()
    with OfflineStore(golden.root, log_dirs=bench.log_dirs) as store:
        assert not any(len(queue.owed) for queue in store.queues.values())
        found = [
            (
                int(place["queue_offset"]),
                message.physical_offset,
                None if is_ext_address(int(place["tags_code"])) else int(place["tags_code"]),
            )
            for key in store.queues
            for batch in store.messages(key)
            for place, message in zip(batch.places, batch.columns.messages(), strict=True)
        ]
        assert store.damage.findings == []
    assert found == [
        (
            line.get("cqOffset", line["queueOffset"]),
            line["physicalOffset"],
            None if "ext" in line else line["tagsCode"],
        )
        for line in golden.case.messages
    ]


@pytest.mark.parametrize("name", case_names())
def test_recovering_golden_files_twice_is_recovering_once(open_case, name):
    _, bench = open_case(name)
    first = bench.recover()
    files, bounds_, keys = bench.snapshot(), bench.bounds, bench.keys
    again = bench.recover()
    assert (again.queue_offsets, again.redispatched) == (first.queue_offsets, 0)
    assert (bench.bounds, bench.keys) == (bounds_, keys)
    assert bench.snapshot() == files


@pytest.mark.parametrize("name", [name for name in case_names() if "unclean" not in name])
def test_clean_golden_queues_and_index_keep_their_bytes(open_case, name):
    _, bench = open_case(name)
    before = bench.snapshot()
    report = bench.recover()
    assert report.redispatched == 0
    assert bench.snapshot() == before


# --- small stores --------------------------------------------------------------------------------


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(
        tmp_path, log_file_size=SIZE, queue_file_units=UNITS, index_shape=(SLOTS, ENTRIES)
    )


def bench_of(builder, **rest):
    options = StoreOptions(
        mapped_file_size_commit_log=SIZE,
        mapped_file_size_consume_queue=UNITS * 20,
        mapper_file_size_batch_consume_queue=UNITS * 46,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
        **rest,
    )
    return RealBench(builder.write(), options)


def vouch(builder):
    """Let the checkpoint vouch for log and queues, all but the last file of the log."""
    late = builder.placed[-1].store_timestamp + 4000
    return builder.checkpoint(late, late, 0)


def fill(builder, count=60):
    """Messages of two queues with keys: the log has several files, and so has each queue."""
    for number in range(count):
        builder.record("TU"[number % 2], 0, str(number).encode(), keys=[f"k{number}"])
    return builder


def all_bodies(topic_number, count=60):
    return [str(number).encode() for number in range(topic_number, count, 2)]


def keys_found(root, count=60):
    with OfflineStore(root) as store:
        assert store.coverage.notes == []
        return [
            number
            for number in range(count)
            if len(store.find(KeyQuery(topic="TU"[number % 2], key=f"k{number}"))) == 1
        ]


def check_whole(bench, count=60):
    """All messages are in their queues and in the index."""
    with OfflineStore(bench.root) as store:
        assert bodies(store, "T") == all_bodies(0, count)
        assert bodies(store, "U") == all_bodies(1, count)
        assert not any(len(queue.owed) for queue in store.queues.values())
        assert store.damage.findings == []
    assert keys_found(bench.root, count) == list(range(count))


DAMAGES = {
    "nothing": lambda builder: builder,
    "a queue": lambda builder: builder.lose_queue("T", 0),
    "both queues": lambda builder: builder.lose_queue("T", 0).lose_queue("U", 0),
    "the end of a queue": lambda builder: builder.lose_units("T", 0, 7),
    "the last unit": lambda builder: builder.lose_units("U", 0, 29),
    "the index": lambda builder: builder.lose_index(),
    "the index and a queue": lambda builder: builder.lose_index().lose_queue("U", 0),
    "a garbage unit": lambda builder: builder.unit("U", 0, 29, QueueUnit(1 << 50, 90, 0)),
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("lost", DAMAGES)
def test_whatever_queues_and_index_lost_the_log_gives_back(builder, lost, clean):
    DAMAGES[lost](vouch(fill(builder)))
    bench = bench_of(builder if clean else builder.unclean())
    report = bench.recover()
    assert {str(key): offset for key, offset in report.queue_offsets.items()} == {
        "T/0": 30,
        "U/0": 30,
    }
    check_whole(bench)
    files = bench.snapshot()
    assert bench.recover().redispatched == 0
    assert bench.snapshot() == files


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_tail_that_was_not_dispatched_is(builder, clean):
    fill(builder, 40)
    for number in range(40, 60):
        body = str(number).encode()
        builder.record("TU"[number % 2], 0, body, keys=[f"k{number}"], dispatched=False)
    bench = bench_of(builder if clean else builder.unclean())
    assert bench.recover().redispatched == 20
    check_whole(bench)


def test_cut_log_takes_units_and_keys_with_it(builder):
    """And new records at the same place are indexed, which the reference takes for repeats."""
    fill(builder, 30).unclean().flip_body(24)
    bench = bench_of(builder)
    report = bench.recover()
    end = builder.placed[24].physical_offset
    assert report.log_end == end
    with OfflineStore(bench.root) as store:
        assert bounds(store) == {"T/0": (0, 12), "U/0": (0, 12)}
    assert keys_found(bench.root, 30) == list(range(24))
    assert report.cut_bytes > 0


def test_cut_log_after_a_clean_stop_takes_keys_with_it(builder):
    """The index is trusted then: only what points behind the end may go."""
    fill(builder, 60).flip_body(58)
    bench = bench_of(builder)
    report = bench.recover()
    assert report.log_end == builder.placed[58].physical_offset
    assert keys_found(bench.root, 60) == list(range(58))
    bench.asked = [("T", "k56"), ("T", "k58")]
    bench.recover()
    assert bench.keys == {("T", "k56"): [builder.placed[56].physical_offset], ("T", "k58"): []}


@pytest.mark.parametrize("point", ["truncate.before", "truncate.after", "delete.after"])
@pytest.mark.parametrize("passes", [0, 1, 2])
def test_crash_at_a_failpoint_is_made_good_by_the_next_start(builder, point, passes):
    fill(builder, 60).unclean().checkpoint(0, 0, 0).flip_body(24)
    bench = bench_of(builder)

    class CrashError(Exception):
        pass

    def crash():
        raise CrashError

    with failpoint.switched_on(point, crash, passes=passes), pytest.raises(CrashError):
        bench.recover()
    bench.recover(is_clean=False)
    with OfflineStore(bench.root) as store:
        assert bounds(store) == {"T/0": (0, 12), "U/0": (0, 12)}
        assert store.damage.findings == []
    assert keys_found(bench.root, 60) == list(range(24))


def test_empty_log_takes_everything_with_it(builder):
    bench = bench_of(fill(builder))
    for path in (bench.root / "commitlog").iterdir():
        path.unlink()
    report = bench.recover()
    assert report.queue_offsets == {}
    assert bench.snapshot() == {}


def test_lost_batch_and_light_queues_come_back(builder):
    for number in range(12):
        builder.record(body=str(number).encode(), light=["%LMQ%a"]).inner_batch(3)
    vouch(builder).lose_queue("B", 0).lose_queue("%LMQ%a", 0)
    bench = bench_of(builder, enable_lmq=True, enable_multi_dispatch=True)
    bench.recover()
    assert bench.bounds == {("T", 0): (0, 12), ("%LMQ%a", 0): (0, 12), ("B", 0): (0, 36)}
    with OfflineStore(bench.root) as store:
        assert bodies(store, "%LMQ%a") == [str(number).encode() for number in range(12)]
        assert len(bodies(store, "B")) == 12


def test_missing_log_file_leaves_what_the_others_hold(builder):
    fill(builder).unclean().checkpoint(0, 0, 0).lose_log_file(2 * SIZE)
    report = bench_of(builder).recover()
    assert report.log_end == builder.end
    assert any("a file is missing" in note for note in report.notes)


def test_expired_log_moves_the_lowest_offsets(builder):
    fill(builder).expire(2)
    bench = bench_of(builder)
    report = bench.recover()
    assert report.log_min == 2 * SIZE
    kept = [place for place in builder.placed if place.physical_offset >= 2 * SIZE]
    lowest = min(place.queue_offset for place in kept if place.topic == "T")
    assert bench.bounds["T", 0] == (lowest, 30)
