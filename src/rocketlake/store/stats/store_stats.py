"""Put and get counters kept by the store, and the dictionary they end in.

1. Counting is cheap: one attribute or one list item becomes larger by one.
2. Nothing here looks at the clock: callers pass nanoseconds, and `sample` gets the time.

Thread-safety: counters are plain integers that any thread adds to. CPython switches threads only
at calls and at jumps backwards, so that `x += n` is not interrupted; a build without the
interpreter lock may lose some.
"""

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock

log = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000
_SAMPLES_KEPT = 601  # one a second: ten minutes and where they begin
_TPS_WINDOWS = (10, 60, 600)
_WINDOW_MS = 60_000

# Compat: as StoreStatsService#setPutMessageEntireTimeMax, which looks at whole milliseconds: none
# are the first bucket, those below an end the bucket of that end.
_BUCKET_ENDS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_BUCKET_NAMES: Final = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s",
    "1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~",
)  # fmt: skip

_FINE_BUCKETS = 256
_FINE_SHIFT = 2  # four buckets between a power of two and the next
_FINE_EXACT = 2 << _FINE_SHIFT  # below it, a bucket for each nanosecond


class Latency:
    """A distribution of times: buckets a quarter of a power of two wide, and the reference's.

    Counts grow for the life of the store; `window` and `coarse_window` are what was added in the
    last whole minute.
    """

    __slots__ = (
        "_before",
        "_on_slow",
        "_slow",
        "_slow_ns",
        "coarse_window",
        "counts",
        "max_ns",
        "window",
    )

    def __init__(self) -> None:
        self.counts = [0] * _FINE_BUCKETS
        self.window = [0] * _FINE_BUCKETS
        self.coarse_window: list[int] | None = None
        self.max_ns = 0
        self._slow = [0] * len(_BUCKET_NAMES)  # nothing in the first: it is what the others leave
        self._before = ([0] * _FINE_BUCKETS, [0] * len(_BUCKET_NAMES))
        self._slow_ns = 0
        self._on_slow: Callable[[int], None] | None = None

    def watch(self, slow_ns: int, on_slow: Callable[[int], None]) -> None:
        """Have a function called with each time above a limit, by the thread that counts it."""
        self._slow_ns, self._on_slow = slow_ns, on_slow

    def add(self, elapsed_ns: int, weight: int = 1) -> None:
        """Count one time, or so many like it; what ran backwards counts as none."""
        if elapsed_ns < _FINE_EXACT:
            index = max(elapsed_ns, 0)
        else:
            shift = elapsed_ns.bit_length() - _FINE_SHIFT - 1
            index = (shift << _FINE_SHIFT) + (elapsed_ns >> shift)
        self.counts[index] += weight
        if elapsed_ns >= _NS_PER_MS:
            self._slow[bisect_right(_BUCKET_ENDS_MS, elapsed_ns // _NS_PER_MS)] += weight
            if self._on_slow is not None and elapsed_ns > self._slow_ns:
                self._on_slow(elapsed_ns)
        # Why: no call to max(), which costs as much as the rest.
        if elapsed_ns > self.max_ns:  # noqa: PLR1730
            self.max_ns = elapsed_ns

    @property
    def total(self) -> int:
        """How many times were counted."""
        return sum(self.counts)

    def quantile_ms(self, share: float) -> float:
        """Return the time that this share of all times does not exceed."""
        return _quantile_ms(self.counts.copy(), share)

    def window_quantile_ms(self, share: float) -> float:
        """Return the time that this share of the last minute's times does not exceed."""
        return _quantile_ms(self.window, share)

    def coarse(self) -> list[int]:
        """Return the counts in the reference's buckets."""
        return _coarse(self.counts.copy(), self._slow.copy())

    def close_window(self) -> None:
        """Begin the next minute."""
        counts, slow = self.counts.copy(), self._slow.copy()
        counts_before, slow_before = self._before
        self.window = _minus(counts, counts_before)
        self.coarse_window = _coarse(self.window, _minus(slow, slow_before))
        self._before = (counts, slow)


def _minus(later: list[int], earlier: list[int]) -> list[int]:
    return [a - b for a, b in zip(later, earlier, strict=True)]


def _coarse(counts: list[int], slow: list[int]) -> list[int]:
    return [max(sum(counts) - sum(slow), 0), *slow[1:]]


def _quantile_ms(counts: list[int], share: float) -> float:
    total = sum(counts)
    wanted = share * total
    passed = 0
    for index, count in enumerate(counts):
        if count and passed + count >= wanted:
            begin, end = _bounds_ns(index), _bounds_ns(index + 1)
            return (begin + (end - begin) * (wanted - passed) / count) / _NS_PER_MS
        passed += count
    return 0.0


def _bounds_ns(index: int) -> int:
    """Return the first nanosecond of a bucket."""
    if index < _FINE_EXACT:
        return index
    per_power = 1 << _FINE_SHIFT
    return (index % per_power + per_power) << (index // per_power - 1)


class TopicPuts:
    """What was put into one topic: messages and bytes of records."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0


class StoreGauges(Struct, frozen=True, kw_only=True):
    """The state of a store's parts as numbers; -1: unknown."""

    min_offset: int
    max_offset: int
    log_disk_ratios: Mapping[str, float] = {}
    """Part of the disk in use, by directory of the commit log."""
    queue_disk_ratio: float = -1.0
    commit_behind_bytes: int = 0
    flush_behind_bytes: int = 0
    dispatch_behind_bytes: int = 0
    dispatch_behind_ms: int = 0
    delay_offsets: Mapping[int, tuple[int, int]] = {}
    """Delivered up to, and end of the queue, by delay level."""
    lock_ms: int = 0
    """How long the append lock is held by now."""
    earliest_timestamp: int = -1
    mapped_file_count: int = 0
    """Files of log, queues and index."""
    mapped_bytes: int = 0
    free_write_buffers: int = -1
    queue_count: int = 0
    running_flags: str = "OK"
    """Why the store may not be read or written: names of `RunningFlag`."""
    retention: Mapping[str, str] = {}
    """Which files there are, which went and which will go, by name."""

    def info(self) -> dict[str, str]:
        """Spell them as the reference does in its run-time information."""
        ratios = self.log_disk_ratios
        # Compat: names as in DefaultMessageStore#getRuntimeInfo, in the scheduler's
        # buildRunningStats and in AdminBrokerProcessor#prepareRuntimeInfo; those from
        # dispatchBehindMilliseconds on are ours.
        return {
            **{f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()},
            "commitLogDiskRatio": str(min(ratios.values(), default=-1.0)),
            "consumeQueueDiskRatio": str(self.queue_disk_ratio),
            "commitLogMinOffset": str(self.min_offset),
            "commitLogMaxOffset": str(self.max_offset),
            **{
                f"scheduleMessageOffset_{level}": f"{delivered},{end}"
                for level, (delivered, end) in self.delay_offsets.items()
            },
            "dispatchBehindBytes": str(self.dispatch_behind_bytes),
            "pageCacheLockTimeMills": str(self.lock_ms),
            "earliestMessageTimeStamp": str(self.earliest_timestamp),
            "remainTransientStoreBufferNumbs": str(self.free_write_buffers),
            "remainHowManyDataToCommit": str(self.commit_behind_bytes),
            "remainHowManyDataToFlush": str(self.flush_behind_bytes),
            "dispatchBehindMilliseconds": str(self.dispatch_behind_ms),
            "mappedFiles": str(self.mapped_file_count),
            "mappedBytes": str(self.mapped_bytes),
            "consumeQueues": str(self.queue_count),
            "runningFlags": self.running_flags,
            **self.retention,
        }


class StoreStats:
    """Counters of one store (StoreStatsService). `sample` belongs to one thread."""

    __slots__ = (
        "boot_ms", "topics", "put", "lock", "copy", "get", "flush", "commit", "create",
        "put_failed_count", "get_found_count", "get_miss_count", "get_transferred_count",
        "corrupt_count", "dispatch_buffer_max", "_samples", "_window_began_ms",
    )  # fmt: skip

    def __init__(self, boot_ms: int) -> None:
        self.boot_ms = boot_ms
        self.topics: dict[str, TopicPuts] = {}
        self.put = Latency()
        self.lock = Latency()
        self.copy = Latency()
        self.get = Latency()
        self.flush = Latency()  # of a file of the log
        self.commit = Latency()  # of a write buffer to its file
        self.create = Latency()  # of a new file of the log
        self.put_failed_count = 0
        self.get_found_count = 0
        self.get_miss_count = 0
        self.get_transferred_count = 0
        self.corrupt_count = 0
        self.dispatch_buffer_max = 0
        # Each: time, messages put, reads that found, reads that missed, messages read.
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SAMPLES_KEPT)
        self._window_began_ms = boot_ms

    def topic(self, name: str) -> TopicPuts:
        """Return the counters of a topic, to add to; the same object every time."""
        return self.topics.setdefault(name, TopicPuts())

    def note_put(self, topic: str, *, count: int, size: int) -> None:
        """Count messages that were appended, and the bytes of their records."""
        puts = self.topics.get(topic) or self.topic(topic)
        puts.count += count
        puts.size += size

    def note_append(self, lock_ns: int, copy_ns: int) -> None:
        """Count a wait for the append lock, and what was done inside."""
        self.lock.add(lock_ns)
        self.copy.add(copy_ns)

    def note_put_end(self, elapsed_ns: int, *, is_ok: bool) -> None:
        """Count a put that was answered."""
        self.put.add(elapsed_ns)
        if not is_ok:
            self.put_failed_count += 1

    def note_get(self, count: int) -> None:
        """Count a read that returned so many messages."""
        if count:
            self.get_found_count += 1
            self.get_transferred_count += count
        else:
            self.get_miss_count += 1

    def note_dispatch_buffer(self, size: int) -> None:
        """Remember the most that was dispatched at once."""
        self.dispatch_buffer_max = max(self.dispatch_buffer_max, size)

    @property
    def put_count(self) -> int:
        """Messages put."""
        return sum(puts.count for puts in list(self.topics.values()))

    @property
    def put_size(self) -> int:
        """Bytes of records put."""
        return sum(puts.size for puts in list(self.topics.values()))

    def sample(self, now_ms: int) -> None:
        """Remember the counters for the rates; once a second. Closes a window every minute."""
        found, miss, read = self.get_found_count, self.get_miss_count, self.get_transferred_count
        self._samples.append((now_ms, self.put_count, found, miss, read))
        if now_ms <= self._window_began_ms + _WINDOW_MS:
            return
        self._window_began_ms = now_ms
        for latency in (self.put, self.lock, self.copy, self.get):
            latency.close_window()
        for latency in (self.flush, self.commit, self.create):
            latency.close_window()
        if any(self.put.window) or any(self.get.window):
            log.info(
                "store rates put_tps=%s get_found_tps=%s get_miss_tps=%s put_times=%s",
                *(_text(self._tps(column, 60)) for column in (1, 2, 3)),
                distribution_text(self.put.coarse_window),
            )

    def _tps(self, column: int, seconds: int) -> float | None:
        """Return calls a second over so many samples; None while there are too few."""
        samples = self._samples
        if len(samples) <= seconds:
            return None
        first, last = samples[-seconds - 1], samples[-1]
        passed_ms = last[0] - first[0]
        return (last[column] - first[column]) * 1000 / passed_ms if passed_ms > 0 else 0.0

    def _tps_text(self, column: int) -> str:
        return " ".join(_text(self._tps(column, seconds)) for seconds in _TPS_WINDOWS)

    def _get_total_tps_text(self) -> str:
        pairs = [(self._tps(2, seconds), self._tps(3, seconds)) for seconds in _TPS_WINDOWS]
        return " ".join(str((found or 0.0) + (miss or 0.0)) for found, miss in pairs)

    def runtime_info(self, now_ms: int, gauges: StoreGauges | None = None) -> dict[str, str]:
        """Return what the reference's run-time information has, by its names, and more behind it.

        Latencies and the distribution are those of the last whole minute.
        """
        count, size = self.put_count, self.put_size
        # Compat: as StoreStatsService#getRuntimeInfo, which says 1 where no message was put.
        return {
            "bootTimestamp": str(self.boot_ms),
            "runtime": _runtime_text(now_ms - self.boot_ms),
            "putMessageEntireTimeMax": str(self.put.max_ns // _NS_PER_MS),
            "putMessageTimesTotal": str(count),
            "putMessageFailedTimes": str(self.put_failed_count),
            "putMessageSizeTotal": str(size),
            "putMessageDistributeTime": distribution_text(self.put.coarse_window),
            "putMessageAverageSize": str(size / max(count, 1)),
            "dispatchMaxBuffer": str(self.dispatch_buffer_max),
            "getMessageEntireTimeMax": str(self.get.max_ns // _NS_PER_MS),
            "putTps": self._tps_text(1),
            "getFoundTps": self._tps_text(2),
            "getMissTps": self._tps_text(3),
            "getTotalTps": self._get_total_tps_text(),
            "getTransferredTps": self._tps_text(4),
            **_latency_info("put", self.put),
            **(gauges.info() if gauges is not None else {}),
            **_latency_info("lock", self.lock),
            **_latency_info("copy", self.copy),
            **_latency_info("get", self.get),
            **_step_info("flush", self.flush),
            **_step_info("commit", self.commit),
            **_step_info("create", self.create),
            "getMessageTimesTotalFound": str(self.get_found_count),
            "getMessageTimesTotalMiss": str(self.get_miss_count),
            "getMessageTransferredMsgCount": str(self.get_transferred_count),
            "corruptRecords": str(self.corrupt_count),
        }


def distribution_text(counts: list[int] | None) -> str:
    """Spell counts in the reference's buckets as it does; `null` before the first minute ends."""
    if counts is None:
        return "null"
    pairs = zip(_BUCKET_NAMES, counts, strict=True)
    return "".join(f"[{name}]:{count} " for name, count in pairs)


def _latency_info(name: str, latency: Latency) -> dict[str, str]:
    shares = (("99", 0.99), ("999", 0.999))
    return {
        f"{name}Latency{digits}": f"{latency.window_quantile_ms(share):.2f}"
        for digits, share in shares
    }


def _step_info(name: str, latency: Latency) -> dict[str, str]:
    return {
        **_latency_info(name, latency),
        f"{name}Times": str(latency.total),
        f"{name}TimeMax": str(latency.max_ns // _NS_PER_MS),
    }


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def _runtime_text(elapsed_ms: int) -> str:
    minutes, seconds = divmod(elapsed_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


class SparseLog:
    """Logs what repeats itself once in a while, and says how much was left out.

    The first of a kind is logged at once; further ones are counted until the interval is over.

    Thread-safety: one lock, for every call.
    """

    def __init__(
        self,
        logger: logging.Logger,
        clock: Clock,
        *,
        interval_s: float = 10.0,
        kinds_max: int = 256,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_s = interval_s
        self._kinds_max = kinds_max
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}

    def warning(self, kind: Hashable, message: str, *arguments: object) -> None:
        """Log a warning, or count it among those left out."""
        self.log(logging.WARNING, kind, message, *arguments)

    def log(self, level: int, kind: Hashable, message: str, *arguments: object) -> None:
        """Log at a level, or count what was to be logged among what was left out."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            known = self._kinds.get(kind)
            if known is not None and now_s < known.quiet_until_s:
                known.left_out += 1
                known.message, known.arguments = message, arguments
                return
            left_out = known.left_out if known is not None else 0
            forgotten = self._remember(kind, now_s, level)
        if forgotten is not None:
            self._tell_left(forgotten)
        self._tell(level, message, arguments, left_out)

    def close(self) -> None:
        """Log how many warnings were left out."""
        with self._lock:
            kinds = [kind for kind in self._kinds.values() if kind.left_out]
            self._kinds.clear()
        for kind in kinds:
            self._tell_left(kind)

    def _remember(self, kind: Hashable, now_s: float, level: int) -> "_Kind | None":
        """Begin an interval; return the oldest kind if it had to go and has something to tell."""
        self._kinds.pop(kind, None)
        oldest = None
        if len(self._kinds) >= self._kinds_max:
            oldest = self._kinds.pop(next(iter(self._kinds)))
        self._kinds[kind] = _Kind(now_s + self._interval_s, level)
        return oldest if oldest is not None and oldest.left_out else None

    def _tell_left(self, kind: "_Kind") -> None:
        self._tell(kind.level, kind.message, kind.arguments, kind.left_out)

    def _tell(self, level: int, message: str, arguments: tuple[object, ...], left_out: int) -> None:
        if left_out:
            message, arguments = f"{message} left_out=%d", (*arguments, left_out)
        self._logger.log(level, message, *arguments)


class _Kind:
    """When one kind of message may be logged again, and the last one that was not."""

    __slots__ = ("arguments", "left_out", "level", "message", "quiet_until_s")

    def __init__(self, quiet_until_s: float, level: int) -> None:
        self.level = level
        self.quiet_until_s = quiet_until_s
        self.left_out = 0
        self.message = ""
        self.arguments: tuple[object, ...] = ()
