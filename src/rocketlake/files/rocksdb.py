"""RocksDB databases of RocketMQ, opened for reading only, through the extra `rocketlake[rocksdb]`.

1. The directory of a database is never written to, and its lock is never taken: a broker may have
   it open. The library leaves a file of its own in every directory that it opens, so it is given a
   temporary one with a copy of the manifest and symbolic links to the other files, which is removed
   once the database is open.
2. What is read is the database as of its opening: tables that a compaction deletes meanwhile stay
   open. Where files changed between the listing and the opening, it is tried again.
3. Work is bounded by the sizes of the files; a manifest or write-ahead log of absurd size is
   refused before the library sees it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from rocketlake.closing import Closing
from rocketlake.errors import RocksDbError, RocksDbMissingError
from rocketlake.files.ops import FileOps

if TYPE_CHECKING:
    import rocksdict

EXTRA: Final = "rocketlake[rocksdb]"

_TRIES: Final = 50
_MANIFEST_MAX: Final = 1 << 30
_WAL_MAX: Final = 8 << 30
_CURRENT: Final = "CURRENT"
_MANIFEST: Final = "MANIFEST-"
_LOG: Final = ".log"
_DATA: Final = (".sst", ".blob", _LOG)


def is_database(ops: FileOps, path: Path) -> bool:
    """Tell whether a directory holds a whole database: one that says which its manifest is."""
    entry = ops.stat(path / _CURRENT)
    return entry is not None and not entry.is_dir


def is_available() -> bool:
    """Tell whether the extra is installed."""
    try:
        _library()
    except RocksDbMissingError:
        return False
    return True


class Database(Closing):
    """A database as of its opening.

    Thread-safety: one thread.
    """

    def __init__(self, ops: FileOps, path: Path) -> None:
        """Open a database for reading.

        Raises:
            RocksDbMissingError: the extra is not installed.
            RocksDbError: there is no database, or the library cannot open it.
        """
        self.path = path
        self.families, self._database = _open(_library(), ops, path)
        self._handles: dict[str, rocksdict.Rdict] = {}

    def close(self) -> None:
        """Give descriptors and memory back."""
        for handle in self._handles.values():
            handle.close()
        self._handles.clear()
        self._database.close()

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none.

        Raises:
            RocksDbError: the database is damaged.
        """
        if family not in self.families:
            return None
        with _told(self.path):
            return cast("bytes | None", self._handle(family).get(key))

    def items(
        self, family: str, begin: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from a key on, up to but without another, in the order of bytes.

        Raises:
            RocksDbError: the database is damaged.
        """
        if family not in self.families:
            return
        with _told(self.path):
            cursor = self._handle(family).iter()
            cursor.seek(begin)
            while cursor.valid():
                key = cast("bytes", cursor.key())
                if end is not None and key >= end:
                    break
                yield key, cast("bytes", cursor.value())
                cursor.next()
            cursor.status()

    def last(self, family: str, begin: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the last key from `begin` up to and with `end`, and its value; None without one.

        Raises:
            RocksDbError: the database is damaged.
        """
        if family not in self.families:
            return None
        with _told(self.path):
            cursor = self._handle(family).iter()
            cursor.seek_for_prev(end)
            if not cursor.valid():
                cursor.status()
                return None
            key, value = cast("bytes", cursor.key()), cast("bytes", cursor.value())
        return (key, value) if key >= begin else None

    def _handle(self, family: str) -> "rocksdict.Rdict":
        if family not in self._handles:
            self._handles[family] = self._database.get_column_family(family)
        return self._handles[family]


def _library() -> ModuleType:
    try:
        import rocksdict  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RocksDbMissingError(
            f"RocksDB databases are read with the extra {EXTRA} only: pip install '{EXTRA}'"
        ) from error
    return rocksdict


def _open(
    library: ModuleType, ops: FileOps, path: Path
) -> tuple[tuple[str, ...], "rocksdict.Rdict"]:
    """Return the names of the column families, and the open database."""
    if not is_database(ops, path):
        raise RocksDbError(f"{path} holds no RocksDB database: it has no CURRENT")
    for left in reversed(range(_TRIES)):
        links = Path(tempfile.mkdtemp(prefix="rocketlake-rocksdb-"))
        try:
            before = _link(ops, path, links)
            if left and before != _sizes(ops, path):
                continue
            try:
                with _told(path):
                    return _open_links(library, links)
            except RocksDbError:
                # Why again: a broker may have replaced files between the listing and the opening.
                if not left or before == _sizes(ops, path):
                    raise
        finally:
            shutil.rmtree(links, ignore_errors=True)
    raise AssertionError("the last try returns or raises")


def _open_links(library: ModuleType, links: Path) -> tuple[tuple[str, ...], "rocksdict.Rdict"]:
    families = tuple(library.Rdict.list_cf(str(links)))
    options = _options(library)
    each = {family: _options(library) for family in families}
    mode = library.AccessType.read_only(False)  # noqa: FBT003 - a log file is not an error
    return families, library.Rdict(str(links), options, each, mode)


def _options(library: ModuleType) -> "rocksdict.Options":
    options: rocksdict.Options = library.Options(raw_mode=True)
    options.create_if_missing(False)  # noqa: FBT003 - the library's own signature
    options.set_max_open_files(-1)  # all of them: a compaction may delete them meanwhile
    return options


def _link(ops: FileOps, path: Path, links: Path) -> dict[str, int]:
    """Make links to the files of a database; return the sizes of what says which these are.

    The manifest is copied: one that grows afterwards names tables that have no link.

    Raises:
        RocksDbError: a file that is read whole is too large.
    """
    sizes = _sizes(ops, path)
    manifests = sum(size for name, size in sizes.items() if name.startswith(_MANIFEST))
    if manifests > _MANIFEST_MAX:
        raise RocksDbError(
            f"{path} has manifests of {manifests} bytes, more than any broker leaves"
            f" ({_MANIFEST_MAX})"
        )
    for name in sizes:
        with suppress(FileNotFoundError):  # the next look finds that it is gone
            shutil.copyfile(path / name, links / name)
    logs = 0
    for entry in ops.entries(path):
        if entry.name.endswith(_DATA) and entry.path.is_file():
            (links / entry.name).symlink_to(entry.path.absolute())
            logs += entry.size if entry.name.endswith(_LOG) else 0
    if logs > _WAL_MAX:
        raise RocksDbError(
            f"{path} has write-ahead logs of {logs} bytes, more than any broker leaves ({_WAL_MAX})"
        )
    return sizes


def _sizes(ops: FileOps, path: Path) -> dict[str, int]:
    """Return the sizes of CURRENT and the manifests, which change with every change of files."""
    return {
        entry.name: entry.size
        for entry in ops.entries(path)
        if (entry.name == _CURRENT or entry.name.startswith(_MANIFEST)) and entry.path.is_file()
    }


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what the library raises into an error that names the database."""
    try:
        yield
    except BaseException as error:
        # The library raises plain Exception, and a panic of its Rust code is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = str(error).replace("\n", " ").strip()
        raise RocksDbError(f"{path}: the RocksDB database cannot be read: {text}") from error
