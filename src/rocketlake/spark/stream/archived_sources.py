"""Sources of a stream over an archive: first what the archive has, then the live stores.

1. Offsets are queue offsets, as without an archive: the checkpoint does not say where a message
   came from. A batch that is read again may find the same messages in the archive that it read from
   the store before. A query may be given the option `archive`, or lose its store, and continue from
   its checkpoint.
2. Below the boundary of a queue messages come from the archive's files, from there on from the
   store.
3. A changed manifest is read again: new runs, dropped days and merged files count from the next
   batch on.
"""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from rocketlake.errors import StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.archive_manifest import MANIFEST, ArchivedFile, Manifest, archive_path
from rocketlake.model.queues import QueueKey
from rocketlake.spark.reading.archive.boundary import JoinedQueue
from rocketlake.spark.reading.archive.checked_file import (
    DamagedFileError,
    group_batches,
    open_archived,
)
from rocketlake.spark.reading.archive.files import ROWS_MAX, WantedFile
from rocketlake.spark.reading.archive.planning import (
    check_brokers,
    check_options,
    check_queues,
    join_queues,
    pack_files,
    read_manifest,
)
from rocketlake.spark.reading.options import OnDamage, SourceOptions
from rocketlake.spark.stream.limits import OffsetRange, Ranges
from rocketlake.spark.stream.offsets import StreamSource
from rocketlake.spark.stream.positions import BoundsSnapshot
from rocketlake.spark.stream.sources import StreamSources

log = logging.getLogger(__name__)

_US_PER_MS: Final = 1000


