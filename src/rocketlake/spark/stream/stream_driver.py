"""StreamDriver: the decisions of a stream reader, without Spark.

Spark keeps one in a Python process for each query, so it may keep state. A restart needs the
offsets alone.

1. A batch ends where `latest` says, and is planned from two offsets only: read again after a crash
   it has the same messages, whatever was written since.
2. Work is proportional to what changed: the queues that got messages since the last batch, and
   those with unread ones. All queues are examined only after a full refresh of the stores, or when
   Spark passes an offset other than the last one it got.
3. Spark asks for `latest` when the batch before is done, sink included, so its `start` is the
   progress of the query. (Spark's `commit` comes one batch later.)
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from rocketlake.clock import Clock, SystemClock
from rocketlake.closing import Closing
from rocketlake.errors import StoreError
from rocketlake.spark.reading.options import EARLIEST, GROUP, ReadBound, SourceOptions
from rocketlake.spark.stream.batch_start import advance, clip
from rocketlake.spark.stream.lag import Behind, measure_behind
from rocketlake.spark.stream.limits import (
    OffsetRange,
    Ranges,
    TriggerDelay,
    share_bytes,
    share_rows,
)
from rocketlake.spark.stream.offsets import NAMED_MAX, ParsedOffsets, StreamOffset, StreamSource
from rocketlake.spark.stream.progress import GroupProgress
from rocketlake.spark.stream.sources import StreamSources
from rocketlake.spark.stream.stream_options import StreamOptions

if TYPE_CHECKING:
    from rocketlake.spark.stream.positions import BoundsSnapshot

log = logging.getLogger(__name__)

_LOSSES_REPORTED_MAX = 1000


class Limits(Struct, frozen=True):
    """How much a batch may take; None: no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None


