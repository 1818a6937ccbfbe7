"""Which queues and which of their offsets are wanted: by options, then by pushed filters."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.errors import ConfigError, StoreError
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.near_names import near_hint
from rocketlake.spark.reading.options import (
    EARLIEST,
    GROUP,
    LATEST,
    NoMatch,
    ReadBound,
    SourceOptions,
)
from rocketlake.spark.reading.terms import allows, bounds
from rocketlake.store.offline import Boundary, OfflineStore, QueueView, time_lookup


class QueueSpan(Struct, frozen=True):
    """Queue offsets of one queue: the first, and the one behind the last."""

    topic: str
    queue_id: int
    from_offset: int
    to_offset: int

    @property
    def key(self) -> QueueKey:
        """The queue."""
        return QueueKey(self.topic, self.queue_id)


def topic_filter(options: SourceOptions) -> Callable[[str], bool]:
    """Return a cached test whether a topic is selected."""
    if options.topic_pattern is None and options.topics:
        return frozenset(options.topics).__contains__
    return cache(options.wants_topic)


def check_bounds_order(options: SourceOptions) -> None:
    """Refuse a start behind its end where the options name both.

    Raises:
        ConfigError: names both.
    """
    start, end = options.starting, options.ending
    if start.is_time != end.is_time:
        return
    kind = "time" if start.is_time else "offset"
    way_out = "so nothing would be read; swap them"
    if start.default > end.default >= 0:
        raise ConfigError(
            f"the starting time {start.default} is behind the ending time {end.default}, {way_out}"
        )
    for topic, queues in start.by_queue.items():
        for queue_id, value in queues.items():
            last, _ = end.of(topic, queue_id)
            if value > last >= 0:
                raise ConfigError(
                    f"the starting {kind} {value} of queue {topic}/{queue_id} is behind its ending"
                    f" {kind} {last}, {way_out}"
                )


def wanted_queues(store: OfflineStore, options: SourceOptions) -> list[QueueKey]:
    """Return the queues of a store that topics, pattern and queue ids select."""
    wants = topic_filter(options)
    return [
        key
        for key in store.queues
        if wants(key.topic) and options.wants_queue_id(key.topic, key.queue_id)
    ]


def wanted_spans(store: OfflineStore, options: SourceOptions) -> list[QueueSpan]:
    """Return the span of each selected queue, with start and end resolved.

    Raises:
        ConfigError: no message is as young as a starting time, and the strategy is `error`; or a
            starting offset is behind the ending offset.
        StoreError: offsets are asked for that the queue does not hold (any more).
    """
    found = []
    for key in wanted_queues(store, options):
        first = starting_offset(store, key, options)
        last = ending_offset(store, key, options)
        if first > last:
            _check_order(key, first, last, options)
        found.append(QueueSpan(key.topic, key.queue_id, first, max(first, last)))
    return found


def _check_order(key: QueueKey, first: int, last: int, options: SourceOptions) -> None:
    """Refuse offsets that select nothing; times may select nothing of a queue."""
    both = (options.starting, options.ending)
    if any(bound.of(key.topic, key.queue_id)[1] for bound in both):
        return
    raise ConfigError(
        f"startingOffsets of {key} is {first} and endingOffsets is {last}: the start is behind the"
        " end, so nothing would be read; swap them, or leave endingOffsets out to read to the end"
    )


def starting_offset(store: OfflineStore, key: QueueKey, options: SourceOptions) -> int:
    """Return the first queue offset that is wanted of a queue.

    Raises:
        ConfigError, StoreError: as `wanted_spans`.
    """
    queue = store.queues[key]
    value, is_time = options.starting.of(key.topic, key.queue_id)
    if value == GROUP:
        raise ConfigError("option startingOffsets = group is for streams; a batch knows no group")
    if is_time:
        found = first_at(store, key, value)
        if found >= queue.max_offset and options.no_match is NoMatch.ERROR:
            raise ConfigError(
                f"no message of {key} was stored at {value} or later; option "
                "startingOffsetsByTimestampStrategy = latest begins at its end instead"
            )
        return found
    first = _within(value, queue, options, "starting")
    if queue.kind.is_batch and first < queue.max_offset:
        # An offset in the middle of a batch: its record is read as a whole.
        first = min(int(queue.units(queue.index_of(first), 1)["queue_offset"][0]), first)
    return first


def ending_offset(store: OfflineStore, key: QueueKey, options: SourceOptions) -> int:
    """Return the queue offset behind the last that is wanted of a queue.

    Raises:
        StoreError: as `wanted_spans`.
    """
    value, is_time = options.ending.of(key.topic, key.queue_id)
    if is_time:
        return first_at(store, key, value)
    return _within(value, store.queues[key], options, "ending")


def first_at(store: OfflineStore, key: QueueKey, timestamp: int) -> int:
    """Return the first queue offset stored at a time or later; the queue's end if none was."""
    queue = store.queues[key]
    lookup = time_lookup(store.log, queue)
    if queue.kind.is_batch:
        return _first_batch_at(store, key, timestamp)
    return lookup.bound(timestamp, Boundary.LOWER)


