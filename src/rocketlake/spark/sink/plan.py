"""WritePlan: what a task needs to encode and stage its rows; made once, on the driver."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self

from msgspec import Struct

from rocketlake.embedded.bulk_types import RecordShape
from rocketlake.spark.sink.options import SinkOptions, new_token
from rocketlake.store.options import StoreOptions

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class WriteKey(Struct, frozen=True):
    """The identity of a write: a micro-batch of a query, or a batch job by its `writeId`."""

    kind: Literal["stream", "batch", "job"]
    """`job` is a batch job without a `writeId`, which is never repeated."""
    name: str
    batch: int = 0

    @property
    def slug(self) -> str:
        """The common part of the names of all files of this write."""
        if _PLAIN.fullmatch(self.name):
            return f"{self.kind}-{self.name}"
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        return f"{self.kind}-{re.sub('[^A-Za-z0-9_-]', '_', self.name)[:40]}-{digest}"

    def __str__(self) -> str:
        match self.kind:
            case "stream":
                return f"batch {self.batch} of query {self.name}"
            case "batch":
                return f"write {self.name!r}"
            case "job":
                return "a batch write"


class WritePlan(Struct, frozen=True, kw_only=True):
    """What a task needs to know."""

    options: SinkOptions
    shape: RecordShape
    store_options: StoreOptions
    queue_counts: Mapping[str, int]
    """Of the topics that exist."""
    default_queues: int
    run: str
    """A unique name of this run: keeps its staged files apart from those of other runs."""

    @classmethod
    def make(cls, options: SinkOptions) -> Self:
        """Inspect the store, without opening it.

        Raises:
            ConfigError: its options are wrong.
            StoreError: its files cannot be used.
        """
        from rocketlake.embedded.bulk_store import preview_store  # noqa: PLC0415 - not on executors

        seen = preview_store(options.path, options.conf, **options.store_options)
        return cls(
            options=options,
            shape=seen.shape,
            store_options=seen.options,
            queue_counts=dict(seen.queue_counts),
            default_queues=seen.default_queues,
            run=new_token(),
        )

    def folder(self, key: WriteKey) -> Path:
        """Return the directory in which the rows of a write are staged."""
        return Path(self.options.staging_path) / key.slug / f"{key.batch}-{self.run}"

    def queue_count(self, topic: str) -> int:
        """Return the number of queues of a topic; of a new one, as it would be created."""
        return self.queue_counts.get(topic, self.default_queues)
