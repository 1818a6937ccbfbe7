"""TopicRegistry: create, change and delete topics; the route of each to its queues."""

import logging
import threading
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from rocketlake.embedded.checks import OWN_TOPICS, check_new_topic
from rocketlake.embedded.routes import Route
from rocketlake.errors import FileAccessError, StoreClosedError
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.metadata.topics import TopicBook
from rocketlake.model import topics as names
from rocketlake.model.topics import QUEUES_MAX, Perm, TopicConfig, TopicFilterType
from rocketlake.near_names import near_hint
from rocketlake.store.put.field_types import require_number, require_type

log = logging.getLogger(__name__)


class TopicRegistry:
    """The topics of a store.

    `routes` has every topic that may be written; puts read it without a lock. After `close` it
    stays empty, and every change is refused.

    Thread-safety: any thread; changes are serialized. The worker makes them, so that an exception
    in the calling thread (Ctrl-C) leaves none half done.

    Durability: a change is on the disk when the call that made it has returned.
    """

    def __init__(
        self,
        book: TopicBook,
        worker: ShieldedWorker,
        *,
        default_queues: int,
        may_create: bool = True,
    ) -> None:
        self.book = book
        self._worker = worker
        self.routes: dict[str, Route] = {}
        self.on_change: Callable[[str], None] = lambda _: None
        """Called for every topic that changed."""
        self._default_queues = default_queues
        self._may_create = may_create
        self._lock = threading.RLock()
        self._is_closed = False
        for config in book.topics():
            self._set_route(config)

    def close(self) -> None:
        """Refuse further changes and drop the routes: puts check again if the store is open."""
        with self._lock:
            self._is_closed = True
            self.routes.clear()

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.book.path} belongs to a store that is closed")

    def readable_queues(self, topic: str) -> int:
        """Return how many queues of a topic consumers may read."""
        config = self.book.get(topic)
        return 0 if config is None or not config.is_readable else config.read_queue_count

    def list(self) -> list[TopicConfig]:
        """Return the topics by name, the store's own left out."""
        found = [c for c in self.book.topics() if not names.is_system_topic(c.name)]
        return sorted(found, key=lambda config: config.name)

    def make_config(self, topic: str) -> TopicConfig:
        """Return the default config of a topic."""
        has_one = names.is_retry_topic(topic) or names.is_dlq_topic(topic)
        count = 1 if has_one else self._default_queues
        return TopicConfig(name=topic, read_queue_count=count, write_queue_count=count)

    def adopt(self, topic: str, queue_count: int) -> None:
        """Add a topic that has queues, but no entry in the table."""
        config = self.make_config(topic)
        count = max(config.read_queue_count, queue_count)
        self.register(replace(config, read_queue_count=count, write_queue_count=count))

    def ensure_queues(self, topic: str, queue_count: int) -> None:
        """Create a topic, or add queues to it, so that it has at least `queue_count`.

        Raises:
            ValueError: a topic may not have so many queues.
        """
        known = self.book.get(topic)
        if known is None or queue_count > min(known.read_queue_count, known.write_queue_count):
            self._worker.run(lambda: self._ensure_queues(topic, queue_count))

    def _ensure_queues(self, topic: str, queue_count: int) -> None:
        with self._lock:
            self._require_open()
            known = self.book.get(topic)
            if known is None:
                check_new_topic(topic)
                known = self.make_config(topic)
                count = max(known.read_queue_count, queue_count)
                config = replace(known, read_queue_count=count, write_queue_count=count)
                _check(config)
                self.register(config)
            elif queue_count > min(known.read_queue_count, known.write_queue_count):
                counts = {
                    "read_queue_count": max(known.read_queue_count, queue_count),
                    "write_queue_count": max(known.write_queue_count, queue_count),
                }
                self.update(topic, counts)

    def register(self, config: TopicConfig) -> Route:
        """Add a topic that has messages unless the name exists; return its route.

        A table that cannot be written (full disk) is written later. If the process is killed
        before, the next start finds the topic by its messages.

        Raises:
            StoreClosedError: the store is closed.
        """
        return self._worker.run(lambda: self._register(config))

    def _register(self, config: TopicConfig) -> Route:
        with self._lock:
            self._require_open()
            found = self.book.create(config)
            if found is config:
                try:
                    self.book.persist()
                except FileAccessError as error:
                    log.warning("topic not written yet topic=%s reason=%s", config.name, error)
                self._publish(config)
            return self.routes[config.name]

    def find_route(self, topic: str) -> tuple[Route, TopicConfig | None]:
        """Return the route of a topic, and its config if the topic does not exist yet.

        Raises:
            ValueError: the topic may not be written, or does not exist and is not created by a put.
        """
        route = self.routes.get(topic)
        if route is not None:
            return route, None
        known = self.book.get(topic)
        if known is not None:
            # Why: a topic that another thread is creating gets its route once it is on the disk.
            route = self._wait_for_route(topic)
            if route is not None:
                return route, None
            raise ValueError(
                f"topic {topic!r} may not be written (perm {known.perm},"
                f" {known.write_queue_count} write queues);"
                f" update_topic({topic!r}, writable=True) allows it"
            )
        if not self._may_create:
            raise ValueError(
                f"there is no topic {topic!r}, and auto_create_topic_enable is off;"
                f" create_topic({topic!r}) makes it"
            )
        config = self.make_config(topic)
        if len(topic) > names.topic_size_max(topic):
            return Route(config), None  # the engine refuses it with a status
        return Route(config), config

    def _wait_for_route(self, topic: str) -> Route | None:
        """Wait for changes in progress; return the route of a topic, None without one."""
        with self._lock:
            return self.routes.get(topic)

    def create(self, config: TopicConfig) -> TopicConfig:
        """Create a topic.

        Raises:
            ValueError: the topic exists, or its name or a number is not allowed.
        """
        require_type("config", config, TopicConfig)
        check_new_topic(config.name)
        _check(config)
        return self._worker.run(lambda: self._create(config))

    def _create(self, config: TopicConfig) -> TopicConfig:
        with self._lock:
            if self.book.get(config.name) is not None:
                raise ValueError(
                    f"topic {config.name!r} exists; update_topic({config.name!r}, ...) changes it"
                )
            self._require_open()
            self.book.create(config)
            try:
                self.book.persist()
            except BaseException:
                self.book.delete(config.name)
                raise
            self._publish(config)
            return config

    def update(self, name: str, changes: Mapping[str, object]) -> TopicConfig:
        """Change a topic.

        Raises:
            ValueError: the topic does not exist, or a number is not allowed.
        """
        return self._worker.run(lambda: self._update(name, changes))

    def _update(self, name: str, changes: Mapping[str, object]) -> TopicConfig:
        with self._lock:
            self._require_open()
            before = self.require(name)
            config = replace(before, **changes)
            _check(config)
            self.book.update(config)
            try:
                # Order: on the disk before it takes effect.
                self.book.persist()
            except BaseException:
                self.book.update(before)
                raise
            self._publish(config)
            return config

    def delete(self, name: str, drop: Callable[[], object]) -> None:
        """Delete a topic; `drop` removes its queues and progress.

        Raises:
            ValueError: the topic does not exist.
        """
        self._worker.run(lambda: self._delete(name, drop))

    def _delete(self, name: str, drop: Callable[[], object]) -> None:
        with self._lock:
            self._require_open()
            config = self.require(name)
            # Order: stop puts, then drop queues and progress, then the topic. A crash in between
            # leaves a topic without messages, never messages without a topic.
            self.routes.pop(name, None)
            try:
                drop()
            except BaseException:
                self._set_route(config)
                raise
            self.book.delete(name)
            self.book.persist()
            self.on_change(name)

    def require(self, name: str) -> TopicConfig:
        """Return a topic.

        Raises:
            ValueError: the topic does not exist.
        """
        found = self.book.get(name)
        if found is None:
            known = [config.name for config in self.list()]
            raise ValueError(f"there is no topic {name!r}; {near_hint(name, known)}")
        return found

    def _publish(self, config: TopicConfig) -> None:
        """Make a created or changed topic take effect."""
        self._set_route(config)
        self.on_change(config.name)

    def _set_route(self, config: TopicConfig) -> None:
        is_own = config.name in OWN_TOPICS  # a broker's table has them too
        if config.is_writable and config.write_queue_count > 0 and not is_own:
            self.routes[config.name] = Route(config)
        else:
            self.routes.pop(config.name, None)


