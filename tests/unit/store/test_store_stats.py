"""Counters: buckets and rates as the reference has them, and logs that repeat themselves."""

import logging
import sys
import threading

import pytest

from rocketlake.store.stats.store_stats import (
    Latency,
    SparseLog,
    StoreGauges,
    StoreStats,
    distribution_text,
)

MS = 1_000_000
MINUTE = 60_000


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def now_ns(self) -> int:
        return self.now_ms() * 1_000_000

    def monotonic_s(self) -> float:
        return self.now_s


# --- latency --------------------------------------------------------------------------------------

# First and last millisecond of each bucket of StoreStatsService#setPutMessageEntireTimeMax, 5.3.3.
EDGES_MS = [
    *[(0, 0), (1, 9), (10, 49), (50, 99), (100, 199), (200, 499), (500, 999), (1000, 1999)],
    *[(2000, 2999), (3000, 3999), (4000, 4999), (5000, 9999), (10_000, 10_000_000)],
]


@pytest.mark.parametrize(
    ("elapsed_ms", "bucket"),
    [(elapsed_ms, bucket) for bucket, edges in enumerate(EDGES_MS) for elapsed_ms in edges],
)
def test_latency_coarse_buckets_are_the_references(elapsed_ms, bucket):
    latency = Latency()
    latency.add(elapsed_ms * MS)
    assert latency.coarse() == [int(index == bucket) for index in range(13)]


def test_latency_coarse_less_than_a_millisecond_is_none():
    latency = Latency()
    latency.add(MS - 1)
    assert latency.coarse()[0] == 1


@pytest.mark.parametrize("elapsed_ns", [1, 7, 8, 1000, 12_345, MS, 123 * MS, 3_600_000 * MS])
def test_latency_quantile_is_near_the_one_time_there_is(elapsed_ns):
    latency = Latency()
    latency.add(elapsed_ns)
    for share in (0.0, 0.5, 1.0):
        assert latency.quantile_ms(share) * MS == pytest.approx(elapsed_ns, rel=0.26, abs=1)


def test_latency_quantiles_of_many_times():
    latency = Latency()
    for microseconds in range(1, 10_001):
        latency.add(microseconds * 1000)
    assert latency.total == 10_000
    for share in (0.1, 0.5, 0.9, 0.99, 0.999):
        assert latency.quantile_ms(share) == pytest.approx(share * 10, rel=0.05)
    assert latency.max_ns == 10 * MS


def test_latency_of_nothing_is_none():
    assert Latency().quantile_ms(0.99) == 0.0
    assert Latency().coarse_window is None


def test_latency_that_ran_backwards_counts_as_none():
    latency = Latency()
    latency.add(-5)
    assert latency.counts[0] == 1
    assert latency.max_ns == 0


def test_latency_window_has_only_the_last_minute():
    latency = Latency()
    latency.add(20 * MS)
    latency.close_window()
    assert latency.coarse_window == [0, 0, 1, *[0] * 10]
    latency.add(0)
    latency.add(0)
    latency.close_window()
    assert latency.coarse_window == [2, *[0] * 12]
    assert latency.window_quantile_ms(0.99) < 0.001
    assert latency.coarse() == [2, 0, 1, *[0] * 10]


