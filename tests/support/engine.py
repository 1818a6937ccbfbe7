"""The writing store of a test: small files, time that a test moves, no delay service of its own.

with open_engine(tmp_path, ManualClock(), mapped_file_size_commit_log=4096) as store:
    store.put(request("T", 0, b"body"))
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from rocketlake.clock import Clock
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, BatchRequest
from rocketlake.store.assembly import Base
from rocketlake.store.disk.log_dirs import named_paths, open_dirs
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import StoreOptions
from support.manual_clock import ManualClock

BORN_HOST = Endpoint.parse("192.168.0.1:1234")
STORE_HOST = Endpoint.parse("10.0.0.2:10911")
BORN = 1_700_000_000_000

SMALL: Mapping[str, object] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 10 * 20,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
"""Files that are full after a few messages."""


def open_engine(
    root: Path,
    clock: Clock | None = None,
    *,
    source: Mapping[str, object] | None = None,
    ops: FileOps | None = None,
    batch_topics: Collection[str] = (),
    **options: object,
) -> MessageStore:
    """Open a store with small files unless options say otherwise; the caller closes it."""
    # A test must not depend on how full the machine's disk is.
    preset = {**SMALL, "disk_ratio_enable": False}
    chosen = StoreOptions.from_source(source, preset=preset, **options)
    named = named_paths(chosen.store_path_commit_log, chosen.read_only_commit_log_store_paths, root)
    directory, paths = open_dirs(ops or PosixFileOps(), root, named)
    base = Base(directory, paths, chosen, clock or ManualClock(), Catalog(batch_topics))
    return MessageStore(base).start()


class Catalog:
    """Topics of a test: all have as many queues as one likes, and some are of batch queues."""

    def __init__(self, batch_topics: Collection[str] = ()) -> None:
        self._batch_topics = frozenset(batch_topics)

    def is_batch_queue(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch consume queues."""
        return topic in self._batch_topics

    def read_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be read."""
        del topic
        return 1 << 31

    def write_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be written."""
        del topic
        return 1 << 31


def request(
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"body",
    *,
    sys_flag: int = 0,
    **fields: object,
) -> AppendRequest:
    """A message on its way into a store; `fields` are those of Message."""
    return AppendRequest(
        message=Message(topic=topic, body=body, **fields),  # type: ignore[arg-type]
        queue_id=queue_id,
        born_timestamp=BORN,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        sys_flag=sys_flag,
    )


def batch_request(messages: list[Message], queue_id: int = 0, *, sys_flag: int = 0) -> BatchRequest:
    """Messages of one topic on their way into a store together."""
    return BatchRequest(
        messages=messages,
        topic=messages[0].topic,
        queue_id=queue_id,
        born_timestamp=BORN,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        sys_flag=sys_flag,
    )
