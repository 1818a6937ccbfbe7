"""ServerStore: a store for a server, with RocketMQ's defaults.

The engine takes requests as clients encoded them (`put_fields`, `non_blocking`) and returns bytes
of the log (`get_raw`). Beside it are the tables of a broker and the delay services.
"""

from collections.abc import Sequence

from msgspec import structs

from rocketlake.clock import Clock, SystemClock
from rocketlake.closing import Closing
from rocketlake.config import Source
from rocketlake.embedded.extensions import Extensions
from rocketlake.embedded.open_store import AnyPath, OpenSettings, open_with_parts, root_of
from rocketlake.embedded.resolve_options import kept_options
from rocketlake.embedded.store import Store, StoreParts
from rocketlake.files.ops import PosixFileOps
from rocketlake.store.lifecycle import Progress
from rocketlake.store.options import BrokerRole, StoreOptions
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, PutHook
from rocketlake.store.recovery.parts import RecoveryReport


class ServerStore(Closing):
    """An open store of a server. Made by `open_server_store`.

    Puts return RocketMQ's statuses; a refused message raises nothing.

    Thread-safety: any thread may call anything.

    Durability: as that of the engine. Tables are written periodically, by `persist`, and when the
    store is closed.
    """

    def __init__(self, store: Store, parts: StoreParts) -> None:
        self._store = store
        self.path = store.path
        self.unused_options = store.unused_options
        """Keys that were set and have no effect on this store; the options page says why."""
        self.engine = parts.core
        """Takes requests and returns answers; docs/server.md."""
        self.topics = parts.topics
        """Topics and their queues. The engine checks neither: a put may name any queue."""
        self.groups = parts.group_book
        """Consumer groups (subscriptionGroup.json)."""
        self.offsets = parts.offsets
        """Progress of groups, by topic and group (consumerOffset.json)."""
        self.filters = parts.filters
        """SQL92 subscriptions (consumerFilter.json)."""
        self.delay = parts.delay
        """Delivers delayed messages while the store accepts puts."""

    @property
    def options(self) -> StoreOptions:
        """Every setting, defaults included."""
        return self.engine.options

    @property
    def recovery(self) -> RecoveryReport | None:
        """What the start found and did."""
        return self._store.recovery

    @property
    def is_open(self) -> bool:
        """Whether the store was not closed."""
        return self._store.is_open

    @property
    def role(self) -> BrokerRole:
        """The current role of the store."""
        return self.engine.role

    def change_role(self, role: BrokerRole) -> None:
        """Become a replica or a primary; see `MessageStore.change_role`."""
        self.engine.change_role(role)

    def info(self) -> dict[str, str]:
        """Return counters and gauges as they are now, by RocketMQ's names.

        Raises:
            StoreClosedError: the store is closed.
        """
        return self._store.info()

    def persist(self) -> None:
        """Bring the log and the tables to disk.

        Raises:
            StoreClosedError: the store is closed.
            StorePoisonedError: a flush failed, now or before.
        """
        self._store.flush()
        for book in (self.groups, self.filters.book):
            book.persist()

    def close(self) -> None:
        """Stop delivering, write the tables, bring everything to disk; as `Store.close`."""
        self._store.close()


def open_server_store(
    path: AnyPath | None = None,
    conf: Source | None = None,
    *,
    clock: Clock | None = None,
    on_progress: Progress | None = None,
    hooks: Sequence[PutHook] = (),
    arrival_listeners: Sequence[ArrivalListener] = (),
    dispatchers: Sequence[CustomDispatcher] = (),
    **options: object,
) -> ServerStore:
    """Open a store for a server; a missing directory is created.

    As `open_store`, but always with RocketMQ's defaults: files of 1 GiB, 8 queues for a new topic,
    deletion by age and disk use, `~/store` without a path.

    Raises:
        ConfigError: an option is unknown, wrong, or contradicts the files of the store.
        StoreLockedError: another process, or this one, has it open for writing.
        StoreError: the files cannot be used.
    """
    choice = structs.replace(StoreOptions.choose(conf, **options), is_broker_conf=True)
    settings = OpenSettings(
        ops=PosixFileOps(),
        clock=clock or SystemClock(),
        kept=kept_options(choice),
        on_progress=on_progress,
        raises=False,
        extensions=Extensions.of(hooks, arrival_listeners, dispatchers),
    )
    store, _, parts = open_with_parts(root_of(path, choice), choice, settings)
    return ServerStore(store, parts)
