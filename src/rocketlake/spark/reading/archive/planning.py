"""`option("archive", DIR)`: archived history and live stores planned as one table.

The manifest is read once, while planning. What it names comes from the archive's files, the rest
from the stores: each queue is cut at one offset, so that no message is read twice.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from rocketlake.errors import ConfigError, StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.archive_manifest import (
    MANIFEST,
    PARQUET,
    ArchivedFile,
    Manifest,
    archive_path,
    load_manifest,
)
from rocketlake.model.queues import QueueKey
from rocketlake.spark.reading.archive.boundary import JoinedQueue, is_surely_same
from rocketlake.spark.reading.archive.files import ArchivePartition, WantedFile
from rocketlake.spark.reading.keys import plan_key
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.reading.planning import pieces_for, plan_spans
from rocketlake.spark.reading.queue_spans import QueueSpan, check_names, narrow
from rocketlake.spark.reading.stores import StoreSet
from rocketlake.spark.reading.terms import allows, bounds
from rocketlake.store.offline import OfflineStore

Joined = dict[tuple[str, QueueKey], JoinedQueue]


def plan_joined(options: SourceOptions) -> list[InputPartition]:
    """Return partitions that hold every wanted message of archive and stores once.

    Raises:
        ConfigError: an option does not go with an archive, or names what is not there.
        StoreError: the archive or a store cannot be read, or messages between them are gone.
    """
    check_options(options)
    directory = archive_path(options.archive or "")
    manifest = read_manifest(directory)
    with ExitStack() as stack:
        opened = stack.enter_context(StoreSet.open(options)) if options.paths else None
        stores = opened.stores if opened is not None else {}
        check_brokers(manifest, stores)
        check_queues(directory, manifest, stores, options)
        joined = join_queues(manifest, stores, options)
        parts: list[InputPartition] = _plan_files(directory, manifest, joined, options)
        for broker, store in stores.items():
            spans = [
                QueueSpan(key.topic, key.queue_id, *queue.live(options))
                for (owner, key), queue in joined.items()
                if owner == broker
            ]
            if allows(options.terms, "broker", broker):
                parts += _plan_live(store, broker, spans, options)
        if opened is not None:
            opened.check_damage()
    return parts


def _plan_live(
    store: OfflineStore, broker: str, spans: list[QueueSpan], options: SourceOptions
) -> list[Partition]:
    spans = narrow(store, spans, options)
    if options.key is not None or options.unique_key is not None:
        return plan_key(store, broker, spans, options)
    return plan_spans(store, broker, spans, options)


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an archive that messages can be read from.

    Raises:
        StoreError: there is none, or Spark's own reader must read the archive.
    """
    found = load_manifest(PosixFileOps(), directory)
    if found is None:
        raise StoreError(
            f"option archive: {directory} has no {MANIFEST}; name the directory that `rocketlake"
            " archive` wrote (its first run makes it)"
        )
    if found.format != PARQUET:
        raise StoreError(
            f"option archive: {directory} is an archive in the format {found.format}, which only"
            f' Spark reads: spark.read.format("{found.format}"), and the store from the offsets in'
            f" {MANIFEST} on"
        )
    return found


def check_options(options: SourceOptions) -> None:
    """Refuse what cannot be read of an archive.

    Raises:
        ConfigError: an option does not go with an archive.
    """
    if options.raw_body:
        raise ConfigError("option rawBody does not go with archive: archived bodies are unpacked")


def check_brokers(manifest: Manifest, stores: Mapping[str, OfflineStore]) -> None:
    """Refuse a store that the archive knows by another name: its messages would come twice.

    Raises:
        ConfigError: there is one.
    """
    known = {end.broker for end in manifest.queues}
    for name, store in stores.items():
        if name in known:
            continue
        for end in manifest.queues:
            queue = store.queues.get(QueueKey(end.topic, end.queue_id))
            is_hit = end.broker not in stores and queue is not None and end.next_offset > 0
            if is_hit and queue is not None and is_surely_same(queue, end):
                raise ConfigError(
                    f"the archive knows the store {store.directory.root} as {end.broker!r}, not as"
                    f" {name!r}; name it: path = {end.broker}={store.directory.root}"
                )


