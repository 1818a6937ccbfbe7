"""Checks across options: values that the reference replaces, contradictions, doubtful settings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from rocketlake.format import layout
from rocketlake.model.endpoint import Endpoint
from rocketlake.store.options.bounds import BrokerRole, CompatVersion, FlushMode, StoreType
from rocketlake.store.options.delay_levels import parse_delay_levels

if TYPE_CHECKING:
    from rocketlake.store.options.store_options import StoreOptions

_TIMER_PRECISIONS = (1000, 500, 200, 100)


def replace_ineffective(options: "StoreOptions") -> None:
    """Replace values that have no effect by those that the reference uses instead."""
    # Compat: the getters for queue size and disk use and the setter for timer precision in
    # MessageStoreConfig, and both ratios in CleanCommitLogService, do so. Batch queues are not
    # rounded there, and get stuck at the end of their first file.
    effective = {
        "mapped_file_size_consume_queue": _round_up(
            options.mapped_file_size_consume_queue, layout.UNIT_SIZE
        ),
        "mapper_file_size_batch_consume_queue": _round_up(
            options.mapper_file_size_batch_consume_queue, layout.BATCH_UNIT_SIZE
        ),
        "disk_max_used_space_ratio": _hold(options.disk_max_used_space_ratio, 10, 95),
        "disk_space_warning_level_ratio": _hold(options.disk_space_warning_level_ratio, 35, 90),
        "disk_space_clean_forcibly_ratio": _hold(options.disk_space_clean_forcibly_ratio, 30, 85),
        "timer_precision_ms": _timer_precision(options.timer_precision_ms),
    }
    for name, value in effective.items():
        force_setattr(options, name, value)


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _hold(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def _timer_precision(value: int) -> int:
    return next((step for step in _TIMER_PRECISIONS if value >= step), _TIMER_PRECISIONS[-1])


def refuse(options: "StoreOptions") -> None:
    """Refuse settings that cannot work.

    Raises:
        ValueError: names the first one.
    """
    if options.store_type is not StoreType.DEFAULT:
        raise ValueError(
            f"storeType = {options.store_type}: RocketLake writes consume queues to files, not to"
            f" RocksDB. If the queues of the store are in files, or it is new, set storeType to"
            f" {StoreType.DEFAULT}. If they are in RocksDB, the store can be read (read_only=True,"
            " rocketlake dump, rocketlake export), and 'rocketlake rebuild STORE --to DIRECTORY'"
            " makes a copy with queues in files"
        )
    room = layout.RECORD_MIN_SIZE + layout.BLANK_HEADER_SIZE
    if options.mapped_file_size_commit_log < room:
        raise ValueError(
            f"mappedFileSizeCommitLog = {options.mapped_file_size_commit_log}:"
            f" the smallest record needs {room} bytes"
        )
    if options.max_index_num < 2:
        raise ValueError("maxIndexNum = 1: the first entry of an index file is never used")
    parse_delay_levels(options.message_delay_level)
    parse_hours(options.delete_when)
    try:
        Endpoint.parse(options.store_host)
    except ValueError as error:
        raise ValueError(f"storeHost = {options.store_host!r}: {error}") from error


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours of a list such as `04;16`.

    Raises:
        ValueError: an item is no hour of a day.
    """
    hours = []
    for item in text.split(";"):
        digits = item.strip()
        if not (digits.isascii() and digits.isdigit() and int(digits) < 24):
            raise ValueError(f"deleteWhen = {text!r}: {item!r} is no hour from 00 to 23")
        hours.append(int(digits))
    return frozenset(hours)


def doubts(options: "StoreOptions") -> Iterator[str]:
    """Yield texts on settings that are allowed but probably not intended."""
    yield from _doubt_files(options)
    yield from _doubt_durability(options)
    yield from _doubt_queues(options)


def _doubt_files(options: "StoreOptions") -> Iterator[str]:
    room = options.mapped_file_size_commit_log - layout.BLANK_HEADER_SIZE
    if options.record_size_max > room:
        yield (
            f"mappedFileSizeCommitLog: a file has room for records of {room} bytes;"
            f" maxMessageSize allows {options.record_size_max}"
        )
    paths, read_only = options.store_path_commit_log, options.read_only_commit_log_store_paths
    if read_only and "," not in (paths or ""):
        yield (
            "readOnlyCommitLogStorePaths: read by RocketMQ only if storePathCommitLog has a comma"
        )
    if options.force_verify_prop_crc and not options.enabled_append_prop_crc:
        yield "forceVerifyPropCRC: records written without enabledAppendPropCRC count as damaged"
    if options.disk_space_clean_forcibly_ratio > options.disk_space_warning_level_ratio:
        yield "diskSpaceCleanForciblyRatio: above diskSpaceWarningLevelRatio, it is never reached"
    if 0 < options.disk_free_clean_bytes < options.disk_free_refuse_bytes:
        yield "diskFreeCleanBytes: below diskFreeRefuseBytes, which then counts for both"
    delay_s = options.timer_max_delay_sec if options.timer_wheel_enable else 0
    if options.auto_delete_enable and options.file_reserved_time * 3600 < delay_s:
        yield (
            f"fileReservedTime: a message may be delayed by {delay_s // 3600} hours"
            f" (timerMaxDelaySec), and is deleted after {options.file_reserved_time}"
        )


def _doubt_durability(options: "StoreOptions") -> Iterator[str]:
    if options.transient_store_pool_enable and not options.uses_write_buffers:
        yield (
            "transientStorePoolEnable: does nothing for a SLAVE, with writeWithoutMmap,"
            " and in 4.x with SYNC_FLUSH"
        )
    if options.uses_write_buffers and options.flush_disk_type is FlushMode.SYNC_FLUSH:
        yield (
            "transientStorePoolEnable: with SYNC_FLUSH every put waits for"
            " commitIntervalCommitLog too"
        )
    if options.wake_flush_when_put_message and not options.wakes_flush:
        yield "wakeFlushWhenPutMessage: does nothing while flushCommitLogTimed is true"
    if options.fast_fail_if_no_buffer_in_store_pool and not options.transient_store_pool_enable:
        yield "fastFailIfNoBufferInStorePool: does nothing without transientStorePoolEnable"
    waits_for_nobody = options.in_sync_replicas <= 1 and not options.compat_version.is_4x
    if options.broker_role is BrokerRole.SYNC_MASTER and waits_for_nobody:
        yield "inSyncReplicas: 1 is this store alone; a SYNC_MASTER then waits for no replica"
    counts = (options.total_replicas, options.in_sync_replicas, options.min_in_sync_replicas)
    if list(counts) != sorted(counts, reverse=True):
        yield "inSyncReplicas: not between minInSyncReplicas and totalReplicas"


def _doubt_queues(options: "StoreOptions") -> Iterator[str]:
    if options.enable_lmq != options.enable_multi_dispatch:
        yield "enableLmq, enableMultiDispatch: light queues need both"
    if options.enable_calc_filter_bit_map and not options.enable_consume_queue_ext:
        yield "enableCalcFilterBitMap: bits are kept only with enableConsumeQueueExt"
    if options.auto_message_version_on_topic_len and options.compat_version.is_4x:
        yield f"autoMessageVersionOnTopicLen: {options.compat_version} reads no version 2 records"
    if options.timer_wheel_enable and options.compat_version < CompatVersion.V5_3:
        yield f"timerWheelEnable: {options.compat_version} has no timer"
