"""StreamDriver: what a stream reader decides, without Spark.

One of it lives in the Python process that Spark keeps for a query: it may remember. What a restart
needs is in the offsets alone.

1. A batch ends where `latest` says, and is planned from two offsets only: read again after a crash
   it has the same messages, whatever came since.
2. `latest` is asked for the next batch when the one before is done, sink included, so that its
   `start` is the progress of the query. (Spark's `commit` comes a batch later.)
"""

import logging
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rocketlake.clock import Clock, SystemClock
from rocketlake.closing import Closing
from rocketlake.errors import StoreError
from rocketlake.spark.reading.options import EARLIEST, GROUP, Moment, SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.stream.advancing import advance, clip
from rocketlake.spark.stream.lanes import Lanes
from rocketlake.spark.stream.limits import Patience, Stretch, share_bytes, share_rows
from rocketlake.spark.stream.offsets import Lane, StreamOffset
from rocketlake.spark.stream.progress import ProgressKeeper
from rocketlake.spark.stream.stream_options import StreamOptions

log = logging.getLogger(__name__)

_TOLD_MAX = 1000


class Limits(Struct, frozen=True):
    """How much a batch may take; None: all there is."""

    max_rows: int | None = None
    max_bytes: int | None = None


class StreamDriver(Closing):
    """Decides where batches begin and end.

    Thread-safety: one thread.
    """

    def __init__(
        self, options: SourceOptions, stream: StreamOptions, clock: Clock | None = None
    ) -> None:
        """Open the stores.

        Raises:
            StoreNotFoundError: one is not there.
        """
        self._options = options
        self._stream = stream
        self._lanes = Lanes(options)
        self._target: dict[Lane, Stretch] | None = None
        self._first: StreamOffset | None = None
        self._turn = 0
        self._told: set[str] = set()
        clock = clock or SystemClock()
        self._patience = (
            Patience(stream.min_rows, stream.max_delay_ms, clock) if stream.min_rows else None
        )
        self._keeper = (
            ProgressKeeper(stream.group, self._lanes.places, stream.progress_path, clock=clock)
            if stream.group
            else None
        )

    def close(self) -> None:
        """Give all descriptors back."""
        self._lanes.close()

    # --- where it begins -----------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Return where a new query begins.

        Raises:
            ConfigError, StoreError: as `Lanes.starts`.
        """
        if self._first is None:  # Spark asks twice, and wants the same
            starts = self._lanes.starts()
            if self._options.starting.default == GROUP:
                starts = self._group_starts(starts)
            # What is not simply the first message is pinned by a batch, if need be an empty one:
            # Spark keeps no start, and would ask for it again after a crash in the first batch.
            is_plain = self._options.starting == Moment(EARLIEST)
            self._first = StreamOffset(starts, is_initial=not is_plain)
        return self._first

    def _group_starts(self, starts: Mapping[Lane, int]) -> dict[Lane, int]:
        assert self._keeper is not None
        bounds = self._lanes.bounds()
        found: dict[Lane, int] = {}
        for lane, first in starts.items():
            bound = bounds.get(lane, Stretch(first, first))
            at = self._keeper.find(lane)
            if at is None:
                found[lane] = first
                continue
            found[lane] = min(max(at, bound.begin), bound.end)
            if found[lane] != at:
                where = f"{at} of {lane}, which has {bound.begin} to {bound.end}"
                log.warning("group %s was at %s", self._stream.group, where)
        return found

    # --- where a batch ends --------------------------------------------------------------------

    def hold_target(self) -> None:
        """Take what there is now as the end of all batches: the query will read that and stop."""
        self._lanes.refresh()
        self._target = self._lanes.bounds()

    def latest(self, start: StreamOffset, limits: Limits | None) -> StreamOffset:
        """Return where the batch behind `start` ends; `start` itself if there is none to make.

        Raises:
            StoreError: messages are lost that `start` says were not read, and that must not be.
        """
        self._note_done(start)
        self._lanes.refresh()
        news = self._news(start)
        if self._target is not None:
            news = {lane: _up_to(s, self._target.get(lane)) for lane, s in news.items()}
        elif limits is not None and not self._is_enough(start, news):
            return start
        ends = {lane: stretch.end for lane, stretch in news.items()}
        if limits is not None:
            ends = self._limit(news, limits)
        found = _offset(start, news, ends, is_first=start == self._first)
        if found != start:
            # Order: Spark writes the offset into its checkpoint when it has it. What it speaks of
            # is on the disk before.
            self._lanes.sync_logs()
        return found

    def reported(self) -> StreamOffset:
        """Return the last offset of every lane as of the last look, and the first one."""
        bounds = self._lanes.bounds()
        return StreamOffset(
            {lane: bound.end for lane, bound in bounds.items()},
            {lane: bound.begin for lane, bound in bounds.items()},
        )

    def _news(self, start: StreamOffset) -> dict[Lane, Stretch]:
        found = advance(start.ends, self._lanes.bounds())
        if found.losses:
            self._lanes.reopen()  # whatever the view believed
            found = advance(start.ends, self._lanes.bounds())
        self._lose(found.losses)
        return found.news

    def _is_enough(self, start: StreamOffset, news: Mapping[Lane, Stretch]) -> bool:
        if self._patience is None or start.is_initial:
            return True
        assert self._stream.min_rows is not None
        rows = 0
        for lane, stretch in news.items():
            if lane.is_log and stretch.count:
                rows += self._lanes.cut_log(lane, stretch, rows=self._stream.min_rows)[1]
            else:
                rows += stretch.count
        return self._patience.is_enough(rows)

    def _limit(self, news: Mapping[Lane, Stretch], limits: Limits) -> dict[Lane, int]:
        """Return where each lane ends in a batch that keeps to the limits."""
        self._turn += 1
        if any(lane.is_log for lane in news):
            return self._limit_logs(news, limits)
        taken = news
        if limits.max_rows is not None:
            rows = share_rows(news, limits.max_rows, self._turn)
            taken = {lane: _first_of(s, rows.get(lane, 0)) for lane, s in news.items()}
        if limits.max_bytes is not None:
            rows = share_bytes(taken, limits.max_bytes, self._turn, self._lanes.sizes_of)
            taken = {lane: _first_of(s, rows.get(lane, 0)) for lane, s in taken.items()}
        return {lane: stretch.end for lane, stretch in taken.items()}

    def _limit_logs(self, news: Mapping[Lane, Stretch], limits: Limits) -> dict[Lane, int]:
        # Records of a log are counted by walking it; each log gets the same share.
        busy = max(sum(bool(s.count) for s in news.values()), 1)
        ends: dict[Lane, int] = {}
        for lane, stretch in news.items():
            rows = limits.max_rows and max(limits.max_rows // busy, 1)
            size = limits.max_bytes and max(limits.max_bytes // busy, 1)
            is_limited = stretch.count and (rows or size)
            cut = self._lanes.cut_log(lane, stretch, rows=rows, size=size) if is_limited else None
            ends[lane] = stretch.end if cut is None else cut[0]
        return ends

    # --- what a batch reads --------------------------------------------------------------------

    def plan(self, start: StreamOffset, end: StreamOffset) -> Sequence[Partition]:
        """Return the partitions of the batch between two offsets.

        Raises:
            StoreError: messages of it are lost, and that must not be.
        """
        wanted: dict[Lane, Stretch] = {}
        for lane, last in end.ends.items():
            begin = end.begins.get(lane, start.ends.get(lane, last))
            wanted[lane] = Stretch(begin, last)
        found, losses = clip(wanted, self._lanes.bounds())
        if losses:
            self._lanes.reopen()
            found, losses = clip(wanted, self._lanes.bounds())
        self._lose(losses)
        return self._lanes.plan(found)

    # --- progress ------------------------------------------------------------------------------

    def _note_done(self, start: StreamOffset) -> None:
        if self._keeper is not None and start != self._first:
            self._keeper.write(start.ends)

    def note_commit(self, end: StreamOffset) -> None:
        """Keep what Spark says is done."""
        if self._keeper is not None:
            self._keeper.write(end.ends)

    def _lose(self, losses: Sequence[str]) -> None:
        """Fail or go on, as `failOnDataLoss` says.

        Raises:
            StoreError: there are losses, and they must not be.
        """
        if losses and self._options.fail_on_data_loss:
            more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
            raise StoreError(f"data loss: {losses[0]}{more}")
        for loss in losses:
            if loss not in self._told and len(self._told) < _TOLD_MAX:
                self._told.add(loss)
                log.warning("data loss: %s", loss)


def _offset(
    start: StreamOffset, news: Mapping[Lane, Stretch], ends: Mapping[Lane, int], *, is_first: bool
) -> StreamOffset:
    """Return the offset of a batch; `start` if it would be empty and change nothing."""
    kept = {lane: at for lane, at in ends.items() if lane in start.ends or at > news[lane].begin}
    if kept == start.ends and not start.is_initial:
        return start
    begins = {
        lane: news[lane].begin
        for lane in kept
        if is_first or news[lane].begin != start.ends.get(lane)
    }
    return StreamOffset(kept, begins)


def _up_to(stretch: Stretch, target: Stretch | None) -> Stretch:
    end = stretch.begin if target is None else min(stretch.end, max(target.end, stretch.begin))
    return Stretch(stretch.begin, end)


def _first_of(stretch: Stretch, count: int) -> Stretch:
    return Stretch(stretch.begin, stretch.begin + count)