def check_queues(
    directory: Path,
    manifest: Manifest,
    stores: Mapping[str, OfflineStore],
    options: SourceOptions,
    *,
    empty: Iterable[QueueKey] = (),
) -> None:
    """Make sure that the named topics and queues are in the archive or in a store.

    Raises:
        ConfigError: it is not.
    """
    keys = {*empty}
    keys |= {QueueKey(end.topic, end.queue_id) for end in manifest.queues}
    keys.update(key for store in stores.values() for key in store.queues)
    places = [str(directory), *(str(store.directory.root) for store in stores.values())]
    check_names(keys, ", ".join(places), options)


def join_queues(
    manifest: Manifest, stores: Mapping[str, OfflineStore], options: SourceOptions
) -> Joined:
    """Return every wanted queue, of the archive or of a store or of both."""
    ends = {(end.broker, QueueKey(end.topic, end.queue_id)): end for end in manifest.queues}
    places = {*ends, *((broker, key) for broker, store in stores.items() for key in store.queues)}
    last_times: dict[tuple[str, QueueKey], int] = {}
    for file in manifest.files:
        for queue_id in file.queues:
            place = (file.broker, QueueKey(file.topic, queue_id))
            last_times[place] = max(last_times.get(place, -1), file.max_store_time)
    return {
        (broker, key): JoinedQueue(
            key, ends.get((broker, key)), stores.get(broker), last_times.get((broker, key), -1)
        )
        for broker, key in sorted(places)
        if options.wants_queue(key.topic, key.queue_id)
    }


def _plan_files(
    directory: Path, manifest: Manifest, joined: Joined, options: SourceOptions
) -> list[InputPartition]:
    offsets = {place: queue.archived(options) for place, queue in joined.items()}
    times = {place: queue.times(options) for place, queue in joined.items()}
    wanted = []
    for file in manifest.files:
        if not _may_hold(file, options):
            continue
        found = WantedFile(file, {}, {})
        for queue_id, (begin, end) in file.queues.items():
            place = (file.broker, QueueKey(file.topic, queue_id))
            if place not in joined:
                continue
            first, last = max(begin, offsets[place][0]), min(end, offsets[place][1])
            low, high = times[place]
            if first >= last or file.max_store_time < low or file.min_store_time >= high:
                continue
            found.offsets[queue_id] = (first, last)
            if low > file.min_store_time or high <= file.max_store_time:
                found.times[queue_id] = (low, high)
        if found.offsets:
            wanted.append(found)
    return pack_files(str(directory), wanted, options)


def _may_hold(file: ArchivedFile, options: SourceOptions) -> bool:
    """Tell whether what Spark pushed down leaves anything of a file."""
    terms = options.terms
    low, high = bounds(terms, "queue_offset")
    begin, end = bounds(terms, "store_timestamp")
    return (
        allows(terms, "topic", file.topic)
        and allows(terms, "broker", file.broker)
        and any(allows(terms, "queue_id", queue_id) for queue_id in file.queues)
        and any(first <= high and low < last for first, last in file.queues.values())
        and file.min_store_time * 1000 <= end
        and begin < (file.max_store_time + 1) * 1000
    )


def pack_files(
    directory: str, wanted: list[WantedFile], options: SourceOptions
) -> list[InputPartition]:
    """Put small files together, as many as one task is to read."""
    total = sum(item.log_bytes for item in wanted)
    room = max(total // pieces_for(total, options), 1)
    found: list[list[WantedFile]] = []
    left = 0
    for item in wanted:
        if not found or left <= 0:
            found.append([])
            left = room
        found[-1].append(item)
        left -= item.log_bytes
    return [ArchivePartition(directory, tuple(items)) for items in found]
