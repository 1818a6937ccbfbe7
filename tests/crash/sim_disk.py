"""SimDisk: a FileOps whose files are memory, and which remembers how it came to be so.

1. Maps are real memory: the compiled kernel appends into them as into those of a real file.
2. What a map's owner writes is seen when the next thing happens to the disk, or when a test asks
   (`note`): every page is compared with what it was.
3. `journal` has every effect in its order; `platter.Platter` says what a power cut leaves of it.
4. `before` is asked ahead of each operation and may raise what the machine would.
"""

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

from platter import (
    PAGE,
    ZERO_PAGE,
    DirSynced,
    Effect,
    FileSynced,
    Image,
    Mark,
    Named,
    PageWritten,
    Resized,
    SyncFailed,
    Unnamed,
)

from rocketlake.errors import FileAccessError, StoreNotFoundError
from rocketlake.files.ops import Advice, Buffer, DiskUsage, Entry

Before = Callable[[str, Path], None]
"""Is told the operation and the path, and raises to make it fail."""

EMPTY = Image({}, {Path("/"): None})

_numbers = itertools.count(1)


class _SimFile:
    """The bytes of one file, and what of them the journal knows."""

    def __init__(self, number: int, path: Path, data: bytes = b"") -> None:
        self.number = number
        self.path = path  # a name it has or had, for messages
        self.data = bytearray(data)
        self.seen = {page: bytes(chunk) for page, chunk in enumerate(_pages(data))}
        self.whole = bytes(data)
        # Pages that are on the disk: writing another one through a map may meet a full disk.
        self.allocated = {page for page, chunk in self.seen.items() if chunk != ZERO_PAGE}
        self.mtime_ms = 0