def _first_batch_at(store: OfflineStore, key: QueueKey, timestamp: int) -> int:
    """Search a batch queue by its units' times: RocketMQ's own rule answers -1 for many times."""
    queue = store.queues[key]
    lookup = time_lookup(store.log, queue)
    low, high = queue.index_of(queue.min_offset), queue.first_index + queue.total
    while low < high:
        middle = (low + high) // 2
        if (lookup.time_of(middle) or 0) < timestamp:
            low = middle + 1
        else:
            high = middle
    unit = queue.units(low, 1)
    return int(unit["queue_offset"][0]) if len(unit) else queue.max_offset


def _within(value: int, queue: QueueView, options: SourceOptions, which: str) -> int:
    low, high = queue.min_offset, max(queue.max_offset, queue.min_offset)
    if value == EARLIEST:
        return low
    if value == LATEST:
        return high
    if low <= value <= high:
        return value
    if options.fail_on_data_loss:
        raise StoreError(
            f"{which} offset {value} of {queue.key}: the queue holds {low} to {high}"
            f"{' (what lies before has expired)' if value < low else ''}; option failOnDataLoss = "
            "false reads what is there"
        )
    return min(max(value, low), high)


def check_topics(
    stores: Mapping[str, OfflineStore], options: SourceOptions, empty: Iterable[QueueKey] = ()
) -> None:
    """Make sure that the named topics and queues exist.

    `empty` are existing queues without a message.

    Raises:
        ConfigError: a topic or queue is in none of the stores; says which there are.
    """
    keys = {key for store in stores.values() for key in store.queues}.union(empty)
    check_names(keys, _places(stores), options)


def check_names(keys: Collection[QueueKey], places: str, options: SourceOptions) -> None:
    """Make sure that the named topics and queues are among the queues of these places.

    Raises:
        ConfigError: a topic or queue is not; names those there are.
    """
    topics = {key.topic for key in keys}
    for name in options.topics:
        if name not in topics:
            raise ConfigError(f"there is no topic {name!r} in {places}; {topic_hint(name, topics)}")
    if options.queue_ids is not None and not any(
        options.wants_topic(key.topic) and key.queue_id in options.queue_ids for key in keys
    ):
        wanted = ", ".join(map(str, sorted(options.queue_ids)[:10]))
        raise ConfigError(f"no wanted topic in {places} has a queue {wanted} (option queueIds)")
    for topic, queues in (options.assigned or {}).items():
        there = {key.queue_id for key in keys if key.topic == topic}
        if missing := sorted(queues - there):
            raise ConfigError(
                f"option assign names queue {missing[0]} of topic {topic}, which has the queues"
                f" {', '.join(map(str, sorted(there)))}"
            )
    for bound in (options.starting, options.ending):
        _check_named(bound, keys, options)


def _check_named(bound: ReadBound, keys: Iterable[QueueKey], options: SourceOptions) -> None:
    known = {key for key in keys if options.wants_topic(key.topic)}
    for topic, offsets in bound.by_queue.items():
        for queue_id in offsets:
            if QueueKey(topic, queue_id) not in known:
                there = sorted(key.queue_id for key in known if key.topic == topic)
                if there:
                    said = f"topic {topic} has the queues {', '.join(map(str, there))}"
                else:
                    said = f"topic {topic!r} is not read"
                raise ConfigError(f"offsets are given for {topic}/{queue_id}, but {said}")


def _places(stores: Mapping[str, OfflineStore]) -> str:
    return ", ".join(str(store.directory.root) for store in stores.values())


def topic_hint(name: str, topics: Iterable[str]) -> str:
    """Return the hint that follows the name of an unknown topic; system topics come last."""
    system = ("%", "RMQ_SYS", "SCHEDULE")
    return near_hint(name, sorted(topics, key=lambda topic: (topic.startswith(system), topic)))


def narrow(
    store: OfflineStore, spans: Sequence[QueueSpan], options: SourceOptions
) -> list[QueueSpan]:
    """Leave out of the spans the offsets that cannot match the pushed filters.

    Why: not by store times. A clock that was set back, or a producer's odd record, hides messages
    from a search by time, and a filter may leave out none.
    """
    terms = options.terms
    if not terms:
        return list(spans)
    low, high = bounds(terms, "queue_offset")
    found = []
    for span in spans:
        # The records of a light queue have another topic and queue.
        if not is_lmq(span.topic) and not (
            allows(terms, "topic", span.topic) and allows(terms, "queue_id", span.queue_id)
        ):
            continue
        first, last = max(span.from_offset, low), min(span.to_offset, high + 1)
        if first < last:
            found.append(replace(span, from_offset=first, to_offset=last))
    return found
