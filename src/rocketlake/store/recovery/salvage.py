"""Saves the bytes that recovery cuts off a log, if they hold good records.

1. `<store>/salvage/<UTC time>/` has a file for each log file that loses something, named by the
   physical offset of its first byte, and `salvage.json`, which is written last: a directory
   without it is what a crash left of one, and goes with the next.
2. A cut that a crash interrupted is made again, and its bytes are not saved again.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from rocketlake import failpoint
from rocketlake.clock import Clock
from rocketlake.errors import FileAccessError, StoreError
from rocketlake.files.ops import Entry, FileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.files.whole_file import write_whole
from rocketlake.format import names
from rocketlake.store.disk.log import WINDOW, LogView
from rocketlake.version import __version__

log = logging.getLogger(__name__)

SALVAGE: Final = "salvage"
DESCRIPTION: Final = "salvage.json"
_ZEROS_MAX: Final = 8  # a record may end with zeros: the size of its properties, if it has none


class Cut(Struct, frozen=True, kw_only=True):
    """What is about to be cut off a log, and why; the fields of `salvage.json`."""

    reason: str
    cut_at: int
    """Where the log will end."""
    path: str
    position: int
    """The same place as a file and a byte of it."""
    bytes: int
    """From there to the end of the last byte that is not zero."""
    first_record: int
    """The offset of the first good record that the log loses."""
    made_by: str = f"rocketlake {__version__}"


class _Piece(Struct, frozen=True):
    """The bytes of one log file that are saved."""

    offset: int
    size: int


class Salvage:
    """Saves bytes of a log for `rocketlake salvage`; used by the thread that recovers the store.

    Durability: when `save` returns, bytes, description and names are on the disk.
    """

    def __init__(self, directory: StoreDir, clock: Clock) -> None:
        self._ops: FileOps = directory.ops
        self._root = directory.path(SALVAGE)
        self._clock = clock

    def save(self, view: LogView, cut: Cut) -> Path:
        """Save what a cut takes, unless it is saved already; return its directory.

        Raises:
            StoreError: it cannot be saved; nothing may be cut then.
        """
        pieces = list(_pieces(view, cut))
        failpoint.hit("salvage.before")
        try:
            path = self._find(view, pieces)
            if path is None:
                path = self._write(view, cut, pieces)
                log.warning("bytes of the log saved path=%s bytes=%d", path, cut.bytes)
        except FileAccessError as error:
            raise StoreError(
                f"{cut.path} at {cut.position}: {cut.reason}, and good records lie behind it from "
                f"{cut.first_record} on. They must be saved under {self._root} before the log is "
                f"cut, which failed ({error}). Nothing was changed: make room for {cut.bytes} "
                "bytes there and open the store again"
            ) from error
        failpoint.hit("salvage.after")
        return path

    # --- writing ---------------------------------------------------------------------------------

    def _write(self, view: LogView, cut: Cut, pieces: Iterable[_Piece]) -> Path:
        self._remove_unfinished()
        path = self._new_directory()
        try:
            for piece in pieces:
                self._write_piece(view, path, piece)
            text = json.dumps({name: getattr(cut, name) for name in cut.__struct_fields__})
            fresh = path / (DESCRIPTION + ".tmp")
            write_whole(self._ops, fresh, text.encode() + b"\n")
            # Order: the names of the bytes are safe before the one that says they are all there.
            self._ops.sync_dir(path)
            self._ops.rename(fresh, path / DESCRIPTION)
            self._ops.sync_dir(path)
        except FileAccessError:
            self._remove(path)
            raise
        return path

    def _new_directory(self) -> Path:
        now_ms = self._clock.now_ms()
        while True:
            moment = datetime.fromtimestamp(now_ms // 1000, UTC)
            path = self._root / f"{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}"
            if self._ops.stat(path) is None:
                self._ops.mkdirs(path)
                return path
            now_ms += 1

    def _write_piece(self, view: LogView, path: Path, piece: _Piece) -> None:
        name = names.offset_name(piece.offset)
        writer = self._ops.create(path / name, piece.size, is_sparse=True)
        try:
            for at, data in _windows(view, piece):
                if any(data):
                    writer.write(at - piece.offset, data)
            writer.sync()
        finally:
            writer.close()

    # --- what is there already -------------------------------------------------------------------

    def _find(self, view: LogView, pieces: list[_Piece]) -> Path | None:
        """Return the directory that has all bytes already."""
        for entry in self._ops.entries(self._root):
            if not entry.is_dir or self._ops.stat(entry.path / DESCRIPTION) is None:
                continue
            if all(self._has(entry.path, view, piece) for piece in pieces):
                return entry.path
        return None

    def _has(self, path: Path, view: LogView, piece: _Piece) -> bool:
        """Whether a directory has the bytes of a piece; those that are zeros by now may differ."""
        saved = self._ops.stat(path / names.offset_name(piece.offset))
        if saved is None or saved.size < piece.size:
            return False
        reader = self._ops.open_reader(saved.path)
        try:
            for at, data in _windows(view, piece):
                then = np.frombuffer(reader.read(at - piece.offset, len(data)), np.uint8)
                now = np.frombuffer(data, np.uint8)
                if len(then) != len(now) or not ((then == now) | (now == 0)).all():
                    return False
        finally:
            reader.close()
        return True

    def _remove_unfinished(self) -> None:
        for entry in self._ops.entries(self._root):
            if entry.is_dir and self._ops.stat(entry.path / DESCRIPTION) is None:
                self._remove(entry.path)

    def _remove(self, path: Path) -> None:
        """Remove what `_write` made in a directory, and the directory if it is empty then."""
        for entry in self._ops.entries(path):
            if _is_ours(entry):
                self._ops.unlink(entry.path)
        self._ops.rmdir(path)


def _is_ours(entry: Entry) -> bool:
    is_piece = names.parse_offset_name(entry.name) is not None
    return not entry.is_dir and (is_piece or entry.name.startswith(DESCRIPTION))


def _pieces(view: LogView, cut: Cut) -> Iterator[_Piece]:
    end = cut.cut_at + cut.bytes
    for file in view.files:
        begin = max(file.base_offset, cut.cut_at)
        stop = min(file.base_offset + file.size, end + _ZEROS_MAX)
        if begin < min(stop, end):
            yield _Piece(begin, stop - begin)


def _windows(view: LogView, piece: _Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a piece as the log has them now, with their offsets."""
    at = piece.offset
    while at < piece.offset + piece.size:
        data = view.read(at, min(WINDOW, piece.offset + piece.size - at))
        if not data:
            raise StoreError(f"a file of the log went away while it was read, at {at}")
        yield at, data
        at += len(data)
