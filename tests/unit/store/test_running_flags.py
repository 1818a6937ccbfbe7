"""Running flags: the reference's bits, and what each forbids."""

import threading

import pytest

from rocketlake.errors import DiskFullError, StoreError
from rocketlake.store.api import GetRequest, PutStatus
from rocketlake.store.running_flags import RunningFlag, RunningFlags
from support.engine import open_engine, request

# What RunningFlags of 5.3.3 answers with one bit set: readable, writeable, CQ-writeable.
ANSWERS = {
    1: (False, True, True),
    2: (True, False, False),
    4: (True, False, False),
    8: (True, False, False),
    16: (True, False, True),
    32: (True, False, True),
    64: (True, False, False),
}


def answers(flags: RunningFlags) -> tuple[bool, bool, bool]:
    return flags.is_readable, flags.is_writable, flags.is_queue_writable


@pytest.mark.parametrize("flag", list(RunningFlag))
def test_flag_forbids_what_it_does_in_the_reference(flag):
    flags = RunningFlags()
    assert answers(flags) == (True, True, True)
    assert flags.mark(flag)
    assert flags.bits == int(flag)
    assert answers(flags) == ANSWERS[flag]
    assert flags.clear(flag)
    assert answers(flags) == (True, True, True)


def test_bits_are_the_references():
    assert [int(flag) for flag in RunningFlag] == list(ANSWERS)


def test_mark_and_clear_tell_whether_they_changed_something():
    flags = RunningFlags()
    assert not flags.clear(RunningFlag.DISK_FULL)
    assert flags.mark(RunningFlag.DISK_FULL)
    assert not flags.mark(RunningFlag.DISK_FULL)
    assert flags.mark(RunningFlag.FENCED)
    assert flags.has(RunningFlag.FENCED)
    assert flags.clear(RunningFlag.DISK_FULL)
    assert not flags.has(RunningFlag.DISK_FULL)
    assert flags.has(RunningFlag.FENCED)


def test_text_names_the_reasons():
    flags = RunningFlags()
    assert str(flags) == "OK"
    flags.mark(RunningFlag.DISK_FULL)
    flags.mark(RunningFlag.NOT_READABLE)
    assert str(flags) == "NOT_READABLE|DISK_FULL"


def test_changes_by_many_threads_do_not_undo_each_other():
    flags = RunningFlags()

    def toggle(flag: RunningFlag) -> None:
        for _ in range(2000):
            flags.mark(flag)
            flags.clear(flag)
        flags.mark(flag)

    threads = [threading.Thread(target=toggle, args=(flag,)) for flag in RunningFlag]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert flags.bits == 127


# --- in a store --------------------------------------------------------------------------------


def test_store_that_is_not_readable_hands_nothing_out(tmp_path):
    with open_engine(tmp_path) as store:
        store.put(request())
        store.flags.mark(RunningFlag.NOT_READABLE)
        asked = GetRequest(topic="T", queue_id=0, offset=0)
        for read in (store.get, store.get_raw, store.columns):
            with pytest.raises(StoreError, match="not readable: NOT_READABLE"):
                read(asked)
        store.flags.clear(RunningFlag.NOT_READABLE)
        assert len(store.get(asked).messages) == 1


def test_fenced_store_takes_no_puts_and_is_read(tmp_path):
    with open_engine(tmp_path) as store:
        store.put(request())
        store.set_fenced(is_fenced=True, reason="another broker is the primary")
        refused = store.put(request())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "FENCED: another broker is the primary" in refused.reason
        assert len(store.get(GetRequest(topic="T", queue_id=0, offset=0)).messages) == 1
        store.set_fenced(is_fenced=False)
        assert store.put(request()).is_ok


def test_index_that_cannot_be_written_is_tried_three_times_and_then_stops_puts(
    tmp_path, monkeypatch
):
    error = DiskFullError("index/1", 20, 0)

    def fail(*_):
        raise error

    with open_engine(tmp_path) as store:
        dispatcher = store.dispatcher
        with monkeypatch.context() as patch:
            patch.setattr("rocketlake.store.dispatch.dispatcher._RETRY_S", 3600.0)
            patch.setattr(type(store.index), "put", fail)
            store.put(request(keys=["k"]))
            with pytest.raises(DiskFullError, match="index/1"):
                dispatcher.catch_up(store.log.wrote_where)
            assert store.put(request()).is_ok
            for _ in range(2):
                dispatcher.exclusively(dispatcher.run_once)
            refused = store.put(request())
            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "INDEX_FILE_ERROR" in refused.reason
        dispatcher.catch_up(store.log.wrote_where)
        assert store.put(request()).is_ok