class _PlannedBatch(Struct, frozen=True):
    """The last offset that was returned, and what it was made from."""

    offset: StreamOffset
    start: StreamOffset
    available: Ranges
    unread: frozenset[StreamSource]
    """The sources with messages behind `offset`."""


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
        self._sources = _open_sources(options)
        self._target: BoundsSnapshot | None = None
        self._first: StreamOffset | None = None
        self._last: _PlannedBatch | None = None
        self._parsed = ParsedOffsets()
        self._turn = 0
        self._reported_losses: set[str] = set()
        clock = self._clock = clock or SystemClock()
        self._trigger_delay = (
            TriggerDelay(stream.min_rows, stream.max_delay_ms, clock) if stream.min_rows else None
        )
        self._progress = (
            GroupProgress(stream.group, self._sources.places, stream.progress_path, clock=clock)
            if stream.group
            else None
        )

    def close(self) -> None:
        """Close the stores."""
        self._sources.close()

    # --- where it begins -----------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Return where a new query begins.

        Raises:
            ConfigError, StoreError: as `StreamSources.starts`.
        """
        if self._first is None:  # Spark asks twice, and expects the same answer
            starts = self._sources.starts()
            if self._options.starting.default == GROUP:
                starts = self._group_starts(starts)
            # Any other start than the first message is pinned by a batch, an empty one if need be:
            # Spark does not store it, and would ask again after a crash in the first batch.
            is_plain = self._options.starting == ReadBound(EARLIEST)
            self._first = StreamOffset(starts, is_initial=not is_plain)
        return self._first

    def _group_starts(self, starts: Mapping[StreamSource, int]) -> dict[StreamSource, int]:
        assert self._progress is not None
        bounds = self._sources.bounds()
        found: dict[StreamSource, int] = {}
        for source, first in starts.items():
            bound = bounds.get(source, OffsetRange(first, first))
            at = self._progress.find(source)
            if at is None:
                found[source] = first
                continue
            found[source] = min(max(at, bound.begin), bound.end)
            if found[source] != at:
                where = f"{at} of {source}, which has {bound.begin} to {bound.end}"
                log.warning("group %s was at %s", self._stream.group, where)
        return found

    # --- where a batch ends --------------------------------------------------------------------

    def hold_target(self) -> None:
        """Make the current ends the end of all batches: the query reads up to them and stops."""
        self._sources.refresh()
        self._last = None
        self._target = self._sources.snapshot.copy()

    def latest(self, start: StreamOffset, limits: Limits | None) -> StreamOffset:
        """Return where the batch behind `start` ends; `start` itself if there is none to make.

        Raises:
            StoreError: messages behind `start` are lost, and failOnDataLoss is true.
        """
        self._write_progress(start)
        last, self._last = self._last, None
        changed = self._sources.refresh()
        is_known = changed is not None and last is not None and start is last.offset
        among = changed | last.unread if changed is not None and last is not None else None
        available, is_all = self._unread_since(start, among if is_known else None)
        found = self._end_of_batch(start, available, limits, is_all=is_all)
        examined = self._sources.bounds() if is_all else available
        unread = frozenset(source for source in examined if self._is_unread(source, found))
        self._last = _PlannedBatch(found, start, available, unread)
        if found is not start:
            # Order: Spark writes the offset into its checkpoint. The records before it must be
            # durable first.
            self._sources.sync_logs()
        return found

    def _is_unread(self, source: StreamSource, offset: StreamOffset) -> bool:
        bound = self._sources.bounds().get(source)
        return bound is not None and offset.ends.get(source, bound.begin) != bound.end

    def _end_of_batch(
        self,
        start: StreamOffset,
        available: Ranges,
        limits: Limits | None,
        *,
        is_all: bool,
    ) -> StreamOffset:
        target = self._target
        if target is not None:
            available = {
                source: _up_to(s, target.bounds.get(source)) for source, s in available.items()
            }
        elif limits is not None and not self._is_enough(start, available):
            return start
        ends = {source: span.end for source, span in available.items()}
        if limits is not None:
            ends = self._limit(available, limits)
        return _offset(start, available, ends, is_first=self._is_first(start), is_all=is_all)

    def _is_first(self, start: StreamOffset) -> bool:
        return start is self._first or (self._first is not None and start == self._first)

    def reported(self) -> StreamOffset:
        """Return the ends of all sources as of the last refresh, and their begins.

        Of many queues only those with unread messages are named, from the first unread one on.
        """
        bounds = self._sources.bounds()
        if self._last is None or not self._is_compact():
            return StreamOffset(
                {source: bound.end for source, bound in bounds.items()},
                {source: bound.begin for source, bound in bounds.items()},
            )
        read = self._last.offset.ends
        unread = {source: bounds[source] for source in self._last.unread}
        return StreamOffset(
            {source: bound.end for source, bound in unread.items()},
            {source: max(read.get(source, 0), bound.begin) for source, bound in unread.items()},
            at=self._sources.snapshot.positions(unread),
        )

    def behind(self) -> Behind | None:
        """Return how far the next batch ends behind the last refresh; None before a batch."""
        last = self._last
        if last is None:
            return None
        ends, bounds = last.offset.ends, self._sources.bounds()
        rest = {
            source: OffsetRange(
                min(max(ends.get(source, bound.begin), bound.begin), bound.end), bound.end
            )
            for source in last.unread
            if (bound := bounds.get(source)) is not None
        }
        return measure_behind(self._sources, rest, self._clock.now_ms())

    # --- offsets as Spark keeps them -----------------------------------------------------------

    def encode(self, offset: StreamOffset) -> dict[str, Any]:
        """Return the members that Spark stores for an offset of this driver."""
        known = self._parsed.members_of(offset)
        if known is not None:
            return known
        short = offset
        if self._is_compact() and not offset.is_initial:
            short = self._shortened(offset)
        members = short.encode(is_packing=self._stream.is_compact)
        self._parsed.note(members, offset)
        return members

    def decode(self, members: dict[str, Any]) -> StreamOffset:
        """Return the offset that Spark stored, with all queues by name.

        Raises:
            StoreError: it cannot be read, or does not fit the queues of the stores.
        """
        known = self._parsed.offset_of(members)
        if known is not None:
            return known
        offset = StreamOffset.decode(members)
        if offset.at:
            offset, losses = self._sources.resolve(offset)
            self._report_losses(losses)
        self._parsed.note(members, offset)
        return offset

    def _is_compact(self) -> bool:
        has_many = len(self._sources.bounds()) > NAMED_MAX and self._options.has_topic
        return has_many and self._stream.is_compact

    def _shortened(self, offset: StreamOffset) -> StreamOffset:
        """Return the offset with a place in the log instead of the queues read up to it."""
        snapshot = self._target or self._sources.snapshot
        sources: Iterable[StreamSource] = snapshot.bounds
        if self._target is None and self._last is not None and self._last.offset is offset:
            sources = self._last.unread
        read = offset.ends
        named = {source: read.get(source, snapshot.bounds[source].begin) for source in sources}
        named = {source: at for source, at in named.items() if at != snapshot.bounds[source].end}
        at = snapshot.positions(named)
        named |= {source: end for source, end in read.items() if source.broker not in at}
        return StreamOffset(named, offset.begins, offset.is_initial, at)

    # --- what is new ---------------------------------------------------------------------------

    def _unread_since(
        self, start: StreamOffset, among: frozenset[StreamSource] | None
    ) -> tuple[dict[StreamSource, OffsetRange], bool]:
        """Return what there is behind an offset, and whether all sources were examined.

        Without `among` they are.
        """
        bounds = self._sources.bounds()
        if among is not None:
            ends = {source: start.ends[source] for source in among if source in start.ends}
            found = advance(ends, {source: bounds[source] for source in among if source in bounds})
            if not found.losses:
                return found.available, False
        found = advance(start.ends, bounds)
        if found.losses:
            self._sources.reopen()  # the view may be out of date
            found = advance(start.ends, self._sources.bounds())
        self._report_losses(found.losses)
        return found.available, True

    def _is_enough(self, start: StreamOffset, available: Ranges) -> bool:
        if self._trigger_delay is None or start.is_initial:
            return True
        assert self._stream.min_rows is not None
        rows = 0
        for source, span in available.items():
            if source.is_log and span.count:
                rows += self._sources.cut_log(source, span, rows=self._stream.min_rows)[1]
            else:
                rows += span.count
        return self._trigger_delay.is_enough(rows)

    def _limit(self, available: Ranges, limits: Limits) -> dict[StreamSource, int]:
        """Return where each source ends in a batch within the limits."""
        self._turn += 1
        if any(source.is_log for source in available):
            return self._limit_logs(available, limits)
        taken = available
        if limits.max_rows is not None:
            rows = share_rows(available, limits.max_rows, self._turn)
            taken = {source: _first_of(s, rows.get(source, 0)) for source, s in available.items()}
        if limits.max_bytes is not None:
            rows = share_bytes(taken, limits.max_bytes, self._turn, self._sources.sizes_of)
            taken = {source: _first_of(s, rows.get(source, 0)) for source, s in taken.items()}
        return {source: span.end for source, span in taken.items()}

    def _limit_logs(self, available: Ranges, limits: Limits) -> dict[StreamSource, int]:
        # Records of a log are counted by walking it; each log gets the same share.
        busy = max(sum(bool(s.count) for s in available.values()), 1)
        ends: dict[StreamSource, int] = {}
        for source, span in available.items():
            rows = limits.max_rows and max(limits.max_rows // busy, 1)
            size = limits.max_bytes and max(limits.max_bytes // busy, 1)
            is_limited = span.count and (rows or size)
            cut = self._sources.cut_log(source, span, rows=rows, size=size) if is_limited else None
            ends[source] = span.end if cut is None else cut[0]
        return ends

    # --- what a batch reads --------------------------------------------------------------------

    def plan(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return the partitions of the batch between two offsets.

        Raises:
            StoreError: messages of the batch are lost, and failOnDataLoss is true.
        """
        made = self._last
        among: Iterable[StreamSource] = end.ends
        if made is not None and made.offset is end and made.start is start:
            among = [source for source in made.available if source in end.ends]
        wanted: dict[StreamSource, OffsetRange] = {}
        for source in among:
            last = end.ends[source]
            begin = end.begins.get(source, start.ends.get(source, last))
            wanted[source] = OffsetRange(begin, last)
        found, losses = clip(wanted, self._sources.bounds())
        if losses:
            self._sources.reopen()
            self._last = None
            found, losses = clip(wanted, self._sources.bounds())
        self._report_losses(losses)
        return self._sources.plan(found)

    # --- progress ------------------------------------------------------------------------------

    def _write_progress(self, start: StreamOffset) -> None:
        if self._progress is not None and not self._is_first(start):
            self._progress.write(start.ends)

    def note_commit(self, end: StreamOffset) -> None:
        """Write the progress that Spark has committed."""
        if self._progress is not None:
            self._progress.write(end.ends)

    def _report_losses(self, losses: Sequence[str]) -> None:
        """Fail or continue after losses, as `failOnDataLoss` says.

        Raises:
            StoreError: messages are lost, and failOnDataLoss is true.
        """
        if losses and self._options.fail_on_data_loss:
            more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
            raise StoreError(f"data loss: {losses[0]}{more}")
        for loss in losses:
            if (
                loss not in self._reported_losses
                and len(self._reported_losses) < _LOSSES_REPORTED_MAX
            ):
                self._reported_losses.add(loss)
                log.warning("data loss: %s", loss)


