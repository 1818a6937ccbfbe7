"""Deleted topics: where in the log the life of each topic ended that was deleted.

1. The records of a deleted topic stay in the log until they expire. A topic that is made again
   counts its messages from 0, so the records of its earlier life carry the queue offsets of the
   new ones. `DeletedTopics` tells them apart: a record belongs to an earlier life of a queue if it
   begins below the end of the log at the deletion of the queue's topic. Everything that makes queue
   units from records asks it.
2. The table is on the disk before the queues of the topic go, and the log up to the offsets in it
   is on the disk before the table. So a power cut at any moment leaves the topic as it was, or
   deleted.
3. An entry goes when the log begins behind it. Where the log ends before it, a start lowers it.
4. RocketMQ neither writes nor reads the table. A store without one has no deleted topics.

The file is `config/deletedTopics.json`, see docs/formats/metadata.md.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.errors import StoreError
from rocketlake.files.json_file import load_table, write_table
from rocketlake.files.ops import FileOps
from rocketlake.format import java_json, names
from rocketlake.format.java_json import JsonObject
from rocketlake.format.record import RecordColumns

FILE_NAME: Final = "deletedTopics.json"
_TABLE: Final = "logEndTable"

Rows = npt.NDArray[np.intp]


class DeletedTopics(Struct, frozen=True):
    """The deleted topics of a store at one moment; a value that can be sent to other processes."""

    ends: dict[str, int] = {}
    """Topic -> the end of the log when it was last deleted."""
    limit: int = 0
    """The highest of these offsets: no record from here on belongs to an earlier life."""

    @classmethod
    def of(cls, ends: Mapping[str, int]) -> "DeletedTopics":
        """Take the end of the log at the deletion of each topic."""
        return cls(dict(ends), max(ends.values(), default=0))

    def end_of(self, topic: str) -> int:
        """Return where the earlier life of a topic ended in the log; 0 if it was never deleted."""
        return self.ends.get(topic, 0)

    def is_earlier(self, topic: str, physical_offset: int) -> bool:
        """Tell whether a record belongs to an earlier life of the topic of a queue.

        So does a queue whose first unit points to such a record: a deletion that did not come to
        its end has left it.
        """
        return 0 <= physical_offset < self.limit and physical_offset < self.end_of(topic)

    def later_rows(
        self,
        columns: RecordColumns,
        codes: npt.NDArray[np.int32],
        topics: Sequence[str],
        rows: Rows,
    ) -> Rows:
        """Return the given rows without the records of an earlier life of their own topic.

        `codes` and `topics` are those of `columns`; the rows are in the order of the log.
        """
        places = columns["physical_offset"]
        if not len(rows) or int(places[rows[0]]) >= self.limit:
            return rows
        ends = np.array([self.end_of(topic) for topic in topics], np.int64)
        return rows[places[rows] >= ends[codes[rows]]]


NO_TOPICS: Final = DeletedTopics()


def decode(value: JsonObject) -> DeletedTopics:
    """Turn the JSON of the table into a value.

    Raises:
        ValueError: it is something else.
    """
    table = value.get(_TABLE)
    if not isinstance(table, dict):
        raise ValueError(f"{_TABLE}: Expected `object`")  # noqa: TRY004 - bad content, not a type
    ends: dict[str, int] = {}
    for topic, end in table.items():
        if isinstance(end, bool) or not isinstance(end, int) or end < 0:
            raise ValueError(f"{_TABLE}[{str(topic)!r}]: Expected an offset of the log")
        ends[str(topic)] = end
    return DeletedTopics.of(ends)


def load(ops: FileOps, root: Path) -> DeletedTopics:
    """Read the table of a store, or its copy; no topics without either.

    Raises:
        StoreError: neither of the files that are there can be used.
    """
    path = root / names.CONFIG / FILE_NAME
    found = load_table(path, decode, ops=ops)
    if found.value is None and found.problem is not None:
        raise StoreError(f"{path.parent}: {found.problem}")
    return found.value or NO_TOPICS


class DeletedTopicsFile:
    """The table of a store that is open for writing.

    Thread-safety: any thread; `topics` is replaced, never changed.

    Durability: a change is on the disk when the call that made it returns.
    """

    def __init__(self, ops: FileOps, root: Path, log_dirs: Sequence[Path] = ()) -> None:
        self._ops = ops
        self._root = root
        self._log_dirs = log_dirs
        self._change = threading.Lock()
        self.topics = NO_TOPICS

    def get(self) -> DeletedTopics:
        """Return the topics of this moment."""
        return self.topics

    def load(self) -> None:
        """Take what the table says.

        Raises:
            StoreError: it cannot be read.
        """
        self.topics = load(self._ops, self._root)

    def add(self, topic: str, log_end: int) -> None:
        """Note that a topic is deleted, `log_end` being the end of the log, which is on the disk.

        Raises:
            FileAccessError, DiskFullError: the table cannot be written; the old one holds.
        """
        with self._change:
            self._replace({**self.topics.ends, topic: log_end})

    def lower_to(self, log_end: int) -> list[str]:
        """Lower entries that are behind the end of the log to it; return their topics.

        Why: new records take the place of those that the log has lost, and belong to the new life.
        """
        with self._change:
            ends = self.topics.ends
            beyond = [topic for topic, end in ends.items() if end > log_end]
            if beyond:
                self._replace({topic: min(end, log_end) for topic, end in ends.items()})
            return beyond

    def forget_expired(self, log_min: int) -> None:
        """Drop the entries whose records are all gone, `log_min` being where the log begins."""
        if self._has_expired(self.topics.ends.values(), log_min):
            # Order: a power cut must not bring files of the log back that the table has forgotten.
            for path in self._log_dirs:
                if self._ops.stat(path) is not None:
                    self._ops.sync_dir(path)
            with self._change:
                ends = self.topics.ends.items()
                self._replace({topic: end for topic, end in ends if end > log_min})

    @staticmethod
    def _has_expired(ends: Iterable[int], log_min: int) -> bool:
        return any(end <= log_min for end in ends)

    def _replace(self, ends: dict[str, int]) -> None:
        path = self._root / names.CONFIG / FILE_NAME
        data = java_json.dumps({_TABLE: dict(sorted(ends.items()))}, pretty=True)
        write_table(self._ops, path, data)
        # Order: known to this process only when it is on the disk.
        self.topics = DeletedTopics.of(ends)
