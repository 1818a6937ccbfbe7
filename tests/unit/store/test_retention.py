"""Files go by age, by disk use and when asked; puts are refused while the disk is full."""

import pytest
from retention_bench import FILE_SIZE, GIB, PER_FILE, benches, usage

from rocketlake.errors import (
    FileAccessError,
    FlushFailedError,
    StoreClosedError,
    StorePoisonedError,
)
from rocketlake.files.ops import DiskUsage
from rocketlake.store.api import PutStatus
from rocketlake.store.queue.consume_queue import ConsumeQueue


@pytest.fixture
def make(tmp_path, monkeypatch):
    yield from benches(tmp_path, monkeypatch)


# --- by age ---------------------------------------------------------------------------------------


def test_expired_files_go_in_the_hour_and_the_last_stays(make):
    bench = make(file_reserved_time=5)
    bench.store.close()
    bench.reopen(delete_when=f"{bench.other_hour()};{bench.hour()}")
    bench.fill(6)
    bench.age(6)
    bench.age(4, count=0)
    assert bench.round() == 6
    assert bench.names[0] == f"{6 * FILE_SIZE:020d}"
    assert bench.round() == 0


def test_no_file_goes_before_its_age(make):
    bench = make(file_reserved_time=5)
    bench.store.close()
    bench.reopen(delete_when=bench.hour())
    bench.fill(6)
    bench.age(4)
    bench.age(6, count=2)
    assert bench.round() == 2


def test_no_file_goes_at_another_hour(make):
    bench = make()
    bench.fill(3)
    bench.age(100)
    assert bench.round() == 0
    bench.clock.advance_ms(12 * 3_600_000)
    assert bench.round() == 3


def test_first_round_comes_a_minute_after_the_start_then_every_interval(make):
    bench = make(
        delete_when="04;" + ";".join(f"{h:02d}" for h in range(24)), delete_file_batch_max=1
    )
    bench.fill(4)
    bench.age(100)
    retention = bench.store.retention
    counts = []
    for step_ms in (59_999, 1, 9_999, 1, 10_000):
        bench.clock.advance_ms(step_ms)
        retention.run_once()
        counts.append(bench.file_count)
    assert counts == [5, 4, 4, 3, 2]


def test_round_deletes_a_batch_with_pauses(make):
    bench = make(
        delete_when="00",
        delete_file_batch_max=4,
        delete_commit_log_files_interval=250,
        disk_max_used_space_ratio=10,
    )
    bench.disk.usage = usage(20)
    bench.fill(10)
    bench.age(100)
    pauses = []
    bench.store.retention._wait = lambda seconds: bool(pauses.append(seconds))
    assert bench.round() == 4
    assert pauses[:3] == [0.25] * 3
    assert bench.round(2) == 6


# --- by disk --------------------------------------------------------------------------------------


def test_crowded_disk_lets_expired_files_go_at_any_hour(make):
    bench = make()
    bench.disk.usage = usage(76)
    bench.fill(6)
    bench.age(1)
    bench.age(73, count=2)
    assert bench.round() == 2
    assert bench.round(3) == 0
    assert bench.put().is_ok


def test_files_go_before_they_expire_while_the_disk_is_too_full(make):
    bench = make(delete_file_batch_max=3)
    bench.fill(8)
    bench.disk.usage = usage(86)
    assert bench.round() == 3
    assert bench.put().is_ok
    assert bench.round() == 3
    bench.disk.usage = usage(85)
    assert bench.round() == 0


def test_files_stay_where_forced_deletion_is_off(make):
    bench = make(clean_file_forcibly_enable=False)
    bench.fill(4)
    bench.disk.usage = usage(95)
    assert bench.round(2) == 0


def test_disk_of_the_queues_counts_too(make):
    bench = make()
    bench.fill(3)
    bench.disk.usages[bench.root.name] = usage(91)
    bench.store.retention.look()
    receipt = bench.put()
    assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert f"LOGIC_DISK_FULL: the disk of {bench.root} is 91 % full" in receipt.reason
    assert bench.round() == 3


