"""The values that `info` prints: file families, queues, groups, times, variants."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from rocketlake.errors import StoreError
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import filters, groups, offsets, table, topics
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.offline import OfflineStore

Table = TypeVar("Table")


class Family(Struct, frozen=True, rename="camel"):
    """The files of one kind: how many, how large, from and to."""

    name: str
    files: int
    bytes: int
    first: str | None = None
    last: str | None = None


class LogInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """The commit log."""

    min_offset: int
    max_offset: int
    files: int
    file_size: int
    paths: list[str]
    first_store_timestamp: int | None
    last_store_timestamp: int | None


class QueueInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """One queue; `not_dispatched` messages are in the log and not yet in the queue's files."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    not_dispatched: int = 0
    kind: str = "plain"


class TopicInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """One topic, over all its queues."""

    topic: str
    queues: int
    messages: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None


class MissedInfo(Struct, frozen=True, rename="camel"):
    """Messages of a queue that were deleted before a group had consumed them."""

    queue_id: int
    first: int
    end: int


class GroupInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """The progress of a group in a topic, and what it can no longer read."""

    group: str
    topic: str
    queues: int
    lag: int
    missed: int
    offsets: dict[str, int]
    missed_in: list[MissedInfo] = []


class IndexInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """One index file."""

    file: str
    entries: int
    slots: int | None
    begin_offset: int
    end_offset: int
    begin_timestamp: int
    end_timestamp: int


class Survey(Struct, frozen=True, rename="camel", kw_only=True):
    """A whole store."""

    path: str
    shutdown: str
    in_use_by: int | None
    generation: str
    variants: list[str]
    commit_log: LogInfo
    families: list[Family]
    queues: list[QueueInfo]
    topics: list[TopicInfo]
    groups: list[GroupInfo]
    index: list[IndexInfo]
    checkpoint: dict[str, int]
    messages: int
    notes: list[str]
    damage: list[str]


def survey(store: OfflineStore) -> Survey:
    """Return the survey of a store."""
    queue_infos = [_queue(key, queue) for key, queue in store.queues.items()]
    notes = list(_notes(store))
    progress = _groups(store, notes)
    topic_infos = _topics(store, notes)
    _check_other_tables(store, notes)
    return Survey(
        path=_text(store.directory.root),
        shutdown="clean" if store.traits.is_clean else "unclean",
        in_use_by=store.traits.held_by,
        generation="5.x" if store.traits.is_5x else "4.x",
        variants=store.traits.variants,
        commit_log=_log(store),
        families=_families(store),
        queues=queue_infos,
        topics=topic_infos,
        groups=progress,
        index=_index(store),
        checkpoint=_checkpoint(store),
        messages=sum(info.messages for info in queue_infos),
        notes=[_text(note) for note in notes],
        damage=[_text(finding) for finding in store.damage.findings],
    )