def topic_changes(
    queues: int | None,
    *,
    readable: bool | None = None,
    writable: bool | None = None,
    perm: int,
    attributes: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the fields of a TopicConfig that the arguments of a caller change."""
    check_topic_arguments(queues, attributes)
    changes: dict[str, object] = {}
    if queues is not None:
        changes |= {"read_queue_count": queues, "write_queue_count": queues}
    words = (("readable", Perm.READ, readable), ("writable", Perm.WRITE, writable))
    for word, bit, is_set in words:
        if is_set is not None:
            require_type(word, is_set, bool)
            perm = perm | bit if is_set else perm & ~bit
            changes["perm"] = int(perm)
    if attributes is not None:
        changes["attributes"] = dict(attributes)
    return changes


def check_topic_arguments(queues: object, attributes: object) -> None:
    """Refuse arguments of the wrong type.

    Raises:
        TypeError: names the argument.
    """
    if queues is not None:
        _require_count("queues", queues)
    if attributes is not None:
        require_type("attributes", attributes, Mapping, "a dict of str to str")


def _require_count(field: str, count: object) -> None:
    if isinstance(count, bool):
        raise TypeError(f"{field} = {count!r} is bool; wanted int")
    require_type(field, count, int)


def _check(config: TopicConfig) -> None:
    """Refuse a topic that a table cannot hold, or RocketMQ cannot read.

    Raises:
        TypeError, ValueError: names the field.
    """
    _check_counts(config)
    require_number("perm", config.perm)
    require_number("sys_flag", config.sys_flag)
    require_type("order", config.order, bool)
    require_type("filter_type", config.filter_type, TopicFilterType)
    require_type("attributes", config.attributes, Mapping, "a dict of str to str")
    _check_attributes(config)


def _check_counts(config: TopicConfig) -> None:
    for word, count in (("read", config.read_queue_count), ("write", config.write_queue_count)):
        _require_count(f"{word}_queue_count", count)
        if not 1 <= count <= QUEUES_MAX:
            raise ValueError(
                f"topic {config.name!r}: {count} {word} queues; wanted 1 to {QUEUES_MAX}"
            )


def _check_attributes(config: TopicConfig) -> None:
    pairs: list[tuple[object, object]] = list(config.attributes.items())
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"attributes has {name!r}: {value!r}; wanted str for both")
