"""open_store: wires engine, delay and tables for one program.

1. Wrong options are refused first, before any file is made.
2. Sizes come from the files of an existing store; other sizes in the options are refused.
3. Tables are read again when the lock is held: a process that closed the store just before may
   have written them.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias, overload

from msgspec import Struct, structs

from rocketlake.clock import Clock, SystemClock
from rocketlake.config import Source
from rocketlake.delay.services import DelayServices
from rocketlake.delay.store_access import DelayStore
from rocketlake.delay.switch import DelaySwitch
from rocketlake.embedded.archive_hold import ArchiveHold, parse_archive
from rocketlake.embedded.catalog import CurrentCatalog
from rocketlake.embedded.consumer.groups import Groups
from rocketlake.embedded.extensions import Extensions
from rocketlake.embedded.external_dispatch import ExternalDispatchDelayStore, ExternalDispatchEngine
from rocketlake.embedded.plug_ins import Engine, PlugInContext, find_plug_ins, wrap
from rocketlake.embedded.read_only import ReadOnlyStore
from rocketlake.embedded.resolve_options import kept_options, log_paths, preset_of, resolve_options
from rocketlake.embedded.shared_filters import SharedFilters
from rocketlake.embedded.store import Store, StoreParts
from rocketlake.embedded.tables import TableKeeper, cap_progress
from rocketlake.embedded.topic_registry import TopicRegistry
from rocketlake.errors import ConfigError, StoreClosedError
from rocketlake.files.local_path import local_path
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.format import names
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.groups import GroupBook
from rocketlake.metadata.offsets import LightOffsetBook, OffsetBook
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.topics import is_lmq, is_system_topic
from rocketlake.store import exit_hook
from rocketlake.store.assembly import Base
from rocketlake.store.disk.log_dirs import open_dirs
from rocketlake.store.dispatch.arrivals import ArrivalRelay
from rocketlake.store.lifecycle import Progress
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import BrokerRole, Choice, ReadOptions, StoreOptions
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, PutHook

log = logging.getLogger(__name__)

AnyPath: TypeAlias = str | os.PathLike[str]
Dispatch: TypeAlias = Literal["internal", "external"]
"""What writes queues and index: the store itself, or a dispatch job."""


@overload
def open_store(
    path: AnyPath | None = None,
    conf: Source | None = None,
    *,
    read_only: Literal[False] = False,
    dispatch: Dispatch = "internal",
    clock: Clock | None = None,
    on_progress: Progress | None = None,
    keep_until_archived: AnyPath | None = None,
    hooks: Sequence[PutHook] = (),
    arrival_listeners: Sequence[ArrivalListener] = (),
    dispatchers: Sequence[CustomDispatcher] = (),
    raise_on_failure: bool = True,
    **options: object,
) -> Store: ...
@overload
def open_store(
    path: AnyPath | None = None,
    conf: Source | None = None,
    *,
    read_only: Literal[True],
    dispatch: Dispatch = "internal",
    clock: Clock | None = None,
    on_progress: Progress | None = None,
    keep_until_archived: AnyPath | None = None,
    hooks: Sequence[PutHook] = (),
    arrival_listeners: Sequence[ArrivalListener] = (),
    dispatchers: Sequence[CustomDispatcher] = (),
    raise_on_failure: bool = True,
    **options: object,
) -> ReadOnlyStore: ...
@overload
def open_store(
    path: AnyPath | None = None,
    conf: Source | None = None,
    *,
    read_only: bool,
    dispatch: Dispatch = "internal",
    clock: Clock | None = None,
    on_progress: Progress | None = None,
    keep_until_archived: AnyPath | None = None,
    hooks: Sequence[PutHook] = (),
    arrival_listeners: Sequence[ArrivalListener] = (),
    dispatchers: Sequence[CustomDispatcher] = (),
    raise_on_failure: bool = True,
    **options: object,
) -> Store | ReadOnlyStore: ...
def open_store(  # noqa: PLR0913 - one parameter for each choice
    path: AnyPath | None = None,
    conf: Source | None = None,
    *,
    read_only: bool = False,
    dispatch: Dispatch = "internal",
    clock: Clock | None = None,
    on_progress: Progress | None = None,
    keep_until_archived: AnyPath | None = None,
    hooks: Sequence[PutHook] = (),
    arrival_listeners: Sequence[ArrivalListener] = (),
    dispatchers: Sequence[CustomDispatcher] = (),
    raise_on_failure: bool = True,
    **options: object,
) -> Store | ReadOnlyStore:
    """Open a message store; a missing directory is created.

    Options are RocketMQ's keys in snake case (`flush_disk_type="SYNC_FLUSH"`), or come from `conf`:
    a broker.conf, JSON text or a dictionary; keyword arguments override it. With a broker.conf (a
    file) RocketMQ's defaults apply (file sizes, 8 queues per topic, deletion by age and disk use),
    otherwise the embedded preset. The default `path` is `storePathRootDir`, or `~/store` if a
    broker.conf does not set it.

    With `read_only=True` any store can be opened, even while another process has it open, and no
    byte of it is changed. Messages are kept for ever unless an option or a broker.conf says
    otherwise (docs/operations/retention.md). A store that was not closed is recovered, which may
    take a while: `on_progress` gets the number of log bytes read, and of all.

    With `keep_until_archived`, the directory of an archive (docs/spark/archive.md), a log file is
    not deleted before the archive has its messages; `BROKER=DIR` if the archive knows the store
    under another name than its directory's. With `dispatch="external"` a dispatch job writes queues
    and index (docs/spark/jobs.md). `hooks`, `arrival_listeners` and `dispatchers` extend the store
    (docs/embedded.md, rocketlake.store.ports).

    A put that fails raises PutFailedError. With `raise_on_failure=False` it returns a receipt with
    RocketMQ's status instead, which the caller must check.

    Raises:
        ConfigError: an option is unknown, wrong, or contradicts the files of the store.
        StoreLockedError: another process, or this one, has it open for writing.
        StoreNotFoundError: the directory does not exist.
        StoreError: the files cannot be used.
    """
    extensions = Extensions.of(hooks, arrival_listeners, dispatchers, read_only=read_only)
    choice = StoreOptions.choose(conf, **options)
    root = root_of(path, choice)
    _check(dispatch, keep_until_archived, root)
    if read_only:
        return _open_read_only(root, choice)
    settings = OpenSettings(
        ops=PosixFileOps(),
        clock=clock or SystemClock(),
        kept=kept_options(choice),
        on_progress=on_progress,
        archive=keep_until_archived,
        is_external=dispatch == "external",
        extensions=extensions,
        raises=raise_on_failure,
    )
    return open_writable(root, choice, settings)


def _check(dispatch: str, archive: AnyPath | None, root: Path) -> None:
    if dispatch not in {"internal", "external"}:
        raise ConfigError(f"dispatch = {dispatch!r}: wanted 'internal' or 'external'")
    if archive is not None:
        parse_archive(archive, root)


def root_of(path: AnyPath | None, choice: Choice) -> Path:
    """Return the directory of a store, as a caller or its options name it.

    Raises:
        ConfigError: neither does.
    """
    found = path if path is not None else choice.values.get("store_path_root_dir")
    if found is None and choice.is_broker_conf:
        # Compat: the default of storePathRootDir is `store` in the home of the user.
        return Path.home() / "store"
    if not found:  # an empty text, too: it would be the current directory
        raise ConfigError('no path: open_store("data/store"), or set storePathRootDir')
    return local_path(found)


# --- read only -----------------------------------------------------------------------------------


def _open_read_only(root: Path, choice: Choice) -> ReadOnlyStore:
    options = ReadOptions.of(choice)
    paths = log_paths(root, choice.values)
    dirs = () if paths is None else (*paths.writable, *paths.read_only)
    return ReadOnlyStore(root, options, log_dirs=dirs, unused_options=choice.unused)


# --- writing -------------------------------------------------------------------------------------


class OpenSettings(Struct, frozen=True, kw_only=True):
    """How a store is opened, besides its options."""

    ops: FileOps
    """The file system, possibly a simulated one."""
    clock: Clock
    kept: Mapping[str, object] = {}
    """Options that keep messages, where no other was chosen."""
    on_progress: Progress | None = None
    archive: AnyPath | None = None
    """Messages that are not in this archive yet are kept."""
    delivers: bool = True
    """Whether delayed messages are delivered."""
    is_external: bool = False
    """Whether a dispatch job writes queues and index."""
    raises: bool = True
    """Whether a failed put raises; otherwise its receipt has a status."""
    extensions: Extensions = Extensions()
    """The hooks, listeners and dispatchers of the program."""


def open_writable(root: Path, choice: Choice, settings: OpenSettings) -> Store:
    """Open a store for writing."""
    return open_with_parts(root, choice, settings)[0]


def open_with_parts(
    root: Path, choice: Choice, settings: OpenSettings
) -> tuple[Store, Engine, StoreParts]:
    """Open a store for writing; return it, its engine, and its other parts.

    An exception in the calling thread (Ctrl-C) leaves the store closed.
    """
    worker = ShieldedWorker("rocketlake-store")
    outcome = _Outcome()
    try:
        return worker.run(
            lambda: _open_unless_abandoned(root, choice, settings, worker=worker, outcome=outcome)
        )
    except BaseException:
        # Why: the exception did not interrupt the worker, which may have opened the store, or may
        # still do so.
        outcome.is_abandoned = True
        if outcome.store is not None:
            outcome.store.close()
        worker.end()
        raise


class _Outcome:
    """The outcome of an opening, shared by the thread that opens and the one that waits.

    Each writes its own field first and then reads the other's: at least one of them closes the
    store.
    """

    __slots__ = ("is_abandoned", "store")

    def __init__(self) -> None:
        self.store: Store | None = None
        self.is_abandoned = False

    def require_caller(self, root: Path) -> None:
        """Raise if the caller was interrupted."""
        if self.is_abandoned:
            raise StoreClosedError(f"{root} is not opened: the caller was interrupted")


def _open_unless_abandoned(
    root: Path,
    choice: Choice,
    settings: OpenSettings,
    *,
    worker: ShieldedWorker,
    outcome: _Outcome,
) -> tuple[Store, Engine, StoreParts]:
    outcome.require_caller(root)
    opened = _open_shielded(root, choice, settings, worker)
    outcome.store = opened[0]
    if outcome.is_abandoned:
        opened[0].close()
    return opened


def _open_shielded(
    root: Path, choice: Choice, settings: OpenSettings, worker: ShieldedWorker
) -> tuple[Store, Engine, StoreParts]:
    ops, clock, is_external = settings.ops, settings.clock, settings.is_external
    asked = StoreOptions.complete(choice, preset_of(choice))
    plug_ins = find_plug_ins(asked.plug_ins)
    # Why: the program may change its directory, and files are created at any time.
    root = root.absolute()
    directory, paths = open_dirs(ops, root, log_paths(root, choice.values))
    options = resolve_options(directory, choice, settings.kept)
    location = TableLocation(ops, clock, root / names.CONFIG, is_4x=options.compat_version.is_4x)
    catalog = CurrentCatalog(TopicBook.load(location))
    base = Base(
        directory=directory,
        paths=paths,
        options=options,
        clock=clock,
        catalog=catalog,
        is_external=is_external,
        worker=worker,
    )
    engine = MessageStore(base)
    filters = SharedFilters(location, options, is_external=is_external)
    bits = filters.dispatcher()
    if bits is not None:
        # Order: before the start, which writes units, too.
        engine.add_dispatcher(bits, is_first=True)
    settings.extensions.attach_early(engine)
    engine.start(settings.on_progress)
    with ExitStack() as undo:
        undo.callback(engine.close)
        settings.extensions.attach(engine)
        if settings.archive is not None:
            # Order: before its first round, which is a minute after the start.
            archive, broker = parse_archive(settings.archive, root)
            engine.retention.hold("archive", ArchiveHold(ops, engine.queues, archive, broker))
        catalog.book = TopicBook.load(location)
        external = ExternalDispatchEngine(engine) if is_external else None
        outer = wrap(external or engine, plug_ins, _plug_in_context(engine))
        delay_store = _make_delay_store(engine, outer, external)
        parts = _make_parts(
            engine,
            delay_store,
            topic_book=catalog.book,
            filters=filters,
            location=location,
            worker=worker,
            delivers=settings.delivers,
        )
        store = Store(
            outer, parts, path=root, unused_options=choice.unused, raise_on_failure=settings.raises
        )
        undo.callback(parts.topics.close)
        for service in parts.services:
            service.start()
            undo.callback(service.close)
        undo.pop_all()
    exit_hook.register(store)
    return store, outer, parts


def _plug_in_context(engine: MessageStore) -> PlugInContext:
    return PlugInContext(
        path=engine.directory.root,
        options=engine.options,
        clock=engine.clock,
        stats=engine.stats,
        arrival_listener=ArrivalRelay(engine.dispatcher.listeners),
    )


def _make_delay_store(
    engine: MessageStore, outer: Engine, external: ExternalDispatchEngine | None
) -> DelayStore:
    if external is not None:
        return ExternalDispatchDelayStore(external, outer.put)
    return DelayStore(outer.put, engine.sync, queues=engine.queues, log=engine.log)


def _make_parts(
    engine: MessageStore,
    delay_store: DelayStore,
    *,
    topic_book: TopicBook,
    filters: SharedFilters,
    location: TableLocation,
    worker: ShieldedWorker,
    delivers: bool,
) -> StoreParts:
    options = engine.options
    has_light = options.enable_lmq and options.enable_multi_dispatch
    offsets = (LightOffsetBook if has_light else OffsetBook).load(
        structs.replace(location, flush_log=engine.sync)
    )
    topics = TopicRegistry(
        topic_book,
        worker,
        default_queues=options.default_topic_queue_nums,
        may_create=options.auto_create_topic_enable,
    )
    groups = Groups(topics.readable_queues)
    topics.on_change = groups.topic_changed
    _adopt_topics(topics, engine)
    delay = _make_delay(engine, delay_store, location)
    recovery = engine.recovery
    assert recovery is not None, "the engine was started"
    notes = cap_progress(offsets, delay, recovery.queue_offsets)
    engine.add_hook(delay)
    engine.add_listener(delay)
    engine.add_role_listener(delay)
    engine.add_listener(groups)
    group_book = GroupBook.load(location)
    books = [topic_book, offsets, group_book, filters.book]
    keeper = TableKeeper(books, interval_ms=options.flush_consumer_offset_interval)
    return StoreParts(
        core=engine,
        topics=topics,
        offsets=offsets,
        groups=groups,
        filters=filters,
        group_book=group_book,
        delay=delay,
        # Order: no more deliveries, then the last write of the tables.
        services=(delay, keeper) if delivers else (keeper,),
        gauges=lambda: _delay_gauges(delay),
        recovery=structs.replace(recovery, notes=(*recovery.notes, *notes)),
        worker=worker,
    )


def _make_delay(
    engine: MessageStore, delay_store: DelayStore, location: TableLocation
) -> DelaySwitch:
    """Make the delay services; they deliver while the store accepts puts."""
    # Why not the role of the store: a replica delivers nothing, and its role may change.
    options = structs.replace(engine.options, broker_role=BrokerRole.ASYNC_MASTER)
    root, ops, clock = engine.directory.root, location.ops, location.clock
    return DelaySwitch(
        lambda: DelayServices(delay_store, root, options, ops=ops, clock=clock),
        engine.parts.offsets.next_offset,
        is_replica=engine.options.broker_role is BrokerRole.SLAVE,
    )


def _delay_gauges(delay: DelaySwitch) -> dict[str, str]:
    """Return, by the reference's names, how far delayed messages were delivered."""
    found = {
        f"scheduleMessageOffset_{level}": f"{delivered},{end}"
        for level, (delivered, end) in delay.levels.progress().items()
    }
    if delay.timer is not None:
        found["timerReadBehind"] = str(delay.timer.behind_ms // 1000)
    return found


def _adopt_topics(topics: TopicRegistry, engine: MessageStore) -> None:
    """Add topics that have queues, but no entry in the table.

    The table was lost, or the process was killed between the first message of a topic and its
    entry. A delete removes the queues of a topic before its entry.
    """
    counts: dict[str, int] = {}
    for key in dict(engine.queues.items()):
        counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
    for topic, count in sorted(counts.items()):
        if topics.book.get(topic) is None and not is_system_topic(topic) and not is_lmq(topic):
            topics.adopt(topic, count)
