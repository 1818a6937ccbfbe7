"""JSON tables of a store, each with a `.bak` copy beside it.

1. The reference replaces a table in steps, so a crash may leave `<f>` missing, empty or torn. The
   copy `<f>.bak` is then one version old and whole: both are looked at before a table counts as
   lost.
2. Reading never writes, renames or deletes. (The reference deletes a broken `<f>`.)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar, overload

from msgspec import Struct

from rocketlake.format import java_json
from rocketlake.format.java_json import JsonObject

Value = TypeVar("Value")
Source: TypeAlias = Literal["file", "backup", "missing"]


class LoadedTable(Struct, Generic[Value], frozen=True):
    """A table as found, where it was found, and what was wrong on the way to it.

    Invariants: `value` is None if and only if `source` is "missing". A `problem` beside a value
    says why the file itself was not used; beside no value, what is wrong with both. No problem and
    no value: neither file exists.
    """

    value: Value | None
    source: Source
    problem: str | None = None


@overload
def load_table(path: Path) -> LoadedTable[JsonObject]: ...
@overload
def load_table(path: Path, decode: Callable[[JsonObject], Value]) -> LoadedTable[Value]: ...
def load_table(
    path: Path, decode: Callable[[JsonObject], Value] | None = None
) -> LoadedTable[JsonObject] | LoadedTable[Value]:
    """Read a table from its file, or from the copy beside it when the file is of no use.

    A `decode` that raises ValueError makes a file as useless as bad JSON does. What is wrong is
    told in the result, never raised.
    """
    if decode is None:
        return _load(path, _keep)
    return _load(path, decode)


def backup_path(path: Path) -> Path:
    """Return where the copy of a table lies."""
    return path.with_name(path.name + ".bak")


def _load(path: Path, decode: Callable[[JsonObject], Value]) -> LoadedTable[Value]:
    problems = []
    exists = False
    candidates: tuple[tuple[Path, Source], ...] = ((path, "file"), (backup_path(path), "backup"))
    for candidate, source in candidates:
        try:
            value = decode(_read_object(candidate))
        except FileNotFoundError:
            problems.append(f"{candidate.name} is missing")
        except (OSError, ValueError) as error:
            exists = True
            reason = error.strerror if isinstance(error, OSError) else error
            problems.append(f"{candidate.name}: {reason}")
        else:
            return LoadedTable(value, source, "; ".join(problems) or None)
    return LoadedTable(None, "missing", "; ".join(problems) if exists else None)


def _keep(value: JsonObject) -> JsonObject:
    return value


def _read_object(path: Path) -> JsonObject:
    data = path.read_bytes()
    if not data.strip():
        raise ValueError("the file is empty")
    value = java_json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the file holds no JSON object")  # noqa: TRY004 - bad content, not a type
    return value
