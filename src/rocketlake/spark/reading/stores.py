"""The stores that `path` names: opened on the driver, and their locations for executors."""

import logging
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from rocketlake.closing import Closing
from rocketlake.errors import StoreError, StoreNotFoundError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.metadata import topics
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TopicConfig
from rocketlake.spark.reading.options import OnDamage, SourceOptions, Table
from rocketlake.store.offline import (
    Damage,
    Finding,
    LogView,
    OfflineStore,
    PastDamageStore,
    Readers,
    readable_dirs,
)

log = logging.getLogger(__name__)


class StoreRef(Struct, frozen=True):
    """The location of a store, as a partition carries it."""

    broker: str
    path: str
    log_dirs: tuple[str, ...]
    checks: int
    log_min_offset: int
    """What was before it had expired when the partition was planned."""

    @classmethod
    def of(cls, broker: str, store: OfflineStore) -> "StoreRef":
        """Return the location of an open store."""
        return cls(
            broker,
            str(store.directory.root.absolute()),
            tuple(str(path.absolute()) for path in store.directory.log_dirs),
            int(store.checks),
            store.log.min_offset,
        )


class StoreSet(Closing):
    """The stores of a read, open on the driver, by broker name."""

    def __init__(self, stores: Mapping[str, OfflineStore], options: SourceOptions) -> None:
        self.stores = stores
        self._options = options

    @classmethod
    def open(cls, options: SourceOptions) -> "StoreSet":
        """Open every store that `path` names.

        Raises:
            StoreNotFoundError: one is not there.
            StoreError: one has queues that cannot be read.
            ConfigError: options contradict the files.
        """
        found: dict[str, OfflineStore] = {}
        try:
            for broker, path in options.paths:
                found[broker] = open_store(path, options)
        except BaseException:
            for store in found.values():
                store.close()
            raise
        return cls(found, options)

    def refresh(self) -> bool:
        """Read what was written to the stores since; tell whether there was anything."""
        grown = [store.refresh() for store in self.stores.values()]
        return any(grown)

    def empty_queues(self) -> Iterator[QueueKey]:
        """Yield all queues of the tables of topics, with or without messages."""
        for store in self.stores.values():
            for topic in _made_topics(store).values():
                for queue_id in range(max(topic.read_queue_count, topic.write_queue_count)):
                    yield QueueKey(topic.name, queue_id)

    def check_damage(self) -> None:
        """Apply `onDamage` to the damage that was found so far.

        Raises:
            StoreError: there is damage, and the policy is to fail.
        """
        for store in self.stores.values():
            apply_damage_policy(
                [f for f in store.damage.findings if _concerns(f, store, self._options)],
                self._options,
            )

    def close(self) -> None:
        """Close the files."""
        for store in self.stores.values():
            store.close()


def _made_topics(store: OfflineStore) -> dict[str, TopicConfig]:
    try:
        return topics.load(store.directory.path(names.CONFIG)).topics
    except StoreError as error:
        log.warning("topics without messages are unknown: %s", error)
        return {}


def open_store(path: str, options: SourceOptions) -> OfflineStore:
    """Open one store for reading.

    Raises:
        StoreNotFoundError: it is not there.
        StoreError: its queues cannot be read.
        ConfigError: options contradict the files.
    """
    read = options.read_options
    is_passed = options.on_damage is OnDamage.SKIP or options.table is Table.DAMAGE
    kind = PastDamageStore if is_passed else OfflineStore
    named = options.commit_log_path or read.store_path_commit_log
    log_dirs = readable_dirs(named, read.read_only_commit_log_store_paths, Path(path))
    store = kind(path, log_dirs=log_dirs, options=read)
    store.has_topic = lambda topic: topic in _made_topics(store)
    if store.traits.has_rocksdb_queues:
        try:
            _require_queues(store)
        except BaseException:
            store.close()
            raise
    return store


def _require_queues(store: OfflineStore) -> None:
    """Refuse a store whose queues cannot be read from RocksDB.

    Raises:
        StoreError: they cannot.
    """
    _ = store.queues
    if store.rocksdb_problem is not None:
        raise StoreError(
            f"{store.directory.root} keeps its consume queues in RocksDB: {store.rocksdb_problem}"
        )


def apply_damage_policy(findings: list[Finding], options: SourceOptions) -> None:
    """Fail or continue, as `onDamage` says; damage that is skipped is logged.

    Raises:
        StoreError: there is damage, and the policy is to fail.
    """
    if not findings:
        return
    if options.on_damage is OnDamage.FAIL:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise StoreError(
            f"damage: {findings[0]}{more}; `rocketlake verify` shows all of it, option onDamage = "
            "skip reads the rest"
        )
    for finding in findings[:20]:
        log.warning("damage passed over: %s", finding)
    if len(findings) > 20:
        log.warning("damage passed over: %d more findings", len(findings) - 20)


def _concerns(finding: Finding, store: OfflineStore, options: SourceOptions) -> bool:
    """Tell whether a finding concerns what is read: the log, or a selected queue."""
    path = Path(finding.path)
    for family in (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE):
        place = store.directory.path(family)
        if path.is_relative_to(place):
            parts = path.relative_to(place).parts
            is_read = options.has_topic or options.table is Table.QUEUE
            return bool(parts) and is_read and options.wants_topic(parts[0])
    return not path.is_relative_to(store.directory.path(names.INDEX))


class ExecutorLog(Closing):
    """The log of a store on an executor: its files are listed, nothing else is opened."""

    def __init__(self, ref: StoreRef) -> None:
        """List the files.

        Raises:
            StoreNotFoundError: this machine does not see the directory.
        """
        self.ref = ref
        self.damage = Damage()
        ops = PosixFileOps()
        self.readers = Readers(ops)
        try:
            directory = StoreDir(ops, Path(ref.path), tuple(Path(path) for path in ref.log_dirs))
        except StoreNotFoundError as error:
            raise StoreNotFoundError(
                f"the executor on {socket.gethostname()} cannot see the store ({error}); its "
                "directory must be shared with, or copied to, every executor under the same path"
            ) from error
        self.log = LogView(directory, self.readers, Damage())
        self.log.refresh()

    def close(self) -> None:
        """Close the files."""
        self.readers.close()
