"""Filters of records: by the tags code of the unit, then by the record itself."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.filters.tags import TagFilter
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import properties as names
from rocketlake.model.flags import TRANSACTION_MASK, TransactionType
from rocketlake.model.hashes import java_hash
from rocketlake.model.message import split_keys
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.spark.reading.log_cuts import wanted_times
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.terms import Op, Term
from rocketlake.store.offline import Places

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class QueueRange(Struct, frozen=True):
    """Offsets of one queue, and the first byte of the log that belongs to it."""

    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    from_physical: int


class RecordFilter:
    """The tag, SQL92 and key options, and what Spark pushed down."""

    def __init__(self, options: SourceOptions) -> None:
        self._tags = tag_filters(options)
        self._keys = [key for key in (options.key, options.unique_key) if key is not None]
        self._sql = None
        # A store is left out as a whole, when it is planned.
        self._terms = tuple(term for term in options.terms if term.column != "broker")
        if options.sql is not None:
            from rocketlake.filters.sql92 import SqlFilter  # noqa: PLC0415 - its parser is slow

            self._sql = SqlFilter(options.sql)
        self._is_light = not self._tags and not self._keys and self._sql is None

    def units(
        self, places: Places, numbers: Numbers, queues: Sequence[tuple[str, int]]
    ) -> Mask | None:
        """Mark units whose tags code does not exclude the message; None: all."""
        if not self._tags:
            return None
        codes = places["tags_code"]
        keep = np.ones(len(places), np.bool_)
        for tags in self._tags:
            keep &= np.isin(codes.astype(np.int32), np.array(sorted(tags.hashes), np.int64))
        keep |= codes < -(1 << 31)  # an address in the extension: the tag is unknown
        timed = np.array([topic == SCHEDULE_TOPIC for topic, _ in queues], np.bool_)
        if timed.any():
            keep |= timed[numbers]  # their code is a time
        return keep

    def records(
        self,
        columns: RecordColumns,
        keep: Mask | None = None,
        queue_offsets: Numbers | None = None,
    ) -> Mask | None:
        """Mark the records that are wanted, of those in `keep`; None: all."""
        if self._is_light and not self._terms:
            return None
        found = np.ones(len(columns), np.bool_) if keep is None else keep.copy()
        if found.all():
            for term in self._terms:
                found &= term.holds(columns, queue_offsets)
        elif self._terms:
            rows = np.flatnonzero(found)  # the others may hold anything
            part = RecordColumns(columns.buffer, columns.rows[rows])
            own = queue_offsets[rows] if queue_offsets is not None else None
            for term in self._terms:
                found[rows] &= term.holds(part, own)
        if self._is_light:
            return found
        view = memoryview(columns.buffer)
        starts, sizes = columns["properties_position"], columns["properties_size"]
        for index in np.flatnonzero(found).tolist():
            start = int(starts[index])
            found[index] = self._passes(
                decode_properties(bytes(view[start : start + int(sizes[index])]))
            )
        return found

    def _passes(self, properties: dict[str, str]) -> bool:
        tag = properties.get(names.TAGS)
        if not all(tags.matches(tag) for tags in self._tags):
            return False
        if self._keys:
            held = [properties.get(names.UNIQUE_KEY), *split_keys(properties.get(names.KEYS))]
            if not all(key in held for key in self._keys):
                return False
        return self._sql is None or self._sql.matches(properties)


class LogFilter(RecordFilter):
    """The same for a read along the log, bounded by times, or by the ranges of queues."""

    def __init__(self, options: SourceOptions, ranges: Sequence[QueueRange] | None) -> None:
        super().__init__(options)
        first, last = wanted_times(options)
        if first is not None and ranges is None:
            self._terms = (*self._terms, Term("store_timestamp", Op.AT_LEAST, (first * 1000,)))
        if last is not None and ranges is None:
            self._terms = (*self._terms, Term("store_timestamp", Op.BELOW, (last * 1000,)))
        self._ranges = {(s.topic, s.queue_id): s for s in ranges} if ranges is not None else None

    def records(
        self,
        columns: RecordColumns,
        keep: Mask | None = None,
        queue_offsets: Numbers | None = None,
    ) -> Mask | None:
        """Mark the records that are wanted; None: all."""
        if self._ranges is not None:
            inside = self._in_ranges(columns, self._ranges)
            keep = inside if keep is None else keep & inside
        found = super().records(columns, keep, queue_offsets)
        return keep if found is None else found

    @staticmethod
    def _in_ranges(columns: RecordColumns, ranges: dict[tuple[str, int], QueueRange]) -> Mask:
        """Mark the records that queues hold in the wanted ranges."""
        codes, topics = columns.topics()
        both = codes.astype(np.int64) << 32 | columns["queue_id"].astype(np.uint32)
        kinds, group = np.unique(both, return_inverse=True)
        limits = np.zeros((len(kinds), 3), np.int64)
        limits[:, 0] = 1  # an empty range
        for index, number in enumerate(kinds.tolist()):
            queue_id = int(np.uint32(number & 0xFFFFFFFF).astype(np.int32))
            wanted = ranges.get((topics[number >> 32], queue_id))
            if wanted is not None:
                limits[index] = (wanted.from_offset, wanted.to_offset, wanted.from_physical)
        own = limits[group]
        queue_offsets = columns["queue_offset"]
        found: Mask = (queue_offsets >= own[:, 0]) & (queue_offsets < own[:, 1])
        found &= columns["physical_offset"] >= own[:, 2]
        transaction = columns["sys_flag"] & TRANSACTION_MASK
        found &= (transaction == TransactionType.NONE) | (transaction == TransactionType.COMMIT)
        return found


def tag_filters(options: SourceOptions) -> list[TagFilter]:
    """Return the tags of the option, and those that Spark pushed down."""
    found = [TagFilter.parse(options.tags)]
    if options.pushed_tags is not None:
        hashes = frozenset(map(java_hash, options.pushed_tags))
        found.append(
            TagFilter(tags=frozenset(options.pushed_tags), hashes=hashes, is_everything=False)
        )
    return [tags for tags in found if not tags.is_everything]