def test_distribution_is_spelled_as_the_reference_does():
    assert distribution_text(None) == "null"
    assert distribution_text([3, *[0] * 11, 1]) == (
        "[<=0ms]:3 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0"
        " [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )


# --- counters -------------------------------------------------------------------------------------


def test_puts_are_counted_by_topic():
    stats = StoreStats(0)
    stats.note_put("a", count=1, size=100)
    stats.note_put("b", count=10, size=50)
    stats.note_put("a", count=1, size=100)
    assert (stats.put_count, stats.put_size) == (12, 250)
    assert (stats.topics["a"].count, stats.topics["a"].size) == (2, 200)
    assert stats.topic("a") is stats.topics["a"]


def test_put_end_counts_failures():
    stats = StoreStats(0)
    stats.note_put_end(5 * MS, is_ok=True)
    stats.note_put_end(7 * MS, is_ok=False)
    assert stats.put_failed_count == 1
    assert stats.put.total == 2
    assert stats.put.max_ns == 7 * MS


def test_gets_are_found_or_missed():
    stats = StoreStats(0)
    stats.note_get(32)
    stats.note_get(0)
    stats.note_get(1)
    assert (stats.get_found_count, stats.get_miss_count, stats.get_transferred_count) == (2, 1, 33)


def test_dispatch_buffer_keeps_the_most():
    stats = StoreStats(0)
    for size in (5, 9, 2):
        stats.note_dispatch_buffer(size)
    assert stats.dispatch_buffer_max == 9


def test_counts_of_many_threads_are_complete():
    stats = StoreStats(0)
    rounds, workers = 20_000, 8
    interval = sys.getswitchinterval()

    def work() -> None:
        for _ in range(rounds):
            stats.note_put("t", count=1, size=3)
            stats.note_put_end(1500, is_ok=False)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert stats.put_count == rounds * workers
    assert stats.put_size == 3 * rounds * workers
    assert stats.put.total == rounds * workers
    assert stats.put_failed_count == rounds * workers


# --- run-time information -------------------------------------------------------------------------

# Keys of StoreStatsService#getRuntimeInfo in 5.3.3.
REFERENCE_KEYS = """
    bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes
    putMessageSizeTotal putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer
    getMessageEntireTimeMax putTps getFoundTps getMissTps getTotalTps getTransferredTps putLatency99
    putLatency999
"""
# Those of DefaultMessageStore#getRuntimeInfo and AdminBrokerProcessor that a store can answer.
GAUGE_KEYS = """
    commitLogDiskRatio consumeQueueDiskRatio commitLogMinOffset commitLogMaxOffset
    dispatchBehindBytes pageCacheLockTimeMills earliestMessageTimeStamp
    remainTransientStoreBufferNumbs remainHowManyDataToCommit remainHowManyDataToFlush
"""


def test_runtime_info_has_the_references_keys_and_text_values():
    info = StoreStats(5).runtime_info(5)
    assert list(info)[:17] == REFERENCE_KEYS.split()
    assert all(isinstance(value, str) for value in info.values())
    assert info["putMessageTimesTotal"] == "0"
    assert info["putMessageDistributeTime"] == "null"
    assert info["putMessageAverageSize"] == "0.0"
    assert info["putTps"] == "  "
    assert info["getTotalTps"] == "0.0 0.0 0.0"


def test_runtime_info_tells_how_long_a_store_runs():
    stats = StoreStats(1000)
    elapsed_ms = ((1234 * 24 + 5) * 60 + 6) * 60_000 + 7999
    wanted = "[ 1,234 days, 5 hours, 6 minutes, 7 seconds ]"
    assert stats.runtime_info(1000 + elapsed_ms)["runtime"] == wanted


def test_runtime_info_rates_are_of_10_60_and_600_seconds():
    stats = StoreStats(0)
    for second in range(61):
        stats.sample(second * 1000)
        stats.note_put("t", count=5 if second < 50 else 20, size=10)
        stats.note_get(2)
    info = stats.runtime_info(MINUTE)
    assert info["putTps"] == "20.0 7.5 "
    assert info["getFoundTps"] == "1.0 1.0 "
    assert info["getMissTps"] == "0.0 0.0 "
    assert info["getTotalTps"] == "1.0 1.0 0.0"
    assert info["getTransferredTps"] == "2.0 2.0 "


def test_runtime_info_rates_survive_a_clock_that_stands_still():
    stats = StoreStats(0)
    for _ in range(11):
        stats.sample(0)
        stats.note_put("t", count=1, size=1)
    assert stats.runtime_info(0)["putTps"] == "0.0  "


def test_runtime_info_keeps_ten_minutes_of_samples():
    stats = StoreStats(0)
    for second in range(2000):
        stats.sample(second * 1000)
        stats.note_put("t", count=1 if second < 1400 else 7, size=1)
    assert stats.runtime_info(0)["putTps"] == f"7.0 7.0 {(599 * 7 + 1) / 600}"


def test_runtime_info_latency_is_that_of_the_last_whole_minute():
    stats = StoreStats(0)
    stats.note_put_end(30 * MS, is_ok=True)
    stats.lock.add(2 * MS)
    stats.sample(MINUTE)
    assert stats.runtime_info(MINUTE)["putLatency99"] == "0.00"
    stats.sample(MINUTE + 1)
    info = stats.runtime_info(MINUTE + 1)
    assert "[10~50ms]:1 " in info["putMessageDistributeTime"]
    assert float(info["putLatency99"]) == pytest.approx(30, rel=0.25)
    assert float(info["lockLatency999"]) == pytest.approx(2, rel=0.25)
    assert info["putMessageEntireTimeMax"] == "30"
    stats.sample(2 * MINUTE + 2)
    assert stats.runtime_info(0)["putLatency99"] == "0.00"


def test_sample_logs_rates_of_a_busy_minute_only(caplog):
    stats = StoreStats(0)
    with caplog.at_level(logging.INFO):
        stats.sample(MINUTE + 1)
        assert caplog.messages == []
        stats.note_put_end(0, is_ok=True)
        stats.sample(2 * MINUTE + 2)
    assert len(caplog.messages) == 1
    assert "put_times=[<=0ms]:1 " in caplog.text


def test_runtime_info_with_gauges_has_the_keys_of_the_store():
    gauges = StoreGauges(
        min_offset=0,
        max_offset=77,
        log_disk_ratios={"a": 0.5, "b": 0.25},
        queue_disk_ratio=0.75,
        dispatch_behind_bytes=3,
        delay_offsets={3: (5, 9)},
        mapped_file_count=2,
    )
    info = StoreStats(0).runtime_info(0, gauges)
    assert set(GAUGE_KEYS.split()) <= set(info)
    assert info["commitLogDiskRatio_a"] == "0.5"
    assert info["commitLogDiskRatio"] == "0.25"
    assert info["commitLogMaxOffset"] == "77"
    assert info["dispatchBehindBytes"] == "3"
    assert info["scheduleMessageOffset_3"] == "5,9"
    assert info["mappedFiles"] == "2"


def test_gauges_without_directories_have_no_ratio():
    assert StoreGauges(min_offset=0, max_offset=0).info()["commitLogDiskRatio"] == "-1.0"


# --- sparse log -----------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sparse(clock, caplog):
    caplog.set_level(logging.WARNING)
    return SparseLog(logging.getLogger("sparse"), clock, interval_s=10, kinds_max=2)


def test_sparse_log_first_is_told_and_repeats_are_counted(sparse, clock, caplog):
    for number in range(1000):
        sparse.warning("full", "put refused topic=%s number=%d", "t", number)
    assert caplog.messages == ["put refused topic=t number=0"]
    clock.now_s += 10
    sparse.warning("full", "put refused topic=%s number=%d", "t", 1000)
    assert caplog.messages[1:] == ["put refused topic=t number=1000 left_out=999"]


def test_sparse_log_after_a_quiet_interval_has_nothing_left_out(sparse, clock, caplog):
    sparse.warning("full", "refused")
    clock.now_s += 10
    sparse.warning("full", "refused")
    assert caplog.messages == ["refused", "refused"]


def test_sparse_log_kinds_do_not_hide_each_other(sparse, caplog):
    sparse.warning("full", "disk full")
    sparse.warning("busy", "lock busy")
    assert caplog.messages == ["disk full", "lock busy"]


def test_sparse_log_close_tells_the_rest_once(sparse, caplog):
    sparse.warning("full", "refused number=%d", 1)
    sparse.warning("full", "refused number=%d", 2)
    sparse.warning("busy", "busy")
    sparse.close()
    sparse.close()
    assert caplog.messages == ["refused number=1", "busy", "refused number=2 left_out=1"]


def test_sparse_log_forgets_the_oldest_kind_and_tells_what_it_kept(sparse, caplog):
    for kind in ("a", "a", "b", "c", "a"):
        sparse.warning(kind, "kind=%s", kind)
    assert caplog.messages == ["kind=a", "kind=b", "kind=a left_out=1", "kind=c", "kind=a"]
    assert len(sparse._kinds) == 2
