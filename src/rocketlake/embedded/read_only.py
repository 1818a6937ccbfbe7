"""ReadOnlyStore: reads any store, even one that another process has open, and changes no byte."""

from pathlib import Path
from typing import NoReturn

from rocketlake.closing import Closing
from rocketlake.embedded.offline_engine import OfflineEngine
from rocketlake.embedded.readable_store import ReadableStore
from rocketlake.errors import StoreError
from rocketlake.format import names
from rocketlake.metadata import offsets as offset_table
from rocketlake.metadata import topics as topic_table
from rocketlake.metadata.offsets import OffsetTable
from rocketlake.model.topics import TopicConfig, is_lmq, is_system_topic
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import ReadOptions


class ReadOnlyStore(ReadableStore, Closing):
    """A store opened by `rocketlake.open_store(path, read_only=True)`.

    Every call sees what was written before it. The store is shown as recovery would leave it.

    Thread-safety: any thread may call anything; calls are serialized.
    """

    def __init__(
        self,
        path: Path,
        options: ReadOptions | None = None,
        *,
        log_dirs: tuple[Path, ...] = (),
        unused_options: tuple[str, ...] = (),
    ) -> None:
        """Open a store directory.

        Raises:
            StoreNotFoundError: it does not exist, is not a directory or may not be read.
            ConfigError: options contradict the files.
        """
        self._name = path  # as the caller gave it
        path = path.absolute()
        view = OfflineStore(path, log_dirs=log_dirs, options=options)
        self._engine = OfflineEngine(view, path)
        resolved = options or ReadOptions()
        super().__init__(self._engine, query_max=resolved.max_msgs_num_batch)
        self.path = path
        self.unused_options = unused_options

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<ReadOnlyStore {str(self.path)!r} {state}>"

    def close(self) -> None:
        """Close all files."""
        self._engine.close()

    @property
    def is_open(self) -> bool:
        """Whether the store was not closed."""
        return self._engine.is_open

    def require_open(self) -> None:
        """Raise unless the store is open.

        Raises:
            StoreClosedError: it is closed.
        """
        self._engine.require_open()

    def topics(self) -> list[TopicConfig]:
        """Return the topics by name, including topics that have queues but no entry.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return sorted(self._topic_table().values(), key=lambda config: config.name)

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic; None if it does not exist.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return self._topic_table().get(name)

    def _topic_table(self) -> dict[str, TopicConfig]:
        found = dict(topic_table.load(self.path / names.CONFIG).topics)
        for topic, count in self._engine.queue_counts().items():
            if topic not in found and not is_lmq(topic):
                found[topic] = TopicConfig(
                    name=topic, read_queue_count=count, write_queue_count=count
                )
        return {name: config for name, config in found.items() if not is_system_topic(name)}

    def _offset_table(self) -> OffsetTable:
        return offset_table.load(self.path / names.CONFIG)

    def put(self, *_: object, **__: object) -> NoReturn:
        """Raise: the store is read-only.

        Raises:
            StoreError: always.
        """
        raise StoreError(
            f"{self._name} was opened read-only;"
            f" open_store({str(self._name)!r}) opens it for writing"
        )

    put_batch = put_async = put_batch_async = put_again = put
    create_topic = update_topic = delete_topic = reset_offsets = consumer = put
    send_back = join_group = put
