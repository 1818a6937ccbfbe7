"""A copy of a store made whole: queues, index and checkpoint agree with the log, cleanly closed."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.files.file_traits import LOG_FILES
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.ops import FileOps
from rocketlake.format import layout, names
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.topics import is_lmq
from rocketlake.store.assembly import Base
from rocketlake.store.disk.file_shape import find_shape
from rocketlake.store.disk.log_dirs import open_dirs
from rocketlake.store.message_store import MessageStore
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import CompatVersion, ReadOptions, StoreOptions, embedded
from rocketlake.store.queue.queue_set import QueueShape
from rocketlake.store.recovery.parts import RecoveryReport

_PATHS: Final = frozenset({"store_path_commit_log", "read_only_commit_log_store_paths"})


class Kind(Struct, frozen=True):
    """What the copy must know of its source: the sizes of its files, and how it is read."""

    version: CompatVersion
    options: dict[str, object]

    @classmethod
    def of(cls, view: OfflineStore) -> Self:
        """Look at a source."""
        fields = (name for name in ReadOptions.__struct_fields__ if name not in _PATHS)
        given = {name: getattr(view.options, name) for name in fields}
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(_version_of(view), chosen | find_shape(view.directory, chosen))


def _version_of(view: OfflineStore) -> CompatVersion:
    if view.traits.is_5_5:
        return CompatVersion.V5_5
    return CompatVersion.V5_3 if view.traits.is_5x else CompatVersion.V4_9


def settle(
    ops: FileOps,
    root: Path,
    clock: Clock,
    *,
    kind: Kind,
    on_progress: Callable[[int, int], None] | None = None,
) -> RecoveryReport:
    """Recover a store as a start would, and leave it closed; nothing is delivered or deleted.

    Raises:
        RocketLakeError: the files cannot be used.
    """
    directory, paths = open_dirs(ops, root, None)
    has_light = any(is_lmq(queue.topic) for queue in directory.queue_dirs(names.CONSUME_QUEUE))
    # A store without an index is not given one, nor one that RocketMQ would not understand.
    has_index = directory.exists(names.INDEX) and "max_hash_slot_num" in kind.options
    options = _options(kind, has_light=has_light, has_index=has_index)
    place = TableLocation(ops, clock, root / names.CONFIG, is_4x=options.compat_version.is_4x)
    catalog = TopicBook.load(place)
    # Nothing is appended to the log, so its last file needs no space beyond what it holds.
    factory = MappedFileMaker(ops, clock, replace(LOG_FILES, is_sparse=True))
    base = Base(directory, paths, options, clock, catalog, factory)
    return MessageStore(base).recover_and_close(on_progress)


def queue_shape(kind: Kind) -> QueueShape:
    """Return what the files of the copy's queues look like."""
    options = _options(kind, has_light=False, has_index=False)
    return QueueShape(
        file_size=options.mapped_file_size_consume_queue,
        batch_file_size=options.mapper_file_size_batch_consume_queue,
        is_4x=options.compat_version.is_4x,
    )


def _options(kind: Kind, *, has_light: bool, has_index: bool) -> StoreOptions:
    choice = StoreOptions.choose(
        None,
        **kind.options,
        compat_version=kind.version,
        enable_lmq=has_light,
        enable_multi_dispatch=has_light,
        message_index_enable=has_index,
    )
    size = kind.options.get("mapped_file_size_commit_log")
    preset = {} if size == layout.DEFAULT_LOG_FILE_SIZE else embedded()
    return StoreOptions.complete(choice, preset)
