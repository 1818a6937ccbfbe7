"""What queues and index lost: where dispatch begins anew, and what that brings back."""

import shutil

import pytest
from recovery_fakes import (
    SIZE,
    FakeIndex,
    T,
    WatchedOps,
    bench_of,
    keyed,
    name,
    options,
    places,
)

from rocketlake import failpoint
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.flags import TransactionType
from rocketlake.model.queues import QueueKey
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    """Files with room for ten short records."""
    return StoreBuilder(tmp_path, log_file_size=SIZE)


# --- queues that lost something ------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_lost_queue_is_made_from_the_whole_log(builder, clean):
    """Made from a part of the log, its offsets would begin at 0 again."""
    for number in range(15):
        builder.record("T", 0, str(number).encode()).record("U", 1)
    last = builder.placed[-1].store_timestamp + 4000
    builder.record("U", 1, stored=last).checkpoint(last, last, last).lose_queue("U", 1)
    bench = bench_of(builder if clean else builder.unclean())
    report = bench.recover()
    assert report.dispatched_from == 0
    assert report.redispatched == 16
    assert report.queue_offsets == {T: 15, QueueKey("U", 1): 16}
    assert bench.offsets_of("U", 1) == places(builder, "U", 1)
    assert any("U/1" in note for note in report.notes)
    assert ("flush", 0) in bench.queues.calls
    bench.dispatched.clear()
    assert bench.recover().redispatched == 0
    assert 0 not in [start for start, _ in bench.dispatched]


@pytest.mark.parametrize("clean", [True, False])
def test_queue_that_lost_its_last_units_gets_them_back(builder, clean):
    for _ in range(15):
        builder.record("T", 0).record("U", 1)
    builder.checkpoint(*[builder.placed[-1].store_timestamp + 4000] * 3).lose_units("U", 1, 5)
    bench = bench_of(builder if clean else builder.unclean())
    report = bench.recover()
    assert report.dispatched_from == 0
    assert bench.offsets_of("U", 1) == places(builder, "U", 1)


def test_queue_that_lacks_only_records_of_the_last_file_needs_no_more(builder):
    for _ in range(15):
        builder.record("T", 0).record("U", 1)
    builder.lose_units("U", 1, 14)
    bench = bench_of(builder)
    report = bench.recover()
    assert report.dispatched_from == builder.placed[-1].physical_offset
    assert bench.offsets_of("U", 1) == places(builder, "U", 1)


def test_all_queues_lost_after_a_clean_stop(builder):
    for _ in range(15):
        builder.record("T", 0).record("U", 1)
    bench = bench_of(builder.lose_queue("T", 0).lose_queue("U", 1))
    report = bench.recover()
    assert report.dispatched_from == 0
    assert report.queue_offsets == {T: 15, QueueKey("U", 1): 15}


def test_queue_of_a_deleted_topic_is_not_missed(builder):
    """Otherwise every start would bring the topic back."""
    for _ in range(15):
        builder.record("T", 0).record("U", 1)
    bench = bench_of(builder.lose_queue("U", 1))
    bench.topics = {"T"}
    report = bench.recover()
    assert (report.dispatched_from, report.queue_offsets) == (None, {T: 15})


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_queue_of_a_topic_that_no_table_has_is_missed(builder, topic):
    for _ in range(15):
        builder.record("T", 0).record(topic, 1)
    bench = bench_of(builder.lose_queue(topic, 1))
    bench.topics = {"T"}
    assert bench.recover().queue_offsets == {T: 15, QueueKey(topic, 1): 15}


def test_queue_is_missed_if_another_of_its_topic_is_there(builder):
    for _ in range(15):
        builder.record("T", 0).record("T", 1)
    bench = bench_of(builder.lose_queue("T", 1))
    bench.topics = set()
    assert bench.recover().queue_offsets == {T: 15, QueueKey("T", 1): 15}


