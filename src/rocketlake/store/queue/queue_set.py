"""ConsumeQueueSet: the queues of a store, by topic and number [ConsumeQueueStore]."""

import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Final, Self, TypeAlias

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.errors import FlushFailedError, StoreError
from rocketlake.files.file_traits import QUEUE_FILES
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue, Waiter
from rocketlake.files.store_dir import StoreDir
from rocketlake.files.thread_pool import for_each
from rocketlake.format import layout, names
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import can_name_queues
from rocketlake.store.deleted_topics import DeletedTopics
from rocketlake.store.inventory import QueueBounds
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.batch import BatchConsumeQueue
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.ext import ConsumeQueueExt
from rocketlake.store.queue.unit_files import UnitFiles
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN, UnitKind
from rocketlake.store.stats.store_stats import SparseLog

log = logging.getLogger(__name__)

AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue

_FLUSH_THREADS: Final = 16
_FLUSHED_TOGETHER: Final = 32  # fewer queues are not worth a thread
_FAMILIES: Final = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE, names.CONSUME_QUEUE_EXT)


class QueueShape(Struct, frozen=True, kw_only=True):
    """What the files of a store's queues look like."""

    file_size: int = layout.DEFAULT_QUEUE_FILE_SIZE
    batch_file_size: int = layout.DEFAULT_BATCH_QUEUE_FILE_SIZE
    ext_file_size: int = layout.DEFAULT_EXT_FILE_SIZE
    has_ext: bool = False
    """New plain queues get extension files. Those that exist are read in any case."""
    is_4x: bool = False
    """Lowest offsets and look-ups by time are those of 4.x."""

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """Return what the options of a store say."""
        return cls(
            file_size=options.mapped_file_size_consume_queue,
            batch_file_size=options.mapper_file_size_batch_consume_queue,
            ext_file_size=options.mapped_file_size_consume_queue_ext,
            has_ext=options.enable_consume_queue_ext,
            is_4x=options.compat_version.is_4x,
        )


