"""The sources of a stream: bounds of queues or logs, sizes of messages, partitions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from rocketlake.closing import Closing
from rocketlake.errors import ConfigError
from rocketlake.format import names
from rocketlake.metadata import topics as topic_table
from rocketlake.model.queues import QueueKey
from rocketlake.spark.reading.options import (
    EARLIEST,
    GROUP,
    LATEST,
    NoMatch,
    ReadBound,
    SourceOptions,
)
from rocketlake.spark.reading.partitions import LogPart, Partition
from rocketlake.spark.reading.planning import plan_spans
from rocketlake.spark.reading.queue_spans import (
    QueueSpan,
    check_topics,
    starting_offset,
    topic_filter,
    wanted_queues,
)
from rocketlake.spark.reading.stores import StoreRef, StoreSet
from rocketlake.spark.stream.batch_start import WAY_OUT
from rocketlake.spark.stream.limits import OffsetRange, Ranges
from rocketlake.spark.stream.offsets import Position, StreamOffset, StreamSource
from rocketlake.spark.stream.positions import BoundsSnapshot, QueueSum
from rocketlake.spark.stream.progress import StoreLocation
from rocketlake.store.offline import (
    Gap,
    LogSync,
    OfflineStore,
    is_record_at,
    store_timestamp,
    walk_past,
)

_HEAD_SIZE: Final = 80  # includes the store time of a record, with any kind of host


class StreamSources(Closing):
    """The selected queues of some stores, or their logs; open as long as the query runs.

    Thread-safety: one thread.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._set = StoreSet.open(options)
        self._syncs: dict[str, LogSync] = {}
        self._damaged: set[str] = set()
        self._read_all_bounds()

    def close(self) -> None:
        """Close the stores."""
        self._set.close()

    def refresh(self) -> frozenset[StreamSource] | None:
        """Read what was written to the stores since; only new records are examined.

        Returns the sources that changed; None if all were examined again.
        """
        self._set.refresh()
        if not self._options.has_topic:
            self._read_all_bounds()
            return None
        changed: dict[StreamSource, OffsetRange] = {}
        for broker, store in self._set.stores.items():
            if store.changed is None:
                self._read_all_bounds()
                return None
            changed |= self._bounds_of(broker, store, store.changed)
        self._check_damage()
        self._snapshot.change(changed, self._log_ends())
        return frozenset(changed)

    def reopen(self) -> None:
        """Open the stores again, without any earlier state."""
        self._set.close()
        self._set = StoreSet.open(self._options)
        self._read_all_bounds()

    def _read_all_bounds(self) -> None:
        bounds: dict[StreamSource, OffsetRange] = {}
        for broker, store in self._set.stores.items():
            queues = store.queues
            if self._options.has_topic:
                bounds |= self._bounds_of(broker, store, queues)
            else:
                low = store.min_offset
                bounds[StreamSource(broker)] = OffsetRange(low, max(store.max_offset, low))
        self._check_damage()
        self._snapshot = BoundsSnapshot(bounds, self._log_ends())

    def _bounds_of(
        self, broker: str, store: OfflineStore, keys: Iterable[QueueKey]
    ) -> dict[StreamSource, OffsetRange]:
        found: dict[StreamSource, OffsetRange] = {}
        wants = topic_filter(self._options)
        for key in keys:
            if wants(key.topic) and self._options.wants_queue_id(key.topic, key.queue_id):
                queue = store.queues[key]
                low = max(queue.min_offset, 0)
                end = max(queue.max_offset, low)
                found[StreamSource(broker, key.topic, key.queue_id)] = OffsetRange(low, end)
        return found

    def _check_damage(self) -> None:
        self._set.check_damage()
        for broker, store in self._set.stores.items():
            if store.damage.findings:
                self._damaged.add(broker)
            store.damage.findings.clear()  # reported once

    def _log_ends(self) -> dict[str, int]:
        """Return the ends of the logs of stores whose queues a position can stand for.

        Why not of all: the units of a damaged queue may be repaired, at places that were passed,
        and in RocksDB the search for a place costs too much.
        """
        return {
            broker: store.max_offset
            for broker, store in self._set.stores.items()
            if broker not in self._damaged and not store.traits.has_rocksdb_queues
        }

    def sync_logs(self) -> None:
        """Make the records of all stores durable, up to the ends of the last refresh.

        Raises:
            FlushFailedError: the records may not be durable.
        """
        for broker, store in self._set.stores.items():
            sync = self._syncs.get(broker)
            if sync is None:
                sync = self._syncs[broker] = LogSync(store.directory)
            sync.run(store.max_offset)

    @property
    def places(self) -> dict[str, StoreLocation]:
        """The locations of the stores, by broker."""
        return {
            broker: StoreLocation(store.directory.root, store.traits.is_4x)
            for broker, store in self._set.stores.items()
        }

    # --- bounds --------------------------------------------------------------------------------

    @property
    def snapshot(self) -> BoundsSnapshot:
        """The bounds at the last refresh; the next one changes them."""
        return self._snapshot

    def bounds(self) -> Ranges:
        """Return the first offset of each source, and the one behind its last message."""
        return self._snapshot.bounds

    def resolve(self, offset: StreamOffset) -> tuple[StreamOffset, list[str]]:
        """Return an offset that names all queues, and the texts of what is lost of it."""
        ends = dict(offset.ends)
        losses: list[str] = []
        for broker, at in offset.at.items():
            store = self._set.stores.get(broker)
            if store is None:
                losses.append(
                    f"the store {broker} was read up to byte {at.offset} of its log, and path no"
                    f" longer names it (a store that was moved keeps its name as name=path);"
                    f" {WAY_OUT}"
                )
                continue
            mine, found = self._ends_at(broker, store, at.offset, offset.ends)
            if (found.queues, found.digest) != (at.queues, at.digest):
                losses.append(_other_queues(broker, at, found.queues))
                if at.offset > store.max_offset:
                    continue  # created again: all queues begin at their first message
            ends |= mine
        return StreamOffset(ends, offset.begins, offset.is_initial), losses

    def _ends_at(
        self, broker: str, store: OfflineStore, place: int, named: Mapping[StreamSource, int]
    ) -> tuple[dict[StreamSource, int], QueueSum]:
        """Return the offsets of the queues at a place in the log, and the sum over them."""
        ends: dict[StreamSource, int] = {}
        found = QueueSum()
        for key in wanted_queues(store, self._options):
            source = StreamSource(broker, key.topic, key.queue_id)
            end = 0 if source in named else store.queues[key].offset_at(place)
            if end > 0:
                ends[source] = end
                found.add(source, end)
        return ends, found

    def starts(self) -> dict[StreamSource, int]:
        """Return where a new query begins; queues of a topic without a message begin at 0.

        Raises:
            ConfigError: what is named is not there, or no message is as young as wanted.
            StoreError: offsets are asked for that are not there.
        """
        if not self._options.has_topic:
            return {
                StreamSource(broker): self._log_start(s) for broker, s in self._set.stores.items()
            }
        options = self._options
        if options.starting.default == GROUP:  # which is asked later
            options = replace(options, starting=ReadBound(EARLIEST))
        found: dict[StreamSource, int] = {}
        empty: set[QueueKey] = set()
        for broker, store in self._set.stores.items():
            keys = empty_queues(store)
            empty.update(keys)
            wanted = [key for key in keys if options.wants_queue(key.topic, key.queue_id)]
            found |= {StreamSource(broker, key.topic, key.queue_id): 0 for key in wanted}
        return found | self._first_offsets(options, empty)

    def _first_offsets(
        self, options: SourceOptions, empty: set[QueueKey]
    ) -> dict[StreamSource, int]:
        """Return where a new query begins in the queues that have messages.

        `empty` are the queues without any, which may be named too.
        """
        check_topics(self._set.stores, options, empty)
        return {
            StreamSource(broker, key.topic, key.queue_id): starting_offset(store, key, options)
            for broker, store in self._set.stores.items()
            for key in wanted_queues(store, options)
        }

    def _log_start(self, store: OfflineStore) -> int:
        starting = self._options.starting
        if starting.by_queue:
            raise ConfigError(
                "startingOffsets for queues need a topic; a stream of the whole log begins at"
                " earliest, latest or startingTimestamp"
            )
        if not starting.is_time:
            return {EARLIEST: store.min_offset, LATEST: store.max_offset}[starting.default]
        found = _log_offset_at(store, starting.default)
        if found is None and self._options.no_match is NoMatch.ERROR:
            raise ConfigError(
                f"no record of {store.directory.root} was stored at {starting.default} or later;"
                " option startingOffsetsByTimestampStrategy = latest begins at its end instead"
            )
        return store.max_offset if found is None else found

    # --- sizes ---------------------------------------------------------------------------------

    def sizes_of(self, source: StreamSource, offset: int, count: int) -> npt.NDArray[np.int64]:
        """Return the sizes of up to `count` messages of a queue from an offset on.

        Of messages that share a record the first one has its size.
        """
        queue = self._set.stores[source.broker].queues[QueueKey(source.topic, source.queue_id)]
        units = queue.units(queue.index_of(offset), count)
        sizes: npt.NDArray[np.int64] = np.clip(units["size"], 0, None)
        if not queue.kind.is_batch:
            return sizes
        repeats = np.maximum(units["batch_size"], 1)
        found = np.zeros(int(repeats.sum()), np.int64)
        found[np.cumsum(repeats) - repeats] = sizes
        skipped = max(offset - int(units["queue_offset"][0]), 0) if len(units) else 0
        return found[skipped : skipped + count]

    def physical_offset_of(self, source: StreamSource, offset: int) -> int | None:
        """Return the physical offset of a message of a queue; None if it has no unit."""
        queue = self._set.stores[source.broker].queues[QueueKey(source.topic, source.queue_id)]
        unit = queue.units(queue.index_of(offset), 1)
        return int(unit["physical_offset"][0]) if len(unit) else None

    def stored_at(self, broker: str, physical_offset: int) -> int | None:
        """Return the store time (ms) of a record, else of the next file's first; None: neither."""
        view = self._set.stores[broker].log
        head = view.read(physical_offset, _HEAD_SIZE)
        if is_record_at(head, physical_offset):
            return store_timestamp(head)
        later = (file for file in view.files if file.base_offset > physical_offset)
        file = next(later, None)
        return None if file is None else view.first_timestamp(file)

    def cut_log(
        self,
        source: StreamSource,
        span: OffsetRange,
        *,
        rows: int | None = None,
        size: int | None = None,
    ) -> tuple[int, int]:
        """Return the end of the part of a log range with at most so many records or bytes.

        It has at least one record, if there is one. The second number is how many it has.
        """
        store, count, end = self._set.stores[source.broker], 0, span.begin
        for step in walk_past(store.log, span.begin, span.end, store.checks):
            if isinstance(step, Gap):
                continue
            ends = step.columns["physical_offset"] + step.columns["size"]
            fitting = len(ends)
            if rows is not None:
                fitting = min(fitting, rows - count)
            if size is not None:
                fitting = min(fitting, int(np.searchsorted(ends, span.begin + size, "right")))
            fitting = max(fitting, 0 if count else 1)
            count += fitting
            end = int(ends[fitting - 1]) if fitting else end
            if fitting < len(ends) or count == rows:
                return end, count
        return span.end, count

    # --- partitions ----------------------------------------------------------------------------

    def plan(self, spans: Ranges) -> list[InputPartition]:
        """Return the partitions of some ranges."""
        parts: list[InputPartition] = []
        for broker, store in self._set.stores.items():
            mine = {source: s for source, s in spans.items() if source.broker == broker and s.count}
            queue_spans = [
                QueueSpan(source.topic, source.queue_id, s.begin, s.end)
                for source, s in sorted(mine.items())
                if not source.is_log
            ]
            if queue_spans:
                parts += plan_spans(store, broker, queue_spans, self._options)
            for source, span in mine.items():
                if source.is_log:
                    parts += _plan_log(StoreRef.of(broker, store), store, span)
        return parts


