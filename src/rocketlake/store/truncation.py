"""Truncation: cuts the end of an open store's log, and everything made from it.

1. Puts, dispatch, the flush of the queues, indexing and retention stand still meanwhile.
2. What stays is flushed first. Then queues and index give up what points behind the cut, then the
   log, and last what speaks of it: checkpoint and deleted topics. So a crash at any moment leaves
   what a start can make whole: it finds the end of the log and has everything else follow.
3. Old readers keep what they hold: they are waited for before bytes become zeros.
"""

import logging
from contextlib import ExitStack
from typing import Final

import numpy as np

from rocketlake.errors import FlushFailedError, StoreError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.store_dir import StoreDir
from rocketlake.format.record import Check, RecordColumns, scan
from rocketlake.model.queues import QueueKey
from rocketlake.store.assembly import Parts
from rocketlake.store.inventory import InventoryFile
from rocketlake.store.recovery.log_walk import viewed
from rocketlake.store.recovery.queue_numbers import first_offsets

log = logging.getLogger(__name__)

_FILES_MAX: Final = 2
_READERS_TIMEOUT_S: Final = 10.0
_ROWS_MAX: Final = 32_768


class Truncation:
    """One cut of one store; `run` may be called by any thread that dispatch does not wait for."""

    def __init__(
        self, parts: Parts, directory: StoreDir, inventory: InventoryFile, offset: int
    ) -> None:
        self._parts = parts
        self._directory = directory
        self._inventory = inventory
        self._offset = offset
        self._record = 0  # where the last record before the cut begins
        self._timestamp = 0  # its store time; 0: there is none

    def run(self, *, is_limited: bool) -> int:
        """Cut, and return how many bytes the log has lost; raises as `MessageStore.truncate`."""
        parts = self._parts
        if parts.dispatcher.is_external:
            raise StoreError("a job writes the queues: stop it before the log is cut")
        parts.log_parts.flusher.flush_all()
        # Order: retention and the flush of queues may wait for dispatch while they have their turn.
        with parts.retention.turn, parts.queue_flush.turn:
            return parts.dispatcher.exclusively(lambda: self._run(is_limited=is_limited))

    def _run(self, *, is_limited: bool) -> int:
        parts = self._parts
        with ExitStack() as still:
            if parts.index_catch_up is not None:
                still.enter_context(parts.index_catch_up.work)
            still.enter_context(parts.log.pause())
            # Why: what stays must be on the disk, and write buffers hide what is in them.
            parts.log_parts.flusher.flush_all()
            end = parts.log.wrote_where
            self._check(end, is_limited=is_limited)
            if self._offset == end:
                return 0
            firsts = self._find_firsts(end)
            try:
                self._cut(firsts)
            except BaseException as error:
                # Why: the parts may not agree any more, and only a start can look.
                failed = FlushFailedError(str(self._directory.root), f"log not cut: {error}")
                parts.log_parts.poison.take(failed)
                raise
        log.warning("log cut offset=%d lost_bytes=%d", self._offset, end - self._offset)
        return end - self._offset

    # --- before anything changes -----------------------------------------------------------------

    def _check(self, end: int, *, is_limited: bool) -> None:
        files, offset = self._parts.log_parts.files, self._offset
        first = max(self._parts.log.min_offset, 0)
        if not first <= offset <= end:
            raise ValueError(f"{offset} is not in the log, which has {first} to {end}")
        # Compat: as in MappedFileQueue#resetOffset.
        if is_limited and end - offset > _FILES_MAX * files.file_size:
            raise ValueError(
                f"{end - offset} bytes lie behind {offset}: more than {_FILES_MAX} files of "
                f"{files.file_size} bytes"
            )
        for file in reversed(files.files):
            if file.base_offset < offset and self._look_at(file):
                return

    def _look_at(self, file: MappedFile) -> bool:
        """Find the last record of a file before the cut; False if it has none.

        Raises:
            ValueError: the cut is in the middle of something.
        """
        where = file.base_offset
        while where < self._offset:
            held = self._parts.log.slice(where)
            if held is None:
                break
            with held:
                found = scan(held.view, base_offset=where, checks=Check.OFFSET, rows_max=_ROWS_MAX)
                if not len(found.columns):
                    break
                self._note_last(found.columns)
            where += found.position
        is_file_end = self._offset == file.base_offset + file.size
        if where < self._offset and not is_file_end:
            raise ValueError(f"no record begins at {self._offset}: at {where} is none")
        return self._timestamp > 0

    def _note_last(self, columns: RecordColumns) -> None:
        begins, ends = columns["physical_offset"], columns["physical_offset"] + columns["size"]
        count = int(np.searchsorted(begins, self._offset))
        if count and int(ends[count - 1]) > self._offset:
            raise ValueError(
                f"{self._offset} is in the middle of the record at {int(begins[count - 1])}"
            )
        if count:
            self._record = int(begins[count - 1])
            self._timestamp = int(columns["store_timestamp"][count - 1])

    def _find_firsts(self, end: int) -> dict[QueueKey, int]:
        """Return the queue offset of the first record behind the cut, by queue."""
        with viewed(self._directory, self._parts.log_parts.files.file_size) as view:
            return first_offsets(view, self._offset, end, self._parts.deleted.topics)

    # --- the cut ---------------------------------------------------------------------------------

    def _cut(self, firsts: dict[QueueKey, int]) -> None:
        parts, offset = self._parts, self._offset
        self._inventory.remove()  # Order: first, for a start must not miss what is cut off
        # Order: as a start does it. Nothing may point to what is not there.
        if parts.queues.max_physical_offset > offset:
            parts.queues.truncate(offset)
        self._cut_index()
        parts.log_parts.preallocator.discard()
        parts.log.cut(offset, timeout_s=_READERS_TIMEOUT_S)
        parts.raw_appender.forget()
        files = parts.log_parts.files
        files.store_timestamp = self._timestamp
        if files.files:
            files.files[-1].store_timestamp = self._timestamp
        parts.checkpoint.confirm_offset = min(parts.checkpoint.confirm_offset, offset)
        parts.checkpoint.lower_to(self._timestamp, offset)
        # Order: behind the cut. Lowered before it, a crash would bring back what was deleted.
        parts.deleted.lower_to(offset)
        for key, number in firsts.items():
            slot = parts.offsets.find(key.topic, key.queue_id)
            if slot is not None:
                slot.next_offset = min(slot.next_offset, number)
        parts.dispatcher.go_back_to(offset, self._timestamp, self._record)

    def _cut_index(self) -> None:
        index, catch_up = self._parts.index, self._parts.index_catch_up
        if index is None or catch_up is None:
            return
        if index.end_physical_offset >= self._offset:
            index.truncate(self._offset)
            size = self._parts.log_parts.files.file_size
            start = index.end_physical_offset
            catch_up.go_back_to(max(start - start % size, self._parts.log.min_offset))