class ConsumeQueueSet:
    """All queues of a store.

    Thread-safety: any thread finds, lists, flushes, corrects lowest offsets and deletes expired
    files; finding takes no lock. Who has the dispatcher's lock creates, recovers, truncates, drops,
    closes and destroys.

    Invariants: a queue that was dropped is out of the set before its files go.
    """

    def __init__(self, directory: StoreDir, clock: Clock, shape: QueueShape | None = None) -> None:
        self._directory = directory
        self._clock = clock
        self._shape = shape or QueueShape()
        self._factory = MappedFileMaker(directory.ops, clock, QUEUE_FILES)
        self._notes = SparseLog(log, clock)
        self._queues: dict[QueueKey, AnyQueue] = {}
        self._change = threading.Lock()
        self._failure: FlushFailedError | None = None

    def __len__(self) -> int:
        return len(self._queues)

    # --- finding ---------------------------------------------------------------------------------

    def find(self, key: QueueKey) -> AnyQueue | None:
        """Return a queue; None if there is none."""
        return self._queues.get(key)

    def get_or_create(self, key: QueueKey, *, is_batch: bool = False) -> AnyQueue:
        """Return a queue, a new one if there is none; one that exists keeps its kind.

        Nothing is made on the disk before something is put.

        Raises:
            ValueError: the topic cannot be the name of a directory.
        """
        queue = self._queues.get(key)
        if queue is None:
            if not can_name_queues(key.topic):
                raise ValueError(f"no queue can be kept for a topic named {key.topic!r}")
            with self._change:
                queue = self._queues.get(key)
                if queue is None:
                    queue = self._queues[key] = self._make(key, is_batch=is_batch)
        return queue

    def items(self) -> list[tuple[QueueKey, AnyQueue]]:
        """Return all queues of this moment."""
        return list(self._queues.items())

    def topics(self) -> list[str]:
        """Return the topics that have queues, by name."""
        return sorted({key.topic for key in list(self._queues)})

    @property
    def max_physical_offset(self) -> int:
        """The end of the last record that any queue holds; -1 if none holds any."""
        return max((queue.max_physical_offset for queue in self._all()), default=-1)

    @property
    def mapped_size(self) -> int:
        """How many bytes the files have together."""
        return sum(queue.mapped_size for queue in self._all())

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return sum(queue.file_count for queue in self._all())

    # --- opening ---------------------------------------------------------------------------------

    def load(self, *, is_clean: bool = True) -> None:
        """Find the queues on the disk and take their files, which are opened when needed.

        After an unclean stop files that were never flushed may have lost their sizes, and go.

        Raises:
            FileSizeError: a file has another size than the files of its family have.
            StoreError: a queue has files of both kinds.
        """
        extended = {
            QueueKey(place.topic, place.queue_id)
            for place in self._directory.queue_dirs(names.CONSUME_QUEUE_EXT)
        }
        for is_batch, family in enumerate(_FAMILIES[:2]):
            for place in self._directory.queue_dirs(family):
                key = QueueKey(place.topic, place.queue_id)
                has_ext = key in extended
                queue = self._make(key, place.path, is_batch=bool(is_batch), has_ext=has_ext)
                queue.load(is_clean=is_clean)
                other = self._queues.get(key)
                if other is not None and other.mapped_size and queue.mapped_size:
                    raise StoreError(
                        f"{key} has units in {names.CONSUME_QUEUE} and in "
                        f"{names.BATCH_CONSUME_QUEUE}: remove the directory that is not of its kind"
                    )
                if other is None or queue.mapped_size:
                    self._queues[key] = queue

    def recover(self, workers: int = 1, *, is_clean: bool = False) -> int:
        """Find the end of every queue; return the highest `max_physical_offset`.

        After a clean stop little is read: the end is searched, not walked to.
        """
        for_each(
            lambda queue: queue.recover(is_clean=is_clean),
            self._all(),
            threads=workers,
            name="recover-queues",
        )
        return self.max_physical_offset

    def truncate(self, log_offset: int) -> None:
        """Drop the units of records that begin at or behind a log offset."""
        for queue in self._all():
            queue.truncate(log_offset)

    def first_units(self) -> Iterator[tuple[QueueKey, int, QueueUnit]]:
        """Yield the first unit of each plain queue, with its number; it may be anything."""
        for key, queue in self.items():
            found = None if queue.is_batch else queue.first_unit()
            if found is not None:
                yield (key, *found)

    def distrust(self, log_offset: int, firsts: Container[QueueKey] = ()) -> None:
        """Drop all units but those up to the first one that points to a log offset or behind it.

        Unlike `truncate` this asks nothing of the units that go: they may be anything. The first
        units of the queues `firsts` stay: the log vouches for them.
        """
        for key, queue in self.items():
            queue.distrust(log_offset, keeps_first=key in firsts)

    def bounds(self) -> dict[QueueKey, QueueBounds]:
        """Return what each queue has."""
        return {key: queue.bounds for key, queue in self.items()}

    def broken(self) -> list[QueueKey]:
        """Return the queues that lack a file between two others."""
        return [key for key, queue in self.items() if queue.files.check_self()]

    def reset(self, keys: Iterable[QueueKey]) -> None:
        """Empty queues, which are then made again from the log."""
        for key in keys:
            queue = self._queues.get(key)
            if queue is not None:
                queue.destroy()

    def fill_gap(self, key: QueueKey, number: int, physical_offset: int) -> None:
        """Let a plain queue that ends before a hole in the log go on with an offset behind it."""
        queue = self._queues.get(key)
        if isinstance(queue, ConsumeQueue) and 0 <= queue.max_physical_offset <= physical_offset:
            queue.fill_gap(number, physical_offset)

    # --- keeping ---------------------------------------------------------------------------------

    def correct_min(self, log_min: int) -> None:
        """Make the first message that the log still holds the lowest of each queue."""
        for queue in self._all():
            queue.correct_min(log_min)

    def flush(self, least_pages: int) -> bool:
        """Have units on the disk where enough are new, all with 0; tell whether anything moved.

        With 0 the names of their files are on the disk, too.

        Raises:
            FlushFailedError: some may not be there. Every later flush raises the same: a system may
                forget that it could not write a page, and let the next sync of it succeed.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._flush(least_pages)
        except FlushFailedError as error:
            self._failure = error
            raise

    def _flush(self, least_pages: int) -> bool:
        due = [queue for queue in self._all() if queue.is_due(least_pages)]
        # Why: a flush is mostly waiting, and a file system writes what many wait for in one go.
        threads = _FLUSH_THREADS if len(due) >= _FLUSHED_TOGETHER else 1
        moved = for_each(
            lambda queue: queue.flush(least_pages), due, threads=threads, name="flush-queues"
        )
        if least_pages <= 0:
            self._factory.sync_names()
        return True in moved

    def delete_expired(self, log_min: int, wait: Waiter | None = None, *, pause_ms: int = 0) -> int:
        """Delete files whose messages the log no longer holds; return how many.

        Lowest offsets are corrected. `wait` is called behind a queue that lost files, and can end
        the round.

        Raises:
            FileAccessError: a file cannot be removed; it stays in its queue.
        """
        deleted = 0
        for queue in self._all():
            count = queue.delete_expired(log_min)
            deleted += count
            if count and wait is not None and wait(pause_ms / 1000):
                break
        return deleted

    # --- the end ---------------------------------------------------------------------------------

    def drop(self, topic: str) -> int:
        """Remove the queues of a topic, and their directories; return how many there were.

        Durability: when this returns, none of their names is on the disk.
        """
        return len(self._destroy(lambda queue: queue.key.topic == topic))

    def drop_earlier(self, deleted: DeletedTopics) -> list[QueueKey]:
        """Remove queues of an earlier life of their topic, which a deletion left; return which."""
        if not deleted.ends:
            return []
        return self._destroy(
            lambda queue: deleted.is_earlier(queue.key.topic, queue.first_physical_offset())
        )

    def destroy(self) -> None:
        """Remove all queues, as where there is no log."""
        self._destroy(lambda _: True)

    def close(self) -> None:
        """Let all files go; nothing is flushed."""
        for queue in self._all():
            queue.close()
        self._notes.close()

    # --- private ---------------------------------------------------------------------------------

    def _all(self) -> list[AnyQueue]:
        return list(self._queues.values())

    def _destroy(self, is_meant: Callable[[AnyQueue], bool]) -> list[QueueKey]:
        with self._change:
            dropped = [queue for queue in self._all() if is_meant(queue)]
            for queue in dropped:
                del self._queues[queue.key]
        for queue in dropped:
            queue.destroy()
        for topic in {queue.key.topic for queue in dropped}:
            for family in _FAMILIES:
                self._remove_topic_dir(self._directory.path(family), topic)
        return [queue.key for queue in dropped]

    def _remove_topic_dir(self, family: Path, topic: str) -> None:
        """Remove the directory of a topic if it is empty, and sync that its queues are gone."""
        ops = self._directory.ops
        if ops.stat(family / topic) is not None:
            ops.sync_dir(family / topic)
            if ops.rmdir(family / topic):
                ops.sync_dir(family)

    def _make(
        self, key: QueueKey, path: Path | None = None, *, is_batch: bool, has_ext: bool = False
    ) -> AnyQueue:
        shape = self._shape
        is_4x = shape.is_4x
        path = path or self._path(
            names.BATCH_CONSUME_QUEUE if is_batch else names.CONSUME_QUEUE, key
        )
        if is_batch:
            units = self._units(self._files(path, shape.batch_file_size), BATCHED)
            return BatchConsumeQueue(key, units, self._notes, is_4x=is_4x)
        ext = None
        if has_ext or shape.has_ext:
            side = self._files(self._path(names.CONSUME_QUEUE_EXT, key), shape.ext_file_size)
            ext = ConsumeQueueExt(self._directory.ops, side)
        units = self._units(self._files(path, shape.file_size), PLAIN)
        return ConsumeQueue(key, units, self._notes, ext=ext, is_4x=is_4x)

    def _units(self, files: MappedFileQueue, kind: UnitKind) -> UnitFiles:
        return UnitFiles(self._directory.ops, files, kind)

    def _files(self, path: Path, file_size: int) -> MappedFileQueue:
        ops = self._directory.ops
        return MappedFileQueue(ops, self._clock, self._factory, path, file_size=file_size)

    def _path(self, family: str, key: QueueKey) -> Path:
        return self._directory.path(family) / key.topic / str(key.queue_id)
