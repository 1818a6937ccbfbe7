"""A store whose records have fields that are odd, but whose bytes are whole.

Each message has a body, a born time, a store time, properties or names that a broken producer or a
client of another language may have sent. They stand between ordinary messages.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from rocketlake.format import layout
from support.store_builder import BEGIN_MS, StoreBuilder

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
YEAR_10000_MS = 253_402_300_800_000
TIMES = (0, -1, -62_135_596_800_001, YEAR_10000_MS, YEAR_10000_MS * 9, LONG_MIN, LONG_MAX)
LARGE = 4 << 20


class Odd(NamedTuple):
    """An odd message: where it is, and what its record says of times."""

    queue_offset: int
    born: int
    stored: int
    body_size: int


class AbsurdStore:
    """Ordinary and odd messages in queue 0 of topic T."""

    def __init__(self, root: Path, *, large: int = LARGE) -> None:
        builder = StoreBuilder(root, log_file_size=2 * large + (1 << 20), queue_file_units=100)
        self.builder = builder
        self.odd: list[Odd] = []
        self.count = 0
        self._plain()
        for time in TIMES:
            self._put(born=time)
            self._plain()
        for time in TIMES:
            self._put(stored=time)
        self._plain()
        self._put(body=b"")
        self._put(body=b"x" * large)
        self._put(properties={"empty": "", "long": "v" * (32 * 1024 - 60)})
        self._put(properties={"name": "VALUE"}, patch=(b"VALUE", b"\xff\xfe\x80\xc3\x28"))
        self._put(properties={"OTHER": "v"}, patch=(b"OTHER", b"\xff\xfe\x80\xc3\x28"))
        self._plain()
        self.in_log_only = self._put_in_log_only()
        self.root = builder.write()

    def _put_in_log_only(self) -> int:
        """Put records that no queue can hold: of a negative queue, and of a bad name."""
        builder = self.builder
        for number in (-1, -(1 << 31)):
            builder.record("U", 0, b"negative", stored=BEGIN_MS + self.count, dispatched=False)
            begin = builder.placed[-1].physical_offset
            builder.overwrite(begin + layout.RECORD_QUEUE_ID_AT, struct.pack(">i", number))
        builder.record("NAME", 0, b"odd", stored=BEGIN_MS + self.count, dispatched=False)
        self._patch(b"NAME", b"\xff\xfe\x80\xc3")
        return 3

    def _patch(self, old: bytes, new: bytes) -> None:
        """Replace bytes of the last record."""
        place = self.builder.placed[-1]
        size = self.builder.log_file_size
        base, position = divmod(place.physical_offset, size)
        file = self.builder._log[base * size]
        at = file.index(old, position, position + place.size)
        self.builder.overwrite(base * size + at, new)

    def _plain(self) -> None:
        self.builder.record(body=b"plain", keys=["k"], stored=BEGIN_MS + self.count, tags="a")
        self.count += 1

    def _put(
        self,
        *,
        born: int | None = None,
        stored: int | None = None,
        body: bytes = b"odd",
        properties: dict[str, str] | None = None,
        patch: tuple[bytes, bytes] | None = None,
    ) -> None:
        at = BEGIN_MS + self.count
        self.builder.record(body=body, properties=properties, stored=at, keys=["k"])
        place = self.builder.placed[-1]
        begin = place.physical_offset
        if born is not None:
            self.builder.overwrite(begin + layout.RECORD_BORN_TIMESTAMP_AT, struct.pack(">q", born))
        if stored is not None:
            where = begin + layout.RECORD_BORN_HOST_AT + 8
            self.builder.overwrite(where, struct.pack(">q", stored))
        if patch is not None:
            self._patch(*patch)
        self.odd.append(
            Odd(
                self.count,
                at - 1 if born is None else born,
                at if stored is None else stored,
                len(body),
            )
        )
        self.count += 1
