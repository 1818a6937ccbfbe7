"""Side records for tags too rich for a unit: the hash, the store time and filter bits.

A queue unit then holds an address in place of its tags code. What is here is not important: a unit
whose address leads nowhere stands for an unknown tag, and its message is passed on.
"""

import struct
from typing import Final

import numpy as np

from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import FileOps
from rocketlake.format import layout
from rocketlake.format.queue_unit import ExtUnit, ext_address, ext_offset, is_ext_address
from rocketlake.store.queue.unit_files import slice_at

_SIZE_FIELD: Final = struct.Struct(">h")  # size, the first field of a unit
_END_MARK: Final = _SIZE_FIELD.pack(-1)
_WINDOW: Final = 64 << 10  # more than the largest unit
_OFFSET_MAX: Final = layout.EXT_ADDRESS_MAX - layout.EXT_ADDRESS_BASE


class ConsumeQueueExt:
    """The extension units of one queue.

    Thread-safety: any thread gets; one at a time puts, recovers or cuts.
    """

    def __init__(self, ops: FileOps, files: MappedFileQueue) -> None:
        self._ops = ops
        self._files = files

    @property
    def min_address(self) -> int:
        """The address of the first byte there is."""
        return ext_address(self._files.min_offset)

    @property
    def max_address(self) -> int:
        """The address behind the last unit."""
        return ext_address(self._files.max_offset)

    @property
    def mapped_size(self) -> int:
        """How many bytes the files have together."""
        return self._files.mapped_size

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self._files.files)

    def load(self, *, is_clean: bool = True) -> None:
        """Take the files that exist; after an unclean stop, those that were flushed."""
        self._files.load(is_clean=is_clean)

    # --- units -----------------------------------------------------------------------------------

    def put(self, unit: ExtUnit) -> int | None:
        """Append a unit and return its address; None if no file or no address can hold it.

        Raises:
            DiskFullError: there is no space; a repeat may succeed.
        """
        room = self._files.file_size - layout.EXT_END_MARK_SIZE
        if unit.size > min(room, layout.MAX_I16):
            return None
        if self._files.max_offset + unit.size > _OFFSET_MAX:
            return None
        file = self._files.last_file(0)
        if file is not None and unit.size > room - file.wrote:
            # Compat: as ConsumeQueueExt#fullFillToEnd marks the rest of a file as unused.
            file.fill_to_end(_END_MARK)
            file = self._files.last_file(0)
        if file is None:
            return None
        address = ext_address(file.base_offset + file.wrote)
        return address if file.append(unit.encode()) else None

    def get(self, address: int) -> ExtUnit | None:
        """Return the unit at an address; None if there is none."""
        if not is_ext_address(address):
            return None
        offset = ext_offset(address)
        found = slice_at(self._ops, self._files, offset)
        if found is None:
            return None
        with found:
            return ExtUnit.decode(found.view)

    # --- bounds ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Find the last unit by walking over the last file, and cut behind it."""
        # Compat: as in ConsumeQueueExt#recover, which walks over all files and goes by the last.
        file = self._files.last_file()
        if file is not None:
            self._files.truncate(file.base_offset + self._walk(file))

    def cut_behind(self, address: int) -> None:
        """Make the unit at an address the last one; nothing is done if there is none."""
        unit = self.get(address)
        if unit is not None:
            self._files.truncate(ext_offset(address) + unit.size)

    def delete_before(self, address: int) -> int:
        """Delete the files that end before an address; return how many."""
        return self._files.delete_before(ext_offset(address)) if is_ext_address(address) else 0

    def flush(self, least_pages: int) -> bool:
        """Have units on the disk; tell whether anything moved."""
        has_moved = False
        while self._files.flush(least_pages):
            has_moved = True
        return has_moved

    def close(self) -> None:
        """Let the files go; nothing is flushed."""
        self._files.close()

    def destroy(self) -> None:
        """Remove all files, and the directory."""
        self._files.destroy()

    # --- private ---------------------------------------------------------------------------------

    def _walk(self, file: MappedFile) -> int:
        """Return where the units of a file end."""
        reader = self._ops.open_reader(file.path)
        try:
            position = 0
            while used := _whole_units(reader.read(position, _WINDOW)):
                position += used
            return position
        finally:
            reader.close()


def _whole_units(data: bytes) -> int:
    """Return how many bytes from the first on are whole units."""
    position = 0
    while position + layout.EXT_UNIT_FIXED_SIZE <= len(data):
        (size,) = _SIZE_FIELD.unpack_from(data, position)
        if size < layout.EXT_UNIT_FIXED_SIZE or position + size > len(data):
            break
        position += size * _count_equal(data, position, size)
    return position


def _count_equal(data: bytes, position: int, size: int) -> int:
    """Return how many units of one size follow each other: nearly all have the same."""
    count = (len(data) - position) // size
    fields = np.dtype({"names": ["size"], "formats": [">i2"], "itemsize": size})
    same = np.frombuffer(data, fields, count, position)["size"] == size
    return count if same.all() else int(np.argmin(same))
