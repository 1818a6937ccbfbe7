"""DelayOffsets: delayOffset.json that can be changed."""

from collections.abc import Callable
from typing import ClassVar, Final

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import offsets
from rocketlake.metadata.book import VERSION_NAME, Book, Place

_TABLE: Final = "offsetTable"
_UPDATES_PER_VERSION: Final = 200  # BrokerConfig#delayOffsetUpdateVersionStep


class DelayOffsets(Book):
    """How far each delay level was delivered: the next queue offset, by level.

    Thread-safety: as Book.
    """

    speaks_of_log: ClassVar[bool] = True

    def __init__(self, place: Place, file_name: str, members: JsonObject) -> None:
        super().__init__(place, file_name, members)
        self._offsets = offsets.decode_delay(members).offsets
        self._updates = 0

    @classmethod
    def file_name(cls) -> str:
        """Return the name of the file."""
        return offsets.DELAY_FILE_NAME

    def get(self, level: int) -> int:
        """Return the next queue offset of a level; 0 if nothing is known of it."""
        return self._offsets.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        """Let a level go on at an offset."""
        with self._lock:
            if self._offsets.get(level) != offset:
                self._offsets[level] = offset
                self._changed()
            # Compat: as ScheduleMessageService#updateOffset, a version every so many updates.
            self._updates += 1
            if self._updates % _UPDATES_PER_VERSION == 0:
                self._next_version()

    def bring_back(self, end_of: Callable[[int], int]) -> dict[int, tuple[int, int]]:
        """Set progress that is beyond the end of a level's queue to that end.

        Returns the old and the new offset of each level that was changed.
        """
        with self._lock:
            found = {
                level: (offset, end)
                for level, offset in self._offsets.items()
                if offset > (end := end_of(level))
            }
            for level, (_, end) in found.items():
                self._offsets[level] = end
            if found:
                self._next_version()
            return found

    def snapshot(self) -> dict[int, int]:
        """Return the next queue offset of each level that something is known of."""
        with self._lock:
            return dict(self._offsets)

    def _encode(self) -> JsonObject:
        members: JsonObject = {_TABLE: {**dict(sorted(self._offsets.items()))}}
        if self._has_version:
            members[VERSION_NAME] = self._encode_version()
        return members