class ArchivedSources(StreamSources):
    """The selected queues of an archive and of some stores, or of the archive alone.

    Thread-safety: one thread.
    """

    def __init__(self, options: SourceOptions) -> None:
        check_options(options)
        self._directory = archive_path(options.archive or "")
        self._read_manifest()
        self._files: dict[StreamSource, _QueueFiles] = {}
        self._joined: dict[StreamSource, JoinedQueue] = {}
        self._firsts: dict[tuple[str, int], dict[int, int]] = {}
        super().__init__(options)
        check_brokers(self._manifest, self._set.stores)

    def refresh(self) -> frozenset[StreamSource] | None:
        """Read new runs of the archive, and what was written to the stores since.

        Returns an empty set if nothing changed; None if all sources were examined again.
        """
        # Order: the manifest first. A queue that ends before its archived part counts as created
        # again, and a store that was read before the manifest could look like that.
        is_changed = self._manifest_state() != self._seen
        if is_changed:
            self._read_manifest()
        if not (self._set.refresh() or is_changed):
            return frozenset()
        self._read_all_bounds()
        return None

    def reopen(self) -> None:
        """Read archive and stores again, without any earlier state."""
        self._read_manifest()
        super().reopen()

    def _read_manifest(self) -> None:
        # Order: its state first, so that a change in between is seen at the next refresh.
        self._seen = self._manifest_state()
        self._manifest = read_manifest(self._directory)

    def _read_all_bounds(self) -> None:
        self._check_damage()
        self._files = _files_by_queue(self._manifest, self._options)
        self._joined = {
            StreamSource(broker, key.topic, key.queue_id): queue
            for (broker, key), queue in join_queues(
                self._manifest, self._set.stores, self._options
            ).items()
        }
        bounds = {
            source: OffsetRange(max(queue.begin, 0), max(queue.end, queue.begin, 0))
            for source, queue in self._joined.items()
        }
        # Why no ends of logs: no place in a log stands for messages of the archive alone.
        self._snapshot = BoundsSnapshot(bounds, {})

    def _manifest_state(self) -> tuple[Hashable, ...]:
        ops, path = PosixFileOps(), self._directory / MANIFEST
        entry = ops.stat(path)
        return (entry.mtime_ms, entry.size, ops.identity(path)) if entry is not None else ()

    # --- bounds --------------------------------------------------------------------------------

    def _first_offsets(
        self, options: SourceOptions, empty: set[QueueKey]
    ) -> dict[StreamSource, int]:
        check_queues(self._directory, self._manifest, self._set.stores, options, empty=empty)
        return {
            source: queue.start(options, partial(self._first_at, source))
            for source, queue in self._joined.items()
        }

    def _first_at(self, source: StreamSource, timestamp: int) -> int | None:
        """Return the first archived offset of a queue that was stored at a time or later."""
        found: int | None = None
        for file, first, _ in self._files_of(source).between(0, self._joined[source].seam):
            if file.max_store_time < timestamp or (found is not None and first >= found):
                continue
            at: int | None = first
            if file.min_store_time < timestamp:
                at = self._firsts_of(file, timestamp).get(source.queue_id)
            if at is not None:
                found = at if found is None else min(found, at)
        return found

    def _firsts_of(self, file: ArchivedFile, timestamp: int) -> dict[int, int]:
        """Return the first offset of each queue in a file that was stored at a time or later."""
        known = self._firsts.get((file.path, timestamp))
        if known is None:
            known = self._firsts[file.path, timestamp] = _read_firsts(
                self._directory, file, timestamp, self._options.on_damage
            )
        return known

    # --- sizes ---------------------------------------------------------------------------------

    def sizes_of(self, source: StreamSource, offset: int, count: int) -> npt.NDArray[np.int64]:
        """Return the bytes of up to so many messages of a source from an offset on.

        Archived messages count with the average of their file.
        """
        queue = self._joined[source]
        if offset >= queue.live_begin:
            return super().sizes_of(source, offset, count)
        end, size = queue.live_begin, 0  # what no file has counts as empty
        for file, first, last in self._files_of(source).between(offset, end):
            if offset < first:
                end = first
            else:
                end, size = min(last, end), -(-file.log_bytes // max(file.rows, 1))
            break
        return np.full(max(min(count, end - offset), 0), size, np.int64)

    def physical_offset_of(self, source: StreamSource, offset: int) -> int | None:
        """Return the physical offset of a message of a queue; None if no store has it."""
        if offset < self._joined[source].live_begin or source.broker not in self._set.stores:
            return None
        return super().physical_offset_of(source, offset)

    # --- partitions ----------------------------------------------------------------------------

    def plan(self, spans: Ranges) -> list[InputPartition]:
        """Return the partitions of some ranges.

        Raises:
            StoreError: messages between archive and store are gone, and failOnDataLoss is true.
        """
        if any(self._gaps(spans)):
            self.reopen()  # an archive run may have been faster than the store's retention
        for queue, gap in self._gaps(spans):
            queue.check_gap(gap, self._options)
            log.warning("data loss: %s %d to %d expired unarchived", queue.key, *gap)
        wanted: dict[str, WantedFile] = {}
        live: dict[StreamSource, OffsetRange] = {}
        for source, span in spans.items():
            queue = self._joined[source]
            live[source] = OffsetRange(max(span.begin, queue.live_begin), span.end)
            end = min(span.end, queue.seam)
            for file, first, last in self._files_of(source).between(span.begin, end):
                item = wanted.setdefault(file.path, WantedFile(file, {}, {}))
                item.offsets[source.queue_id] = (max(first, span.begin), min(last, end))
        parts = pack_files(str(self._directory), list(wanted.values()), self._options)
        return [*parts, *super().plan({source: s for source, s in live.items() if s.count})]

    def _files_of(self, source: StreamSource) -> "_QueueFiles":
        return self._files.get(source, _NO_FILES)

    def _gaps(self, spans: Ranges) -> list[tuple[JoinedQueue, tuple[int, int]]]:
        """Return the ranges that neither archive nor store has."""
        found = []
        for source, span in spans.items():
            queue = self._joined[source]
            gap = (max(span.begin, queue.seam), min(span.end, queue.live_begin))
            if gap[0] < gap[1]:
                found.append((queue, gap))
        return found


class _QueueFiles:
    """The files with messages of one queue, in the order of their first ones.

    The ranges of two files may overlap: after a clock was set back, a message is in the file of an
    earlier day.
    """

    def __init__(self, queue_id: int, files: Iterable[ArchivedFile]) -> None:
        self._files = sorted(files, key=lambda file: file.queues[queue_id])
        self._ranges = [file.queues[queue_id] for file in self._files]
        # The highest end of all files up to each one: files below an offset are found by bisection.
        self._reach = list(accumulate((last for _, last in self._ranges), max))

    def between(self, begin: int, end: int) -> Iterator[tuple[ArchivedFile, int, int]]:
        """Yield the files that have messages between two offsets, with their own ranges."""
        for number in range(bisect_right(self._reach, begin), len(self._files)):
            first, last = self._ranges[number]
            if first >= end:
                return
            if last > begin:
                yield self._files[number], first, last


_NO_FILES: Final = _QueueFiles(0, ())


def _files_by_queue(manifest: Manifest, options: SourceOptions) -> dict[StreamSource, _QueueFiles]:
    """Return the files of each wanted queue."""
    found: dict[StreamSource, list[ArchivedFile]] = defaultdict(list)
    for file in manifest.files:
        for queue_id in file.queues:
            if options.wants_queue(file.topic, queue_id):
                found[StreamSource(file.broker, file.topic, queue_id)].append(file)
    return {source: _QueueFiles(source.queue_id, files) for source, files in found.items()}


def _read_firsts(
    directory: Path, file: ArchivedFile, timestamp: int, on_damage: OnDamage
) -> dict[int, int]:
    found: dict[int, int] = {}
    columns = ["queue_id", "queue_offset", "store_timestamp"]
    try:
        with open_archived(directory, file) as opened:
            for group in range(opened.parquet.metadata.num_row_groups):
                for batch in group_batches(opened.parquet, group, columns, ROWS_MAX):
                    for queue_id, offset in _late_firsts(batch, timestamp):
                        found[queue_id] = min(found.get(queue_id, offset), offset)
    except DamagedFileError as error:
        text = f"{file.path} of the archive {directory} is damaged: {error}"
        if on_damage is OnDamage.FAIL:
            raise StoreError(
                f"{text}; restore the file from a copy, or option onDamage = skip reads the rest"
            ) from error
        log.warning("%s; the stream begins at its first message", text)
        return {queue_id: first for queue_id, (first, _) in file.queues.items()}
    return found


def _late_firsts(batch: pa.RecordBatch, timestamp: int) -> Iterator[tuple[int, int]]:
    """Yield the first offset of each queue in a batch that was stored at a time or later."""
    times = batch["store_timestamp"].cast(pa.int64())
    table = pa.table(batch.filter(pc.greater_equal(times, timestamp * _US_PER_MS)))
    least = table.group_by("queue_id").aggregate([("queue_offset", "min")]).to_pydict()
    yield from zip(least["queue_id"], least["queue_offset_min"], strict=True)