@pytest.mark.parametrize(("is_kept", "found"), [(True, {}), (False, {T: 15})])
def test_all_topics_deleted_are_told_from_all_queues_lost(builder, is_kept, found):
    """Deleting leaves the directory of the queues, which one who loses them does not have."""
    bench = bench_of(builder.records(15).lose_queue("T", 0))
    if is_kept:
        (bench.root / "consumequeue").mkdir(exist_ok=True)
    else:
        shutil.rmtree(bench.root / "consumequeue", ignore_errors=True)
    bench.topics = set()
    assert bench.recover().queue_offsets == found


def test_queue_whose_first_messages_expired_is_not_taken_for_a_lost_one(builder):
    builder.records(30).expire(2).unclean().checkpoint(0, 0, 0)
    builder.lose_units("T", 0, 0, 18)
    bench = bench_of(builder)
    report = bench.recover()
    assert (report.log_min, report.log_end) == (2 * SIZE, builder.end)
    assert report.notes == ()
    assert report.queue_offsets == {T: 30}


LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


@pytest.mark.parametrize("clean", [True, False])
def test_lost_light_queue_is_made_from_the_whole_log(builder, clean):
    light = "%LMQ%a"
    for _ in range(15):
        builder.record(light=[light, "%LMQ%b"])
    builder.checkpoint(*[builder.placed[-1].store_timestamp + 4000] * 3).lose_queue(light, 0)
    bench = bench_of(builder if clean else builder.unclean(), options=options(**LIGHT))
    report = bench.recover()
    assert report.dispatched_from == 0
    assert report.queue_offsets[QueueKey(light, 0)] == 15


def test_light_queues_are_not_missed_where_they_are_off(builder):
    """Dispatch would not write them, so that every start would miss them again."""
    for _ in range(15):
        builder.record(light=["%LMQ%a", "%LMQ%b"])
    builder.lose_queue("%LMQ%a", 0)
    assert bench_of(builder).recover().dispatched_from is None


@pytest.mark.parametrize("clean", [True, False])
def test_lost_batch_queue_is_made_from_the_whole_log(builder, clean):
    for _ in range(8):
        builder.record().inner_batch(3)
    key = QueueKey("B", 0)
    bench = bench_of(builder if clean else builder.unclean())
    assert bench.recover().queue_offsets == {T: 8, key: 24}
    builder.lose_queue("B", 0).checkpoint(*[builder.placed[-1].store_timestamp + 4000] * 3)
    bench = bench_of(builder)
    report = bench.recover()
    assert (report.dispatched_from, report.queue_offsets) == (0, {T: 8, key: 24})


def test_queue_with_a_high_number_is_found(builder):
    builder.record("T", 70_000).record("T", 70_000)
    report = bench_of(builder).recover()
    assert (report.dispatched_from, report.queue_offsets) == (None, {QueueKey("T", 70_000): 2})


def test_unit_that_points_behind_the_last_file_hides_nothing(builder):
    builder.records(12).unit("T", 0, 11, QueueUnit(1 << 40, 100, 0))
    bench = bench_of(builder)
    report = bench.recover()
    assert bench.queues.calls[1] == ("truncate", 2 * SIZE)
    assert bench.offsets_of() == places(builder)
    assert report.queue_offsets == {T: 12}
    assert any("behind the last file" in note for note in report.notes)


def test_units_behind_the_end_go_before_the_log_does(builder):
    """Order: a crash in between must leave nothing that points to what is not there."""
    ops = WatchedOps()
    builder.records(25).unclean().checkpoint(0, 0, 0).flip_body(3)
    bench = bench_of(builder, ops=ops, index=FakeIndex([0, 1900]))
    ops.events.clear()
    bench.queues.calls = bench.index.calls = ops.events
    report = bench.recover()
    kinds = [event[:2] for event in ops.events]
    end = report.log_end
    order = [
        ("distrust", 0),
        ("sync", name(0)),
        ("truncate", end),
        ("unlink", name(2 * SIZE)),
        ("unlink", name(SIZE)),
        ("zero", name(0)),
    ]
    found = [kinds.index(event) for event in dict.fromkeys(order)]
    assert found == sorted(found)
    assert bench.index.offsets == [0]


# --- the index -----------------------------------------------------------------------------------


def test_index_that_has_everything_is_left_alone(builder):
    keyed(builder, 15)
    bench = bench_of(builder, index=FakeIndex(places(builder)))
    assert bench.recover().dispatched_from is None
    assert bench.index.calls == []


