"""The boundary between archive and live queue: no message twice, no gap unnoticed."""

from collections.abc import Callable

from rocketlake.errors import ConfigError, StoreError
from rocketlake.metadata.archive_manifest import QueueEnd
from rocketlake.model.queues import QueueKey
from rocketlake.spark.reading.options import EARLIEST, LATEST, NoMatch, SourceOptions
from rocketlake.spark.reading.queue_spans import first_at
from rocketlake.store.offline import OfflineStore, QueueView

_EVER = 1 << 62


def is_same_queue(queue: QueueView, end: QueueEnd) -> bool:
    """Tell whether a queue is the one that was archived, and not one made after its deletion."""
    if end.next_offset > max(queue.max_offset, queue.min_offset):
        return False
    if end.last_physical_offset < 0 or end.next_offset <= queue.min_offset:
        return True
    return last_physical(queue, end.next_offset) == end.last_physical_offset


def is_surely_same(queue: QueueView, end: QueueEnd) -> bool:
    """Tell whether the last archived message lies at the same place in both."""
    found = last_physical(queue, end.next_offset) if end.next_offset <= queue.max_offset else -1
    return found >= 0 and found == end.last_physical_offset


def last_physical(queue: QueueView, end: int) -> int:
    """Return the physical offset of the record before a queue offset; -1 if there is none."""
    if end <= queue.min_offset:
        return -1
    unit = queue.units(queue.index_of(end - 1), 1)
    return int(unit["physical_offset"][0]) if len(unit) else -1


class JoinedQueue:
    """One queue of one broker: its archived part, its live part, or both.

    Invariants: what `archived` and `live` return does not overlap.
    """

    def __init__(
        self, key: QueueKey, end: QueueEnd | None, store: OfflineStore | None, last_time: int
    ) -> None:
        """`last_time` is the latest store time that the archive has of it; -1: none.

        Raises:
            StoreError: the live queue is not the one that was archived.
        """
        self.key = key
        self._end = end
        self._store = store
        self._last_time = last_time
        queue = store.queues.get(key) if store is not None else None
        if queue is not None and end is not None and not is_same_queue(queue, end):
            raise StoreError(
                f"{key} was created again: it ends at {queue.max_offset} and is archived up to"
                f" {end.next_offset}; read the archive and the store apart"
            )
        self._queue = queue

    @property
    def begin(self) -> int:
        """The first queue offset there is."""
        if self._end is not None:
            return self._end.first_offset
        return self._queue.min_offset if self._queue is not None else 0

    @property
    def seam(self) -> int:
        """The first queue offset that is not archived."""
        if self._end is not None:
            return self._end.next_offset
        return self.begin

    @property
    def end(self) -> int:
        """The queue offset behind the last there is."""
        if self._queue is not None:
            return max(self._queue.max_offset, self.seam)
        return self.seam

    def archived(self, options: SourceOptions) -> tuple[int, int]:
        """Return the selected offsets of the archive; times are compared row by row."""
        start, is_time = options.starting.of(self.key.topic, self.key.queue_id)
        first = self.begin if is_time else self._within(start, options, "starting")
        stop, is_time = options.ending.of(self.key.topic, self.key.queue_id)
        last = self.end if is_time else self._within(stop, options, "ending")
        return first, min(last, self.seam)

    def times(self, options: SourceOptions) -> tuple[int, int]:
        """Return the store times that are wanted: from one, up to another.

        Raises:
            ConfigError: nothing is as young as the starting time, and that must not be.
        """
        start, is_time = options.starting.of(self.key.topic, self.key.queue_id)
        low = start if is_time else -_EVER
        if is_time and self._last_time < low and options.no_match is NoMatch.ERROR:
            live = self._live_at(low)
            if live is None or live >= self.end:
                raise self._no_match(low)
        stop, is_time = options.ending.of(self.key.topic, self.key.queue_id)
        return low, stop if is_time else _EVER

    def start(self, options: SourceOptions, archived_at: Callable[[int], int | None]) -> int:
        """Return where a stream begins; `archived_at` finds the first archived message by time.

        Raises:
            ConfigError: nothing is as young as the starting time, and that must not be.
            StoreError: an offset is asked for that is not there.
        """
        start, is_time = options.starting.of(self.key.topic, self.key.queue_id)
        if not is_time:
            return self._within(start, options, "starting")
        found = archived_at(start) if self._last_time >= start else None
        if found is not None:
            return found
        live = self._live_at(start)
        if live is not None and live < self.end:
            return max(live, self.seam)
        if options.no_match is NoMatch.ERROR:
            raise self._no_match(start)
        return self.end

    @property
    def live_begin(self) -> int:
        """The first queue offset that comes from the store."""
        if self._queue is None:
            return self.end
        return min(max(self._queue.min_offset, self.seam), self.end)

    def _no_match(self, timestamp: int) -> ConfigError:
        return ConfigError(
            f"no message of {self.key} was stored at {timestamp} or later; option "
            "startingOffsetsByTimestampStrategy = latest begins at its end instead"
        )

    def live(self, options: SourceOptions) -> tuple[int, int]:
        """Return the offsets that are wanted of the live queue.

        Raises:
            StoreError: messages between archive and store are gone, and failOnDataLoss is true.
        """
        if self._queue is None:
            return self.seam, self.seam
        low = self._queue.min_offset
        start, is_time = options.starting.of(self.key.topic, self.key.queue_id)
        if is_time:
            found = self._live_at(start) or 0
            # Messages before the first live one may have the same time.
            first = max(found if found > low else self.seam, self.seam)
        else:
            first = max(self._within(start, options, "starting"), self.seam)
        stop, is_time = options.ending.of(self.key.topic, self.key.queue_id)
        if is_time:
            last = self._live_at(stop) or 0
            if last <= low and self._last_time >= stop:
                last = self.seam
        else:
            last = self._within(stop, options, "ending")
        if first < min(low, last):
            self.check_gap((first, min(low, last)), options)
        return max(first, low), max(last, first, low)

    def check_gap(self, gap: tuple[int, int], options: SourceOptions) -> None:
        """Refuse or accept a gap between archive and store, as `failOnDataLoss` says.

        Raises:
            StoreError: failOnDataLoss is true.
        """
        if options.fail_on_data_loss:
            raise StoreError(
                f"{gap[1] - gap[0]} messages of {self.key} ({gap[0]} to {gap[1] - 1}) expired"
                " before they were archived; option failOnDataLoss = false reads what is there"
                " (keep_until_archived prevents it)"
            )

    def _live_at(self, timestamp: int) -> int | None:
        if self._store is None or self._queue is None:
            return None
        return first_at(self._store, self.key, timestamp)

    def _within(self, value: int, options: SourceOptions, which: str) -> int:
        if value == EARLIEST:
            return self.begin
        if value == LATEST:
            return self.end
        if self.begin <= value <= self.end:
            return value
        if options.fail_on_data_loss:
            raise StoreError(
                f"{which} offset {value} of {self.key}: archive and store hold {self.begin} to"
                f" {self.end}; option failOnDataLoss = false reads what is there"
            )
        return min(max(value, self.begin), self.end)
