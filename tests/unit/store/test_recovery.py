"""What a start does: where the log ends, what is cut, and what it leaves on the disk."""

import logging

import pytest
from recovery_fakes import (
    SIZE,
    FakeIndex,
    RecoveryBench,
    T,
    WatchedOps,
    bench_of,
    keyed,
    name,
    options,
    places,
)

from rocketlake.errors import FileSizeError, FlushFailedError, StoreError
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.flags import TransactionType
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    """Files with room for ten short records."""
    return StoreBuilder(tmp_path, log_file_size=SIZE)


# --- after a clean stop --------------------------------------------------------------------------


def test_clean_store_is_left_as_it_is(builder):
    bench = bench_of(builder.records(25))
    before = bench.log_bytes()
    report = bench.recover()
    assert report.is_clean
    assert (report.log_min, report.log_end, report.cut_bytes) == (0, builder.end, 0)
    assert (report.dispatched_from, report.redispatched) == (None, 0)
    assert report.dispatched_where == builder.end
    assert report.queue_offsets == {T: 25}
    assert report.notes == ()
    assert bench.log_bytes() == before
    assert bench.dispatched == []
    assert ("correct_min", 0) in bench.queues.calls
    assert not [call for call in bench.queues.calls if call[0] in {"truncate", "flush"}]


def test_clean_start_reads_only_the_last_file(builder):
    ops = WatchedOps()
    bench = bench_of(builder.records(45), ops=ops, index=FakeIndex([0]))
    assert builder.end // SIZE == 4
    bench.recover()
    assert ops.read_paths == {"checkpoint", name(4 * SIZE)}


def test_tail_that_no_queue_holds_is_dispatched_from_its_first_record(builder):
    """The first missing record begins exactly where the queues end."""
    bench = bench_of(builder.records(4).records(3, dispatched=False))
    report = bench.recover()
    assert report.dispatched_from == builder.placed[4].physical_offset
    assert report.redispatched == 3
    assert report.queue_offsets == {T: 7}
    assert bench.offsets_of() == places(builder)
    assert ("flush", 0) in bench.queues.calls


def test_queues_may_end_where_a_filler_begins(builder):
    bench = bench_of(builder.records(3).roll().records(2, dispatched=False))
    report = bench.recover()
    assert report.dispatched_from == SIZE
    assert report.queue_offsets == {T: 5}


def test_queue_whose_last_unit_is_too_long_does_not_hide_the_next_record(builder):
    builder.records(12).records(2, dispatched=False)
    last = builder.placed[11]
    builder.unit("T", 0, 11, QueueUnit(last.physical_offset, last.size + 5, 0))
    report = bench_of(builder).recover()
    assert report.dispatched_from == builder.placed[12].physical_offset
    assert report.queue_offsets == {T: 14}


def test_records_that_belong_to_no_queue_are_not_missed(builder):
    builder.records(2).record(sys_flag=TransactionType.PREPARED)
    report = bench_of(builder).recover()
    assert (report.log_end, report.dispatched_from) == (builder.end, None)
    assert report.queue_offsets == {T: 2}


def test_record_that_belongs_to_no_queue_does_not_hide_the_next(builder):
    builder.records(2).record(sys_flag=TransactionType.PREPARED).record(dispatched=False)
    report = bench_of(builder).recover()
    assert report.dispatched_from == builder.placed[3].physical_offset
    assert report.queue_offsets == {T: 3}


def test_garbage_behind_the_end_is_cut_to_zeros(builder):
    builder.records(3).overwrite(builder.end, b"\xa5" * 300)
    bench = bench_of(builder)
    report = bench.recover()
    assert (report.log_end, report.cut_bytes) == (builder.end, 300)
    assert not any(bench.log_bytes()[name(0)][builder.end :])
    (note,) = report.notes
    assert f"at {builder.end}: no record begins here; 300 bytes" in note


def test_spare_files_are_no_loss(builder):
    bench = bench_of(builder.records(3).spare_file())
    report = bench.recover()
    assert (report.log_end, report.cut_bytes, report.notes) == (builder.end, 0, ())
    assert bench.bases == [0]


def test_empty_last_file_of_a_crash_is_no_loss(builder):
    bench = bench_of(builder.records(3))
    (bench.root / "commitlog" / name(SIZE)).touch()
    assert bench.recover().log_end == builder.end


def test_filler_without_a_file_behind_it_is_cut(builder):
    builder.records(3)
    end = builder.end
    bench = bench_of(builder.roll())
    assert bench.recover().log_end == end
    assert not any(bench.log_bytes()[name(0)][end:])


def test_filler_with_an_empty_file_behind_it_ends_the_log_there(builder):
    bench = bench_of(builder.records(3).roll().spare_file())
    report = bench.recover()
    assert report.log_end == SIZE
    assert bench.bases == [0, SIZE]
    assert bench.positions == (SIZE, SIZE, SIZE)


# --- after an unclean stop -----------------------------------------------------------------------


