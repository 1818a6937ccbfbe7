"""Parts of a log, in order -> queues and index, by the store's own code."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rocketlake.embedded.dispatch_files import (
    BatchConsumeQueue,
    ConsumeQueue,
    ConsumeQueueSet,
    IndexFileSet,
)
from rocketlake.format.dispatch import KeyEntries
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.format.record import ROW_DTYPE, RecordColumns
from rocketlake.spark.jobs.dispatch.parts import LogShape, Part
from rocketlake.spark.jobs.dispatch.unit_blocks import (
    BATCH,
    EXTENDED,
    Block,
    PartResult,
    Rules,
    make_part,
)
from rocketlake.upkeep.repair.gap_filler import GapFiller

_UNIT_SIZE = 20


def adjoining_parts(
    results: Iterable[PartResult], shape: LogShape, rules: Rules, begin: int
) -> Iterator[PartResult]:
    """Yield parts of which each begins where the one before it ended.

    A part that began at another offset is walked again; one behind the last record of its file is
    left out.
    """
    expected, file = begin, -1
    for result in results:
        part = result.facts.part
        if part.file != file:
            file, expected = part.file, max(part.begin, begin)
        if expected >= part.end:
            continue
        if result.facts.start != expected:
            again = Part(part.number, part.file, expected, part.end, is_proven=True)
            result = make_part(shape, again, rules)  # noqa: PLW2901 - the same part, from the right offset
        expected = result.facts.reached
        yield result


class DispatchCounts:
    """Counts what was written."""

    def __init__(self) -> None:
        self.records = self.units = self.keys = 0
        self.last_timestamp = 0

    def add(self, result: PartResult) -> None:
        """Count a part."""
        self.records += result.facts.records
        self.units += sum(block.count for block in result.blocks)
        self.keys += len(result.keys)
        self.last_timestamp = result.facts.last_timestamp or self.last_timestamp


class PartWriter:
    """Appends what parts hold. Owned by one thread; the index is written by one of its own.

    A repeated write is harmless: queues and index pass over what they have.
    """

    def __init__(
        self,
        queues: ConsumeQueueSet | None,
        index: IndexFileSet | None,
        *,
        filler: GapFiller | None = None,
    ) -> None:
        self._queues = queues
        self._index = index
        self._filler = filler
        self._pool = ThreadPoolExecutor(1, "index") if index is not None else None

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()

    def write(self, result: PartResult) -> None:
        """Append the units and keys of a part.

        Raises:
            RocketLakeError: a queue or the index cannot be written.
        """
        # Why two threads: both copy bytes without the interpreter lock, and the keys take longer.
        keys = self._pool.submit(self._put_keys, result) if self._pool is not None else None
        try:
            if self._queues is not None:
                for block in result.blocks:
                    self._put(self._queues, block)
        finally:
            if keys is not None:
                keys.result()

    # --- units -----------------------------------------------------------------------------------

    def _put(self, queues: ConsumeQueueSet, block: Block) -> None:
        is_batch = block.kind == BATCH
        queue = queues.find(block.key) or queues.get_or_create(block.key, is_batch=is_batch)
        if isinstance(queue, BatchConsumeQueue):
            queue.put(block.decode(), block.queue_offsets, block.timestamps, block.counts)
        elif self._filler is None or self._is_smooth(queue, block):
            self._append(queue, block, 0, block.count)
        else:
            self._put_with_gaps(self._filler, queue, block)

    def _is_smooth(self, queue: ConsumeQueue, block: Block) -> bool:
        """Whether units follow what the queue has: as a rule they do."""
        is_next = queue.max_physical_offset >= 0 and block.first_offset == queue.max_offset
        smooth = not len(block.offsets) and (is_next or queue.max_physical_offset < 0)
        if smooth and self._filler is not None:
            self._filler.note(block.key, block.first_offset + block.count)
        return smooth

    def _put_with_gaps(self, filler: GapFiller, queue: ConsumeQueue, block: Block) -> None:
        physical = block.decode()["physical_offset"].astype(np.int64)
        gaps = sorted(
            filler.find_in(block.key, block.queue_offsets.copy(), physical), key=lambda gap: gap.row
        )
        cuts = [0, *(gap.row for gap in gaps), block.count]
        for gap, (start, stop) in zip([None, *gaps], pairwise(cuts), strict=True):
            if gap is not None:
                filler.fill(gap)
            if stop > start:
                self._append(queue, block, start, stop)

    @staticmethod
    def _append(queue: ConsumeQueue, block: Block, start: int, stop: int) -> None:
        if block.kind == EXTENDED and queue.ext is not None:
            part = slice(start, stop)
            queue.put_extended(
                block.decode()[part],
                block.queue_offsets[part],
                block.timestamps[part],
                block.bitmaps[part],
            )
        elif len(block.offsets):
            part = slice(start, stop)
            queue.put(block.decode()[part], block.queue_offsets[part])
        else:
            view = memoryview(block.units)[start * _UNIT_SIZE : stop * _UNIT_SIZE]
            last = QueueUnit.decode(view, len(view) - _UNIT_SIZE)
            queue.append_packed(
                view,
                block.first_offset + start,
                stop - start,
                QueueUnit.decode(view).physical_offset,
                last.physical_offset + last.size,
            )

    # --- keys ------------------------------------------------------------------------------------

    def _put_keys(self, result: PartResult) -> None:
        if self._index is not None and result.facts.records:
            columns = _as_columns(result.keys, has_more=result.facts.has_keyless_end)
            rows = np.arange(len(result.keys), dtype=np.int32)
            self._index.put_keys(columns, result.keys.hashes, rows)


def _as_columns(keys: KeyEntries, *, has_more: bool) -> RecordColumns:
    """Return keys as records of one key each; one more without a key stands for those behind."""
    rows: npt.NDArray[np.void] = np.zeros(len(keys) + has_more, ROW_DTYPE)
    rows["physical_offset"][: len(keys)] = keys.physical_offsets
    rows["store_timestamp"][: len(keys)] = keys.store_timestamps
    return RecordColumns(b"", rows)
