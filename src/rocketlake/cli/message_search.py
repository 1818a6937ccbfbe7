"""Which messages a command wants, and how they are found: by queue, by key, or along the log."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase

import click
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.cli.store_arguments import note
from rocketlake.filters.tags import TagFilter
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import properties as names
from rocketlake.model.flags import TRANSACTION_MASK, TransactionType
from rocketlake.model.hashes import tags_code
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.disk.owed_units import PLACE_DTYPE, Places
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.offline import Batch, KeyQuery, OfflineStore

_EVER = 1 << 62
_ALL = 1 << 40
_UNITS = 4096


class Selection(Struct, frozen=True, kw_only=True):
    """Which messages; a range holds its begin and not its end."""

    topics: tuple[str, ...] = ()
    queue: int | None = None
    from_offset: int = 0
    to_offset: int = _EVER
    from_time: int | None = None
    to_time: int | None = None
    key: str | None = None
    tag: str | None = None
    sql: str | None = None

    def wants_topic(self, topic: str) -> bool:
        """Tell whether a topic is one of those named, by name or pattern."""
        return not self.topics or any(
            topic == name or fnmatchcase(topic, name) for name in self.topics
        )


class Found(Struct, frozen=True):
    """Messages as columns, with what the queue says of each."""

    columns: RecordColumns
    tags_codes: list[int]
    queue_offsets: list[int]
    batch_sizes: list[int]
    queued: list[bool] | None = None

    def first(self, count: int) -> "Found":
        """Return at most so many of the messages."""
        if len(self.columns) <= count:
            return self
        return Found(
            RecordColumns(self.columns.buffer, self.columns.rows[:count]),
            self.tags_codes[:count],
            self.queue_offsets[:count],
            self.batch_sizes[:count],
            self.queued[:count] if self.queued is not None else None,
        )

    def only(self, rows: list[int]) -> "Found":
        """Return some of the messages."""
        return Found(
            RecordColumns(self.columns.buffer, self.columns.rows[rows]),
            [self.tags_codes[row] for row in rows],
            [self.queue_offsets[row] for row in rows],
            [self.batch_sizes[row] for row in rows],
            [self.queued[row] for row in rows] if self.queued is not None else None,
        )


class Selector:
    """Finds the messages of a selection in one store."""

    def __init__(self, store: OfflineStore, selection: Selection) -> None:
        """Prepare filters.

        Raises:
            click.BadParameter: an expression that cannot be read.
        """
        self._store = store
        self._selection = selection
        self._tag = _tag_filter(selection.tag)
        self._sql = _sql_filter(selection.sql)

    def keys(self, *, quiet: bool = False) -> list[QueueKey]:
        """Return the queues that are wanted; say so if a named topic is not there."""
        wanted = self._selection
        topics = {key.topic for key in self._store.queues}
        for name in () if quiet else wanted.topics:
            if not any(topic == name or fnmatchcase(topic, name) for topic in topics):
                near = get_close_matches(name, topics, 3, 0.4) or sorted(topics)[:5]
                note(f"no topic {name!r} in this store; it has {', '.join(near) or 'none'}")
        return [
            key
            for key in self._store.queues
            if wanted.wants_topic(key.topic) and wanted.queue in (None, key.queue_id)
        ]

    def total(self) -> int:
        """Return how many messages there are to look at."""
        queues = (self._store.queues[key] for key in self.keys(quiet=True))
        return sum(max(queue.max_offset - queue.min_offset, 0) for queue in queues)

    def by_queue(self) -> Iterator[Found]:
        """Yield messages by topic, queue and offset."""
        for key in self.keys():
            first, last = self._offsets(key)
            yield from self.of_queue(key, first, last)

    def of_queue(self, key: QueueKey, first: int, last: int = _EVER) -> Iterator[Found]:
        """Yield the messages of one queue that pass the filters."""
        for batch in self._store.messages(key, first, last):
            found = self._filtered(batch)
            if len(found.columns):
                yield found

    def _offsets(self, key: QueueKey) -> tuple[int, int]:
        """Return the range of queue offsets that offsets and times leave."""
        wanted = self._selection
        if wanted.from_time is None and wanted.to_time is None:
            return wanted.from_offset, wanted.to_offset
        first, last = self._store.offsets_of_time(key, wanted.from_time, wanted.to_time)
        return max(first, wanted.from_offset), min(last, wanted.to_offset)

    def _filtered(self, batch: Batch) -> Found:
        keep = self._in_time(batch.columns)
        if self._tag is not None and batch.key.topic != SCHEDULE_TOPIC:
            matches = self._tag.matches_code
            codes = batch.places["tags_code"].tolist()
            keep &= np.fromiter(map(matches, codes), np.bool_, len(codes)) | (
                batch.places["tags_code"] < -(1 << 31)
            )
        keep = self._by_record(batch.columns, keep)
        return Found(
            RecordColumns(batch.columns.buffer, batch.columns.rows[keep]),
            batch.places["tags_code"][keep].tolist(),
            batch.places["queue_offset"][keep].tolist(),
            batch.places["batch_size"][keep].tolist(),
        )

    def _in_time(self, columns: RecordColumns) -> npt.NDArray[np.bool_]:
        keep = np.ones(len(columns), np.bool_)
        if self._selection.from_time is not None:
            keep &= columns["store_timestamp"] >= self._selection.from_time
        if self._selection.to_time is not None:
            keep &= columns["store_timestamp"] < self._selection.to_time
        return keep

    def _by_record(
        self, columns: RecordColumns, keep: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Apply what only the properties of a record can tell."""
        if self._tag is None and self._sql is None:
            return keep
        view = memoryview(columns.buffer)
        starts, sizes = columns["properties_position"], columns["properties_size"]
        for index in np.flatnonzero(keep).tolist():
            start = int(starts[index])
            properties = decode_properties(bytes(view[start : start + int(sizes[index])]))
            keep[index] = self._passes(properties)
        return keep

    def _passes(self, properties: dict[str, str]) -> bool:
        if self._tag is not None and not self._tag.matches(properties.get(names.TAGS)):
            return False
        return self._sql is None or self._sql(properties)

    # --- by key --------------------------------------------------------------------------------

    def by_key(self) -> Iterator[Found]:
        """Yield the messages with the key, by topic, queue and offset."""
        wanted = self._selection
        found = []
        for topic in self._key_topics():
            query = KeyQuery(
                topic=topic,
                key=wanted.key or "",
                begin=wanted.from_time or 0,
                end=(wanted.to_time - 1) if wanted.to_time is not None else _EVER,
                limit=_ALL,
            )
            found += self._store.find(query)
        found.sort(key=lambda message: (message.topic, message.queue_id, message.queue_offset))
        for message in found:
            if self._wants_place(message.topic, message.queue_id, message.queue_offset):
                columns, _ = self._store.log.gather(
                    np.array([message.physical_offset]),
                    np.array([message.store_size]),
                    checks=self._store.checks,
                )
                if self._by_record(columns, np.ones(1, np.bool_))[0]:
                    yield self._with_units(columns)

    def _key_topics(self) -> list[str | None]:
        exact = [name for name in self._selection.topics if not set(name) & set("*?[")]
        if exact and len(exact) == len(self._selection.topics):
            return list(dict.fromkeys(exact))
        return [None]

    def _wants_place(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        wanted = self._selection
        return (
            wanted.wants_topic(topic)
            and wanted.queue in (None, queue_id)
            and wanted.from_offset <= queue_offset < wanted.to_offset
        )

    # --- along the log -------------------------------------------------------------------------

    def along_log(self) -> Iterator[Found]:
        """Yield the records of the log in order, those no queue points to included."""
        for chunk in self._store.walk():
            yield from self.of_log(chunk.columns)

    def of_log(self, columns: RecordColumns, *, with_units: bool = True) -> Iterator[Found]:
        """Yield those records of a part of the log that are wanted.

        Without units only records that belong into a queue are taken, whether it has them yet.
        """
        keep = self._in_time(columns)
        codes, topics = columns.topics()
        wanted_topics = np.array([self._selection.wants_topic(topic) for topic in topics])
        keep &= wanted_topics[codes]
        if self._selection.queue is not None:
            keep &= columns["queue_id"] == self._selection.queue
        keep &= columns["queue_offset"] >= self._selection.from_offset
        keep &= columns["queue_offset"] < self._selection.to_offset
        keep = self._by_record(columns, keep)
        if not with_units:
            transaction = columns["sys_flag"] & TRANSACTION_MASK
            keep &= (transaction == TransactionType.NONE) | (transaction == TransactionType.COMMIT)
        kept = RecordColumns(columns.buffer, columns.rows[keep])
        if len(kept):
            yield self._with_units(kept) if with_units else _without_units(kept)

    def _with_units(self, columns: RecordColumns) -> Found:
        """Look up the queue unit of each record; without one the code comes from the tag."""
        codes, topics = columns.topics()
        both = codes.astype(np.int64) << 32 | columns["queue_id"].astype(np.uint32)
        tags_codes = np.zeros(len(columns), np.int64)
        queued = np.zeros(len(columns), np.bool_)
        for number in np.unique(both).tolist():
            members = np.flatnonzero(both == number)
            queue_id = int(columns["queue_id"][members[0]])
            queue = self._store.queues.get(QueueKey(topics[number >> 32], queue_id))
            if queue is not None:
                units = units_of(queue, columns["queue_offset"][members])
                held = units["physical_offset"] == columns["physical_offset"][members]
                queued[members] = held
                tags_codes[members] = np.where(held, units["tags_code"], 0)
        for index in np.flatnonzero(~queued).tolist():
            tags_codes[index] = tags_code(columns.message(index).tags)
        return Found(
            columns,
            tags_codes.tolist(),
            columns["queue_offset"].tolist(),
            [1] * len(columns),
            queued.tolist(),
        )


def _without_units(columns: RecordColumns) -> Found:
    codes = [tags_code(message.tags) for message in columns.messages()]
    return Found(columns, codes, columns["queue_offset"].tolist(), [1] * len(columns))


def units_of(queue: QueueView, offsets: npt.NDArray[np.int64]) -> Places:
    """Return the unit of each queue offset; where there is none, one that points nowhere."""
    found = np.zeros(len(offsets), PLACE_DTYPE)
    found["physical_offset"] = -1
    order = np.argsort(offsets, kind="stable")
    at = 0
    while at < len(order):
        wanted = int(offsets[order[at]])
        units = queue.units(queue.index_of(wanted), _UNITS)
        if not len(units):
            at += 1
            continue
        inside = at + int(
            np.searchsorted(offsets[order[at:]], int(units["queue_offset"][-1]), side="right")
        )
        members = order[at : max(inside, at + 1)]
        places = np.searchsorted(units["queue_offset"], offsets[members])
        places = np.minimum(places, len(units) - 1)
        hit = units["queue_offset"][places] == offsets[members]
        found[members[hit]] = units[places[hit]]
        at += len(members)
    return found


def _tag_filter(expression: str | None) -> TagFilter | None:
    if expression is None:
        return None
    try:
        return TagFilter.parse(expression)
    except ValueError as error:
        raise click.BadParameter(f"--tag {expression!r}: {error}") from error


def _sql_filter(expression: str | None) -> Callable[[dict[str, str]], bool] | None:
    if expression is None:
        return None
    from rocketlake.filters.sql92 import SqlFilter  # noqa: PLC0415 - its parser costs start-up time

    try:
        compiled = SqlFilter(expression)
    except ValueError as error:
        raise click.BadParameter(f"--sql: {error}") from error
    if compiled.unread:
        note(f"--sql: RocketMQ ignores the end of this expression: {compiled.unread!r}")
    return compiled.matches
