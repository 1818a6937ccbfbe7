"""Marks: which batch of each write a store has, and the intent of a commit that was killed.

One small JSON file per query or `writeId`, below the store, replaced as a whole:

1. `done` is the last batch that is durably in the store; Spark repeats no batch before it.
2. `intent` is what a commit is appending, or was appending when it was killed. The next commit of
   any write to this store finishes it first, from its own staged files.
"""

import logging
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rocketlake import failpoint
from rocketlake.embedded.bulk_store import RoutePlan
from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps
from rocketlake.files.whole_file import read_whole, replace_whole
from rocketlake.spark.sink.options import ROOM
from rocketlake.spark.sink.plan import WriteKey
from rocketlake.spark.sink.staging import StagedFile

log = logging.getLogger(__name__)

NONE_DONE: Final = -1
_SUFFIX: Final = ".json"


class Point(Struct, frozen=True):
    """Where an append began or resumed: offset of the log, row, and round-robin turns."""

    offset: int
    row: int
    turns: list[int]
    """By route: the queue that the next row without a queue gets."""


class Intent(Struct, frozen=True, kw_only=True):
    """What a commit will append, and where."""

    batch: int
    files: list[StagedFile]
    routes: list[RoutePlan] = msgspec.field(name="lanes")
    points: list[Point]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(file.rows for file in self.files)


class Mark(Struct, frozen=True, kw_only=True):
    """How much of one write a store has."""

    kind: Literal["stream", "batch", "job"]
    name: str
    done: int = NONE_DONE
    intent: Intent | None = None

    @classmethod
    def of(cls, key: WriteKey) -> "Mark":
        """Return the mark of a write that has not begun."""
        return cls(kind=key.kind, name=key.name)

    def key(self, batch: int) -> WriteKey:
        """Return the key of a batch of this write."""
        return WriteKey(self.kind, self.name, batch)


class MarkFiles:
    """The marks of one store. Only the process that has the store open changes them."""

    def __init__(self, ops: FileOps, root: Path) -> None:
        self._ops = ops
        self._root = root
        self.folder = root / ROOM / "marks"

    def load(self, key: WriteKey) -> Mark:
        """Return the mark of a write.

        Raises:
            StoreError: it cannot be read.
        """
        return self._read(self._path(key)) or Mark.of(key)

    def pending(self) -> list[Mark]:
        """Return the marks with an intent."""
        found = (self._read(path) for path in self._paths())
        return [mark for mark in found if mark is not None and mark.intent is not None]

    def path(self, mark: Mark) -> Path:
        """Return where a mark lies."""
        return self._path(mark.key(0))

    def intend(self, mark: Mark, intent: Intent) -> Mark:
        """Record what will be appended, or from which point it resumes."""
        mark = replace(mark, intent=intent)
        failpoint.hit("intent.before")
        self._save(mark)
        failpoint.hit("intent.after")
        return mark

    def finish(self, mark: Mark) -> Mark:
        """Record that the intended rows are durably in the store."""
        assert mark.intent is not None, "the mark has an intent"
        mark = replace(mark, done=max(mark.done, mark.intent.batch), intent=None)
        failpoint.hit("done.before")
        if mark.kind == "job":
            self._ops.unlink(self.path(mark))  # a job without a writeId is never repeated
            self._ops.sync_dir(self.folder)
        else:
            self._save(mark)
        failpoint.hit("done.after")
        return mark

    def _save(self, mark: Mark) -> None:
        self._ops.mkdirs(self.folder)
        data = msgspec.json.encode(_shortened(mark, self._root))
        replace_whole(self._ops, self.path(mark), data)

    def _read(self, path: Path) -> Mark | None:
        data = read_whole(self._ops, path)
        if data is None:
            return None
        try:
            mark = msgspec.json.decode(data, type=Mark)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{path} cannot be read ({error}): it records which rows the store has. Remove it"
                " if repeating a part of the write does no harm"
            ) from error
        return _completed(mark, self._root)

    def _paths(self) -> list[Path]:
        return [e.path for e in self._ops.entries(self.folder) if e.path.suffix == _SUFFIX]

    def _path(self, key: WriteKey) -> Path:
        return self.folder / f"{key.slug}{_SUFFIX}"


def _shortened(mark: Mark, root: Path) -> Mark:
    """Make paths below the store relative to it, so that the store can be moved."""
    if mark.intent is None:
        return mark
    files = [
        replace(file, path=str(Path(file.path).relative_to(root)))
        if Path(file.path).is_relative_to(root)
        else file
        for file in mark.intent.files
    ]
    return replace(mark, intent=replace(mark.intent, files=files))


def _completed(mark: Mark, root: Path) -> Mark:
    if mark.intent is None:
        return mark
    files = [replace(file, path=str(root / file.path)) for file in mark.intent.files]
    return replace(mark, intent=replace(mark.intent, files=files))
