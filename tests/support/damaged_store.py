"""A store with several files of each family, and damage whose extent is known."""

import random
from pathlib import Path
from typing import NamedTuple

from rocketlake.format.layout import UNIT_SIZE
from support.store_builder import Placed, StoreBuilder

LOG_FILE = 4096
QUEUE_UNITS = 12


class Wound(NamedTuple):
    """Bytes that are overwritten: a share of the family's bytes, and how many from there on."""

    family: str
    at: float
    size: int
    kind: str = "random"
    seed: int = 0

    def data(self) -> bytes:
        """The bytes that stand there then."""
        if self.kind == "random":
            return random.Random(self.seed).randbytes(self.size)
        return (b"\0" if self.kind == "zeros" else b"\xff") * self.size


class DamagedStore:
    """Messages of three queues, and which of them are whole after each wound."""

    def __init__(self, root: Path, count: int, *, is_clean: bool) -> None:
        builder = StoreBuilder(root, log_file_size=LOG_FILE, queue_file_units=QUEUE_UNITS)
        for number in range(count):
            topic, queue_id = (("T", 0), ("T", 1), ("U", 0), ("T", 0))[number % 4]
            body = str(number).encode() * (1 + number % 7 * 5)
            # Of a store that was killed, the last units may not be there yet.
            is_held = is_clean or number < count * 3 // 4
            builder.record(topic, queue_id, body, keys=[f"k{number}"], dispatched=is_held)
        if not is_clean:
            middle = builder.placed[count // 2].store_timestamp
            builder.unclean().checkpoint(middle, middle, middle)
        self.builder = builder
        self.root = builder.write()
        self._hurt_records: set[int] = set()
        self._hurt_units: set[int] = set()

    def hurt(self, wound: Wound) -> None:
        """Overwrite bytes."""
        if wound.family == "log":
            self._hurt_log(int(wound.at * self.builder.end), wound.data())
        else:
            self._hurt_queue(wound)

    def _hurt_log(self, at: int, data: bytes) -> None:
        path = self.builder.log_path(at // LOG_FILE * LOG_FILE)
        if not path.exists():
            return
        written = _overwrite(path, at % LOG_FILE, data)
        for record in self.builder.placed:
            if record.physical_offset < at + written and at < record.end:
                self._hurt_records.add(record.physical_offset)

    def _hurt_queue(self, wound: Wound) -> None:
        mine = [p for p in self.builder.placed if (p.topic, p.queue_id) == ("T", 0)]
        number = min(int(wound.at * len(mine)), len(mine) - 1)
        path = self.builder.queue_path("T", 0, number)
        if not path.exists():
            return
        at = number % QUEUE_UNITS * UNIT_SIZE + wound.seed % UNIT_SIZE
        written = _overwrite(path, at, wound.data())
        first = number // QUEUE_UNITS * QUEUE_UNITS
        for record in mine:
            begin = (record.queue_offset - first) * UNIT_SIZE
            is_in_file = 0 <= begin < QUEUE_UNITS * UNIT_SIZE
            if is_in_file and begin < at + written and at < begin + UNIT_SIZE:
                self._hurt_units.add(record.physical_offset)

    @property
    def whole_records(self) -> set[int]:
        """Where records begin that no wound has touched."""
        return {p.physical_offset for p in self.builder.placed} - self._hurt_records

    @property
    def whole(self) -> set[int]:
        """The same without those whose unit was touched."""
        return self.whole_records - self._hurt_units

    @property
    def placed(self) -> list[Placed]:
        """All records."""
        return self.builder.placed


def _overwrite(path: Path, at: int, data: bytes) -> int:
    """Overwrite bytes of a file, not beyond its end; return how many."""
    with path.open("r+b") as file:
        kept = data[: path.stat().st_size - at]
        file.seek(at)
        file.write(kept)
        return len(kept)
