"""A store with external dispatch: a job writes its queues and index (docs/adr/0012).

1. Puts go to the engine. Reads go through the read-only view, which shows what the job has
   dispatched and, after it, the records it has yet to dispatch: a program sees what it has put.
2. For a store that no process has open, the job runs the engine itself:
   `recover_with_external_dispatch`.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from rocketlake.clock import Clock
from rocketlake.config import Source
from rocketlake.delay.store_access import DelayStore
from rocketlake.embedded.offline_engine import OfflineEngine
from rocketlake.embedded.plug_ins import EngineWrapper
from rocketlake.embedded.resolve_options import log_paths, resolve_options
from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format import names
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import (
    AppendRequest,
    ColumnsResult,
    GetRequest,
    GetResult,
    PutReceipt,
    QueryResult,
)
from rocketlake.store.assembly import Base
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log_dirs import open_dirs
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.message_store import MessageStore
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.options import ReadOptions, StoreOptions
from rocketlake.store.queue.queue_set import ConsumeQueueSet
from rocketlake.store.queue.times import Boundary
from rocketlake.store.recovery.parts import RecoveryReport

_WAY_OUT: Final = 'close it, open it without dispatch="external", and do it then'


class ExternalDispatchEngine(EngineWrapper):
    """Puts into an engine, and reads through the read-only view."""

    inner: MessageStore

    def __init__(self, inner: MessageStore) -> None:
        super().__init__(inner)
        for path in inner.directory.log_dirs:
            inner.directory.ops.mkdirs(path)  # a new store has none before the first put
        view = OfflineStore(
            inner.directory.root,
            log_dirs=inner.directory.log_dirs,
            options=_read_options(inner.options),
        )
        self.reads = ExternalDispatchReads(view, inner.directory.root)

    def put_plain(self, message: Message, queue_id: int) -> PutReceipt:
        """Put a message born here and now, by the fast path of the engine."""
        return self.inner.put_plain(message, queue_id)

    def put_plain_async(self, message: Message, queue_id: int) -> Future[PutReceipt]:
        """Put a message born here and now, by the fast path of the engine."""
        return self.inner.put_plain_async(message, queue_id)

    def close(self) -> None:
        """Close engine and view."""
        try:
            self.inner.close()
        finally:
            self.reads.close()

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on."""
        self.inner.catch_up()
        return self.reads.get(request, message_filter)

    def columns(self, request: GetRequest) -> ColumnsResult:
        """Return messages of a queue from an offset on, as columns."""
        self.inner.catch_up()
        return self.reads.columns(request)

    def query(self, query: KeyQuery) -> QueryResult:
        """Return messages by key."""
        self.inner.catch_up()
        return self.reads.query(query)

    def offset_by_time(
        self, key: QueueKey, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset for a store time."""
        self.inner.catch_up()
        return self.reads.offset_by_time(key, timestamp, boundary)

    def queue_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the bounds of a queue."""
        self.inner.catch_up()
        return self.reads.queue_bounds(key)

    def drop_topic(self, topic: str) -> int:
        """Raise: the job may be writing the queues of the topic.

        Raises:
            StoreError: always.
        """
        raise StoreError(
            f"{topic!r} cannot be deleted while a job dispatches {self.inner.directory.root};"
            f" {_WAY_OUT}"
        )


class ExternalDispatchReads(OfflineEngine):
    """The reads, including those of delayed delivery."""

    def queue_units(self, key: QueueKey, queue_offset: int, count: int) -> npt.NDArray[np.void]:
        """Return at most `count` plain units from a queue offset on; possibly fewer."""

        def units(view: OfflineStore) -> npt.NDArray[np.void]:
            queue = view.queues.get(key)
            found = np.empty(0, UNIT_DTYPE)
            if queue is None or queue.kind.is_batch:
                return found
            for places in queue.iterate(queue_offset, queue_offset + count, Damage(), count):
                found = np.empty(len(places), UNIT_DTYPE)
                for name in ("physical_offset", "size", "tags_code"):
                    found[name] = places[name]
                break
            return found

        return self._ask(units)


class ExternalDispatchDelayStore(DelayStore):
    """The reads and puts of delayed delivery in such a store."""

    def __init__(
        self, engine: ExternalDispatchEngine, put: Callable[[AppendRequest], PutReceipt]
    ) -> None:
        inner = engine.inner
        super().__init__(put, inner.sync, queues=inner.queues, log=inner.log)
        self._reads = engine.reads

    def queue_units(self, key: QueueKey, queue_offset: int, count: int) -> npt.NDArray[np.void]:
        """Return at most `count` plain units from a queue offset on; possibly fewer."""
        return self._reads.queue_units(key, queue_offset, count)

    def dispatched_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the first queue offset and the one after the last; (0, 0) without the queue."""
        return self._reads.queue_bounds(key)


# --- recovery by a job ---------------------------------------------------------------------------


class DispatchTargets(Struct, frozen=True):
    """What an external dispatcher writes to, and the options it follows."""

    directory: StoreDir
    options: StoreOptions
    queues: ConsumeQueueSet
    index: IndexFileSet | None


class RecoveryDispatcher(Protocol):
    """Dispatches records instead of the engine: a job, which this package cannot import."""

    def attach(self, targets: DispatchTargets) -> None:
        """Take what to write to; called first."""
        ...

    def prepare(self, start: int, end: int) -> None:
        """Prepare for a range of the log; its files follow one by one."""
        ...

    def dispatch_range(self, start: int, end: int) -> int:
        """Write queue units and index entries of a range; return where it ended."""
        ...


def recover_with_external_dispatch(
    root: Path,
    conf: Source | None,
    dispatcher: RecoveryDispatcher,
    *,
    ops: FileOps,
    clock: Clock,
    options: Mapping[str, object] | None = None,
    known_options: StoreOptions | None = None,
) -> RecoveryReport:
    """Recover a store that is not open, dispatch by a job what queues and index lack, and close it.

    `known_options` are those of the last process that had the store open, if the caller has none.

    Raises:
        ConfigError: an option is unknown, wrong, or contradicts the files of the store.
        StoreLockedError: a process has it open.
        StoreError: the files cannot be used.
    """
    choice = StoreOptions.choose(conf, **(options or {}))
    values = structs.asdict(known_options) if known_options is not None else choice.values
    directory, paths = open_dirs(ops, root, log_paths(root, values))
    resolved = known_options or resolve_options(directory, choice, {})
    place = TableLocation(ops, clock, root / names.CONFIG, is_4x=resolved.compat_version.is_4x)
    catalog = TopicBook.load(place)
    engine = MessageStore(Base(directory, paths, resolved, clock, catalog))
    dispatcher.attach(DispatchTargets(directory, resolved, engine.queues, engine.index))
    engine.dispatch_externally(dispatcher.prepare, dispatcher.dispatch_range)
    return engine.recover_and_close()


def _read_options(options: StoreOptions) -> ReadOptions:
    # The view gets the log directories as an argument.
    return structs.replace(
        ReadOptions.of_store(options),
        store_path_commit_log=None,
        read_only_commit_log_store_paths=None,
    )