class SimReader:
    """An open file of a simulated disk that is only read."""

    def __init__(self, disk: "SimDisk", file: _SimFile, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path
        self._is_open = True

    def read(self, position: int, size: int) -> bytes:
        self._check()
        return bytes(self._file.data[position : position + size])

    def close(self) -> None:
        self._is_open = False

    def _check(self) -> None:
        if not self._is_open:
            raise AssertionError(f"{self._path} is used after it was closed")


class SimWriter(SimReader):
    """An open file of a simulated disk."""

    def write(self, position: int, data: Buffer) -> None:
        self._check()
        with self._disk.doing("write", self._path) as fault:
            # As far as a full disk lets it: a part of the data is there, and the call fails.
            done = bytes(data)[: len(data) // 2] if fault is not None else bytes(data)
            self._grow(position + len(done))
            self._file.data[position : position + len(done)] = done
            if done:
                last = (position + len(done) - 1) // PAGE
                self._file.allocated |= set(range(position // PAGE, last + 1))
            self._touch()
            if fault is not None:
                raise fault

    def allocate(self, position: int, size: int) -> None:
        self._check()
        with self._disk.doing("allocate", self._path) as fault:
            if fault is not None:
                raise fault
            self._grow(position + size)
            last = (position + max(size, 1) - 1) // PAGE
            self._file.allocated |= set(range(position // PAGE, last + 1))
            self._touch()

    def zero(self, position: int, size: int) -> bool:
        self._check()
        end = min(position + size, len(self._file.data))
        if not any(self._file.data[position:end]):
            return False
        self.write(position, bytes(end - position))
        return True

    def truncate(self, size: int) -> None:
        self._check()
        with self._disk.doing("truncate", self._path) as fault:
            if fault is not None:
                raise fault
            if size < len(self._file.data):
                del self._file.data[size:]
            self._grow(size)
            self._touch()

    def sync(self) -> None:
        self._check()
        with self._disk.doing("sync", self._path) as fault:
            if fault is not None:
                self._disk.add(SyncFailed(self._file.number))
                raise fault
            self._disk.add(FileSynced(self._file.number))

    def map(self, size: int) -> "SimMap":
        self._check()
        with self._disk.doing("map", self._path) as fault:
            if fault is not None:
                raise fault
            if size > len(self._file.data):
                raise AssertionError(f"{self._path}: a map of {size} bytes goes behind the file")
            return SimMap(self._file.data, size)

    def _grow(self, size: int) -> None:
        missing = size - len(self._file.data)
        if missing > 0:
            self._file.data += bytes(missing)

    def _touch(self) -> None:
        self._file.mtime_ms = self._disk.now_ms()
        self._disk.look()


class SimMap:
    """Memory that is a file's, or nobody's."""

    def __init__(self, data: bytearray, size: int) -> None:
        self.buffer = memoryview(data)[:size]

    def populate(self, position: int, size: int, *, may_touch: bool = True) -> bool:
        del position, may_touch
        return size > 0

    def lock(self, position: int, size: int) -> bool:
        del position, size
        return True

    def unlock(self) -> bool:
        return True

    def advise(self, advice: Advice) -> bool:
        del advice
        return True

    def close(self) -> None:
        self.buffer = memoryview(b"")


class _SimLock:
    """The lock of a file by its number, or of a directory by its path."""

    def __init__(self, locks: set[int | Path], key: int | Path) -> None:
        self._locks = locks
        self._key = key

    def close(self) -> None:
        self._locks.discard(self._key)


class SimDisk:
    """A disk in memory (FileOps). Thread-safety: one lock around everything."""

    def __init__(
        self,
        image: Image = EMPTY,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        before: Before | None = None,
    ) -> None:
        self.image = image
        self.journal: list[Effect] = []
        self.before = before
        self.now_ms = now_ms
        self.usage = DiskUsage(1 << 40, 1 << 30, (1 << 40) - (1 << 30))
        self.touched_holes: list[str] = []
        """Pages that were written through a map before they had space on the disk."""
        self._number = next(_numbers)
        self._names: dict[Path, _SimFile | None] = {}
        self._files: dict[int, _SimFile] = {}
        self._locks: set[int | Path] = set()
        self._guard = threading.RLock()
        for path, number in image.names.items():
            if number is not None and number not in self._files:
                self._files[number] = _SimFile(number, path, image.files[number])
            self._names[path] = None if number is None else self._files[number]
        self._next_file = max(self._files, default=0) + 1

    # --- the journal -----------------------------------------------------------------------------

    def note(self, note: object) -> None:
        """Look for what was written through maps, and put a mark behind it."""
        with self._guard:
            self.add(Mark(note))

    def add(self, effect: Effect) -> None:
        """Remember an effect, behind what was written before it."""
        with self._guard:
            self.look()
            self.journal.append(effect)

    def doing(self, what: str, path: Path) -> "_Doing":
        """Enter an operation; the block gets the fault it is to end with, or None."""
        return _Doing(self, what, path)

    def kept(self) -> Image:
        """Return the disk as it is now, as if only the process had died."""
        with self._guard:
            numbers = {path: file and file.number for path, file in self._names.items()}
            used = {file for file in self._names.values() if file is not None}
            return Image({file.number: bytes(file.data) for file in used}, numbers)

    def look(self) -> None:
        """Remember what was written since the last look, through maps too."""
        with self._guard:
            for file in self._files.values():
                if file.data != file.whole:
                    self._look_at(file)

    def _look_at(self, file: _SimFile) -> None:
        if len(file.data) != len(file.whole):
            self.journal.append(Resized(file.number, len(file.data)))
        file.whole = bytes(file.data)
        pages = dict(enumerate(_pages(file.whole)))
        for page in sorted(pages.keys() | file.seen.keys()):
            chunk = pages.get(page, ZERO_PAGE)  # what is cut off is zeros if it comes back
            if chunk != file.seen.get(page, ZERO_PAGE):
                file.seen[page] = chunk
                self.journal.append(PageWritten(file.number, page, chunk))
                if page in pages and page not in file.allocated:
                    self.touched_holes.append(f"{file.path} page {page}")

    # --- FileOps: looking ------------------------------------------------------------------------

    def entries(self, path: Path) -> list[Entry]:
        with self._guard:
            inside = [name for name in self._names if name.parent == path and name != path]
            return [self._entry(name) for name in sorted(inside, key=lambda name: name.name)]

    def stat(self, path: Path) -> Entry | None:
        with self._guard:
            return self._entry(path) if path in self._names else None

    def identity(self, path: Path) -> Hashable | None:
        with self._guard:
            if path not in self._names:
                return None
            file = self._names[path]
            return ("simulated", self._number, path if file is None else file.number)

    def disk_usage(self, path: Path) -> DiskUsage:
        del path
        return self.usage

    def lock_holder(self, path: Path) -> int | None:
        del path
        return None

    def _entry(self, path: Path) -> Entry:
        file = self._names[path]
        if file is None:
            return Entry(path, is_dir=True, size=0, mtime_ms=0)
        return Entry(path, is_dir=False, size=len(file.data), mtime_ms=file.mtime_ms)

    # --- FileOps: opening ------------------------------------------------------------------------

    def open_reader(self, path: Path) -> SimReader:
        with self.doing("read", path) as fault:
            if fault is not None:
                raise fault
            file = self._names.get(path)
            if file is None:
                raise StoreNotFoundError(f"cannot read {path}: no such file") from _missing(path)
            return SimReader(self, file, path)

    def open_writer(self, path: Path) -> SimWriter:
        with self.doing("open", path) as fault:
            if fault is not None:
                raise fault
            file = self._names.get(path)
            if file is None:
                raise FileAccessError(str(path), "cannot open: no such file") from _missing(path)
            return SimWriter(self, file, path)

    def create(self, path: Path, size: int, *, is_sparse: bool = False) -> SimWriter:
        with self.doing("create", path) as fault:
            if fault is not None:
                raise fault
            if path in self._names or self._names.get(path.parent, 0) is not None:
                raise FileAccessError(str(path), "cannot create: it is there, or its place is not")
            file = _SimFile(self._next_file, path)
            self._next_file += 1
            self._files[file.number] = file
            self._names[path] = file
            self.add(Named(path, file.number))
        writer = SimWriter(self, file, path)
        try:
            writer.truncate(size)
            if size and not is_sparse:
                writer.allocate(0, size)
        except BaseException:
            writer.close()
            self.unlink(path)
            raise
        return writer

    def allocate_memory(self, size: int) -> SimMap:
        return SimMap(bytearray(size), size)

    def lock(self, path: Path, content: bytes) -> _SimLock | None:
        with self._guard:
            writer = self.open_writer(path) if path in self._names else self.create(path, 0)
            file = self._names[path]
            assert file is not None, f"{path} is a directory"
            if file.number in self._locks:
                return None
            writer.write(0, content)
            writer.sync()
            self._locks.add(file.number)
            return _SimLock(self._locks, file.number)

    def lock_directory(self, path: Path, *, is_shared: bool = False) -> _SimLock | None:
        del is_shared  # one store is opened at a time
        with self._guard:
            assert self._names[path] is None, f"{path} is no directory"
            if path in self._locks:
                return None
            self._locks.add(path)
            return _SimLock(self._locks, path)

    # --- FileOps: names --------------------------------------------------------------------------

    def mkdirs(self, path: Path, *, is_durable: bool = True) -> None:
        with self._guard:
            for place in reversed((path, *path.parents)):
                if place not in self._names:
                    with self.doing("mkdir", place) as fault:
                        if fault is not None:
                            raise fault
                        self._names[place] = None
                        self.add(Named(place, None))
                    if is_durable:
                        self.sync_dir(place.parent)
            if self._names[path] is not None:
                raise FileAccessError(str(path), "cannot make the directory: it is a file")

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "a rename stays in its directory"
        with self.doing("rename", source) as fault:
            if fault is not None:
                raise fault
            file = self._names.get(source)
            if file is None:
                raise FileAccessError(str(source), "cannot rename: no such file")
            del self._names[source]
            self._names[target] = file
            self.add(Named(target, file.number, source))

    def link(self, source: Path, target: Path) -> bool:
        with self.doing("link", target) as fault:
            file = self._names.get(source)
            if fault is not None or file is None or target in self._names:
                return False
            self._names[target] = file
            self.add(Named(target, file.number))
            return True

    def unlink(self, path: Path) -> bool:
        with self.doing("unlink", path) as fault:
            if fault is not None:
                raise fault
            if self._names.get(path) is None:
                return False
            del self._names[path]
            self.add(Unnamed(path))
            return True

    def rmdir(self, path: Path) -> bool:
        with self.doing("rmdir", path) as fault:
            if fault is not None:
                raise fault
            is_dir = path in self._names and self._names[path] is None
            if not is_dir or any(name.parent == path for name in self._names if name != path):
                return False
            del self._names[path]
            self.add(Unnamed(path))
            return True

    def sync_dir(self, path: Path) -> None:
        with self.doing("sync_dir", path) as fault:
            if fault is not None:
                raise fault
            self.add(DirSynced(path))


class _Doing:
    """The block of one operation: the disk's lock, and the fault it is to end with."""

    def __init__(self, disk: SimDisk, what: str, path: Path) -> None:
        self._disk = disk
        self._what = what
        self._path = path

    def __enter__(self) -> Exception | None:
        self._disk._guard.acquire()
        if self._disk.before is None:
            return None
        try:
            self._disk.before(self._what, self._path)
        except Exception as fault:  # noqa: BLE001 - the operation ends with it
            return fault
        return None

    def __exit__(self, *_: object) -> None:
        self._disk._guard.release()


def _pages(data: bytes | bytearray) -> Iterator[bytes]:
    """Yield the pages of a file; the last is filled up."""
    for at in range(0, len(data), PAGE):
        yield bytes(data[at : at + PAGE]).ljust(PAGE, b"\0")


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(2, "No such file or directory", str(path))
