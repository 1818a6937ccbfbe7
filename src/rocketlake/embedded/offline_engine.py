"""OfflineEngine: reads a store through the read-only view, with the results of an open store."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from rocketlake.errors import StoreClosedError
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format.queue_unit import is_ext_address
from rocketlake.format.record import ROW_DTYPE, RecordColumns, StoredMessage, reason_text
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import (
    ColumnsResult,
    CorruptUnit,
    GetRequest,
    GetResult,
    GetStatus,
    Gone,
    QueryResult,
)
from rocketlake.store.disk.log import MISSING
from rocketlake.store.disk.owed_units import Places
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.times import Boundary
from rocketlake.store.read.rules import ReadRules

if TYPE_CHECKING:
    from rocketlake.store.disk.queues import QueueView

T = TypeVar("T")

_STEP: Final = 256
_RULES: Final = ReadRules.of(StoreOptions())


class OfflineEngine:
    """Reads a store through the read-only view, which it refreshes at each call.

    Thread-safety: `_lock` guards the view.
    """

    def __init__(self, view: OfflineStore, path: Path) -> None:
        self._view = view
        self._path = path
        self._lock = threading.Lock()
        self.is_open = True

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self.is_open = False
            self._view.close()

    def require_open(self) -> None:
        """Raise if closed.

        Raises:
            StoreClosedError: it was closed.
        """
        if not self.is_open:
            raise StoreClosedError(f"the store {self._path} is closed")

    def catch_up(self) -> None:
        """Do nothing: every call refreshes the view."""

    def queue_counts(self) -> dict[str, int]:
        """Return how many queues each topic has."""
        counts: dict[str, int] = {}
        for key in self._ask(lambda view: list(view.queues)):
            counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
        return counts

    def queue_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the bounds of a queue; (0, 0) without the queue."""

        def bounds(view: OfflineStore) -> tuple[int, int]:
            queue = view.queues.get(key)
            return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

        return self._ask(bounds)

    def offset_by_time(self, key: QueueKey, timestamp: int, boundary: Boundary) -> int:
        """Return the queue offset for a store time; 0 without the queue."""

        def offset(view: OfflineStore) -> int:
            return view.offset_by_time(key, timestamp, boundary) if key in view.queues else 0

        return self._ask(offset)

    def query(self, query: KeyQuery) -> QueryResult:
        """Return the newest messages by key, in the order of the log."""
        return QueryResult(messages=self._ask(lambda view: view.find(query)))

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose record begins at an offset of the log."""
        return self._ask(lambda view: view.message_at(physical_offset))

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on, and the offset to continue at."""
        return self._ask(lambda view: read_messages(view, request, message_filter))

    def columns(self, request: GetRequest) -> ColumnsResult:
        """Return messages of a queue from an offset on, as columns."""
        return self._ask(lambda view: read_columns(view, request))

    def _ask(self, question: Callable[[OfflineStore], T]) -> T:
        with self._lock:
            self.require_open()
            self._view.refresh()
            return question(self._view)


def read_messages(
    view: OfflineStore, request: GetRequest, message_filter: MessageFilter | None
) -> GetResult:
    """Return messages of a queue from an offset on, and the offset to continue at."""
    read = _Read(view, request)
    messages = list(_messages(read, message_filter))
    return GetResult(
        status=GetStatus.FOUND if messages else read.status,
        messages=messages,
        next_offset=read.next_offset,
        min_offset=read.min_offset,
        max_offset=read.max_offset,
        corrupt=read.corrupt,
        gone=read.gone,
    )


def read_columns(view: OfflineStore, request: GetRequest) -> ColumnsResult:
    """Return messages of a queue as columns; at most those of one step."""
    read = _Read(view, request)
    columns = RecordColumns(b"", np.empty(0, ROW_DTYPE))
    for places in read.steps(None):
        columns, _ = read.records(places)
        if len(columns):
            break
    return ColumnsResult(
        status=GetStatus.FOUND if len(columns) else read.status,
        columns=columns,
        next_offset=read.next_offset,
        min_offset=read.min_offset,
        max_offset=read.max_offset,
        corrupt=read.corrupt,
    )