def test_free_bytes_let_files_go_before_they_expire(make):
    bench = make(disk_ratio_enable=False, disk_free_clean_bytes=2 * GIB)
    bench.fill(3)
    bench.disk.usage = DiskUsage(100 * GIB, 98 * GIB, 2 * GIB)
    assert bench.round() == 0
    bench.disk.usage = DiskUsage(100 * GIB, 98 * GIB, 2 * GIB - 1)
    assert bench.round() == 1
    bench.disk.usage = DiskUsage(100 * GIB, 98 * GIB, 2 * GIB - FILE_SIZE - 1)
    assert bench.round() == 2


def test_no_more_unexpired_files_go_than_are_needed(make):
    bench = make(delete_file_batch_max=2)
    bench.fill(8)
    # Ninety files of a hundred; five must go, in batches, and then the next interval is awaited.
    bench.disk.usage = DiskUsage(100 * FILE_SIZE, 90 * FILE_SIZE, 10 * FILE_SIZE)
    counts = []
    for _ in range(5):
        bench.store.retention.run_once()
        counts.append(bench.file_count)
    assert counts == [7, 5, 4, 4, 4]
    bench.clock.advance_ms(10_000)
    bench.store.retention.run_once()
    assert bench.file_count == 2


def test_disk_that_is_too_full_does_not_wait_for_the_first_round(make):
    bench = make()
    bench.fill(3)
    bench.disk.usage = usage(80)
    bench.age(100, count=1)
    bench.store.retention.run_once()
    assert bench.file_count == 4
    bench.disk.usage = usage(86)
    bench.store.retention.run_once()
    assert bench.file_count == 1


def test_files_just_written_are_dispatched_and_flushed_to_make_them_go(make):
    bench = make(flush_interval_commit_log=1_000_000)
    for _ in range(3 * PER_FILE + 1):
        bench.put()
    bench.disk.usage = usage(95)
    assert bench.round() == 3


def test_bytes_that_refuse_puts_delete_no_message_that_is_not_expired(make):
    bench = make(disk_ratio_enable=False, disk_free_refuse_bytes=GIB)
    bench.fill(3)
    bench.age(73, count=1)
    bench.disk.usage = DiskUsage(100 * GIB, 100 * GIB - 1000, 1000)
    assert bench.round() == 1
    assert bench.round(3) == 0
    assert bench.put().status is PutStatus.SERVICE_NOT_AVAILABLE


