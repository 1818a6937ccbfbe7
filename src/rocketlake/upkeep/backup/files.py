"""The files of a backup: grown in place where the source only appends, else replaced whole.

A file that grows is written behind what was covered before; a crash then leaves what was there. One
that is replaced is copied beside its place and renamed.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from rocketlake.errors import StoreError, StoreNotFoundError
from rocketlake.files.ops import Entry, FileOps, Reader, Writer
from rocketlake.files.store_dir import OffsetFile
from rocketlake.upkeep.backup.file_copy import PROBE, Copied, are_alike, checksum, copy_part
from rocketlake.upkeep.backup.manifest import CopiedFile
from rocketlake.upkeep.export.new_file import NewFile

_PART = ".part"


class Growing(Struct, frozen=True):
    """A file of the source that is only appended to, and how far it is to be copied."""

    source: Path
    name: str
    """Its path in the backup."""
    size: int
    end: int
    """How many of its bytes count."""
    base_offset: int
    """The offset of its first byte."""


class BackupFiles:
    """Brings files into a backup, and knows what each holds."""

    def __init__(
        self,
        ops: FileOps,
        target: Path,
        former: dict[str, CopiedFile],
        on_bytes: Callable[[int], None],
    ) -> None:
        self.ops = ops
        self.target = target
        self.former = former
        self.copied: dict[str, CopiedFile] = {}
        self.copied_bytes = 0
        self.on_bytes = on_bytes
        self._made: set[Path] = set()
        self._last_names: dict[str, str] = {}  # of each directory, when the former backup was made
        for name in sorted(former):
            self._last_names[_place(name)] = name

    # --- files that grow -------------------------------------------------------------------------

    def is_other(self, file: Growing) -> bool:
        """Tell whether the backup has a file of this name that is not a prefix of the source's."""
        known = self._known(file.name)
        if known is None or not known.bytes:
            return False
        if file.end < known.bytes or file.size != known.size:
            return True
        one = self.ops.open_reader(file.source)
        other = self.ops.open_reader(self.target / file.name)
        try:
            return not are_alike(one, other, known.bytes)
        finally:
            one.close()
            other.close()

    def grow(self, file: Growing) -> bool:
        """Copy what is new of a file; False if the source's is gone.

        Raises:
            StoreError: bytes of the source that were there before are not there any more.
        """
        known = self._known(file.name)
        covered, crc = (known.bytes, known.crc32) if known is not None else (0, 0)
        if known is not None and covered >= file.end:
            self.copied[file.name] = known
            return True
        try:
            reader = self.ops.open_reader(file.source)
        except StoreNotFoundError:
            if self.ops.stat(file.source) is None:
                return False  # it expired meanwhile
            raise
        path, place = self.target / file.name, self._place_of(file, known)
        try:
            writer = self._open(file, known, place)
            try:
                copied = self._copy(reader, writer, (covered, file.end), crc)
                writer.sync()
            finally:
                writer.close()
        finally:
            reader.close()
        if copied.end < file.end:
            raise StoreError(f"{file.source} ends at {copied.end}: it was cut while it was copied")
        if place != path:
            self.ops.rename(place, path)
            self.ops.sync_dir(path.parent)
        self._note(file.name, file.size, file.end, copied.crc)
        return True

    def _place_of(self, file: Growing, known: CopiedFile | None) -> Path:
        """Return where to write a file: beside one that is to be replaced, else in place."""
        path = self.target / file.name
        former = self.former.get(file.name)
        is_anew = known is None and former is not None and self.ops.stat(path) is not None
        return path.with_name(path.name + _PART) if is_anew else path

    def _open(self, file: Growing, known: CopiedFile | None, place: Path) -> Writer:
        self.make_dir(place.parent)
        if known is not None:
            return self.ops.open_writer(place)
        self.ops.unlink(place)
        writer = self.ops.create(place, file.size, is_sparse=True)
        self.ops.sync_dir(place.parent)
        return writer

    def _copy(self, reader: Reader, writer: Writer, part: tuple[int, int], crc: int) -> Copied:
        copied = copy_part(reader, writer, part, crc=crc, on_bytes=self.on_bytes)
        self.copied_bytes += copied.written
        return copied

    def _known(self, name: str) -> CopiedFile | None:
        """Return what the backup has of a file that grows; None if it is not as it was left."""
        known = self.former.get(name)
        if known is None or known.rebuilt:
            return None
        entry = self.ops.stat(self.target / name)
        return known if entry is not None and entry.size == known.size else None

    def cut_back(self) -> None:
        """Make files end where they did before, should a backup have been interrupted."""
        for name, known in self.former.items():
            if known.bytes < known.size and self._known(name) is not None:
                writer = self.ops.open_writer(self.target / name)
                try:
                    if any(writer.read(known.bytes, PROBE)):
                        writer.truncate(known.bytes)
                        writer.truncate(known.size)
                finally:
                    writer.close()

    # --- files that are replaced -----------------------------------------------------------------

    def replace(self, source: Path, name: str, *, is_passing: bool = False) -> bool:
        """Copy a file whole; False if the source's is gone.

        `is_passing`: the next backup copies it again.
        """
        entry = self.ops.stat(source)
        if entry is None:
            return False
        path = self.target / name
        part = path.with_name(path.name + _PART)
        self.make_dir(path.parent)
        self.ops.unlink(part)
        reader = self.ops.open_reader(source)
        try:
            writer = self.ops.create(part, entry.size, is_sparse=True)
            try:
                copied = self._copy(reader, writer, (0, entry.size), 0)
                writer.sync()
            finally:
                writer.close()
        finally:
            reader.close()
        self.ops.rename(part, path)
        self.ops.sync_dir(path.parent)
        self._note(name, entry.size, entry.size, copied.crc, rebuilt=is_passing)
        return True

    def replace_unless_final(self, source: OffsetFile | Entry, name: str, *, is_last: bool) -> bool:
        """Copy a file whole, unless the backup has it from a time when it was not the last one."""
        was_last = self._last_names.get(_place(name)) == name
        if not is_last and not was_last and self.keep(name, source.size):
            return True
        return self.replace(source.path, name)

    def keep(self, name: str, size: int) -> bool:
        """Keep a file that never changes, if the backup has it in this size."""
        known = self._known(name)
        if known is None or known.size != size:
            return False
        self.copied[name] = known
        return True

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, in one step, unless it holds just that."""
        path = self.target / name
        entry = self.ops.stat(path)
        if entry is not None and entry.size == len(data) and self._read(path, len(data)) == data:
            return
        self.make_dir(path.parent)
        new = NewFile(self.ops, path)
        try:
            new.write(data)
            new.commit()
        finally:
            new.abandon()
        self.copied_bytes += len(data)

    def _read(self, path: Path, size: int) -> bytes:
        reader = self.ops.open_reader(path)
        try:
            return reader.read(0, size)
        finally:
            reader.close()

    def _note(self, name: str, size: int, covered: int, crc: int, *, rebuilt: bool = False) -> None:
        self.copied[name] = CopiedFile(
            path=name, size=size, bytes=covered, crc32=crc, rebuilt=rebuilt
        )

    # --- files that go ---------------------------------------------------------------------------

    def forget(self, name: str) -> None:
        """Remove a file from the backup."""
        self.ops.unlink(self.target / name)
        self.former.pop(name, None)
        self.copied.pop(name, None)

    def make_dir(self, path: Path) -> None:
        """Make a directory of the backup, once."""
        if path not in self._made:
            self.ops.mkdirs(path)
            self._made.add(path)

    # --- what there is ---------------------------------------------------------------------------

    def summary(self, left_out: frozenset[str]) -> list[CopiedFile]:
        """Return every file of the backup as it is now, those in `left_out` excepted.

        What was grown is described as far as it was copied; what recovery made, whole.
        """
        found: list[CopiedFile] = []
        for path in self._walk(self.target):
            name = path.relative_to(self.target).as_posix()
            if name in left_out or name.endswith(_PART):
                continue
            entry = self.ops.stat(path)
            assert entry is not None, "files of a backup are not removed meanwhile"
            known = self.copied.get(name) or self.former.get(name)
            # Why: what recovery made the last time, it may have gone on with this time.
            is_ours = known is not None and known.rebuilt and name not in self.copied
            if known is not None and known.size == entry.size and _is_grown(name) and not is_ours:
                found.append(known)
                continue
            covered, crc = checksum(self.ops, path, entry.size)
            is_same = known is not None and known.crc32 == crc and known.bytes == covered
            found.append(
                CopiedFile(
                    path=name, size=entry.size, bytes=covered, crc32=crc, rebuilt=not is_same
                )
            )
        return found

    def _walk(self, path: Path) -> list[Path]:
        found = []
        for entry in self.ops.entries(path):
            found += self._walk(entry.path) if entry.is_dir else [entry.path]
        return found


def _place(name: str) -> str:
    return name.rpartition("/")[0]


def _is_grown(name: str) -> bool:
    """Tell whether a file is one of those that only grow."""
    return name.startswith(("commitlog/", "consumequeue/", "batchconsumequeue/"))
