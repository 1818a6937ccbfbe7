"""Stores written by RocketMQ itself, unpacked once, with what RocketMQ reads from them.

    stores = GoldenStores(tmp_path_factory.mktemp("golden"))
    golden = stores.get("v5-basic")
    golden.root            the store directory
    golden.case.messages   what must be read from it

The data lies in tests/golden/data; its README says what each case shows.
"""

import hashlib
import json
import os
import tarfile
import tomllib
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).resolve().parents[1] / "golden" / "data"
ROCKSDB_DATA = DATA.with_name("rocksdb")

Line = dict[str, Any]
"""One JSON object of a case."""


class GoldenCase:
    """The files of one case; each is read when it is first asked for."""

    def __init__(self, name: str, data: Path = DATA) -> None:
        self.name = name
        self.path = data / name

    @property
    def is_5x(self) -> bool:
        """Tell whether RocketMQ 5 wrote the store."""
        return self.name.startswith(("v5-", "v55-"))

    @property
    def is_5_5(self) -> bool:
        """Tell whether RocketMQ 5.5 wrote the store."""
        return self.name.startswith("v55-")

    @cached_property
    def spec(self) -> Line:
        """The input: version, options, puts, damage, questions."""
        return _object(self.path / "spec.json")

    @cached_property
    def manifest(self) -> Line:
        """Versions, sums and positions of damage."""
        return tomllib.loads((self.path / "manifest.toml").read_text(encoding="utf-8"))

    @cached_property
    def puts(self) -> list[Line]:
        """The answer to each put."""
        return _lines(self.path / "puts.jsonl")

    @cached_property
    def expected(self) -> list[Line]:
        """Every line of expected.jsonl."""
        return _lines(self.path / "expected.jsonl")

    @property
    def messages(self) -> list[Line]:
        """The messages RocketMQ reads, by topic, queue and offset."""
        return [line for line in self.expected if "topic" in line]

    @property
    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        """The lowest and the next offset of each queue."""
        return {
            (line["queue"], line["queueId"]): (line["minOffset"], line["maxOffset"])
            for line in self.expected
            if "queue" in line and "minOffset" in line
        }

    @property
    def missing(self) -> list[Line]:
        """The units whose records are gone."""
        return [line for line in self.expected if line.get("missing")]

    @property
    def log_bounds(self) -> tuple[int, int]:
        """The first byte of the commit log and the one behind its last."""
        (line,) = (line for line in self.expected if "commitLogMin" in line)
        return line["commitLogMin"], line["commitLogMax"]

    @cached_property
    def key_queries(self) -> list[Line]:
        """Questions by key, with RocketMQ's answers."""
        return self._queries("keys")

    @cached_property
    def time_queries(self) -> list[Line]:
        """Questions by time, with RocketMQ's answers."""
        return self._queries("times")

    def _queries(self, kind: str) -> list[Line]:
        path = self.path / "query.json"
        found: list[Line] = _object(path).get(kind, []) if path.exists() else []
        return found

    @cached_property
    def recovered(self) -> Line | None:
        """What a start of RocketMQ makes of an unclean store; None for the others."""
        path = self.path / "recovered.json"
        return _object(path) if path.exists() else None

    def options(self, store: Path) -> dict[str, object]:
        """The options the store was written with."""
        given: dict[str, object] = self.spec["options"]
        return {
            key: value.replace("{store}", str(store)) if isinstance(value, str) else value
            for key, value in given.items()
        }


class Golden(NamedTuple):
    """A case and its unpacked store."""

    case: GoldenCase
    root: Path

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The directories of the commit log."""
        given = self.case.options(self.root).get("storePathCommitLog", self.root / "commitlog")
        return tuple(Path(part) for part in str(given).split(","))

    @property
    def log_files(self) -> list[Path]:
        """The files of the commit log, in order."""
        found = (path for place in self.log_dirs for path in place.iterdir())
        return sorted(found, key=lambda path: path.name)

    def files(self, family: str) -> list[Path]:
        """The files below one directory of the store, by path."""
        return sorted(path for path in (self.root / family).rglob("*") if path.is_file())


class GoldenStores:
    """Unpacks each store once, under one directory."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._unpacked: dict[str, Golden] = {}

    def get(self, name: str) -> Golden:
        """Return a case with its store, which nobody may change."""
        if name not in self._unpacked:
            self._unpacked[name] = self.copy(name, self._place / name)
        return self._unpacked[name]

    @staticmethod
    def copy(name: str, place: Path, data: Path = DATA) -> Golden:
        """Unpack a store once more, to be changed."""
        case = GoldenCase(name, data)
        unpack(case.path / "store.tar.gz", place)
        return Golden(case, place / "store")


def unpack(archive: Path, place: Path) -> None:
    """Unpack files and directories with their modification times.

    Raises:
        ValueError: the archive holds a link, or a path that leads outside.
    """
    # Why: tarfile's own filters came with 3.11.4, and a distribution may have 3.11.2.
    with tarfile.open(archive) as members:
        for member in members:
            target = (place / member.name).resolve()
            if not target.is_relative_to(place.resolve()):
                raise ValueError(f"{archive}: {member.name} leads outside")
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            content = members.extractfile(member) if member.isfile() else None
            if content is None:
                raise ValueError(f"{archive}: {member.name} is no file")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
            # Why: the header has the time in full, `member.mtime` is a rounded float.
            time_ns = int(Decimal(member.pax_headers.get("mtime", str(member.mtime))) * 10**9)
            os.utime(target, ns=(time_ns, time_ns))


@cache
def case_names() -> tuple[str, ...]:
    """Every case there is."""
    return tuple(sorted(path.parent.name for path in DATA.glob("*/manifest.toml")))


def snapshot(root: Path) -> dict[str, tuple[int, int, str]]:
    """Return size, modification time (ns) and sum of everything below a directory, and of it."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        state = path.stat()
        content = sha256(path) if path.is_file() else "directory"
        size = state.st_size if path.is_file() else 0
        found[str(path.relative_to(root))] = (size, state.st_mtime_ns, content)
    return found


def sha256(path: Path) -> str:
    """Return the SHA-256 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _object(path: Path) -> Line:
    value: Line = json.loads(path.read_text(encoding="utf-8"))
    return value


def _lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
