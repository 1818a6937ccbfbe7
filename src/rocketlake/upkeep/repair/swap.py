"""New files in the place of old ones, so that a crash at any moment leaves one or the other.

`<store>/repair/<UTC time>/` has `new`, where files are built, `old`, where what they replace is
kept, and `repair.json`. Each part of the store is moved to `old` and its successor from `new` to
its place, by renaming. What a crash interrupts, `finish_interrupted` brings to its end; until then
the mark `abort` makes a start look at everything.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.files.ops import FileOps
from rocketlake.files.store_lock import AbortMark
from rocketlake.files.whole_file import replace_whole
from rocketlake.store.inventory import InventoryFile

REPAIR: Final = "repair"
_JOURNAL: Final = "repair.json"
_COPY: Final = 4 << 20


class Item(Struct, frozen=True):
    """A file or directory of the store that is replaced, as a path below the store."""

    place: str
    has_new: bool
    """Whether something comes into its place, or it only goes."""


class Journal(Struct, frozen=True, rename="camel"):
    """What a repair replaces, and whether it is done."""

    state: str
    items: list[Item]
    was_clean: bool = True
    reasons: list[str] = []


class Workshop:
    """The directory of one repair.

    Durability: when `swap` returns, everything is in its place and on the disk.
    """

    def __init__(self, ops: FileOps, root: Path, path: Path) -> None:
        self._ops = ops
        self._root = root
        self.path = path
        self.new = path / "new"
        self.old = path / "old"

    @classmethod
    def make(cls, ops: FileOps, root: Path, clock: Clock) -> "Workshop":
        """Make a new one, named by the time."""
        now_ms = clock.now_ms()
        while True:
            moment = datetime.fromtimestamp(now_ms // 1000, UTC)
            path = root / REPAIR / f"{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}"
            if ops.stat(path) is None:
                ops.mkdirs(path)
                return cls(ops, root, path)
            now_ms += 1

    def swap(self, places: list[str], reasons: list[str], *, names_process: bool) -> None:
        """Put what was built under `new` into the places of the store, and keep what was there."""
        items = [Item(place, self._ops.stat(self.new / place) is not None) for place in places]
        mark = AbortMark(self._ops, self._root, names_process=names_process)
        was_clean = not mark.is_set
        self._write(Journal("swapping", items, was_clean, reasons))
        # Order: the mark first: a start between two renames looks at everything.
        mark.set()
        self._finish(Journal("swapping", items, was_clean, reasons), mark)

    def resume(self) -> bool:
        """Bring an interrupted repair to its end; False if there was none."""
        journal = self._read()
        if journal is None or journal.state == "done":
            if journal is None:
                remove_tree(self._ops, self.new)
            return False
        self._finish(journal, AbortMark(self._ops, self._root))
        return True

    def _finish(self, journal: Journal, mark: AbortMark) -> None:
        # The inventory speaks of what was there before.
        InventoryFile(self._ops, self._root).remove()
        for item in journal.items:
            self._swap_one(item)
        if journal.was_clean:
            mark.remove()
        self._write(Journal("done", journal.items, journal.was_clean, journal.reasons))
        remove_tree(self._ops, self.new)

    def _swap_one(self, item: Item) -> None:
        target, new, old = self._root / item.place, self.new / item.place, self.old / item.place
        ops = self._ops
        if item.has_new and ops.stat(new) is None:
            return  # done before
        if ops.stat(target) is not None and ops.stat(old) is None:
            ops.mkdirs(old.parent)
            ops.rename(target, old)
            ops.sync_dir(old.parent)
            ops.sync_dir(target.parent)
        if item.has_new:
            ops.mkdirs(target.parent)
            ops.rename(new, target)
            ops.sync_dir(target.parent)

    def _write(self, journal: Journal) -> None:
        data = msgspec.json.encode(journal) + b"\n"
        replace_whole(self._ops, self.path / _JOURNAL, data)

    def _read(self) -> Journal | None:
        entry = self._ops.stat(self.path / _JOURNAL)
        if entry is None:
            return None
        reader = self._ops.open_reader(entry.path)
        try:
            return msgspec.json.decode(reader.read(0, entry.size), type=Journal)
        finally:
            reader.close()


def finish_interrupted(ops: FileOps, root: Path) -> list[Path]:
    """Bring repairs that a crash interrupted to their end; return their directories."""
    return [
        entry.path
        for entry in ops.entries(root / REPAIR)
        if entry.is_dir and Workshop(ops, root, entry.path).resume()
    ]


def remove_tree(ops: FileOps, path: Path) -> None:
    """Remove a directory and all that is in it."""
    for entry in ops.entries(path):
        if entry.is_dir:
            remove_tree(ops, entry.path)
        else:
            ops.unlink(entry.path)
    ops.rmdir(path)


def copy_file(
    ops: FileOps, source: Path, target: Path, part: tuple[int, int] | None = None
) -> None:
    """Copy a file, or a part of it by position and size, to a new one on the disk."""
    entry = ops.stat(source)
    if entry is None:
        return
    ops.mkdirs(target.parent)
    ops.unlink(target)
    position, size = part or (0, entry.size)
    end = min(position + size, entry.size)
    reader, writer = ops.open_reader(source), ops.create(target, 0)
    try:
        at = position
        while at < end:
            data = reader.read(at, min(_COPY, end - at))
            if not data:
                break
            writer.write(at - position, data)
            at += len(data)
        writer.sync()
    finally:
        reader.close()
        writer.close()
    ops.sync_dir(target.parent)
