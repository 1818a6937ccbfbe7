"""TimerWheel: the slots of due times (docs/formats/timer.md)."""

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from rocketlake.errors import FileSizeError
from rocketlake.files.ops import FileOps, Writer
from rocketlake.format import layout
from rocketlake.format.timer import SLOT_DTYPE, WheelSlot, slot_position

_SIZE: Final = layout.WHEEL_SLOTS * layout.WHEEL_SLOT_SIZE
_CHUNK: Final = 32_768 * layout.WHEEL_SLOT_SIZE
_EMPTY: Final = WheelSlot(0, 0, 0, 0, 0)


class TimerWheel:
    """Slots in a sparse file; changed slots are in memory until `flush`.

    Thread-safety: one thread changes it; any thread may read a slot.

    Durability: a slot is on the disk after `flush`. Slots that a crash loses are rebuilt from the
    timer log.
    """

    def __init__(self, ops: FileOps, path: Path, precision_ms: int) -> None:
        self._ops = ops
        self._path = path
        self._precision_ms = precision_ms
        self._writer: Writer | None = None
        self._changed: dict[int, WheelSlot] = {}

    @property
    def exists(self) -> bool:
        """Whether the file exists and is not empty."""
        entry = self._ops.stat(self._path)
        return entry is not None and entry.size > 0

    def open(self) -> None:
        """Open the file; create it if it is missing.

        Raises:
            FileSizeError: it does not have the size of a wheel.
        """
        entry = self._ops.stat(self._path)
        if entry is not None and entry.size not in {0, _SIZE}:
            raise FileSizeError(str(self._path), size=entry.size, expected=_SIZE)
        if entry is not None and entry.size:
            self._writer = self._ops.open_writer(self._path)
            return
        self._ops.unlink(self._path)
        self._writer = self._ops.create(self._path, _SIZE, is_sparse=True)
        self._ops.sync_dir(self._path.parent)

    def slot(self, time_ms: int) -> WheelSlot | None:
        """Return the slot of a time; None if it is empty."""
        position = slot_position(time_ms // self._precision_ms)
        found = self._changed.get(position) or self._read(position)
        # Its position may hold a slot of an earlier turn of the wheel.
        return found if found.time == time_ms // self._precision_ms and found != _EMPTY else None

    def put(self, time_ms: int, *, position: int, is_delete: bool, is_first: bool) -> None:
        """Add a unit to the slot of a time; the first unit starts a new chain."""
        found = None if is_first else self.slot(time_ms)
        step = -1 if is_delete else 1
        if found is None:
            new = WheelSlot(time_ms // self._precision_ms, position, position, step, 0)
        else:
            new = WheelSlot(
                found.time, found.first_position, position, found.count + step, found.magic
            )
        self._changed[slot_position(new.time)] = new

    def due_from(self, time_ms: int) -> npt.NDArray[np.void]:
        """Return the slots of a time and of all later ones, in order."""
        assert self._writer is not None, "the wheel is open"
        first = time_ms // self._precision_ms
        found = []
        for start in range(0, _SIZE, _CHUNK):
            slots = np.frombuffer(self._writer.read(start, _CHUNK), SLOT_DTYPE)
            rows = np.flatnonzero((slots["time"] >= first) & (slots["time"] > 0))
            places = start + rows * layout.WHEEL_SLOT_SIZE
            is_old = np.isin(places, list(self._changed)) if self._changed else None
            found.append(slots[rows if is_old is None else rows[~is_old]])
        new = [slot for slot in self._changed.values() if slot.time >= first]
        fields = [structs.astuple(slot) for slot in new]
        return np.sort(np.concatenate([*found, np.array(fields, SLOT_DTYPE)]), order="time")

    def flush(self) -> None:
        """Bring changed slots to the disk.

        Raises:
            DiskFullError: there is no space; the next flush tries again.
            FlushFailedError: they may not be on the disk.
        """
        if not self._changed:
            return
        assert self._writer is not None, "the wheel is open"
        changed = dict(self._changed)
        for position, slot in sorted(changed.items()):
            self._writer.write(position, slot.encode())
        self._writer.sync()
        # Order: after the write, since other threads read the file if memory lacks the slot.
        for position, slot in changed.items():
            if self._changed.get(position) is slot:
                del self._changed[position]

    def close(self) -> None:
        """Close the file; nothing is flushed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def destroy(self) -> None:
        """Remove the file."""
        self.close()
        self._changed.clear()
        self._ops.unlink(self._path)

    def _read(self, position: int) -> WheelSlot:
        writer = self._writer
        data = b"" if writer is None else writer.read(position, layout.WHEEL_SLOT_SIZE)
        return WheelSlot.decode(data) if len(data) == layout.WHEEL_SLOT_SIZE else _EMPTY
