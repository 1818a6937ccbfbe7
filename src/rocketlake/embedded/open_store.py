"""open_store: wires engine, delay and tables for one program.

1. What can be refused without a file is refused first: nothing is made for a wrong option.
2. Sizes come from the files of a store that is there; a caller who names others is refused.
3. Tables are read once more when the lock is held: who closed the store just before may have
   written them since.
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
from rocketlake.delay.store_access import StoreDoor
from rocketlake.delay.switch import DelaySwitch
from rocketlake.embedded.archive_hold import ArchiveHold, parse_archive
from rocketlake.embedded.catalog import CurrentCatalog
from rocketlake.embedded.consumer.groups import Groups
from rocketlake.embedded.extensions import Extensions
from rocketlake.embedded.external_dispatch import ExternalDispatchDelayStore, ExternalDispatchEngine
from rocketlake.embedded.plug_ins import PlugInContext, find_plug_ins, wrap
from rocketlake.embedded.ports import Engine
from rocketlake.embedded.read_only import ReadOnlyStore
from rocketlake.embedded.resolve_options import kept_options, log_paths, preset_of, resolve_options
from rocketlake.embedded.shared_filters import SharedFilters
from rocketlake.embedded.store import Store, StoreParts
from rocketlake.embedded.tables import TableKeeper, cap_progress
from rocketlake.embedded.topic_registry import TopicRegistry
from rocketlake.errors import ConfigError, StoreClosedError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.format import names
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.groups import GroupBook, SubscriptionGroup
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
"""Who brings records to queues and index: the store, or a dispatch job."""


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
def open_store(  # noqa: PLR0913 - the door has as many parameters as it has choices
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
    """Open a message store; a directory that is not there is made.

    Options are RocketMQ's keys in snake case (`flush_disk_type="SYNC_FLUSH"`), or come with `conf`:
    a broker.conf, JSON text or a dictionary; keyword arguments are stronger. With a broker.conf (a
    file) what is not set is as in RocketMQ: files of its sizes, 8 queues for a new topic, deletion
    by age and disk use; otherwise the embedded preset holds. Without `path` the store is where
    `storePathRootDir` says, and with a broker.conf that does not say, in `~/store`.

    With `read_only=True` any store can be opened, also one that another process has open, and no
    byte of it is changed. Messages are kept for ever unless an option or a broker.conf says
    otherwise (docs/operations/retention.md). A store that was not closed is recovered, which may
    take a while: `on_progress` is told how many bytes of the log were read, and of how many.

    With `keep_until_archived`, the directory of an archive (docs/spark/archive.md), no log file
    goes whose messages the archive is to have and has not; `BROKER=DIR` if it knows the store by
    another name than that of its directory. With `dispatch="external"` queues and index are left to
    a dispatch job (docs/spark/jobs.md). `hooks`, `arrival_listeners` and `dispatchers` take part in
    what the store does (docs/embedded.md, rocketlake.store.ports).

    A put that fails raises PutFailedError. With `raise_on_failure=False` it returns a receipt with
    RocketMQ's status instead, and the caller looks at it.

    Raises:
        ConfigError: an option is unknown, wrong, or contradicts the files of the store.
        StoreLockedError: another process, or this one, has it open for writing.
        StoreNotFoundError: there is nothing to read.
        StoreError: the files cannot be used.
    """
    _check_dispatch(dispatch)
    attached = Extensions.of(hooks, arrival_listeners, dispatchers, read_only=read_only)
    choice = StoreOptions.choose(conf, **options)
    root = root_of(path, choice)
    if keep_until_archived is not None:
        parse_archive(keep_until_archived, root)
    if read_only:
        return _open_read_only(root, choice)
    opening = OpenSettings(
        *(PosixFileOps(), clock or SystemClock(), kept_options(choice)),
        on_progress=on_progress,
        archive=keep_until_archived,
        is_external=dispatch == "external",
        attached=attached,
        raises=raise_on_failure,
    )
    return open_writable(root, choice, opening)


def _check_dispatch(dispatch: str) -> None:
    if dispatch not in {"internal", "external"}:
        raise ConfigError(f"dispatch = {dispatch!r}: wanted 'internal' or 'external'")


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
    return Path(found)


# --- read only -----------------------------------------------------------------------------------


def _open_read_only(root: Path, choice: Choice) -> ReadOnlyStore:
    options = ReadOptions.of(choice)
    paths = log_paths(root, choice.values)
    dirs = () if paths is None else (*paths.writable, *paths.read_only)
    return ReadOnlyStore(root, options, log_dirs=dirs, unused_options=choice.unused)


# --- writing -------------------------------------------------------------------------------------


class OpenSettings(Struct, frozen=True):
    """What a store is opened with beside its options."""

    ops: FileOps
    """The files of a machine, or of a simulated one."""
    clock: Clock
    kept: Mapping[str, object] = {}
    """Options that keep messages, where nobody asked for anything else."""
    on_progress: Progress | None = None
    archive: AnyPath | None = None
    """What is not in there yet is kept."""
    delivers: bool = True
    """Deliver delayed messages that are due."""
    is_external: bool = False
    """Queues and index are left to a dispatch job."""
    raises: bool = True
    """A put that fails raises; otherwise its receipt has a status."""
    attached: Extensions = Extensions()
    """The hooks, listeners and dispatchers of the program."""


def open_writable(root: Path, choice: Choice, opening: OpenSettings) -> Store:
    """Open a store for writing."""
    return open_with_parts(root, choice, opening)[0]


def open_with_parts(
    root: Path, choice: Choice, opening: OpenSettings
) -> tuple[Store, Engine, StoreParts]:
    """Open a store for writing; return it, its engine, and what else it is made of.

    An exception in the calling thread (Ctrl-C) leaves the store closed.
    """
    worker = ShieldedWorker("rocketlake-store")
    outcome = _Outcome()
    try:
        return worker.run(lambda: _open_unless_given_up(root, choice, opening, (worker, outcome)))
    except BaseException:
        # Why: what interrupted this thread did not interrupt the worker, which may have succeeded,
        # or does so later.
        outcome.is_given_up = True
        if outcome.store is not None:
            outcome.store.close()
        worker.end()
        raise


class _Outcome:
    """What became of an opening, as the thread that opens and the one that waits tell each other.

    Each says its own first and then looks at the other's: at least one of them closes the store.
    """

    __slots__ = ("is_given_up", "store")

    def __init__(self) -> None:
        self.store: Store | None = None
        self.is_given_up = False

    def require_caller(self, root: Path) -> None:
        """Refuse to go on for a caller that was interrupted."""
        if self.is_given_up:
            raise StoreClosedError(f"{root} is not opened: the caller was interrupted")


def _open_unless_given_up(
    root: Path, choice: Choice, opening: OpenSettings, shield: tuple[ShieldedWorker, _Outcome]
) -> tuple[Store, Engine, StoreParts]:
    worker, outcome = shield
    outcome.require_caller(root)
    opened = _open_shielded(root, choice, opening, worker)
    outcome.store = opened[0]
    if outcome.is_given_up:
        opened[0].close()
    return opened


def _open_shielded(
    root: Path, choice: Choice, opening: OpenSettings, worker: ShieldedWorker
) -> tuple[Store, Engine, StoreParts]:
    ops, clock, is_external = opening.ops, opening.clock, opening.is_external
    asked = StoreOptions.complete(choice, preset_of(choice))
    plug_ins = find_plug_ins(asked.plug_ins)
    # Why: the program may go to another directory, and files are made all the time.
    root = root.absolute()
    directory, paths = open_dirs(ops, root, log_paths(root, choice.values))
    options = resolve_options(directory, choice, opening.kept)
    place = TableLocation(ops, clock, root / names.CONFIG, is_4x=options.compat_version.is_4x)
    catalog = CurrentCatalog(TopicBook.load(place))
    base = Base(
        directory=directory,
        paths=paths,
        options=options,
        clock=clock,
        catalog=catalog,
        is_outside=is_external,
        worker=worker,
    )
    engine = MessageStore(base)
    filters = SharedFilters(place, options, is_external=is_external)
    bits = filters.dispatcher()
    if bits is not None:
        # Order: before the start, which makes units too.
        engine.add_dispatcher(bits, is_first=True)
    opening.attached.attach_early(engine)
    engine.start(opening.on_progress)
    with ExitStack() as undo:
        undo.callback(engine.close)
        opening.attached.attach(engine)
        if opening.archive is not None:
            # Order: before its first round, which is a minute after the start.
            place_of, broker = parse_archive(opening.archive, root)
            engine.retention.hold("archive", ArchiveHold(ops, engine.queues, place_of, broker))
        catalog.book = TopicBook.load(place)
        outside = ExternalDispatchEngine(engine) if is_external else None
        outer = wrap(outside or engine, plug_ins, _plug_in_context(engine))
        door = _make_door(engine, outer, outside)
        parts = _make_parts(
            engine,
            door,
            tables=(catalog.book, filters),
            place=place,
            worker=worker,
            delivers=opening.delivers,
        )
        store = Store(
            outer, parts, path=root, unused_options=choice.unused, raise_on_failure=opening.raises
        )
        for part in parts.parts:
            part.start()
            undo.callback(part.close)
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


def _make_door(
    engine: MessageStore, outer: Engine, outside: ExternalDispatchEngine | None
) -> StoreDoor:
    if outside is not None:
        return ExternalDispatchDelayStore(outside, outer.put)
    return StoreDoor(outer.put, engine.sync, queues=engine.queues, log=engine.log)


def _make_parts(
    engine: MessageStore,
    door: StoreDoor,
    *,
    tables: tuple[TopicBook, SharedFilters],
    place: TableLocation,
    worker: ShieldedWorker,
    delivers: bool,
) -> StoreParts:
    options = engine.options
    book, filters = tables
    has_light = options.enable_lmq and options.enable_multi_dispatch
    offsets = (LightOffsetBook if has_light else OffsetBook).load(
        structs.replace(place, flush_log=engine.sync)
    )
    topics = TopicRegistry(book, worker, default_queues=options.default_topic_queue_nums)
    groups = Groups(topics.readable_queues)
    topics.on_change = groups.topic_changed
    _adopt_topics(topics, engine)
    delay = _make_delay(engine, door, place)
    recovery = engine.recovery
    assert recovery is not None, "the engine was started"
    notes = cap_progress(offsets, delay, recovery.queue_offsets)
    engine.add_hook(delay)
    engine.add_listener(delay)
    engine.add_role_listener(delay)
    engine.add_listener(groups)
    group_book = GroupBook.load(place)
    books = [book, offsets, group_book, filters.book]
    keeper = TableKeeper(books, interval_ms=options.flush_consumer_offset_interval)
    return StoreParts(
        core=engine,
        topics=topics,
        offsets=offsets,
        groups=groups,
        filters=filters,
        group_book=group_book,
        delay=delay,
        # Order: no more topics, no more deliveries, then the tables for the last time.
        parts=(topics, delay, keeper) if delivers else (topics, keeper),
        gauges=lambda: _delay_gauges(delay),
        # Compat: as a broker with autoCreateSubscriptionGroup, which is its default.
        ensure_group=lambda group: group_book.create(SubscriptionGroup(name=group)),
        recovery=structs.replace(recovery, notes=(*recovery.notes, *notes)),
        worker=worker,
    )


def _make_delay(engine: MessageStore, door: StoreDoor, place: TableLocation) -> DelaySwitch:
    """Make what delays messages; the services deliver while the store takes puts."""
    # Why not the store's own: those of a replica deliver nothing, and its role may change.
    options = structs.replace(engine.options, broker_role=BrokerRole.ASYNC_MASTER)
    root, ops, clock = engine.directory.root, place.ops, place.clock
    return DelaySwitch(
        lambda: DelayServices(door, root, options, ops=ops, clock=clock),
        engine.parts.offsets.next_offset,
        is_replica=engine.options.broker_role is BrokerRole.SLAVE,
    )


def _delay_gauges(delay: DelaySwitch) -> dict[str, str]:
    """Say, by the reference's names, how far delayed messages were delivered."""
    found = {
        f"scheduleMessageOffset_{level}": f"{delivered},{end}"
        for level, (delivered, end) in delay.levels.progress().items()
    }
    if delay.timer is not None:
        found["timerReadBehind"] = str(delay.timer.behind_ms // 1000)
    return found


def _adopt_topics(topics: TopicRegistry, engine: MessageStore) -> None:
    """Make topics of queues whose topic is not in the table.

    The table was lost, or the process was killed between the first message of a topic and its
    entry. Whoever deletes a topic removes its queues first.
    """
    counts: dict[str, int] = {}
    for key in dict(engine.queues.items()):
        counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
    for topic, count in sorted(counts.items()):
        if topics.book.get(topic) is None and not is_system_topic(topic) and not is_lmq(topic):
            topics.adopt(topic, count)
