"""The hosts of records as texts, straight from their bytes."""

from rocketlake.format import layout
from rocketlake.model import flags
from rocketlake.model.endpoint import host_text

_V6 = flags.BORN_HOST_V6 | flags.STORE_HOST_V6


class HostTexts:
    """Spells the hosts of records; those of the record before are usually the same."""

    __slots__ = ("_last", "_raw")

    def __init__(self) -> None:
        self._raw = (b"", b"")
        self._last = ("", "", "")

    def at(self, buffer: bytes, position: int, sys_flag: int) -> tuple[str, str, str]:
        """Return born host, store host, and what message ids of it begin with."""
        at = position + layout.RECORD_BORN_HOST_AT
        born_size, store_size = flags.host_sizes(sys_flag) if sys_flag & _V6 else (8, 8)
        store_at = at + born_size + 8
        raw = (buffer[at : at + born_size], buffer[store_at : store_at + store_size])
        if raw != self._raw:
            self._raw = raw
            self._last = (host_text(raw[0]), host_text(raw[1]), raw[1].hex().upper())
        return self._last