def test_store_that_shares_a_disk_keeps_to_its_share(make):
    bench = make(replicas_per_disk_partition=2, delete_file_batch_max=1)
    bench.fill(6)
    own = bench.store.retention._parts.own_bytes
    bench.disk.usage = DiskUsage(own * 100 // 41, 0, own * 100 // 41)
    assert bench.round() == 1
    bench.disk.usage = DiskUsage(own * 3, 0, own * 3)
    assert bench.round() == 0


def test_disk_that_cannot_be_asked_is_no_reason_to_refuse(make):
    bench = make()
    bench.fill(2)
    bench.age(73, count=1)
    bench.disk.usage = None
    assert bench.round() == 1
    assert bench.put().is_ok


def test_store_that_deletes_nothing_by_itself_keeps_all(make):
    bench = make(auto_delete_enable=False, delete_when="00;" + "04")
    bench.fill(4)
    bench.age(1000)
    bench.disk.usage = usage(99)
    assert bench.round(30) == 0
    assert "delete_expired(hours=0) removes up to 4 log files" in bench.put().reason


# --- asked ----------------------------------------------------------------------------------------


def test_asking_deletes_expired_files_in_the_next_twenty_rounds(make):
    bench = make(delete_file_batch_max=1)
    bench.fill(25)
    bench.age(100)
    assert bench.round() == 0
    bench.store.retention.ask()
    bench.store.retention.run_once()
    assert bench.file_count == 25
    assert bench.round(30) == 19


def test_deleting_now_removes_all_that_is_expired(make):
    bench = make(delete_file_batch_max=2)
    bench.fill(8)
    bench.age(100, count=7)
    deleted = bench.store.delete_expired()
    assert (deleted.files, deleted.size) == (7, 7 * FILE_SIZE)
    assert deleted.queue_files == 7 * PER_FILE // 10
    assert bench.store.delete_expired().files == 0


def test_deleting_now_takes_another_age(make):
    bench = make()
    bench.fill(4)
    bench.age(10)
    bench.age(20, count=2)
    assert bench.store.delete_expired(reserved_ms=15 * 3_600_000).files == 2
    assert bench.store.delete_expired(force=True).files == 2
    assert bench.store.delete_expired(force=True).files == 0
    assert bench.file_count == 1


def test_deleting_needs_an_open_store(make):
    bench = make()
    bench.store.close()
    with pytest.raises(StoreClosedError):
        bench.store.delete_expired()


def test_nothing_is_deleted_once_a_flush_failed(make):
    bench = make()
    bench.fill(3)
    bench.store.parts.log_parts.poison.take(FlushFailedError("commitlog", "EIO"))
    bench.disk.usage = usage(99)
    assert bench.round() == 0
    with pytest.raises(StorePoisonedError):
        bench.store.delete_expired(force=True)


# --- held back ------------------------------------------------------------------------------------


def test_hook_holds_files_back_whatever_the_disk_says(make):
    bench = make()
    bench.fill(6)
    bench.disk.usage = usage(95)
    keep = [2 * FILE_SIZE + 1]
    bench.store.retention.hold("archive", lambda: keep[0])
    assert bench.round(3) == 2
    assert bench.store.delete_expired(force=True).files == 0
    assert f"held back from offset {keep[0]} on" in bench.put().reason
    assert bench.store.retention.gauges().kept_from == keep[0]
    keep[0] = None
    assert bench.round() == 4


def test_lowest_of_several_holders_is_kept_until_it_is_released(make):
    bench = make()
    bench.fill(6)
    bench.disk.usage = usage(95)
    retention = bench.store.retention
    retention.hold("archive", lambda: 3 * FILE_SIZE)
    retention.hold("replica", lambda: FILE_SIZE)
    retention.hold("backup", lambda: None)
    assert retention.holders == ("archive", "replica", "backup")
    assert bench.round(3) == 1
    retention.release("replica")
    retention.release("nobody")
    assert bench.round(3) == 2
    assert bench.store.log.min_offset == 3 * FILE_SIZE
    retention.hold("archive", lambda: 4 * FILE_SIZE)
    assert bench.round(3) == 1


def test_hook_that_fails_holds_everything_back(make, caplog):
    bench = make()
    bench.fill(3)
    bench.disk.usage = usage(95)
    bench.store.retention.hold("archive", lambda: 1 // 0)
    assert bench.round() == 0
    assert "holder failed, no file is deleted name=archive" in caplog.text


def test_message_that_no_queue_holds_yet_is_not_deleted(make, monkeypatch):
    bench = make()
    bench.fill(2)

    def fail(*_):
        raise FileAccessError("consumequeue/T/0", "no space left on the disk")

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "append_packed", fail)
        for _ in range(4 * PER_FILE):
            assert bench.put().is_ok
        bench.store.flush()
        assert bench.store.delete_expired(force=True).files == 2
    assert [m.queue_offset for m in bench.read(offset=8).messages] == [*range(8, bench.sent)]


def test_message_that_cannot_be_brought_to_the_disk_is_not_deleted(make, monkeypatch):
    bench = make(flush_interval_commit_log=1_000_000)
    bench.fill(2)
    for _ in range(3 * PER_FILE):
        bench.put()
    bench.store.catch_up()
    flusher = bench.store.parts.log_parts.flusher

    def fail():
        raise FileAccessError("commitlog", "not now")

    with monkeypatch.context() as patch:
        patch.setattr(flusher, "flush_all", fail)
        assert bench.store.log.files.flushed_where < 3 * FILE_SIZE
        assert bench.store.delete_expired(force=True).files == 2
    assert bench.store.delete_expired(force=True).files == 3


# --- what goes wrong ------------------------------------------------------------------------------


def test_file_that_cannot_be_removed_stays_and_is_tried_again(make, caplog):
    bench = make()
    bench.fill(4)
    bench.disk.usage = usage(86)
    bench.disk.keeps_names = True
    assert bench.round(2) == 0
    assert "Read-only file system" in bench.store.retention.gauges().error
    assert "files not deleted" in caplog.text
    assert len(bench.read().messages) == bench.sent
    with pytest.raises(FileAccessError, match="Read-only"):
        bench.store.delete_expired(force=True)
    bench.disk.keeps_names = False
    assert bench.round() == 4
    assert bench.store.retention.gauges().error == ""


def test_gap_between_log_files_is_told(make, caplog):
    bench = make()
    bench.fill(4)
    files = bench.store.log.files
    files._drop(files.files[1], 0)
    bench.round()
    assert f"distance={2 * FILE_SIZE}" in caplog.text