def test_unclean_start_reads_from_the_file_that_the_checkpoint_names(builder):
    builder.records(30).unclean()
    builder.checkpoint(*[builder.placed[20].store_timestamp + 3000] * 3)
    bench = bench_of(builder)
    report = bench.recover()
    assert not report.is_clean
    assert report.read_from == 2 * SIZE
    # What was not flushed may be there in part: it is made again.
    assert (report.dispatched_from, bench.dispatched) == (2 * SIZE, [(2 * SIZE, builder.end)])
    assert (report.redispatched, report.queue_offsets) == (0, {T: 30})
    assert report.last_timestamp == builder.placed[-1].store_timestamp


def test_unclean_start_without_a_checkpoint_reads_everything(builder):
    bench = bench_of(builder.records(30).unclean().checkpoint(0, 0, 0))
    assert bench.recover().read_from == 0


def test_unclean_start_gives_queues_what_they_lack(builder):
    builder.records(25).records(3, dispatched=False).unclean().checkpoint(0, 0, 0)
    bench = bench_of(builder)
    report = bench.recover()
    assert report.dispatched_from == 0
    assert (report.redispatched, report.queue_offsets) == (3, {T: 28})
    assert bench.offsets_of() == places(builder)


def test_torn_record_is_cut_and_its_unit_with_it(builder):
    builder.records(5).unclean()
    builder.overwrite(builder.placed[4].physical_offset + 50, bytes(builder.placed[4].size - 50))
    bench = bench_of(builder)
    report = bench.recover()
    assert report.log_end == builder.placed[4].physical_offset
    assert report.cut_bytes == 50
    assert report.queue_offsets == {T: 4}
    assert bench.offsets_of() == places(builder)[:4]
    assert not any(bench.log_bytes()[name(0)][report.log_end :])


def test_good_records_behind_a_bad_one_are_cut_and_told(builder):
    builder.records(12).unclean().checkpoint(0, 0, 0).flip_body(4)
    report = bench_of(builder).recover()
    bad = builder.placed[4]
    assert report.log_end == bad.physical_offset
    assert report.cut_bytes >= builder.end - SIZE
    assert any("does not have its checksum" in note for note in report.notes)
    assert f"good records from {builder.placed[5].physical_offset} on" in report.notes[-1]
    assert report.queue_offsets == {T: 4}


def test_records_in_a_file_behind_lost_bytes_are_cut_and_told(builder):
    builder.records(12).unclean().checkpoint(0, 0, 0)
    lost = builder.placed[6]
    builder.overwrite(lost.physical_offset, bytes(SIZE - lost.physical_offset))
    report = bench_of(builder).recover()
    assert report.log_end == lost.physical_offset
    # The last bytes of the last record are zeros.
    assert 0 <= builder.end - lost.physical_offset - report.cut_bytes <= 2
    assert f"good records from {SIZE} on" in report.notes[-1]


def test_bad_checksum_is_no_end_where_none_is_checked(builder):
    builder.records(12).unclean().checkpoint(0, 0, 0).flip_body(4)
    bench = bench_of(builder, options=options(check_crc_on_recover=False))
    assert bench.recover().log_end == builder.end


def test_stale_records_never_come_back(builder):
    """A record that is appended at the cut may end just where an old one begins."""
    builder.records(6).unclean().write()
    place, path = builder.placed[2], builder.log_path(0)
    good = path.read_bytes()[place.physical_offset : place.end]
    bench = bench_of(builder.flip_body(2))
    assert bench.recover().log_end == place.physical_offset
    with path.open("r+b") as file:
        file.seek(place.physical_offset)
        file.write(good)
    report = bench.recover()
    assert report.log_end == place.end
    assert report.queue_offsets == {T: 3}


def test_unclean_log_without_any_record_is_empty(builder):
    bench = bench_of(builder.spare_file().unclean())
    report = bench.recover()
    assert (report.log_end, report.queue_offsets, report.cut_bytes) == (0, {}, 0)
    assert bench.bases == [0]
    assert report.last_timestamp == 0


# --- files that are not there --------------------------------------------------------------------


def test_log_without_files_takes_queues_and_index_with_it(builder, caplog):
    keyed(builder, 3)
    bench = bench_of(builder, index=FakeIndex(places(builder)))
    builder.log_path(0).unlink()
    (bench.root / "commitlog" / "lost+found").mkdir()
    with caplog.at_level(logging.WARNING):
        report = bench.recover()
    assert (report.log_min, report.log_end, report.queue_offsets) == (0, 0, {})
    assert bench.queues.items() == []
    assert bench.index.offsets == []
    assert "queues and index of the old one are removed" in caplog.text
    assert bench.positions == (0, 0, 0)


def test_log_without_files_but_with_others_takes_nothing_with_it(builder):
    bench = bench_of(builder.records(3))
    path = builder.log_path(0)
    path.rename(path.with_suffix(".gz"))
    with pytest.raises(StoreError, match=rf"{path.name}\.gz.*Put its files back"):
        bench.recover()
    assert ("destroy",) not in bench.queues.calls


def test_new_store_recovers_to_nothing(tmp_path):
    bench = RecoveryBench(tmp_path)
    report = bench.recover()
    assert (report.log_end, report.queue_offsets, report.notes) == (0, {}, ())
    assert ("destroy",) not in bench.queues.calls


