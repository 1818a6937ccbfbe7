"""BulkStore: appends records that another process has encoded.

1. The log gets the bytes that `put` would have written: plain records are copied and sealed, all
   others go through `put` one by one.
2. Delayed messages are not delivered meanwhile, so that the appended records are adjacent in the
   log.
3. Only `flush` waits for the disk.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlake import failpoint
from rocketlake.clock import Clock, SystemClock
from rocketlake.closing import Closing
from rocketlake.config import Source
from rocketlake.embedded.checks import check_topic_for_put
from rocketlake.embedded.open_store import AnyPath, OpenSettings, open_with_parts
from rocketlake.embedded.plug_ins import Engine
from rocketlake.embedded.put_failure import put_failure
from rocketlake.embedded.resolve_options import kept_options, log_paths, preset_of, resolve_options
from rocketlake.embedded.store import Store, StoreParts
from rocketlake.errors import ConfigError, StoreError
from rocketlake.files.local_path import absolute_path
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.bulk import BY_KEY, TURN, BulkStop, StagedRow, read_row, row_size
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.hashes import java_hash
from rocketlake.model.topics import TopicConfig, is_system_topic
from rocketlake.store.api import AppendRequest
from rocketlake.store.disk.traits import refuse_rocksdb
from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.log.topic_routes import TopicRoutes
from rocketlake.store.options import Choice, StoreOptions

# Why: flush while appending, instead of all at once at the end.
_FLUSH_STEP: Final = 32 << 20


class RoutePlan(Struct, frozen=True):
    """A topic of staged records, how many queues it has or gets, and the next queue in turn."""

    topic: str
    queue_count: int
    turn: int
    is_new: bool = False


class StorePreview(Struct, frozen=True):
    """Properties of a store, read without opening it."""

    shape: RecordShape
    queue_counts: Mapping[str, int]
    """Write queues of each topic that may be written."""
    default_queues: int
    creates_topics: bool
    options: StoreOptions


def preview_store(path: AnyPath, conf: Source | None = None, **options: object) -> StorePreview:
    """Return the properties of a store, or those that a missing one would get.

    Raises:
        ConfigError: an option is unknown, wrong, or contradicts the files of the store.
        StoreError: the files cannot be used.
    """
    choice, root, kept = _choose(path, conf, options)
    ops = PosixFileOps()
    topics: Sequence[TopicConfig] = ()
    if ops.stat(root) is None:
        settled = StoreOptions.complete(choice, kept, preset_of(choice))
    else:
        paths = log_paths(root, choice.values)
        dirs = () if paths is None else tuple(p for p in paths.writable if ops.stat(p) is not None)
        directory = StoreDir(ops, root, dirs)
        refuse_rocksdb(directory)
        settled = resolve_options(directory, choice, kept)
        is_4x = settled.compat_version.is_4x
        place = TableLocation(ops, SystemClock(), root / names.CONFIG, is_4x=is_4x)
        topics = TopicBook.load(place).topics()
    return StorePreview(
        shape=RecordShape.of(settled),
        queue_counts={t.name: t.write_queue_count for t in topics if t.is_writable},
        default_queues=settled.default_topic_queue_nums,
        creates_topics=settled.auto_create_topic_enable,
        options=settled,
    )


def open_bulk(
    path: AnyPath, conf: Source | None = None, *, clock: Clock | None = None, **options: object
) -> "BulkStore":
    """Open a store for records that another process has encoded; otherwise as `open_store`.

    Raises:
        ConfigError, StoreLockedError, StoreError: as `open_store`.
    """
    choice, root, kept = _choose(path, conf, options)
    settings = OpenSettings(
        ops=PosixFileOps(), clock=clock or SystemClock(), kept=kept, delivers=False
    )
    return BulkStore(*open_with_parts(root, choice, settings))


def _choose(
    path: AnyPath, conf: Source | None, options: Mapping[str, object]
) -> tuple[Choice, Path, Mapping[str, object]]:
    choice = StoreOptions.choose(conf, **options)
    return choice, absolute_path(path), kept_options(choice)


class BulkStore(Closing):
    """A store that takes staged records. Thread-safety: one thread."""

    def __init__(self, store: Store, engine: Engine, parts: StoreParts) -> None:
        self.store = store
        self.core = parts.core
        self.shape = RecordShape.of(self.core.options)
        self._engine = engine
        self._topics = parts.topics
        self._is_wrapped = engine is not self.core
        self._unflushed = 0

    @property
    def log_bounds(self) -> tuple[int, int]:
        """The first offset of the log, and the one after its last byte."""
        self.store.require_open()
        return max(self.core.log.min_offset, 0), self.core.log.wrote_where

    def flush(self) -> None:
        """Bring everything that was appended to disk.

        Raises:
            StorePoisonedError: a flush failed, now or before.
        """
        self.store.flush()

    def close(self) -> None:
        """Bring everything to disk and close the store."""
        self.store.close()

    # --- topics --------------------------------------------------------------------------------

    def plan_route(self, topic: str) -> RoutePlan:
        """Return the route of a topic, or the one that a missing topic would get.

        Raises:
            ValueError: the topic may not be written, or does not exist and is not created by a put.
            StoreClosedError: the store is closed.
        """
        self.store.require_open()
        check_topic_for_put(topic)
        route, missing = self._topics.find_route(topic)
        if missing is not None:
            return RoutePlan(topic, route.count, 0, is_new=True)
        return RoutePlan(topic, route.count, self.core.bulk.route(topic, route.count).turn)

    def make_routes(self, plans: Sequence[RoutePlan]) -> TopicRoutes:
        """Create missing topics; return the routes of all.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.store.require_open()
        for plan in plans:
            if not is_system_topic(plan.topic):
                self._topics.register(self._topics.make_config(plan.topic))
        routes = [self.core.bulk.route(p.topic, p.queue_count, p.turn) for p in plans]
        if self._is_wrapped:
            # Why: plug-ins see every message.
            routes = [replace(route, slots=()) for route in routes]
        return TopicRoutes(routes)

    # --- appending -----------------------------------------------------------------------------

    def append(self, records: bytes | memoryview, routes: TopicRoutes, position: int = 0) -> int:
        """Append staged records from a position on; return how many there were.

        Raises:
            StoreError: a record cannot be put; records before it stay appended.
            StoreClosedError: the store is closed.
        """
        self.store.require_open()
        count = 0
        self._unflushed += len(records)
        if self._unflushed >= _FLUSH_STEP:
            self._unflushed = 0
            self.core.flush_soon()
        while position < len(records):
            failpoint.hit("piece.before")
            done = self.core.bulk.append(records, position, routes)
            position, count = done.position, count + done.count
            if done.stop is BulkStop.BAD:
                raise StoreError(f"the record staged at {position} cannot be appended")
            if done.stop is BulkStop.BY_HAND:
                self._put(read_row(records, position), routes)
                position, count = position + row_size(records, position), count + 1
            failpoint.hit("piece.after")
        return count

    def _put(self, row: StagedRow, routes: TopicRoutes) -> None:
        request = AppendRequest(
            message=replace(row.message, wait=False),
            queue_id=queue_of(row, routes),
            born_timestamp=row.born_timestamp,
            born_host=self.shape.endpoint,
        )
        receipt = self._engine.put(request)
        # Why: a row does not wait for disk or replicas; `flush` does.
        if not receipt.is_ok:
            raise put_failure(receipt, self.store.path, row.message.topic)


def queue_of(row: StagedRow, routes: TopicRoutes) -> int:
    """Return the queue of a row that goes through `put`; a queue in turn is used up."""
    count = routes.routes[row.route].queue_count
    if row.queue_id == TURN:
        return routes.turn(row.route, count)
    if row.queue_id == BY_KEY:
        key_hash = row.key_hash
        if key_hash is None:
            key_hash = java_hash(row.message.ordering_key or "")
        return abs(key_hash) % count
    if not 0 <= row.queue_id < count:
        raise ConfigError(f"queue {row.queue_id} of topic {row.message.topic!r} is not there")
    return row.queue_id
