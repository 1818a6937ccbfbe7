"""Collects the state of a store's parts as numbers."""

from pathlib import Path

from rocketlake.errors import RocketLakeError
from rocketlake.files.store_dir import StoreDir
from rocketlake.store.assembly import Parts
from rocketlake.store.stats.store_stats import StoreGauges


def collect(parts: Parts, directory: StoreDir, now_ms: int) -> StoreGauges:
    """Ask the parts."""
    log, files = parts.log, parts.log_parts.files
    pool = parts.log_parts.pool
    wrote = files.wrote_where
    since = log.lock_since_ms
    first = log.min_offset
    index = parts.index
    index_files, index_bytes = (0, 0) if index is None else (len(index.files), index.mapped_size)
    return StoreGauges(
        min_offset=first,
        max_offset=log.max_offset,
        log_disk_ratios={str(path): _ratio(directory, path) for path in directory.log_dirs},
        queue_disk_ratio=_ratio(directory, directory.root),
        commit_behind_bytes=wrote - files.committed_where if pool is not None else 0,
        flush_behind_bytes=wrote - files.flushed_where,
        dispatch_behind_bytes=parts.dispatcher.behind_bytes,
        dispatch_behind_ms=_dispatch_behind_ms(parts),
        lock_ms=now_ms - since if since else 0,
        earliest_timestamp=log.store_timestamp_at(first) if first >= 0 else -1,
        mapped_file_count=len(files.files) + parts.queues.file_count + index_files,
        mapped_bytes=files.mapped_size + parts.queues.mapped_size + index_bytes,
        free_write_buffers=pool.available if pool is not None else -1,
        queue_count=len(parts.queues),
        running_flags=str(parts.flags),
        retention=_retention_info(parts),
    )


def _retention_info(parts: Parts) -> dict[str, str]:
    """Say which files there are, which went and which will go."""
    found = parts.retention.gauges()
    return {
        "oldestLogFile": found.oldest_file,
        "newestLogFile": found.newest_file,
        "oldestLogFileChanged": str(found.oldest_changed_ms),
        "nextDeletion": str(found.next_deletion_ms),
        "deletedLogFiles": str(found.deleted.files),
        "deletedLogBytes": str(found.deleted.size),
        "deletedQueueFiles": str(found.deleted.queue_files),
        "deletedIndexFiles": str(found.deleted.index_files),
        "filesKeptFrom": str(found.kept_from),
        "putRefusal": found.refusal,
        "deletionError": found.error,
    }


def _dispatch_behind_ms(parts: Parts) -> int:
    """Return how much older the first record is that dispatch has not reached than the last."""
    if not parts.dispatcher.behind_bytes:
        return 0
    oldest = parts.log.store_timestamp_at(parts.dispatcher.dispatched_where)
    last = parts.log_parts.files.last_file()
    newest = last.store_timestamp if last is not None else 0
    return max(newest - oldest, 0) if oldest >= 0 else 0


def _ratio(directory: StoreDir, path: Path) -> float:
    try:
        return directory.ops.disk_usage(path).ratio
    except RocketLakeError:
        return -1.0