def _open_sources(options: SourceOptions) -> StreamSources:
    if options.archive is None:
        return StreamSources(options)
    # Imported here: Arrow's Parquet takes as long to import as all else that a driver needs.
    from rocketlake.spark.stream.archived_sources import ArchivedSources  # noqa: PLC0415

    return ArchivedSources(options)


def _offset(
    start: StreamOffset,
    available: Ranges,
    ends: Mapping[StreamSource, int],
    *,
    is_first: bool,
    is_all: bool,
) -> StreamOffset:
    """Return the end of a batch; `start` if the batch would be empty and change nothing.

    Sources that `available` does not name keep their offset, unless all were looked at: then they
    are gone.
    """
    kept = {
        source: at
        for source, at in ends.items()
        if source in start.ends or at > available[source].begin
    }
    has_changed = any(start.ends.get(source) != at for source, at in kept.items())
    is_same = not has_changed and not (is_all and len(kept) != len(start.ends))
    if is_same and not start.is_initial:
        return start
    begins = {
        source: available[source].begin
        for source in kept
        if is_first or available[source].begin != start.ends.get(source)
    }
    if not is_all:
        kept = {**start.ends, **kept}
    return StreamOffset(kept, begins)


def _up_to(span: OffsetRange, target: OffsetRange | None) -> OffsetRange:
    end = span.begin if target is None else min(span.end, max(target.end, span.begin))
    return OffsetRange(span.begin, end)


def _first_of(span: OffsetRange, count: int) -> OffsetRange:
    return OffsetRange(span.begin, span.begin + count)
