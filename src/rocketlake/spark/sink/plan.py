"""WritePlan: what a task must know to encode and stage its rows; made once, on the driver."""

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
    """What is written once: a micro-batch of a query, or a batch job by its `writeId`."""

    kind: Literal["stream", "batch", "job"]
    """`job` is a batch job without a `writeId`, which nobody repeats."""
    name: str
    batch: int = 0

    @property
    def slug(self) -> str:
        """What files of all batches of this write are called."""
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
    """What a task must know."""

    options: SinkOptions
    shape: RecordShape
    store_options: StoreOptions
    queue_counts: Mapping[str, int]
    """Of the topics that are there."""
    default_queues: int
    run: str
    """This run of a write: staged files of several do not meet."""

    @classmethod
    def make(cls, options: SinkOptions) -> Self:
        """Look at the store.

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
        """Return where the rows of a write are staged."""
        return Path(self.options.staging_path) / key.slug / f"{key.batch}-{self.run}"

    def queue_count(self, topic: str) -> int:
        """Return how many queues a topic has, or would have."""
        return self.queue_counts.get(topic, self.default_queues)
