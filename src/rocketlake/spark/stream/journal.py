"""Journal: what a consuming query did with its batches, beside the progress of its group.

    {"queries": {"<query id>": {"done": 7, "intent": {"batch": 8, "before": {...},
                                "failed": [[4711, 0]], "next": {"orders": {"0": 12}}}}},
     "version": 1}

1. A batch that is done is not consumed again, even if Spark repeats it after a crash.
2. The failed messages of a batch are recorded before the first of them is sent back. Such a batch
   is not consumed again either: the messages that were not sent back yet are sent back.

Batch numbers belong to a checkpoint, so they are kept by the id of the query, which is part of it.
"""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from rocketlake.errors import StoreError
from rocketlake.files.json_file import load_table, write_table
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format.java_json import JsonObject

VERSION: Final = 1
_QUERIES_MAX: Final = 16

Offsets = dict[str, dict[int, int]]
"""Queue offsets by topic and queue."""


class Intent(Struct, frozen=True, kw_only=True):
    """What remains to be done with a batch that was consumed."""

    batch: int
    failed: list[tuple[int, int]]
    """Physical offset and delay level of each message to send back."""
    before: Offsets = {}
    """The ends of the queues that messages are sent back to."""
    next: Offsets = {}
    """Where the group continues."""


class QueryState(Struct, frozen=True, omit_defaults=True):
    """The progress of one query."""

    done: int = -1
    intent: Intent | None = None


class _File(Struct, frozen=True):
    queries: dict[str, QueryState]
    version: int = VERSION


class Journal:
    """The journal of one group.

    Thread-safety: one thread.

    Durability: a state is on the disk when `write` has returned.
    """

    def __init__(self, path: Path, ops: FileOps | None = None) -> None:
        """Read the file, if there is one.

        Raises:
            StoreError: it cannot be read.
        """
        self._path = path
        self._ops = ops or PosixFileOps()
        loaded = load_table(path, _decode, ops=self._ops)
        if loaded.value is None and loaded.problem is not None:
            raise StoreError(
                f"{path}: {loaded.problem}; without it a batch may be consumed again: remove it if"
                " that does no harm"
            )
        self._queries = {} if loaded.value is None else dict(loaded.value.queries)

    def find(self, query_id: str) -> QueryState:
        """Return the progress of a query."""
        return self._queries.get(query_id, QueryState())

    def write(self, query_id: str, state: QueryState) -> None:
        """Write the progress of a query."""
        self._queries.pop(query_id, None)
        self._queries[query_id] = state  # the newest behind the others
        for old in list(self._queries)[:-_QUERIES_MAX]:
            del self._queries[old]
        write_table(self._ops, self._path, msgspec.json.encode(_File(self._queries)))


def _decode(members: JsonObject) -> _File:
    found = msgspec.convert(members, _File, strict=False)
    if found.version != VERSION:
        raise ValueError(f"it is of version {found.version}, not {VERSION}")
    return found