def _messages(read: "_Read", message_filter: MessageFilter | None) -> Iterator[StoredMessage]:
    left = read.request.max_messages
    for places in read.steps(message_filter):
        columns, good = read.records(places)
        for index, message in enumerate(columns.messages()):
            if message_filter is not None and not message_filter.matches(message):
                continue
            yield message
            left -= 1
            if left <= 0:
                last = good[index]
                read.next_offset = int(last["queue_offset"] + last["batch_size"])
                return


class _Read:
    """One read: the units it covers, and its outcome."""

    def __init__(self, view: OfflineStore, request: GetRequest) -> None:
        self.request = request
        self.next_offset = 0
        self.min_offset = self.max_offset = 0
        self.corrupt: list[CorruptUnit] = []
        self.gone: list[Gone] = []
        self.status = GetStatus.NO_MATCHED_LOGIC_QUEUE
        self._view = view
        self._queue: QueueView | None = None
        queue = view.queues.get(QueueKey(request.topic, request.queue_id))
        if queue is None:
            return
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset
        if self.min_offset <= request.offset < self.max_offset:
            self.status, self.next_offset = GetStatus.NO_MATCHED_MESSAGE, request.offset
            self._queue = queue
        else:
            self.status, self.next_offset = _RULES.refuse(
                request.offset, self.min_offset, self.max_offset
            )

    def steps(self, message_filter: MessageFilter | None) -> Iterator[Places]:
        """Yield units that may be wanted, in steps; `next_offset` is after each step."""
        queue, request = self._queue, self.request
        if queue is None:
            return
        end = _RULES.stop_offset(request, queue.kind.unit_size)
        step = min(_STEP, max(request.max_messages, 1)) if message_filter is None else _STEP
        for places in queue.iterate(request.offset, end, self._view.damage, step):
            last = places[-1]
            self.next_offset = int(last["queue_offset"] + last["batch_size"])
            wanted = places
            if message_filter is not None:
                wanted = places[[_may_match(message_filter, p) for p in places["tags_code"]]]
            if len(wanted):
                yield wanted

    def records(self, places: Places) -> tuple[RecordColumns, Places]:
        """Return the valid records of units, and those units; record the others."""
        offsets, sizes = places["physical_offset"].copy(), places["size"].copy()
        columns, reasons = self._view.log.gather(offsets, sizes, checks=self._view.checks)
        good = reasons == 0
        for index in np.flatnonzero(~good).tolist():
            self._note(places[index], int(reasons[index]))
        rows = columns.rows[good]
        if self._queue is not None and not self._queue.kind.is_batch:
            rows["queue_offset"] = places["queue_offset"][good]
        return RecordColumns(columns.buffer, rows), places[good]

    def _note(self, place: np.void, reason: int) -> None:
        offset = int(place["physical_offset"])
        if reason == MISSING and self._view.log.is_expired(offset):
            self.status = GetStatus.MESSAGE_WAS_REMOVING
            self._note_gone(int(place["queue_offset"]), int(place["batch_size"]))
            return
        path, position = self._view.log.describe(offset)
        text = "no file holds the record" if reason == MISSING else reason_text(reason)
        number = int(place["queue_offset"])
        self.corrupt.append(
            CorruptUnit(path=str(path), position=position, reason=text, queue_offset=number)
        )

    def _note_gone(self, first: int, count: int) -> None:
        """Record that messages expired; adjacent ranges are merged."""
        if self.gone and self.gone[-1].end == first:
            first, count = self.gone[-1].first, count + first - self.gone.pop().first
        self.gone.append(Gone(first, first + count))


def _may_match(message_filter: MessageFilter, tags_code: int) -> bool:
    code = None if is_ext_address(tags_code) else int(tags_code)
    return message_filter.may_match(code, None)
