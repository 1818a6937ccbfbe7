"""Well-formed records in bytes of a commit log, wherever they begin.

A record counts if its lengths add up, its body has its checksum and it claims the very place where
it lies. Where the place of a file in the log is unknown, its first record tells it.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rocketlake.files.ops import FileOps, Reader
from rocketlake.format.names import parse_offset_name
from rocketlake.format.record import Check, RecordColumns, StopReason, scan
from rocketlake.store.disk.record_search import MAGICS

_WINDOW: Final = 4 << 20
_RECORD_MAX: Final = 256 << 20  # what claims to be larger is no record
_HEAD: Final = 8
_LEADING_OFFSET: Final = re.compile(r"[0-9]{20}")


class RawFile:
    """A file with bytes of a log."""

    def __init__(self, ops: FileOps, path: Path, base_offset: int | None = None) -> None:
        """Take a file; without `base_offset` its name or its first record gives its place."""
        self._ops = ops
        self.path = path
        self.base_offset = base_offset if base_offset is not None else _base_of(path.name)
        entry = ops.stat(path)
        self.size = entry.size if entry is not None else 0

    def records(self, on_bytes: Callable[[int], None] | None = None) -> Iterator[RecordColumns]:
        """Yield the good records, in their order."""
        reader = self._ops.open_reader(self.path)
        try:
            found = False
            for columns in self._scan(reader, self.base_offset, on_bytes):
                found = True
                yield columns
            if not found and self.base_offset is not None:
                # The name may be wrong: the file may have been renamed.
                yield from self._scan(reader, None, None)
        finally:
            reader.close()

    def _scan(
        self, reader: Reader, base: int | None, on_bytes: Callable[[int], None] | None
    ) -> Iterator[RecordColumns]:
        position, window = 0, _WINDOW
        while position < self.size:
            data = reader.read(position, window)
            if not data:
                return
            is_end = position + len(data) >= self.size
            window = _WINDOW
            at = 0
            if base is None:
                base = _find_base(data, position)
            while at < len(data) and base is not None:
                columns, at, reason = _records_at(data, at, base + position)
                if len(columns):
                    yield columns
                    continue
                if reason == StopReason.TORN and not is_end and _may_go_on(data, at):
                    break  # only the window ends here
                at = _next_magic(data, at + 1)
            at = min(at, len(data)) if base is not None else len(data)
            step = at if is_end else _step(data, at)
            if step == 0:
                window = max(_WINDOW, int.from_bytes(data[:4], "big"))
            position += step
            if on_bytes is not None:
                on_bytes(step)


def _records_at(data: bytes, at: int, base: int) -> tuple[RecordColumns, int, StopReason]:
    found = scan(data, at, base_offset=base, checks=Check.OFFSET | Check.BODY_CRC)
    return found.columns, found.position, found.reason


def _may_go_on(data: bytes, at: int) -> bool:
    """Tell whether a record that reaches beyond the window may be one."""
    left = len(data) - at
    if left < _HEAD:
        return True
    return (
        data[at + 4 : at + 8] in MAGICS and left < int.from_bytes(data[at : at + 4]) < _RECORD_MAX
    )


def _step(data: bytes, at: int) -> int:
    """Return how far to go on: to a record that was cut off, or nearly to the end."""
    return at if at < len(data) else max(len(data) - _HEAD + 1, 1)


def _next_magic(data: bytes, start: int) -> int:
    """Return where a record may begin next; the end if nowhere."""
    found = (data.find(magic, start + 4) - 4 for magic in MAGICS)
    return min((at for at in found if at >= start), default=len(data))


def _find_base(data: bytes, position: int) -> int | None:
    """Return the offset of bytes in the log, by the first record in them that looks good."""
    at = _next_magic(data, 0)
    while at < len(data):
        found = scan(data, at, checks=Check.BODY_CRC, rows_max=1)
        if len(found.columns):
            base = int(found.columns["physical_offset"][0]) - at - position
            if base >= 0:
                return base
        at = _next_magic(data, at + 1)
    return None


def _base_of(name: str) -> int | None:
    """Return the offset that a name stands for, also one like `00000000001073741824.old`."""
    exact = parse_offset_name(name)
    if exact is not None:
        return exact
    leading = _LEADING_OFFSET.match(name)
    return parse_offset_name(leading.group()) if leading else None
