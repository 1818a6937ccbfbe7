"""LagListener: how far behind a streaming query is, from the progress that Spark reports.

    lag = LagListener(lambda found: print(found))
    spark.streams.addListener(lag)
    ...
    lag.newest()["<query id>"].lag

Spark calls listeners of a Python program in its own threads, a moment after the batch.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from rocketlake.errors import StoreError
from rocketlake.spark.stream.lag import Behind
from rocketlake.spark.stream.offsets import BEHIND, StreamOffset, StreamSource

log = logging.getLogger(__name__)

_KNOWN: Final = ("queues", "log")


class SourceLag(Struct, frozen=True):
    """How far behind a query is in one queue, or in one log."""

    source: StreamSource
    offset: int
    """The offset that it reads next."""
    latest: int
    """The offset behind the last message when the batch was planned."""

    @property
    def lag(self) -> int:
        """The number of unread messages; of a log, bytes."""
        return max(self.latest - self.offset, 0)


class QueryLag(Struct, frozen=True, kw_only=True):
    """How far behind a query was after a batch."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    timestamp: str
    lanes: tuple[SourceLag, ...]
    """Each queue, or each log, that lags."""
    behind: Behind | None = None
    """Messages, bytes and seconds over all sources of this format; None from older releases."""
    ends: tuple[StreamOffset, ...] = ()
    """The end offsets of the batch, for each source of this format."""

    @property
    def lag(self) -> int:
        """The number of unread messages of all sources; bytes, if it reads logs."""
        return sum(each.lag for each in self.lanes)

    @property
    def by_topic(self) -> dict[str, int]:
        """The lag of each topic."""
        found: dict[str, int] = {}
        for each in self.lanes:
            topic = each.source.topic
            found[topic] = found.get(topic, 0) + each.lag
        return found

    def __str__(self) -> str:
        name = self.name or self.query_id
        worst = max(self.lanes, key=lambda each: each.lag, default=None)
        most = f", most in {worst.source}: {worst.lag}" if worst is not None and worst.lag else ""
        seconds = self.behind.seconds if self.behind is not None else None
        age = f", {seconds:.1f} s" if seconds is not None else ""
        return f"query {name} batch {self.batch_id}: lag {self.lag}{age}{most}"


class LagListener(StreamingQueryListener):
    """Keeps the newest lag of every query that reads this format, and reports it.

    Thread-safety: Spark's threads write, any thread may read.
    """

    def __init__(
        self, on_lag: Callable[[QueryLag], object] | None = None, *, log_level: int = logging.DEBUG
    ) -> None:
        """Call `on_lag` after each batch, and log the same."""
        self._on_lag = on_lag
        self._log_level = log_level
        self._lock = threading.Lock()
        self._newest: dict[str, QueryLag] = {}

    def newest(self) -> dict[str, QueryLag]:
        """Return the newest lag of each query by its id, including queries that ended."""
        with self._lock:
            return dict(self._newest)

    def total(self) -> int:
        """Return the lag of all queries together."""
        return sum(found.lag for found in self.newest().values())

    # --- Spark calls these ---------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's
        """Do nothing: there is no lag before the first batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's
        """Update the lag after a batch."""
        try:
            found = read_lag(event.progress)
        except StoreError as error:
            log.warning("lag of query %s is unknown: %s", event.progress.id, error)
            return
        if found is None:
            return
        with self._lock:
            self._newest[found.query_id] = found
        log.log(self._log_level, "%s", found)
        if self._on_lag is not None:
            try:
                self._on_lag(found)
            except Exception:  # the user's function must not end Spark's thread
                log.exception("on_lag failed for %s", found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's
        """Do nothing: the last lag stays available."""


def read_lag(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag that a StreamingQueryProgress shows; None if it has no source of this format.

    `query.lastProgress` is one too.

    Raises:
        StoreError: its offsets are of another version.
    """
    lags: list[SourceLag] = []
    ends: list[StreamOffset] = []
    behind: list[Behind] = []
    for source in progress.sources:
        end, latest = _parse(source.endOffset), _parse(source.latestOffset)
        if end is None:
            continue
        ends.append(end)
        lags += _lags(end, latest or end)
        found = Behind.decode(json.loads(source.latestOffset or "{}").get(BEHIND))
        behind += [] if found is None else [found]
    if not ends:
        return None
    return QueryLag(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        name=progress.name,
        batch_id=progress.batchId,
        timestamp=progress.timestamp,
        lanes=tuple(lags),
        behind=_together(behind) if len(behind) == len(ends) else None,
        ends=tuple(ends),
    )


def _together(parts: Sequence[Behind]) -> Behind:
    rows = [part.rows for part in parts]
    return Behind(
        rows=sum(count or 0 for count in rows) if None not in rows else None,
        bytes=sum(part.bytes for part in parts),
        seconds=max((s for part in parts if (s := part.seconds) is not None), default=None),
    )


def _lags(end: StreamOffset, latest: StreamOffset) -> list[SourceLag]:
    found = []
    for source in sorted({*end.ends, *latest.ends}):
        # Expired messages are no lag: the reported offsets say where each queue begins.
        first = latest.begins.get(source, 0)
        at = max(end.ends.get(source, first), first)
        found.append(SourceLag(source, at, latest.ends.get(source, at)))
    return found


def _parse(text: str | None) -> StreamOffset | None:
    """Return an offset as Spark reports it; None if it is of another format."""
    try:
        members = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(members, dict) or not any(name in members for name in _KNOWN):
        return None
    return StreamOffset.decode(members)
