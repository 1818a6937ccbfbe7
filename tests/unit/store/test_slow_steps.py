"""Flushes, commits and new files are timed; slow steps are in the log."""

import logging
import threading

import pytest
from store_bench import open_engine, request

from rocketlake.files import preallocator
from rocketlake.store.put import flush as flush_module
from rocketlake.store.stats.slow_steps import SLOW_NS, SlowSteps, Step
from rocketlake.store.stats.store_stats import StoreStats
from support.manual_clock import ManualClock

MS = 1_000_000
BUFFERS = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}


class SlowTime(threading.local):
    """A clock that moves by so much each time a thread reads it."""

    def __init__(self, step_ms):
        self.step_ns = step_ms * MS
        self.now_ns = 0

    def __call__(self):
        self.now_ns += self.step_ns
        return self.now_ns


@pytest.fixture
def notes(caplog):
    caplog.set_level(logging.DEBUG, logger="rocketlake")
    return caplog


def levels(notes, text):
    return [record.levelname for record in notes.records if text in record.getMessage()]


# --- what is measured -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_flushes_are_counted(tmp_path, mode):
    with open_engine(tmp_path, flush_disk_type=mode) as store:
        assert store.runtime_info()["flushTimes"] == "0"
        store.put(request())
        store.flush()
        assert int(store.runtime_info()["flushTimes"]) >= 1
        counted = store.stats.flush.total
        store.flush()  # nothing is new
        assert store.stats.flush.total == counted
    assert store.stats.flush.max_ns > 0


def test_commits_of_write_buffers_are_counted(tmp_path):
    with open_engine(tmp_path, **BUFFERS) as store:
        store.put(request())
        store.parts.log_parts.commit.close()
        assert int(store.runtime_info()["commitTimes"]) == 1
        store.put(request())
        store.flush()
        assert int(store.runtime_info()["commitTimes"]) == 2


def test_new_files_are_counted(tmp_path):
    with open_engine(tmp_path) as store:
        store.put(request())
        info = store.runtime_info()
        assert int(info["createTimes"]) >= 1
        assert {"createTimeMax", "createLatency99", "flushTimeMax", "commitLatency999"} < set(info)


# --- what is logged -------------------------------------------------------------------------------


def test_slow_flush_and_commit_are_logged(tmp_path, notes, monkeypatch):
    monkeypatch.setattr(flush_module, "perf_counter_ns", SlowTime(501))
    with open_engine(tmp_path, **BUFFERS) as store:
        store.put(request())
        store.flush()
    assert levels(notes, "slow step=flush took_ms=501") == ["INFO"]
    assert levels(notes, "slow step=commit took_ms=501") == ["INFO"]


def test_quick_flush_is_not_logged(tmp_path, notes, monkeypatch):
    monkeypatch.setattr(flush_module, "perf_counter_ns", SlowTime(500))
    with open_engine(tmp_path) as store:
        store.put(request())
        store.flush()
        assert store.stats.flush.max_ns == 500 * MS
    assert levels(notes, "slow step=flush") == []


@pytest.mark.parametrize(("took_ms", "found"), [(10, []), (11, ["INFO", "INFO"])])
def test_file_that_is_made_slowly_is_logged(tmp_path, notes, monkeypatch, took_ms, found):
    monkeypatch.setattr(preallocator, "perf_counter_ns", SlowTime(took_ms))
    with open_engine(tmp_path) as store:
        store.put(request())
        store.parts.log_parts.preallocator.close()  # the file behind the first is made too
    assert levels(notes, f"took_ms={took_ms}")[:2] == found
    if found:
        assert "file made slowly path=" in notes.text


def test_slow_puts_and_appends_are_warned_of(notes):
    stats = StoreStats(0)
    SlowSteps(ManualClock()).watch(stats)
    stats.note_put_end(SLOW_NS, is_ok=True)
    assert levels(notes, "slow step") == []
    stats.note_put_end(SLOW_NS + MS, is_ok=True)
    stats.note_append(0, SLOW_NS + 2 * MS)
    assert levels(notes, "slow step=put took_ms=501") == ["WARNING"]
    assert levels(notes, "slow step=append took_ms=502") == ["WARNING"]


def test_what_repeats_itself_is_logged_once_in_ten_seconds(notes):
    clock = ManualClock()
    steps = SlowSteps(clock)
    for _ in range(3):
        steps.note(Step.FLUSH, SLOW_NS)
    assert len(levels(notes, "slow step=flush")) == 1
    clock.advance_ms(10_001)
    steps.note(Step.FLUSH, SLOW_NS)
    assert "took_ms=500 left_out=2" in notes.text