def _text(value: object) -> str:
    """Return text that JSON can hold; a file name need not be valid text."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _notes(store: OfflineStore) -> list[str]:
    notes = []
    traits = store.traits
    if traits.held_by is not None:
        notes.append(f"in use by process {traits.held_by}: numbers are of this moment")
    elif not traits.is_clean:
        notes.append("not shut down cleanly: shown as recovery would leave it")
    if store.rocksdb_problem is not None:
        notes.append(
            f"queues are kept in RocksDB, and shown from the log instead: {store.rocksdb_problem}"
        )
    if traits.has_dledger_log:
        notes.append("the DLedger log is not read; only a plain commit log is")
    if "tiered storage" in traits.variants:
        notes.append("what was moved to tiered storage is not read")
    return notes


def _log(store: OfflineStore) -> LogInfo:
    first = store.log.first_timestamp(store.log.files[0]) if store.log.files else None
    return LogInfo(
        min_offset=store.min_offset,
        max_offset=store.max_offset,
        files=len(store.log.files),
        file_size=store.log.file_size,
        paths=[_text(path) for path in store.directory.log_dirs],
        first_store_timestamp=first,
        last_store_timestamp=store.last_timestamp(),
    )


def _queue(key: QueueKey, queue: QueueView) -> QueueInfo:
    return QueueInfo(
        topic=_text(key.topic),
        queue_id=key.queue_id,
        min_offset=queue.min_offset,
        max_offset=queue.max_offset,
        messages=max(queue.max_offset - queue.min_offset, 0),
        not_dispatched=len(queue.owed),
        kind="batch" if queue.kind.is_batch else "plain",
    )


def _topics(store: OfflineStore, notes: list[str]) -> list[TopicInfo]:
    found: dict[str, list[QueueKey]] = {}
    for key in store.queues:
        found.setdefault(key.topic, []).append(key)
    configured = _table(store.directory, topics.FILE_NAME, topics.decode, notes)
    for name in configured.topics if configured is not None else ():
        found.setdefault(name, [])
    infos = []
    for topic, keys in sorted(found.items()):
        bounds = [store.time_bounds(key) for key in keys]
        firsts = [first for first, _ in bounds if first is not None]
        lasts = [last for _, last in bounds if last is not None]
        queues = [store.queues[key] for key in keys]
        infos.append(
            TopicInfo(
                topic=_text(topic),
                queues=len(keys),
                messages=sum(max(q.max_offset - q.min_offset, 0) for q in queues),
                first_store_timestamp=min(firsts, default=None),
                last_store_timestamp=max(lasts, default=None),
            )
        )
    return infos


def _groups(store: OfflineStore, notes: list[str]) -> list[GroupInfo]:
    committed = _table(store.directory, offsets.FILE_NAME, offsets.decode, notes)
    found = []
    for progress in committed.progress() if committed is not None else ():
        lag = 0
        missed: list[MissedInfo] = []
        for queue_id, offset in progress.offsets.items():
            queue = store.queues.get(QueueKey(progress.topic, queue_id))
            if queue is not None:
                lag += max(queue.max_offset - max(offset, queue.min_offset), 0)
                if offset < queue.min_offset:
                    missed.append(MissedInfo(queue_id, offset, queue.min_offset))
        found.append(
            GroupInfo(
                group=progress.group,
                topic=progress.topic,
                queues=len(progress.offsets),
                lag=lag,
                missed=sum(gone.end - gone.first for gone in missed),
                offsets={str(q): offset for q, offset in sorted(progress.offsets.items())},
                missed_in=sorted(missed, key=lambda gone: gone.queue_id),
            )
        )
    known = {info.group for info in found}
    subscribed = _table(store.directory, groups.FILE_NAME, groups.decode, notes)
    found += [
        GroupInfo(group=name, topic="", queues=0, lag=0, missed=0, offsets={})
        for name in (subscribed.groups if subscribed is not None else ())
        if name not in known
    ]
    return sorted(found, key=lambda info: (info.group, info.topic))


def _table(
    directory: StoreDir, name: str, decode: Callable[[JsonObject], Table], notes: list[str]
) -> Table | None:
    """Load a config table; what is wrong with it becomes a note."""
    path = directory.path(names.CONFIG) / name
    try:
        loaded = table.find(path, decode)
    except (StoreError, OSError) as error:
        notes.append(str(error))
        return None
    if loaded.hidden is not None:
        notes.append(f"{name} is not the table in use: {loaded.hidden}")
    if loaded.problem is not None:
        copy = f"; {name}{names.BACKUP_SUFFIX}, the copy, is used"
        notes.append(f"{path.parent}: {loaded.problem}{copy if loaded.value is not None else ''}")
    return loaded.value


def _check_other_tables(store: OfflineStore, notes: list[str]) -> None:
    """Load the tables that are not shown, to report what is wrong with them."""
    _table(store.directory, offsets.DELAY_FILE_NAME, offsets.decode_delay, notes)
    _table(store.directory, filters.FILE_NAME, filters.decode, notes)


def _index(store: OfflineStore) -> list[IndexInfo]:
    return [
        IndexInfo(
            file=file.path.name,
            entries=file.header.entries_used,
            slots=file.slots,
            begin_offset=file.header.begin_physical_offset,
            end_offset=file.header.end_physical_offset,
            begin_timestamp=file.header.begin_timestamp,
            end_timestamp=file.header.end_timestamp,
        )
        for file in store.index_files
    ]


def _checkpoint(store: OfflineStore) -> dict[str, int]:
    page = store.checkpoint
    return {
        "physicalTimestamp": page.physical_timestamp,
        "queueTimestamp": page.queue_timestamp,
        "indexTimestamp": page.index_timestamp,
        "primaryFlushedOffset": page.primary_flushed_offset,
        "confirmOffset": page.confirm_offset,
    }


def _families(store: OfflineStore) -> list[Family]:
    directory = store.directory
    found = [_family(names.COMMIT_LOG, [file.path for file in store.log.files])]
    for name in (
        *(names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE, names.CONSUME_QUEUE_EXT, names.INDEX),
        *(names.CONFIG, names.CHECKPOINT, names.TIMER_LOG, names.TIMER_WHEEL, names.COMPACTION),
    ):
        place = directory.path(name)
        if directory.exists(name):
            paths = [path for path in sorted(place.rglob("*")) if path.is_file()]
            found.append(_family(name, [place] if place.is_file() else paths))
    return found


def _family(name: str, paths: list[Path]) -> Family:
    ordered = sorted(path.name for path in paths)
    return Family(
        name,
        len(paths),
        sum(path.stat().st_size for path in paths if path.exists()),
        ordered[0] if ordered else None,
        ordered[-1] if ordered else None,
    )
