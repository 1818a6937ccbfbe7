"""JSON tables of a store, each with a `.bak` copy beside it.

1. The reference replaces a table in steps, so a crash may leave `<f>` missing, empty or torn. The
   copy `<f>.bak` is then one version old and whole: both are looked at before a table counts as
   lost.
2. Reading never writes, renames or deletes. (The reference deletes a broken `<f>`.)
3. Writing leaves the old table or the new one under `<f>` at every moment, and only then makes the
   old one the copy.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar, overload

from msgspec import Struct

from rocketlake import failpoint
from rocketlake.errors import FileAccessError, StoreError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.whole_file import WHOLE_SIZE_MAX, write_whole
from rocketlake.format import java_json, names
from rocketlake.format.java_json import JsonObject

Value = TypeVar("Value")
Source: TypeAlias = Literal["file", "backup", "database", "missing"]


class LoadedTable(Struct, Generic[Value], frozen=True):
    """A table as found, where it was found, and what was wrong on the way to it.

    Invariants: `value` is None if and only if `source` is "missing". A `problem` beside a value
    says why the file itself was not used; beside no value, what is wrong with both. No problem and
    no value: neither file exists.
    """

    value: Value | None
    source: Source
    problem: str | None = None
    is_blank: bool = False
    """Whether there is no value because nothing is in the files: nothing can have been lost."""
    hidden: str | None = None
    """Why the table in use, which is in a database, was not read; `value` is then a former one."""


@overload
def load_table(path: Path, *, ops: FileOps | None = None) -> LoadedTable[JsonObject]: ...
@overload
def load_table(
    path: Path, decode: Callable[[JsonObject], Value], *, ops: FileOps | None = None
) -> LoadedTable[Value]: ...
def load_table(
    path: Path,
    decode: Callable[[JsonObject], Value] | None = None,
    *,
    ops: FileOps | None = None,
) -> LoadedTable[JsonObject] | LoadedTable[Value]:
    """Read a table from its file, or from the copy beside it when the file is of no use.

    A `decode` that raises ValueError makes a file as useless as bad JSON does. What is wrong is
    returned in the result, never raised.
    """
    ops = ops or PosixFileOps()
    if decode is None:
        return _load(ops, path, _keep)
    return _load(ops, path, decode)


def write_table(ops: FileOps, path: Path, data: bytes) -> None:
    """Put a new table in the place of the old one, which becomes the copy.

    Durability: when this returns, the new table is on the disk. A crash before leaves the old or
    the new one.

    Raises:
        FileAccessError: it cannot be written; the old table is untouched.
    """
    fresh = path.with_name(path.name + ".tmp")
    old = path.with_name(backup_path(path).name + ".tmp")
    ops.mkdirs(path.parent)
    write_whole(ops, fresh, data)
    has_old = _save_old(ops, path, old)
    failpoint.hit("table.before")
    ops.rename(fresh, path)
    ops.sync_dir(path.parent)
    failpoint.hit("table.after")
    if has_old:
        # Order: the copy is replaced when the new table is safe, for the old one may be broken in
        # a way that was never seen.
        failpoint.hit("backup.before")
        ops.rename(old, backup_path(path))
        ops.sync_dir(path.parent)
        failpoint.hit("backup.after")


class _BlankFileError(ValueError):
    """A file has no bytes, or white space only."""


def backup_path(path: Path) -> Path:
    """Return the path of a table's copy."""
    return path.with_name(path.name + names.BACKUP_SUFFIX)


def _load(ops: FileOps, path: Path, decode: Callable[[JsonObject], Value]) -> LoadedTable[Value]:
    problems = []
    exists = False
    is_blank = True
    candidates: tuple[tuple[Path, Source], ...] = ((path, "file"), (backup_path(path), "backup"))
    for candidate, source in candidates:
        try:
            data = _read(ops, candidate)
            if data is None:
                problems.append(f"{candidate.name} is missing")
                continue
            value = decode(_parse(data))
        except (StoreError, ValueError) as error:
            exists = True
            is_blank = is_blank and isinstance(error, _BlankFileError)
            problems.append(f"{candidate.name}: {_reason(error)}")
        else:
            return LoadedTable(value, source, "; ".join(problems) or None)
    if not exists:
        return LoadedTable(None, "missing")
    return LoadedTable(None, "missing", "; ".join(problems), is_blank=is_blank)


def _keep(value: JsonObject) -> JsonObject:
    return value


def _read(ops: FileOps, path: Path) -> bytes | None:
    entry = ops.stat(path)
    if entry is None:
        return None
    if entry.is_dir:
        raise FileAccessError(str(path), "Is a directory")
    if entry.size > WHOLE_SIZE_MAX:
        text = f"it has {entry.size} bytes; a table has {WHOLE_SIZE_MAX} at most"
        raise FileAccessError(str(path), text)
    try:
        reader = ops.open_reader(path)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None  # renamed away meanwhile
        raise
    try:
        return reader.read(0, entry.size)
    finally:
        reader.close()


def _parse(data: bytes) -> JsonObject:
    if not data.strip():
        raise _BlankFileError("the file is empty")
    value = java_json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the file holds no JSON object")  # noqa: TRY004 - bad content, not a type
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, FileAccessError):
        return error.reason
    cause = error.__cause__
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(error)


def _save_old(ops: FileOps, path: Path, old: Path) -> bool:
    """Give the table in use a second name; False if there is none, or it is visibly broken."""
    try:
        data = _read(ops, path)
    except StoreError:
        return False  # a FIFO, a file of a terabyte: the new table takes its place
    text = (data or b"").strip()
    if data is None or not (text.startswith(b"{") and text.endswith(b"}")):
        return False
    ops.unlink(old)
    if not ops.link(path, old):
        write_whole(ops, old, data)
    return True
