"""Dispatch for a store that is open: round by round up to what its writer has confirmed.

1. The job holds `dispatch/lock` meanwhile. It never writes the log, the checkpoint or a table:
   those belong to the writer.
2. A round appends, flushes, and only then updates `progress.json`; the writer takes the times of
   its checkpoint from there. Before a round `progress.json` says that the job writes: a job that
   finds this later dispatches everything behind `where` again, since any part of what was not
   flushed may be on the disk.
3. Queue files and index files of messages that the log no longer holds are deleted here.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import structs

from rocketlake.clock import Clock
from rocketlake.embedded.dispatch_files import (
    ConsumeQueueSet,
    ExternalDispatch,
    IndexFileSet,
    IndexShape,
    ProgressNote,
    QueueShape,
    WriterNote,
    acquire_within,
)
from rocketlake.files.ops import FileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.spark.jobs.dispatch.functions import Functions
from rocketlake.spark.jobs.dispatch.offline_dispatch import log_shape, rules_of
from rocketlake.spark.jobs.dispatch.parts import cut
from rocketlake.spark.jobs.dispatch.run import Runner
from rocketlake.spark.jobs.dispatch.writer import DispatchCounts, PartWriter, adjoining_parts
from rocketlake.store.offline import named_paths

_LOCK_TIMEOUT_S: Final = 30.0
_WAY_OUT: Final = "the store is being opened or closed; try again"

OnProgress = Callable[[int, int], None]


class LiveDispatch:
    """Dispatches for one writer as long as it has the store open. Owned by one thread."""

    def __init__(  # noqa: PLR0917 - what a job has
        self,
        runner: Runner,
        root: Path,
        note: WriterNote,
        external: ExternalDispatch,
        ops: FileOps,
        clock: Clock,
    ) -> None:
        """Take the lock and open queues and index.

        Raises:
            StoreLockedError: the writer opens or closes the store all the time.
        """
        self._runner = runner
        self._note = note
        self._external = external
        self._log_min = 0
        options = note.options
        paths = named_paths(
            options.store_path_commit_log, options.read_only_commit_log_store_paths, root
        )
        dirs = () if paths is None else (*paths.writable, *paths.read_only)
        self._directory = StoreDir(ops, root, tuple(path for path in dirs if ops.stat(path)))
        self._lock = external.dispatch_lock()
        acquire_within(self._lock, _LOCK_TIMEOUT_S, _WAY_OUT, clock)
        try:
            self._progress = external.progress()
            self._checkpoint = _IndexTimes(self._known_index_timestamp())
            self._queues = ConsumeQueueSet(self._directory, clock, QueueShape.of(options))
            self._index: IndexFileSet | None = None
            if options.has_index:
                place = self._directory.path(names.INDEX)
                self._index = IndexFileSet(ops, clock, place, IndexShape.of(options))
            self._where = self._open()
            self._writer = PartWriter(self._queues, self._index)
        except BaseException:
            self._lock.release()
            raise

    @property
    def session(self) -> str:
        """The session of the writer."""
        return self._note.session

    def _open(self) -> int:
        """Load queues and index, and drop unreliable parts; return where to continue."""
        note, progress = self._note, self._progress
        is_fresh = progress.session != note.session
        where = note.dispatch_from if is_fresh else progress.where
        is_clean = note.is_clean if is_fresh else not progress.is_writing
        self._queues.load(is_clean=is_clean)
        self._queues.recover(is_clean=is_clean)
        if not is_fresh and not is_clean:
            # Why: a unit may be there but for a part of its bytes; nothing else would show it.
            self._queues.distrust(where)
        start = where
        if self._index is not None:
            self._index.load(is_clean=is_clean, checkpoint=self._checkpoint)
            if is_fresh:
                self._index.truncate(note.log_end)
            if is_fresh or self._index.rebuild_from is not None:
                start = min(where, self._file_begin(self._index.end_physical_offset))
        if is_fresh:
            # Of what a job did before, only the custom dispatchers' progress still counts.
            progress = ProgressNote(
                session=note.session,
                where=where,
                functions=progress.functions,
                pending=progress.pending,
            )
        self._progress = progress
        return start

    def _known_index_timestamp(self) -> int:
        """Return up to when full index files are safe, by the progress or the checkpoint."""
        if self._progress.session == self._note.session:
            return self._progress.index_timestamp
        return Checkpoint.decode(
            self._directory.read_small(names.CHECKPOINT) or b""
        ).index_timestamp

    def _file_begin(self, offset: int) -> int:
        """Return where the log file of an offset begins: there, a record does."""
        bases = [file.base_offset for file in self._directory.log_files() if file.size]
        return max((base for base in bases if base <= offset), default=min(bases, default=0))

    # --- a round ---------------------------------------------------------------------------------

    def run_round(
        self, functions: Functions, on_progress: OnProgress | None
    ) -> tuple[int, int, int, int]:
        """Dispatch what is confirmed; return records, units, keys, and up to where.

        Raises:
            RocketLakeError: a task failed, or a queue or the index cannot be written; a later
                round, of this job or another, goes on.
        """
        end = self._external.confirmed()
        counts = DispatchCounts()
        if end > self._where:
            self._write_progress(is_writing=True)
            known = self._progress.where
            if self._where < known < end:
                self._dispatch(known, DispatchCounts(), None)  # walked again for the index
                self._where = known
            self._dispatch(end, counts, on_progress)
            self._flush()
            self._where = end
            times = {"timestamp": counts.last_timestamp} if counts.last_timestamp else {}
            self._progress = structs.replace(self._progress, where=end, **times)
            self._write_progress(is_writing=False)
        self._follow_log()
        files = self._directory.log_files()
        done = functions.run(self._log_min, self._where, files, self._progress)
        self._progress = done or self._progress
        return counts.records, counts.units, counts.keys, self._where

    def _dispatch(self, end: int, counts: DispatchCounts, on_progress: OnProgress | None) -> None:
        options = self._note.options
        shape = log_shape(self._directory, options, end)
        rules = rules_of(self._directory.root, options, self._queues)
        start = max(self._where, shape.log_min)
        with closing(self._runner.run(shape, cut(shape, start), rules)) as results:
            for result in adjoining_parts(results, shape, rules, start):
                self._writer.write(result)
                counts.add(result)
                if on_progress is not None:
                    on_progress(min(result.facts.reached, end), end)

    def _flush(self) -> None:
        self._queues.flush(0)
        if self._index is not None:
            self._index.flush()
        index_timestamp = self._checkpoint.index_timestamp
        self._progress = structs.replace(self._progress, index_timestamp=index_timestamp)

    def _write_progress(self, *, is_writing: bool) -> None:
        self._progress = structs.replace(self._progress, is_writing=is_writing)
        self._external.save_progress(self._progress)

    def _follow_log(self) -> None:
        """Delete what queues and index have of messages that the log no longer holds."""
        bases = [file.base_offset for file in self._directory.log_files() if file.size]
        log_min = min(bases, default=0)
        if log_min > self._log_min:
            self._queues.delete_expired(log_min)
            if self._index is not None:
                self._index.delete_expired(log_min)
        self._log_min = log_min

    def close(self) -> None:
        """Close everything; what is not on the disk is made again later."""
        try:
            self._writer.close()
            if self._index is not None:
                self._index.close()
            self._queues.close()
        finally:
            self._lock.release()


class _IndexTimes:
    """Implements `file_set.IndexCheckpoint`: the time is written with the progress."""

    def __init__(self, index_timestamp: int) -> None:
        self.index_timestamp = index_timestamp

    def flush(self) -> None:
        """Do nothing: a round writes the time once everything is on the disk."""