def _other_queues(broker: str, at: Position, count: int) -> str:
    return (
        f"the checkpoint says that {at.queues} queues of {broker} were read up to byte {at.offset}"
        f" of the log, and the {count} that have messages before it now are not the same: a topic"
        " was deleted, created again or rebuilt, the log lost its end in a crash, or path and topic"
        f" name others than before; {WAY_OUT}: every queue goes on at that byte"
    )


def empty_queues(store: OfflineStore) -> list[QueueKey]:
    """Return the queues of the table of topics that have no message yet."""
    table = topic_table.load(store.directory.path(names.CONFIG)).topics
    keys = (QueueKey(c.name, q) for c in table.values() for q in range(c.read_queue_count))
    return [key for key in keys if key not in store.queues]


def _plan_log(ref: StoreRef, store: OfflineStore, span: OffsetRange) -> Iterator[Partition]:
    for file in store.log.files:
        begin = max(file.base_offset, span.begin)
        end = min(file.base_offset + file.size, span.end)
        if begin < end:
            yield Partition(LogPart(ref, begin, end))


def _log_offset_at(store: OfflineStore, timestamp: int) -> int | None:
    """Return the offset of the first record stored at a time or later; None if there is none."""
    begin = store.min_offset
    for file in store.log.files:
        first = store.log.first_timestamp(file)
        if first is not None and first < timestamp:
            begin = file.base_offset
    for chunk in store.walk(begin):
        late = np.flatnonzero(chunk.columns["store_timestamp"] >= timestamp)
        if len(late):
            return int(chunk.columns["physical_offset"][late[0]])
    return None
