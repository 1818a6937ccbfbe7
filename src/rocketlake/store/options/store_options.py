"""StoreOptions: every setting of a store, grouped.

1. Names are the reference's keys in snake case; its own keys work in files and mappings.
2. Defaults are those of 5.5.0; `from_source` takes an older release's where `compat_version` asks
   for one.
3. A value here is one to work with: rounded and held in bounds as the reference does on reading.
4. The text under a field is its line in docs/operations/options.md (tools/make_options_page.py).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from msgspec import Struct, field

from rocketlake.config import Source
from rocketlake.errors import ConfigError
from rocketlake.format import layout
from rocketlake.model.endpoint import Endpoint
from rocketlake.store.options import checks
from rocketlake.store.options.bounds import (
    BrokerRole,
    CompatVersion,
    ErrorPercent,
    FlushMode,
    LongNatural,
    LongPositive,
    Natural,
    Percent,
    Positive,
    StoreType,
)
from rocketlake.store.options.choosing import Choice, choose
from rocketlake.store.options.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels

FILE_SHAPE: Final = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "mapped_file_size_timer_log",
    "max_hash_slot_num",
    "max_index_num",
)
"""Options that the files of a store answer, once there are any."""

_NO_FORMAT_5: Final = {"auto_message_version_on_topic_len": False, "timer_wheel_enable": False}

_OLDER_DEFAULTS: Final[Mapping[CompatVersion, Mapping[str, Any]]] = MappingProxyType(
    {
        CompatVersion.V5_5: {},
        CompatVersion.V5_3: {},
        CompatVersion.V4_9: _NO_FORMAT_5,
        CompatVersion.V4_6: {
            **_NO_FORMAT_5,
            "use_reentrant_lock_when_put_message": False,
            "flush_commit_log_timed": False,
        },
    }
)


class StoreOptions(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of one store. Keys in files are the reference's."""

    # --- bytes on disk: where they are and what they look like ----------------------------------
    store_path_root_dir: str | None = None
    """Directory of the store, unless a program names one."""
    store_path_commit_log: str | None = None
    """Directories of the commit log, separated by commas; unset: `commitlog` in the store."""
    read_only_commit_log_store_paths: str | None = None
    """Directories of the commit log that are read and never written, separated by commas."""
    mapped_file_size_commit_log: Positive = layout.DEFAULT_LOG_FILE_SIZE
    """Bytes of a commit-log file."""
    mapped_file_size_consume_queue: Positive = layout.DEFAULT_QUEUE_FILE_SIZE
    """Bytes of a consume-queue file, rounded up to units of 20."""
    mapper_file_size_batch_consume_queue: Positive = layout.DEFAULT_BATCH_QUEUE_FILE_SIZE
    """Bytes of a batch-consume-queue file, rounded up to units of 46."""
    enable_consume_queue_ext: bool = False
    """Keep extension files beside consume queues: store times and filter bits."""
    mapped_file_size_consume_queue_ext: Positive = layout.DEFAULT_EXT_FILE_SIZE
    """Bytes of a consume-queue extension file."""
    bit_map_length_consume_queue_ext: Natural = 64
    """Bits of a filter bitmap."""
    mapped_file_size_timer_log: Positive = layout.DEFAULT_TIMER_LOG_FILE_SIZE
    """Bytes of a timer-log file."""
    max_hash_slot_num: Positive = layout.DEFAULT_INDEX_SLOTS
    """Hash slots of an index file."""
    max_index_num: Positive = layout.DEFAULT_INDEX_ENTRIES
    """Entries of an index file; the first is never used."""
    max_message_size: Positive = 4 << 20
    """Bytes of the largest body; 4.6: of the largest record."""
    enabled_append_prop_crc: bool = field(name="enabledAppendPropCRC", default=False)
    """Append a checksum of the whole record to its properties."""
    auto_message_version_on_topic_len: bool = True
    """Write records of version 2 where a topic is longer than 127 bytes. 4.x: false."""
    store_type: StoreType = StoreType.DEFAULT
    """Where consume queues are kept; only `default`, files, is supported."""

    # --- compatibility --------------------------------------------------------------------------
    compat_version: CompatVersion = CompatVersion.V5_5
    """Release whose bytes, checks and defaults a store has: 5.5, 5.3, 4.9, 4.6. No RocketMQ key."""
    store_host: str = "127.0.0.1:10911"
    """Host and port written into records and message ids. Not a RocketMQ key."""

    # --- durability: what a put waits for, and what a crash may cost ----------------------------
    flush_disk_type: FlushMode = FlushMode.ASYNC_FLUSH
    """SYNC_FLUSH: a put is answered when it is on disk; ASYNC_FLUSH: when it is in memory."""
    sync_flush_timeout: Positive = 5000
    """Milliseconds a put waits for its flush before FLUSH_DISK_TIMEOUT."""
    flush_interval_commit_log: Positive = 500
    """Milliseconds between flushes of the log with ASYNC_FLUSH."""
    flush_commit_log_timed: bool = True
    """Flush the log by the time alone; otherwise puts and commits may wake it. 4.6: false."""
    flush_commit_log_least_pages: Natural = 4
    """Pages of 4,096 bytes that must be new before the log is flushed."""
    flush_commit_log_thorough_interval: Natural = 10_000
    """Milliseconds after which the log is flushed however little is new."""
    wake_flush_when_put_message: bool = False
    """Wake the flush of the log after every put; needs `flushCommitLogTimed` to be false."""
    commit_interval_commit_log: Positive = 200
    """Milliseconds between commits of write buffers to their files."""
    commit_commit_log_least_pages: Natural = 4
    """Pages that must be new before a write buffer is committed."""
    commit_commit_log_thorough_interval: Natural = 200
    """Milliseconds after which a write buffer is committed however little is new."""
    wake_commit_when_put_message: bool = True
    """Wake the commit of write buffers after every put."""
    flush_interval_consume_queue: Positive = 1000
    """Milliseconds between flushes of the queues."""
    flush_consume_queue_least_pages: Natural = 2
    """Pages that must be new before a queue is flushed."""
    flush_consume_queue_thorough_interval: Natural = 60_000
    """Milliseconds after which every queue and the checkpoint are flushed."""
    enable_running_flags_in_flush: bool = False
    """Mark the store not writable when a flush fails. Added after 5.3.3."""
    check_crc_on_recover: bool = field(name="checkCRCOnRecover", default=True)
    """Check bodies against their checksums on recovery."""
    force_verify_prop_crc: bool = field(name="forceVerifyPropCRC", default=False)
    """Check records against their whole-record checksums; one without it is damaged."""
    message_index_safe: bool = False
    """Let recovery start no later than the index is known to be good."""
    recheck_reput_offset_from_cq: bool = False
    """Let dispatch start where the queues end, not where the log does."""
    recover_concurrently: bool = False
    """Recover queues in several threads."""

    # --- retention ------------------------------------------------------------------------------
    file_reserved_time: Natural = 72
    """Hours a commit-log file is kept after its last change."""
    delete_when: str = "04"
    """Local hours in which expired files are deleted, separated by `;`."""
    clean_resource_interval: Positive = 10_000
    """Milliseconds between looks for files to delete."""
    delete_file_batch_max: Positive = 10
    """Files deleted at one look."""
    delete_commit_log_files_interval: Natural = 100
    """Milliseconds between two deletions of commit-log files."""
    delete_consume_queue_files_interval: Natural = 100
    """Milliseconds between two deletions of consume-queue files."""
    destroy_maped_file_interval_forcibly: Natural = 120_000
    """Milliseconds a deleted file waits for its readers."""
    redelete_hanged_file_interval: Natural = 120_000
    """Milliseconds between attempts to delete a first file that readers held."""
    disk_max_used_space_ratio: Percent = 75
    """Percent of the disk in use beyond which expired files go at any hour; 10 to 95."""
    disk_space_clean_forcibly_ratio: Percent = 85
    """Percent of the disk in use beyond which files go before they expire; 30 to 85."""
    disk_space_warning_level_ratio: Percent = 90
    """Percent of the disk in use beyond which puts are refused; 35 to 90."""
    clean_file_forcibly_enable: bool = True
    """Allow files to go before they expire."""
    replicas_per_disk_partition: Positive = 1
    """Stores that share one disk; each then counts its own files against its share."""
    logical_disk_space_clean_forcibly_threshold: float = 0.8
    """Part of its share beyond which files of such a store go before they expire."""
    disk_free_clean_bytes: LongNatural = 0
    """Free bytes of the disk below which files go before they expire. Not a RocketMQ key."""
    disk_free_refuse_bytes: LongNatural = 0
    """Free bytes of the disk below which puts are refused. Not a RocketMQ key."""
    disk_ratio_enable: bool = True
    """Go by percent of the disk too; otherwise by free bytes alone. Not a RocketMQ key."""
    auto_delete_enable: bool = True
    """Delete files without being asked, by age and by disk use. Not a RocketMQ key."""

    # --- speed ----------------------------------------------------------------------------------
    use_reentrant_lock_when_put_message: bool = True
    """Put under a mutex; otherwise under a spin lock. 4.6: false."""
    topic_queue_lock_num: Positive = 32
    """Locks that the queues of all topics share while offsets are given out."""
    os_page_cache_busy_time_out_mills: LongPositive = 1000
    """Milliseconds in the append lock after which other puts get OS_PAGE_CACHE_BUSY."""
    warm_maped_file_enable: bool = False
    """Touch and lock the pages of a new commit-log file before it is used."""
    flush_least_pages_when_warm_maped_file: Positive = 4096
    """Pages touched between two flushes of a file that is warmed, with SYNC_FLUSH."""
    transient_store_pool_enable: bool = False
    """Put into locked write buffers, which are committed to the files later."""
    transient_store_pool_size: Positive = 5
    """Write buffers, each as large as a commit-log file."""
    fast_fail_if_no_buffer_in_store_pool: bool = False
    """Fail to make a file, instead of waiting, when no write buffer is free."""
    write_without_mmap: bool = False
    """Use no write buffers; records go through the map all the same. Added after 5.3.3."""
    put_consume_queue_data_by_file_channel: bool = True
    """Write consume-queue units by the file's descriptor, not through its map."""
    data_read_ahead_enable: bool = True
    """Let the operating system read ahead in commit-log files."""
    cold_data_flow_control_enable: bool = False
    """Slow down readers of messages that left memory."""
    cold_data_scan_enable: bool = False
    """Look from time to time which pages of the log are in memory."""
    enable_build_consume_queue_concurrently: bool = False
    """Parse the log in several threads for dispatch."""

    # --- reading --------------------------------------------------------------------------------
    max_transfer_bytes_on_message_in_memory: Positive = 262_144
    """Bytes one read returns while its messages are in memory."""
    max_transfer_count_on_message_in_memory: Positive = 32
    """Messages one read returns while they are in memory; an embedded caller may ask for more."""
    max_transfer_bytes_on_message_in_disk: Positive = 65_536
    """Bytes one read returns once its messages left memory."""
    max_transfer_count_on_message_in_disk: Positive = 8
    """Messages one read returns once they left memory; an embedded caller may ask for more."""
    access_message_in_memory_max_ratio: Percent = 40
    """Percent of the machine's memory that the newest part of the log is taken to be in."""
    max_filter_message_size: Positive = 16_000
    """Bytes of queue units one read looks at."""
    travel_cq_file_num_when_get_message: Positive = 1
    """Queue files one read looks at."""
    disk_fall_recorded: bool = True
    """Count how far readers are behind."""
    max_msgs_num_batch: Positive = 64
    """Messages a query by key returns, unless a program asks for another number."""
    default_query_max_num: Positive = 32
    """Messages a client's query by unique key returns."""
    max_consume_queue_scan: Positive = 20_000
    """Units that are looked at before a count of messages becomes an estimate."""
    sample_count_threshold: Positive = 5000
    """Matches among them after which looking ends."""
    max_checksum_range: LongPositive = 1 << 30
    """Bytes of log one checksum may cover."""

    # --- queues, topics and groups --------------------------------------------------------------
    message_index_enable: bool = True
    """Index messages by their keys."""
    index_file_write_enable: bool = True
    """Write the index to files; with false there is none, as without `messageIndexEnable`."""
    index_file_read_enable: bool = True
    """Find messages by key or tag in the index; with false a query finds none."""
    enable_lmq: bool = False
    """Allow light message queues."""
    enable_multi_dispatch: bool = False
    """Dispatch one record to several light queues."""
    max_lmq_consume_queue_num: Positive = 20_000
    """Light queues beyond which puts get LMQ_CONSUME_QUEUE_NUM_EXCEEDED: 4.9, `enableLmqQuota`."""
    enable_lmq_quota: bool = False
    """Refuse new light queues beyond `maxLmqConsumeQueueNum`. Added to RocketMQ after 5.3.3."""
    long_polling_enable: bool = True
    """Tell listeners of messages that arrive."""
    enable_calc_filter_bit_map: bool = False
    """Keep filter bits of SQL92 subscriptions beside queue units."""
    expect_consumer_num_use_filter: Positive = 32
    """Consumer groups with SQL92 subscriptions that the bits are made for."""
    max_error_rate_of_bloom_filter: ErrorPercent = 20
    """Percent of false hits among the bits."""
    filter_support_retry: bool = False
    """Filter messages of retry topics by the properties of their first delivery."""
    auto_create_topic_enable: bool = True
    """Create a topic when the first message for it comes."""
    default_topic_queue_nums: Positive = 8
    """Queues of a topic that is created so."""
    flush_consumer_offset_interval: Positive = 5000
    """Milliseconds between writes of the groups' progress."""
    transaction_time_out: LongPositive = 6000
    """Milliseconds before a half message is asked about."""
    transaction_check_max: Positive = 15
    """How often a half message is asked about before it is dropped."""
    message_store_plug_in: str = ""
    """Wrappers around the store, as dotted paths separated by commas; the first is outermost."""
    mapped_file_class: str = ""
    """Class of the log's files, as a dotted path: a subclass of MappedFile. Not a RocketMQ key."""

    # --- delay ----------------------------------------------------------------------------------
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    """Delay of each level: numbers with s, m, h or d."""
    flush_delay_offset_interval: LongPositive = 10_000
    """Milliseconds between writes of the levels' progress."""
    enable_schedule_async_deliver: bool = False
    """Deliver delayed messages without waiting for each."""
    schedule_async_deliver_max_pending_limit: Positive = 2000
    """Deliveries of one level under way."""
    schedule_async_deliver_max_resend_num2_blocked: Positive = 3
    """Attempts after which a delivery holds up those behind it."""
    timer_wheel_enable: bool = True
    """Accept messages for an arbitrary time. 4.x: false."""
    timer_precision_ms: Positive = 1000
    """Milliseconds of a slot of the wheel: 100, 200, 500 or 1,000; others are rounded down."""
    timer_max_delay_sec: Positive = 259_200
    """Seconds a message may be delayed by."""
    timer_roll_window_slot: Positive = 172_800
    """Slots ahead beyond which a message is first set to a nearer time."""
    timer_congest_num_each_slot: Positive = layout.MAX_I32
    """Messages in a slot beyond which more are refused at random, beyond twice as many always."""
    timer_flush_interval_ms: Positive = 1000
    """Milliseconds between flushes of the timer's files."""

    # --- replication ----------------------------------------------------------------------------
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    """ASYNC_MASTER, SYNC_MASTER (puts wait for replicas) or SLAVE (a replica: puts are refused)."""
    slave_timeout: Positive = 3000
    """Milliseconds a put waits for replicas before FLUSH_SLAVE_TIMEOUT."""
    total_replicas: Positive = 1
    """Copies of the store, itself among them."""
    in_sync_replicas: Positive = 1
    """Copies that must have a message, the store itself among them."""
    min_in_sync_replicas: Positive = 1
    """Copies that must follow; `enableAutoInSyncReplicas` does not go below."""
    enable_auto_in_sync_replicas: bool = False
    """Ask for fewer copies while fewer are there."""
    offset_check_in_slave: bool = False
    """Correct the offsets of readers on a replica too."""
    slave_read_enable: bool = False
    """Send readers that are far behind to a replica."""
    duplication_enable: bool = False
    """Take puts on a replica too; the confirmed offset is set from outside."""
    read_un_committed: bool = False
    """Dispatch beyond the confirmed offset."""

    def __post_init__(self) -> None:
        """Round and bound as the reference does, then refuse what cannot work."""
        checks.replace_ineffective(self)
        checks.refuse(self)

    @classmethod
    def choose(cls, source: Source | None = None, **keywords: object) -> Choice:
        """Return what a broker.conf, JSON text or mapping and keyword arguments set.

        Raises:
            ConfigError: the source cannot be read, or a key or a value is wrong.
        """
        return choose(cls, source, keywords)

    @classmethod
    def complete(cls, choice: Choice, *weaker: Mapping[str, object]) -> Self:
        """Fill a choice up: from weaker sets of options, the stronger first, then by defaults.

        Raises:
            ConfigError: a key or a value is wrong, or values do not go together.
        """
        values: dict[str, Any] = {}
        for preset in reversed(weaker):
            values |= choose(cls, None, preset).values
        values |= choice.values
        version = values.get("compat_version", CompatVersion.V5_5)
        assert isinstance(version, CompatVersion), "a choice is converted"
        try:
            return cls(**{**_OLDER_DEFAULTS[version], **values})
        except ValueError as error:
            raise ConfigError(f"{choice.source}: {error}") from error

    @classmethod
    def from_source(
        cls,
        source: Source | None = None,
        *,
        preset: Mapping[str, object] | None = None,
        **keywords: object,
    ) -> Self:
        """Read options; strongest first: keyword arguments, the source, the preset, defaults.

        Raises:
            ConfigError: the source cannot be read, a key or a value is wrong, or values do not go
                together.
        """
        return cls.complete(choose(cls, source, keywords), preset or {})

    def warnings(self) -> tuple[str, ...]:
        """Say, key first, what is allowed and probably not meant."""
        return tuple(checks.doubts(self))

    @property
    def record_size_max(self) -> int:
        """Bytes of the largest record that a put accepts."""
        # Compat: MessageExtEncoder keeps 64 KiB for what is not body; 4.6 does not.
        beside_body = 0 if self.compat_version is CompatVersion.V4_6 else 64 << 10
        return min(self.max_message_size + beside_body, layout.MAX_I32)

    @property
    def uses_write_buffers(self) -> bool:
        """Tell whether puts go into write buffers first."""
        if not self.transient_store_pool_enable or self.write_without_mmap:
            return False
        is_flushed_later = self.flush_disk_type is FlushMode.ASYNC_FLUSH
        # Compat: MessageStoreConfig of 4.x has write buffers only with ASYNC_FLUSH.
        return self.broker_role is not BrokerRole.SLAVE and (
            is_flushed_later or not self.compat_version.is_4x
        )

    @property
    def has_index(self) -> bool:
        """Tell whether the store keeps an index."""
        return self.message_index_enable and self.index_file_write_enable

    @property
    def wakes_flush(self) -> bool:
        """Tell whether a put wakes the flush of the log."""
        return self.wake_flush_when_put_message and not self.flush_commit_log_timed

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Milliseconds of each delay level; level 1 is the first."""
        return tuple(parse_delay_levels(self.message_delay_level))

    @property
    def delete_hours(self) -> frozenset[int]:
        """Local hours in which expired files are deleted."""
        return checks.parse_hours(self.delete_when)

    @property
    def store_endpoint(self) -> Endpoint:
        """Host and port written into records."""
        return Endpoint.parse(self.store_host)

    @property
    def plug_ins(self) -> tuple[str, ...]:
        """Dotted paths of the wrappers around the store, the outermost first."""
        return tuple(part.strip() for part in self.message_store_plug_in.split(",") if part.strip())