def test_missing_file_in_the_middle_is_told_and_passed(builder):
    builder.records(30).unclean().checkpoint(0, 0, 0).lose_log_file(SIZE)
    builder.lose_queue("T", 0)
    bench = bench_of(builder)
    report = bench.recover()
    assert report.log_end == builder.end
    kept = [place for place in places(builder) if not SIZE <= place < 2 * SIZE]
    assert bench.offsets_of() == kept
    assert any("a file is missing" in note for note in report.notes)
    assert [start for start, _ in bench.dispatched] == [0, 2 * SIZE]


def test_bad_bytes_before_the_walk_do_not_stop_what_is_made_anew(builder):
    builder.records(25).lose_queue("T", 0)
    bad = builder.placed[4].physical_offset
    builder.overwrite(bad, b"\xff" * 8).record("U", 0)
    bench = bench_of(builder)
    report = bench.recover()
    assert report.log_end == builder.end
    assert any(f"at {bad}: no record can be read here" in note for note in report.notes)
    assert bench.offsets_of() == [
        place for place in places(builder) if place < bad or place >= SIZE
    ]


def test_file_of_another_size_is_refused(builder):
    bench = bench_of(builder.records(30))
    builder.log_path(SIZE).write_bytes(b"short")
    with pytest.raises(FileSizeError, match=name(SIZE)):
        bench.recover()


def test_log_in_several_directories(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=SIZE, log_dirs=("a", "b"))
    builder.records(30).records(2, dispatched=False).unclean()
    bench = bench_of(builder, log_dirs=(tmp_path / "a", tmp_path / "b"))
    report = bench.recover()
    assert (report.log_end, report.queue_offsets) == (builder.end, {T: 32})


# --- positions, checkpoint, progress -------------------------------------------------------------


def test_what_recovery_relies_on_is_on_the_disk(builder):
    ops = WatchedOps()
    late = builder.records(30).placed[-1].store_timestamp + 4000
    builder.checkpoint(late, late, late).unclean()
    bench = bench_of(builder, ops=ops)
    report = bench.recover()
    assert ("sync", name(2 * SIZE)) in ops.events
    assert ("sync", name(SIZE)) not in ops.events
    assert bench.positions == (report.log_end,) * 3
    assert bench.files.store_timestamp == builder.placed[-1].store_timestamp


def test_failing_disk_fails_the_start(builder):
    ops = WatchedOps()
    bench = bench_of(builder.records(3).unclean(), ops=ops)
    ops.fault = "sync"
    with pytest.raises(FlushFailedError):
        bench.recover()
    assert bench.dispatched == []


def test_confirmed_offset_is_the_last_record(builder):
    bench = bench_of(builder.records(3))
    bench.recover()
    assert bench.checkpoint.confirm_offset == builder.placed[-1].physical_offset


@pytest.mark.parametrize(
    ("stored", "expected"), [(0, SIZE), (1 << 40, None), (SIZE + 200, SIZE + 200)]
)
def test_confirmed_offset_of_others_is_held_within_the_log(builder, stored, expected):
    builder.records(30).expire(1)
    bench = bench_of(builder, options=options(duplication_enable=True))
    bench.checkpoint.confirm_offset = stored
    bench.checkpoint.flush()
    report = bench.recover()
    assert bench.checkpoint.confirm_offset == (builder.end if expected is None else expected)
    assert report.dispatched_where == bench.checkpoint.confirm_offset


def test_unconfirmed_records_are_counted_but_not_dispatched(builder):
    builder.records(12).records(3, dispatched=False)
    confirmed = builder.placed[13].physical_offset
    bench = bench_of(builder, options=options(duplication_enable=True))
    bench.checkpoint.confirm_offset = confirmed
    bench.checkpoint.flush()
    report = bench.recover()
    assert bench.offsets_of() == places(builder)[:13]
    assert (report.log_end, report.dispatched_where) == (builder.end, confirmed)
    assert report.queue_offsets == {T: 15}


@pytest.mark.parametrize("clean", [True, False])
def test_progress_ends_with_all_of_it(builder, clean):
    builder.records(30).records(2, dispatched=False).checkpoint(0, 0, 0)
    bench = bench_of(builder if clean else builder.unclean())
    bench.recover()
    assert bench.progress == sorted(bench.progress)
    done, total = bench.progress[-1]
    assert done == total
    assert all(done <= total for done, total in bench.progress)


def test_report_has_the_time_it_took(builder):
    bench = bench_of(builder.records(3, dispatched=False).unclean())
    put = bench.put
    bench.put = lambda message: (bench.clock.advance_ms(7), put(message))
    assert bench.recover().elapsed_ms == 21


@pytest.mark.parametrize(("concurrently", "workers"), [(False, 1), (True, 32)])
def test_queues_are_recovered_in_as_many_threads_as_wanted(builder, concurrently, workers):
    wanted = options(recover_concurrently=concurrently)
    bench = bench_of(builder.records(3), options=wanted)
    bench.recover()
    assert bench.queues.calls[0] == ("recover", workers, True)