def test_records_without_keys_make_no_index_look_behind(builder):
    keyed(builder, 12).records(3)
    bench = bench_of(builder, index=FakeIndex(places(builder)[:12]))
    assert bench.recover().dispatched_from is None


def test_keys_that_were_rolled_back_make_no_index_look_behind(builder):
    keyed(builder, 12).record(keys=["k"], sys_flag=TransactionType.ROLLBACK)
    bench = bench_of(builder, index=FakeIndex(places(builder)[:12]))
    assert bench.recover().dispatched_from is None


@pytest.mark.parametrize("clean", [True, False])
def test_index_is_rebuilt_from_where_it_asks(builder, clean):
    keyed(builder, 25).checkpoint(*[builder.placed[-1].store_timestamp + 4000] * 3)
    some = places(builder)[:12]
    index = FakeIndex(some, rebuild_from=some[-1])
    bench = bench_of(builder if clean else builder.unclean(), index=index)
    report = bench.recover()
    assert report.dispatched_from == SIZE  # the begin of its file, where a record begins
    assert sorted(index.offsets) == places(builder)
    assert ("flush",) in index.calls
    assert any("indexed again" in note for note in report.notes)


def test_missing_index_is_rebuilt_from_the_first_record(builder):
    keyed(builder, 25)
    bench = bench_of(builder, index=FakeIndex(rebuild_from=0))
    assert bench.recover().dispatched_from == 0
    assert bench.index.offsets == places(builder)


def test_index_that_was_off_for_a_while_catches_up(builder):
    keyed(builder, 25)
    bench = bench_of(builder, index=FakeIndex(places(builder)[:5]))
    report = bench.recover()
    assert report.dispatched_from == 0
    assert sorted(bench.index.offsets) == places(builder)


def test_rebuild_that_begins_before_the_log_begins_with_it(builder):
    keyed(builder, 25).expire(1)
    bench = bench_of(builder, index=FakeIndex(rebuild_from=0))
    report = bench.recover()
    assert report.dispatched_from == SIZE


def test_store_without_an_index_needs_none(builder):
    keyed(builder, 25)
    assert bench_of(builder, options=options(message_index_enable=False)).recover().notes == ()


def test_safe_index_makes_an_unclean_start_begin_earlier(builder):
    late = builder.records(30).placed[-1].store_timestamp + 4000
    builder.unclean().checkpoint(late, late, builder.placed[10].store_timestamp)
    assert bench_of(builder).recover().read_from == 2 * SIZE
    safe = options(message_index_safe=True)
    assert bench_of(builder, options=safe).recover().read_from == SIZE
    off = options(message_index_safe=True, message_index_enable=False)
    assert bench_of(builder, options=off).recover().read_from == 2 * SIZE


# --- a crash meanwhile ---------------------------------------------------------------------------


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("point", ["truncate.before", "truncate.after", "delete.after"])
def test_crash_during_recovery_changes_nothing_about_its_outcome(builder, point):
    builder.records(25).unclean().checkpoint(0, 0, 0).flip_body(4)
    builder.record("U", 0)

    def crash():
        raise CrashError

    bench = bench_of(builder)
    with failpoint.switched_on(point, crash), pytest.raises(CrashError):
        bench.recover()
    report = bench.recover()
    assert report.log_end == builder.placed[4].physical_offset
    assert report.queue_offsets[T] == 4
    assert bench.offsets_of() == places(builder)[:4]


def test_crash_while_a_lost_queue_is_made_anew(builder):
    for _ in range(15):
        builder.record("T", 0).record("U", 1)
    bench = bench_of(builder.lose_queue("U", 1))
    put, count = bench.put, 0

    def crash_later(message):
        nonlocal count
        count += 1
        if count == 7:
            raise CrashError
        put(message)

    bench.put = crash_later
    with pytest.raises(CrashError):
        bench.recover()
    assert 0 < len(bench.offsets_of("U", 1)) < 15
    bench.put = put
    assert bench.recover().queue_offsets == {T: 15, QueueKey("U", 1): 15}
    assert bench.offsets_of("U", 1) == places(builder, "U", 1)
