"""What a power cut leaves of a disk: effects in their order, and every state they allow.

1. A `SimDisk` writes down what happens to it as effects. A `Platter` takes them one after the other
   and knows at each moment what is certain and what is not.
2. Certain is what was synced: pages and the size of a file by a sync of that file, names by a sync
   of their directory. Everything else is there or not, each thing by itself.
3. A `Fate` decides. It counts what it took away, so that a test can show that something was lost.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

PAGE = 4096
SECTOR = 512
ZERO_PAGE = bytes(PAGE)


# --- effects -------------------------------------------------------------------------------------


class PageWritten(Struct, frozen=True):
    """A page of a file has other bytes than before."""

    file: int
    page: int
    data: bytes


class Resized(Struct, frozen=True):
    """A file has another length than before."""

    file: int
    size: int


class Named(Struct, frozen=True):
    """A name in a directory stands for a file (a number), a directory (None), or came from another.

    `old` is the name that a rename takes away in the same moment.
    """

    path: Path
    file: int | None
    old: Path | None = None


class Unnamed(Struct, frozen=True):
    """A name is gone."""

    path: Path


class FileSynced(Struct, frozen=True):
    """Pages and size of a file are on the disk."""

    file: int


class SyncFailed(Struct, frozen=True):
    """A sync of a file failed: the system takes its pages for clean, and writes them no more."""

    file: int


class DirSynced(Struct, frozen=True):
    """The names of a directory are on the disk."""

    path: Path


class Mark(Struct, frozen=True):
    """Nothing happened to the disk, but a test wants to know when."""

    note: object


NameChange = Named | Unnamed
Effect = PageWritten | Resized | Named | Unnamed | FileSynced | SyncFailed | DirSynced | Mark


class Image(Struct, frozen=True):
    """What a disk holds: the bytes of files by number, and what each path stands for."""

    files: dict[int, bytes]
    names: dict[Path, int | None]

    def contents(self) -> dict[Path, bytes]:
        """The bytes of all files by their paths."""
        found = ((path, file) for path, file in sorted(self.names.items()) if file is not None)
        return {path: self.files[file] for path, file in found}


# --- fates ---------------------------------------------------------------------------------------


class Fate(Protocol):
    """Decides about everything that is not certain."""

    losses: Counter[str]

    def page(self, versions: Sequence[bytes], *, is_newest: bool) -> bytes:
        """Return what a page holds, given what it held since the sync, and at it (the first).

        `is_newest`: no other page of the file was written later.
        """
        ...

    def size(self, sizes: Sequence[int]) -> int:
        """Return the length of a file."""
        ...

    def keeps(self, change: NameChange) -> bool:
        """Tell whether a change of a directory is there."""
        ...


class Whole:
    """All pages, or none; all names, or none: the corners."""

    def __init__(self, *, pages: bool, names: bool) -> None:
        self._pages = pages
        self._names = names
        self.losses: Counter[str] = Counter()

    def page(self, versions: Sequence[bytes], *, is_newest: bool) -> bytes:
        del is_newest
        self.losses["pages"] += not self._pages
        return versions[-1 if self._pages else 0]

    def size(self, sizes: Sequence[int]) -> int:
        # A size goes with the names: the file has grown, and its pages are zeros.
        self.losses["sizes"] += not self._names
        return sizes[-1 if self._names else 0]

    def keeps(self, change: NameChange) -> bool:
        del change
        self.losses["names"] += not self._names
        return self._names


class Chance:
    """Each thing by itself: with some probability as it is now, else as it was at any time."""

    def __init__(self, seed: str, *, odds: float = 0.5, tears: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._odds = odds
        self._tears = tears
        self.losses: Counter[str] = Counter()

    def page(self, versions: Sequence[bytes], *, is_newest: bool) -> bytes:
        del is_newest
        if self._random.random() < self._tears:
            return self._torn(versions)
        if self._random.random() < self._odds:
            return versions[-1]
        self.losses["pages"] += 1
        return self._random.choice(versions[:-1])

    def _torn(self, versions: Sequence[bytes]) -> bytes:
        self.losses["torn"] += 1
        return b"".join(
            self._random.choice(versions)[at : at + SECTOR] for at in range(0, PAGE, SECTOR)
        )

    def size(self, sizes: Sequence[int]) -> int:
        if self._random.random() < self._odds:
            return sizes[-1]
        self.losses["sizes"] += 1
        return self._random.choice(sizes[:-1])

    def keeps(self, change: NameChange) -> bool:
        del change
        is_kept = self._random.random() < self._odds
        self.losses["names"] += not is_kept
        return is_kept


class Backwards(Chance):
    """Of each file the page that was written last is there, and those before it are not."""

    def page(self, versions: Sequence[bytes], *, is_newest: bool) -> bytes:
        self.losses["pages"] += not is_newest
        return versions[-1 if is_newest else 0]


# --- the platter ---------------------------------------------------------------------------------


class _File:
    """One file: what each page and its size have been since the last sync, and at it."""

    def __init__(self, data: bytes = b"") -> None:
        self.sizes = [len(data)]
        self.pages: dict[int, list[bytes]] = {}
        self.last_page: int | None = None
        self._dropped: set[int] = set()  # pages that no sync will write any more
        for page, at in enumerate(range(0, len(data), PAGE)):
            self.pages[page] = [data[at : at + PAGE].ljust(PAGE, b"\0")]

    def write(self, page: int, data: bytes) -> None:
        self.pages.setdefault(page, [ZERO_PAGE]).append(data)
        self.last_page = page
        self._dropped.discard(page)

    def sync(self) -> None:
        self.sizes = self.sizes[-1:]
        for page, versions in self.pages.items():
            if page not in self._dropped:
                del versions[:-1]
        self.last_page = None

    def fail_sync(self) -> None:
        self._dropped |= {page for page, versions in self.pages.items() if len(versions) > 1}

    def bytes_by(self, fate: Fate) -> bytes:
        size = fate.size(self.sizes) if len(self.sizes) > 1 else self.sizes[0]
        data = bytearray(size)
        for page, versions in sorted(self.pages.items()):
            chosen = versions[0]
            if len(versions) > 1:
                chosen = fate.page(versions, is_newest=page == self.last_page)
            begin = page * PAGE
            room = max(min(PAGE, size - begin), 0)
            data[begin : begin + room] = chosen[:room]
        return bytes(data)


class Platter:
    """Everything that a disk may hold after the effects so far."""

    def __init__(self, image: Image) -> None:
        self._files = {number: _File(data) for number, data in image.files.items()}
        self._names = dict(image.names)  # certain
        self._changes: list[NameChange] = []  # not certain, in their order

    def apply(self, effect: Effect) -> None:
        """Let something happen."""
        match effect:
            case PageWritten(file, page, data):
                self._files[file].write(page, data)
            case Resized(file, size):
                self._files[file].sizes.append(size)
            case Named(_, file):
                if file is not None:
                    self._files.setdefault(file, _File())
                self._changes.append(effect)
            case Unnamed():
                self._changes.append(effect)
            case FileSynced(file):
                self._files[file].sync()
            case SyncFailed(file):
                self._files[file].fail_sync()
            case DirSynced(path):
                self._sync_dir(path)
            case Mark():
                pass

    def crash(self, fate: Fate) -> Image:
        """Lose power, and return what is there when it is back."""
        names = dict(self._names)
        for change in self._changes:
            if fate.keeps(change):
                _change(names, change)
        names = _reachable(names)
        used = sorted({file for file in names.values() if file is not None})
        return Image({file: self._files[file].bytes_by(fate) for file in used}, names)

    def _sync_dir(self, path: Path) -> None:
        left = []
        for change in self._changes:
            if change.path.parent == path:
                _change(self._names, change)
            else:
                left.append(change)
        self._changes = left


def _change(names: dict[Path, int | None], change: NameChange) -> None:
    match change:
        case Named(path, file, old):
            if old is not None:
                names.pop(old, None)
            names[path] = file
        case Unnamed(path):
            names.pop(path, None)


def _reachable(names: dict[Path, int | None]) -> dict[Path, int | None]:
    """Leave out what lies in a directory that is not there."""
    found: dict[Path, int | None] = {}
    for path in sorted(names, key=lambda path: len(path.parts)):
        parent = path.parent
        if parent == path or (parent in found and found[parent] is None):
            found[path] = names[path]
    return found
