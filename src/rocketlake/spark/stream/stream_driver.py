"""StreamDriver: what a stream reader decides, without Spark.

One of it lives in the Python process that Spark keeps for a query: it may remember. What a restart
needs is in the offsets alone.

1. A batch ends where `latest` says, and is planned from two offsets only: read again after a crash
   it has the same messages, whatever came since.
2. Work goes by what changed: the queues that got messages since the last batch, and those that
   still had some. All queues are looked at when the store was, or when Spark comes with an offset
   that is not the last one it got.
3. `latest` is asked for the next batch when the one before is done, sink included, so that its
   `start` is the progress of the query. (Spark's `commit` comes a batch later.)
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from rocketlake.clock import Clock, SystemClock
from rocketlake.closing import Closing
from rocketlake.errors import StoreError
from rocketlake.spark.reading.options import EARLIEST, GROUP, Moment, SourceOptions
from rocketlake.spark.stream.archived_sources import open_lanes
from rocketlake.spark.stream.batch_start import advance, clip
from rocketlake.spark.stream.lag import Behind, reckon_behind
from rocketlake.spark.stream.limits import Patience, Stretch, share_bytes, share_rows
from rocketlake.spark.stream.offsets import NAMED_MAX, Lane, StreamOffset
from rocketlake.spark.stream.parsed_offsets import OffsetBook
from rocketlake.spark.stream.progress import ProgressKeeper
from rocketlake.spark.stream.stream_options import StreamOptions

if TYPE_CHECKING:
    from rocketlake.spark.stream.positions import Look

log = logging.getLogger(__name__)

_TOLD_MAX = 1000


class Limits(Struct, frozen=True):
    """How much a batch may take; None: all there is."""

    max_rows: int | None = None
    max_bytes: int | None = None


class _Made(Struct, frozen=True):
    """The last offset that was made, and what that needed to know."""

    offset: StreamOffset
    start: StreamOffset
    news: Mapping[Lane, Stretch]
    unread: frozenset[Lane]
    """The lanes that have more than it says."""


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
        self._lanes = open_lanes(options)
        self._target: Look | None = None
        self._first: StreamOffset | None = None
        self._last: _Made | None = None
        self._book = OffsetBook()
        self._turn = 0
        self._told: set[str] = set()
        clock = self._clock = clock or SystemClock()
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
        self._last = None
        self._target = self._lanes.look.copy()

    def latest(self, start: StreamOffset, limits: Limits | None) -> StreamOffset:
        """Return where the batch behind `start` ends; `start` itself if there is none to make.

        Raises:
            StoreError: messages are lost that `start` says were not read, and that must not be.
        """
        self._note_done(start)
        last, self._last = self._last, None
        changed = self._lanes.refresh()
        is_known = changed is not None and last is not None and start is last.offset
        among = changed | last.unread if changed is not None and last is not None else None
        news, is_all = self._news(start, among if is_known else None)
        found = self._make(start, news, limits, is_all=is_all)
        looked_at = self._lanes.bounds() if is_all else news
        unread = frozenset(lane for lane in looked_at if self._is_unread(lane, found))
        self._last = _Made(found, start, news, unread)
        if found is not start:
            # Order: Spark writes the offset into its checkpoint when it has it. What it speaks of
            # is on the disk before.
            self._lanes.sync_logs()
        return found

    def _is_unread(self, lane: Lane, offset: StreamOffset) -> bool:
        bound = self._lanes.bounds().get(lane)
        return bound is not None and offset.ends.get(lane, bound.begin) != bound.end

    def _make(
        self,
        start: StreamOffset,
        news: Mapping[Lane, Stretch],
        limits: Limits | None,
        *,
        is_all: bool,
    ) -> StreamOffset:
        target = self._target
        if target is not None:
            news = {lane: _up_to(s, target.bounds.get(lane)) for lane, s in news.items()}
        elif limits is not None and not self._is_enough(start, news):
            return start
        ends = {lane: stretch.end for lane, stretch in news.items()}
        if limits is not None:
            ends = self._limit(news, limits)
        return _offset(start, news, ends, is_first=self._is_first(start), is_all=is_all)

    def _is_first(self, start: StreamOffset) -> bool:
        return start is self._first or (self._first is not None and start == self._first)

    def reported(self) -> StreamOffset:
        """Return the last offset of every lane as of the last look, and the first one.

        Of many queues it names those that have something unread, from where on.
        """
        bounds = self._lanes.bounds()
        if self._last is None or not self._is_compact():
            return StreamOffset(
                {lane: bound.end for lane, bound in bounds.items()},
                {lane: bound.begin for lane, bound in bounds.items()},
            )
        read = self._last.offset.ends
        unread = {lane: bounds[lane] for lane in self._last.unread}
        return StreamOffset(
            {lane: bound.end for lane, bound in unread.items()},
            {lane: max(read.get(lane, 0), bound.begin) for lane, bound in unread.items()},
            at=self._lanes.look.positions(unread),
        )

    def behind(self) -> Behind | None:
        """Return how far behind the last look the end of the next batch is; None before one."""
        last = self._last
        if last is None:
            return None
        ends, bounds = last.offset.ends, self._lanes.bounds()
        rest = {
            lane: Stretch(min(max(ends.get(lane, bound.begin), bound.begin), bound.end), bound.end)
            for lane in last.unread
            if (bound := bounds.get(lane)) is not None
        }
        return reckon_behind(self._lanes, rest, self._clock.now_ms())

    # --- offsets as Spark keeps them -----------------------------------------------------------

    def encode(self, offset: StreamOffset) -> dict[str, Any]:
        """Return what Spark keeps of an offset that this driver gave."""
        known = self._book.members_of(offset)
        if known is not None:
            return known
        short = offset
        if self._is_compact() and not offset.is_initial:
            short = self._shortened(offset)
        members = short.encode(is_packing=self._stream.is_compact)
        self._book.note(members, offset)
        return members

    def decode(self, members: dict[str, Any]) -> StreamOffset:
        """Return the offset that Spark kept, with all queues by name.

        Raises:
            StoreError: it cannot be read, or the queues are not those that it speaks of.
        """
        known = self._book.offset_of(members)
        if known is not None:
            return known
        offset = StreamOffset.decode(members)
        if offset.at:
            offset, losses = self._lanes.resolve(offset)
            self._lose(losses)
        self._book.note(members, offset)
        return offset

    def _is_compact(self) -> bool:
        has_many = len(self._lanes.bounds()) > NAMED_MAX and self._options.has_topic
        return has_many and self._stream.is_compact

    def _shortened(self, offset: StreamOffset) -> StreamOffset:
        """Return the offset with a place in the log in place of the queues that were read to it."""
        look = self._target or self._lanes.look
        lanes: Iterable[Lane] = look.bounds
        if self._target is None and self._last is not None and self._last.offset is offset:
            lanes = self._last.unread
        read = offset.ends
        named = {lane: read.get(lane, look.bounds[lane].begin) for lane in lanes}
        named = {lane: at for lane, at in named.items() if at != look.bounds[lane].end}
        at = look.positions(named)
        named |= {lane: end for lane, end in read.items() if lane.broker not in at}
        return StreamOffset(named, offset.begins, offset.is_initial, at)

    # --- what is new ---------------------------------------------------------------------------

    def _news(
        self, start: StreamOffset, among: frozenset[Lane] | None
    ) -> tuple[dict[Lane, Stretch], bool]:
        """Return what there is behind an offset, and whether all lanes were looked at.

        Without `among` they are.
        """
        bounds = self._lanes.bounds()
        if among is not None:
            ends = {lane: start.ends[lane] for lane in among if lane in start.ends}
            found = advance(ends, {lane: bounds[lane] for lane in among if lane in bounds})
            if not found.losses:
                return found.news, False
        found = advance(start.ends, bounds)
        if found.losses:
            self._lanes.reopen()  # whatever the view believed
            found = advance(start.ends, self._lanes.bounds())
        self._lose(found.losses)
        return found.news, True

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

    def plan(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return the partitions of the batch between two offsets.

        Raises:
            StoreError: messages of it are lost, and that must not be.
        """
        made = self._last
        among: Iterable[Lane] = end.ends
        if made is not None and made.offset is end and made.start is start:
            among = [lane for lane in made.news if lane in end.ends]
        wanted: dict[Lane, Stretch] = {}
        for lane in among:
            last = end.ends[lane]
            begin = end.begins.get(lane, start.ends.get(lane, last))
            wanted[lane] = Stretch(begin, last)
        found, losses = clip(wanted, self._lanes.bounds())
        if losses:
            self._lanes.reopen()
            self._last = None
            found, losses = clip(wanted, self._lanes.bounds())
        self._lose(losses)
        return self._lanes.plan(found)

    # --- progress ------------------------------------------------------------------------------

    def _note_done(self, start: StreamOffset) -> None:
        if self._keeper is not None and not self._is_first(start):
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
    start: StreamOffset,
    news: Mapping[Lane, Stretch],
    ends: Mapping[Lane, int],
    *,
    is_first: bool,
    is_all: bool,
) -> StreamOffset:
    """Return the offset of a batch; `start` if it would be empty and change nothing.

    Lanes that are not among the news stay as they are, unless all were looked at: then they are
    gone.
    """
    kept = {lane: at for lane, at in ends.items() if lane in start.ends or at > news[lane].begin}
    has_changed = any(start.ends.get(lane) != at for lane, at in kept.items())
    is_same = not has_changed and not (is_all and len(kept) != len(start.ends))
    if is_same and not start.is_initial:
        return start
    begins = {
        lane: news[lane].begin
        for lane in kept
        if is_first or news[lane].begin != start.ends.get(lane)
    }
    if not is_all:
        kept = {**start.ends, **kept}
    return StreamOffset(kept, begins)


def _up_to(stretch: Stretch, target: Stretch | None) -> Stretch:
    end = stretch.begin if target is None else min(stretch.end, max(target.end, stretch.begin))
    return Stretch(stretch.begin, end)


def _first_of(stretch: Stretch, count: int) -> Stretch:
    return Stretch(stretch.begin, stretch.begin + count)
