"""backup.json: what a backup holds, from where, and how far each file was copied.

It is written twice: before anything is changed (`copying`), with what the backup held until then,
and at the end (`complete`).
"""

from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps
from rocketlake.format import names
from rocketlake.upkeep.export.new_file import NewFile

NAME: Final = "backup.json"
_FORMAT: Final = 1
_SIZE_MAX: Final = 1 << 30


class CopiedFile(Struct, frozen=True, kw_only=True):
    """One file of a backup: its size, and the checksum of its first `bytes` bytes."""

    path: str
    size: int
    bytes: int
    crc32: int
    rebuilt: bool = False
    """The next backup copies it again: it was built from the log, or is behind the cut."""

    @property
    def is_of_log(self) -> bool:
        """Tell whether it is a file of the commit log."""
        return self.path.startswith(f"{names.COMMIT_LOG}/")


class Manifest(Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    format: int = _FORMAT
    made_by: str
    state: Literal["copying", "complete"]
    source: str
    started_at: str
    finished_at: str | None = None
    log_begin: int = 0
    log_end: int = 0
    files: list[CopiedFile] = []

    def by_path(self) -> dict[str, CopiedFile]:
        """Return the files by their paths."""
        return {file.path: file for file in self.files}


def load(ops: FileOps, directory: Path) -> Manifest | None:
    """Read the manifest of a backup; None if there is none.

    Raises:
        StoreError: it cannot be read, or a later release wrote it.
    """
    path = directory / NAME
    entry = ops.stat(path)
    if entry is None:
        return None
    reader = ops.open_reader(path)
    try:
        found = msgspec.json.decode(reader.read(0, min(entry.size, _SIZE_MAX)), type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"{path} is no list of a backup's files ({error}); name another directory"
        ) from error
    finally:
        reader.close()
    if found.format != _FORMAT:
        raise StoreError(f"{path} has format {found.format}; this release knows {_FORMAT}")
    return found


def save(ops: FileOps, directory: Path, manifest: Manifest) -> None:
    """Write the manifest, in one step."""
    new = NewFile(ops, directory / NAME)
    try:
        new.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        new.commit()
    finally:
        new.abandon()
