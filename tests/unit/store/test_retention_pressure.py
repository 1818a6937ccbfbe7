"""A disk that is full refuses puts, says why, and what ends it; the gauges of retention."""

import time

import pytest
from retention_bench import FILE_SIZE, PER_FILE, benches, usage

from rocketlake.errors import FileAccessError
from rocketlake.store.api import GetStatus, PutStatus
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.running_flags import RunningFlag
from support.engine import batch_request, request


@pytest.fixture
def make(tmp_path, monkeypatch):
    yield from benches(tmp_path, monkeypatch)


# --- a full disk ----------------------------------------------------------------------------------


def test_critical_disk_refuses_every_put_and_ends_by_itself(make):
    bench = make(clean_file_forcibly_enable=False)
    bench.fill(2)
    bench.disk.usage = usage(91)
    bench.store.retention.look()
    store = bench.store
    message = request().message
    refused = [
        store.put(request()),
        store.put_plain(message, 0),
        store.put_async(request()).result(),
        store.put_plain_async(message, 0).result(),
        store.put_batch(batch_request([message])),
    ]
    assert {receipt.status for receipt in refused} == {PutStatus.SERVICE_NOT_AVAILABLE}
    path = bench.root / "commitlog"
    for receipt in refused:
        assert receipt.reason.startswith(
            "the store is not writable: DISK_FULL|LOGIC_DISK_FULL:"
            f" the disk of {path} is 91 % full:"
            " 91 GiB used, 9 GiB free; puts are refused above 90 % until it is 85 %."
            " The oldest of 2 log files, 4 KiB, goes at "
        ), receipt.reason
    assert bench.read().status is GetStatus.FOUND
    bench.disk.usage = usage(86)
    store.retention.look()
    assert not bench.put().is_ok
    bench.disk.usage = usage(85)
    store.retention.look()
    assert bench.put().is_ok
    assert not store.flags.bits


def test_refused_store_frees_space_and_goes_on(make):
    bench = make(delete_file_batch_max=2)
    bench.fill(4)
    bench.disk.usage = usage(91)
    bench.store.retention.look()
    assert "Log files are being deleted, up to 4, 16 KiB; the next look is within 10 s" in (
        bench.put().reason
    )
    assert bench.store.retention.pause_s() == 1.0
    assert bench.round(2) == 4
    assert "No log file can be deleted" in bench.put().reason
    bench.disk.usage = usage(50)
    bench.round()
    assert bench.put().is_ok
    assert bench.store.retention.pause_s() == 10.0


def test_store_on_a_full_disk_opens_and_refuses_from_the_start(make):
    bench = make()
    bench.fill(1)
    bench.store.close()
    bench.disk.usage = usage(95)
    bench.reopen()
    assert not bench.put().is_ok
    assert len(bench.read().messages) == PER_FILE + 1


def test_mark_of_a_running_store_stays_if_it_ends_on_a_full_disk(make):
    bench = make()
    bench.fill(1)
    bench.disk.usage = usage(95)
    bench.store.retention.look()
    bench.store.close()
    assert (bench.root / "abort").exists()
    bench.reopen()
    bench.disk.usage = usage(5)
    bench.store.close()
    assert not (bench.root / "abort").exists()


def test_file_that_cannot_be_made_refuses_with_path_and_bytes_and_heals(make):
    bench = make()
    bench.fill(0)
    preallocator = bench.store.parts.log_parts.preallocator
    preallocator.discard()
    bench.disk.is_full = True
    receipts = [bench.put() for _ in range(2 * PER_FILE)]
    refused = receipts[-1]
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    path = bench.root / "commitlog" / f"{FILE_SIZE:020d}"
    assert refused.reason == (
        f"{path}: no space left on the disk: {FILE_SIZE} bytes wanted, 123 free"
    )
    bench.disk.is_full = False
    deadline_s = time.monotonic() + 10
    while preallocator.error is not None:
        assert time.monotonic() < deadline_s
        preallocator.wakeup()
    assert bench.put().is_ok
    stored = sum(receipt.is_ok for receipt in receipts)
    assert len(bench.read().messages) == 1 + stored + 1


def test_dispatch_that_a_full_disk_stopped_goes_on_and_puts_are_taken_again(make, monkeypatch):
    bench = make()
    bench.fill(1)

    def fail(*_):
        raise FileAccessError("consumequeue/T/0", "no space left on the disk")

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "append_packed", fail)
        bench.put()
        for _ in range(30):
            bench.store.dispatcher.run_once()
        assert "queues or index cannot be written: consumequeue/T/0" in bench.put().reason
    bench.store.dispatcher.run_once()
    assert bench.put().is_ok


# --- several directories --------------------------------------------------------------------------


def test_directory_that_is_too_full_gets_no_new_files(make):
    bench = make(store_path_commit_log="{store}/one,{store}/two", delete_file_batch_max=1)
    bench.disk.usages["one"] = usage(95)
    bench.store.retention.look()
    bench.store.parts.log_parts.preallocator.discard()
    bench.fill(3)
    assert [file.path.parent.name for file in bench.store.log.files.files] == ["two"] * 4
    assert bench.put().is_ok
    assert bench.round() == 0
    bench.disk.usages["two"] = usage(92)
    assert bench.round() == 1
    receipt = bench.put()
    assert f"the disk of {bench.root / 'two'} is 92 % full" in receipt.reason


# --- gauges ---------------------------------------------------------------------------------------


def test_gauges_name_files_times_and_counts(make):
    bench = make(file_reserved_time=1)
    bench.fill(5)
    bench.age(0)
    bench.age(2, count=2)
    info = bench.store.runtime_info()
    assert info["commitLogDiskRatio"] == info["consumeQueueDiskRatio"] == "0.1"
    assert (info["oldestLogFile"], info["newestLogFile"]) == (
        bench.names[0],
        f"{5 * FILE_SIZE:020d}",
    )
    assert int(info["oldestLogFileChanged"]) == bench.clock.now_ms() - 2 * 3_600_000
    planned = int(info["nextDeletion"])
    assert bench.clock.now_ms() < planned <= bench.clock.now_ms() + 24 * 3_600_000
    assert (info["deletedLogFiles"], info["putRefusal"], info["filesKeptFrom"]) == ("0", "", "-1")
    bench.disk.usage = usage(91)
    assert bench.round() == 5
    info = bench.store.runtime_info()
    assert info["commitLogDiskRatio"] == "0.91"
    assert (info["deletedLogFiles"], info["deletedLogBytes"]) == ("5", str(5 * FILE_SIZE))
    assert info["deletedQueueFiles"] == "2"
    assert info["nextDeletion"] == "-1"
    assert info["putRefusal"].startswith("DISK_FULL|LOGIC_DISK_FULL: the disk of ")


def test_flags_of_a_full_disk_have_words(make):
    bench = make()
    flags = bench.store.flags
    assert flags.explain() == "OK"
    flags.mark(RunningFlag.FENCED)
    assert flags.explain() == "FENCED"
    flags.mark(RunningFlag.DISK_FULL, "no space")
    flags.mark(RunningFlag.LOGIC_DISK_FULL, "no space")
    assert flags.explain() == "DISK_FULL|FENCED|LOGIC_DISK_FULL: no space"
    for flag in (RunningFlag.DISK_FULL, RunningFlag.LOGIC_DISK_FULL, RunningFlag.FENCED):
        flags.clear(flag)
    assert flags.explain() == "OK"
