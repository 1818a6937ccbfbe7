"""Small store directories made from nothing, so that a test shows its numbers.

    builder = StoreBuilder(tmp_path, log_file_size=1000)
    builder.record("T", 0, b"one", keys=["k"]).record("T", 1, b"two").roll()
    builder.record("T", 0, b"three", dispatched=False).unclean()
    store = OfflineStore(builder.write())

A record goes into the log, and, as dispatch would have it, into its queue and the index. Offsets
of what was written are in `placed`. `write` may be called again: files are changed in place, as a
broker changes them.
"""

import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from rocketlake.format import index as index_format
from rocketlake.format import layout, names, queue_unit, record
from rocketlake.format.batch import BatchEntry, encode_entries
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model import flags
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.hashes import tags_code
from rocketlake.model.message import Message

BORN_HOST = Endpoint.parse("192.168.0.1:1234")
STORE_HOST = Endpoint.parse("10.0.0.2:10911")
BEGIN_MS = 1_700_000_000_000

QueueName = tuple[str, str, int]  # family, topic, queue


class Placed(NamedTuple):
    """Where a record was put."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.physical_offset + self.size


class StoreBuilder:
    """Makes one store directory; nothing is on disk before `write`."""

    def __init__(
        self,
        root: Path,
        *,
        log_file_size: int = 4096,
        queue_file_units: int = 20,
        index_shape: tuple[int, int] = (10, 40),
        log_dirs: Sequence[str] = (names.COMMIT_LOG,),
        is_5x: bool = True,
    ) -> None:
        self.root = root
        self.log_file_size = log_file_size
        self.placed: list[Placed] = []
        self.end = 0
        self._queue_file_units = queue_file_units
        self._index_slots, self._index_entries = index_shape
        self._log_dirs = log_dirs
        self._time = BEGIN_MS
        self._log: dict[int, bytearray] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._units: dict[QueueName, dict[int, bytes]] = {}
        self._index: list[bytearray] = []
        self._files: dict[str, bytes] = {names.LOCK: b"lock"}
        self._checkpoint: Checkpoint | None = None
        if is_5x:
            self._files[names.ABORT + names.BACKUP_SUFFIX] = b""

    # --- records -------------------------------------------------------------------------------

    def record(
        self,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sys_flag: int = 0,
        stored: int | None = None,
        queue_offset: int | None = None,
        light: Sequence[str] = (),
        code: int | None = None,
        with_crc: bool = False,
        dispatched: bool = True,
    ) -> "StoreBuilder":
        """Append a record; roll to the next file if it does not fit.

        `light` names light queues it belongs to as well; `code` is the tags code of its unit, if
        it is not the hash of the tag. Not `dispatched`, it is in the log only.
        """
        stored = self._tick(stored)
        counted = flags.enters_queue(sys_flag)
        number = self._next.get((topic, queue_id), 0) if queue_offset is None else queue_offset
        number = number if counted or queue_offset is not None else 0
        lights = {name: self._next.get((name, 0), 0) for name in light}
        properties = dict(properties or {})
        if lights:
            properties["INNER_MULTI_DISPATCH"] = ",".join(lights)
            properties["INNER_MULTI_QUEUE_OFFSET"] = ",".join(map(str, lights.values()))
        message = Message(topic=topic, body=body, tags=tags, keys=keys, properties=properties)
        place = self._append(message, queue_id, number, stored, sys_flag, with_crc)
        code = tags_code(tags) if code is None else code
        unit = queue_unit.QueueUnit(place.physical_offset, place.size, code)
        if counted:
            for name, queue, offset in [
                (topic, queue_id, number),
                *((n, 0, o) for n, o in lights.items()),
            ]:
                self._next[name, queue] = offset + 1
                if dispatched:
                    self.unit(name, queue, offset, unit)
        if dispatched and flags.transaction_type(sys_flag) is not flags.TransactionType.ROLLBACK:
            self._put_keys(place, [*filter(None, [properties.get("UNIQ_KEY")]), *keys])
        return self

    def records(self, count: int, *, dispatched: bool = True) -> "StoreBuilder":
        """Append so many records to queue 0 of topic T, with bodies 0, 1, 2, ..."""
        for number in range(count):
            self.record(body=str(number).encode(), dispatched=dispatched)
        return self

    def inner_batch(
        self, count: int, topic: str = "B", queue_id: int = 0, *, dispatched: bool = True
    ) -> "StoreBuilder":
        """Append one record that stands for so many messages of a batch queue."""
        stored = self._tick(None)
        base = self._next.get((topic, queue_id), 0)
        body = encode_entries(BatchEntry(str(base + i).encode()) for i in range(count))
        properties = {"INNER_NUM": str(count), "INNER_BASE": str(base)}
        message = Message(topic=topic, body=body, properties=properties)
        bits = flags.INNER_BATCH | flags.NEED_UNWRAP
        place = self._append(message, queue_id, base, stored, bits)
        self._next[topic, queue_id] = base + count
        if dispatched:
            units = self._units.setdefault((names.BATCH_CONSUME_QUEUE, topic, queue_id), {})
            units[len(units)] = queue_unit.BatchUnit(
                physical_offset=place.physical_offset,
                size=place.size,
                tags_code=0,
                store_timestamp=stored,
                base_queue_offset=base,
                batch_size=count,
            ).encode()
        return self

    def torn_record(self, keep: int, body: bytes = b"torn", **rest: str) -> "StoreBuilder":
        """Write the first bytes of a record behind the end, which does not move."""
        message = Message(topic="T", body=body, properties=rest)
        number = self._next.get(("T", 0), 0)
        data = self._encode(message, 0, number, self._time, 0)
        return self.overwrite(self.end, bytes(data[:keep]))

    def _tick(self, stored: int | None) -> int:
        self._time = self._time + 1 if stored is None else stored
        return self._time

    def _append(
        self,
        message: Message,
        queue_id: int,
        queue_offset: int,
        stored: int,
        sys_flag: int,
        with_crc: bool = False,
    ) -> Placed:
        fields = (message, queue_id, queue_offset, stored, sys_flag, with_crc)
        data = self._encode(*fields)
        size = len(data)
        if size + layout.BLANK_HEADER_SIZE > self.log_file_size:
            raise ValueError(f"a record of {size} bytes in files of {self.log_file_size}")
        if size + layout.BLANK_HEADER_SIZE > self.log_file_size - self.end % self.log_file_size:
            self.roll()
            data = self._encode(*fields)
        self.overwrite(self.end, bytes(data))
        place = Placed(self.end, size, message.topic, queue_id, queue_offset, stored)
        self.placed.append(place)
        self.end += size
        return place

    def _encode(
        self,
        message: Message,
        queue_id: int,
        queue_offset: int,
        stored: int,
        sys_flag: int,
        with_crc: bool = False,
    ) -> bytearray:
        envelope = record.Envelope(
            queue_id=queue_id,
            born_timestamp=stored - 1,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            sys_flag=sys_flag,
            version=record.version_for(message.topic),
            reserve_crc=with_crc,
        )
        data = record.encode(message, envelope)
        record.seal(data, 0, queue_offset, self.end, stored, with_crc)
        return data

    # --- the log -------------------------------------------------------------------------------

    def roll(self) -> "StoreBuilder":
        """Fill the rest of the file with a blank record; the next one goes to the next file."""
        rest = self.log_file_size - self.end % self.log_file_size
        magic = layout.MAGIC_BLANK.to_bytes(4, "big", signed=True)
        self.overwrite(self.end, rest.to_bytes(4, "big") + magic)
        self.end += rest
        return self

    def overwrite(self, physical_offset: int, data: bytes) -> "StoreBuilder":
        """Put bytes anywhere into the log; a missing file is made."""
        base, position = divmod(physical_offset, self.log_file_size)
        file = self._log.setdefault(base * self.log_file_size, bytearray(self.log_file_size))
        assert position + len(data) <= self.log_file_size, "bytes cross a file"
        file[position : position + len(data)] = data
        return self

    def flip(self, physical_offset: int) -> "StoreBuilder":
        """Change one byte of the log."""
        base, position = divmod(physical_offset, self.log_file_size)
        self._log[base * self.log_file_size][position] ^= 0xFF
        return self

    def flip_body(self, number: int) -> "StoreBuilder":
        """Change the first byte of a record's body, so that its checksum is wrong."""
        # 68 bytes of fields, two hosts of 8, then the body's length.
        return self.flip(self.placed[number].physical_offset + 88)

    def spare_file(self) -> "StoreBuilder":
        """Add the file that a broker makes in advance: all zero."""
        return self.overwrite(-(-self.end // self.log_file_size) * self.log_file_size, b"\0")

    def expire(self, files: int) -> "StoreBuilder":
        """Delete so many of the first log files."""
        for base in sorted(self._log)[:files]:
            del self._log[base]
            self.log_path(base).unlink(missing_ok=True)
        return self

    def lose_log_file(self, base_offset: int) -> "StoreBuilder":
        """Delete one log file."""
        del self._log[base_offset]
        self.log_path(base_offset).unlink(missing_ok=True)
        return self

    def log_path(self, base_offset: int) -> Path:
        """The path of the log file that begins at an offset."""
        number = base_offset // self.log_file_size
        return (
            self.root
            / self._log_dirs[number % len(self._log_dirs)]
            / names.offset_name(base_offset)
        )

    # --- queues and index ----------------------------------------------------------------------

    def unit(
        self, topic: str, queue_id: int, queue_offset: int, unit: queue_unit.QueueUnit | bytes
    ) -> "StoreBuilder":
        """Put a unit into a queue, whatever it points to."""
        units = self._units.setdefault((names.CONSUME_QUEUE, topic, queue_id), {})
        units[queue_offset] = unit if isinstance(unit, bytes) else unit.encode()
        return self

    def lose_units(
        self, topic: str, queue_id: int, begin: int, end: int = 1 << 62
    ) -> "StoreBuilder":
        """Take units out of a queue: their bytes are zero."""
        for family in (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE):
            units = self._units.get((family, topic, queue_id), {})
            for index in [index for index in units if begin <= index < end]:
                del units[index]
        return self

    def lose_queue(self, topic: str, queue_id: int) -> "StoreBuilder":
        """Delete a queue with its directory."""
        for family in (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE):
            self._units.pop((family, topic, queue_id), None)
            shutil.rmtree(self.root / family / topic / str(queue_id), ignore_errors=True)
        return self

    def queue_path(self, topic: str, queue_id: int, queue_offset: int = 0) -> Path:
        """The path of the file that holds a unit of a plain queue."""
        base = queue_offset // self._queue_file_units * self._queue_file_units * layout.UNIT_SIZE
        place = self.root / names.CONSUME_QUEUE / topic / str(queue_id)
        return place / names.offset_name(base)

    def lose_index(self) -> "StoreBuilder":
        """Write no index."""
        self._index.clear()
        shutil.rmtree(self.root / names.INDEX, ignore_errors=True)
        return self

    def index_path(self, number: int = 0) -> Path:
        """The path of an index file, the oldest being 0."""
        moment = datetime(2024, 1, 31, 12, 0, 0) + timedelta(seconds=number)  # noqa: DTZ001
        return self.root / names.INDEX / names.index_name(moment)

    def _put_keys(self, place: Placed, keys: Sequence[str]) -> None:
        if not self._index:
            self._index.append(self._new_index())
        for key in keys:
            hash_ = index_format.key_hash(place.topic, key)
            offset, stored = place.physical_offset, place.store_timestamp
            shape = (self._index_slots, self._index_entries)
            if not index_format.put(self._index[-1], *shape, hash_, offset, stored, False):
                self._index.append(self._new_index())
                index_format.put(self._index[-1], *shape, hash_, offset, stored, False)

    def _new_index(self) -> bytearray:
        data = bytearray(index_format.file_size(self._index_slots, self._index_entries))
        if self._index:
            last = index_format.IndexHeader.decode(self._index[-1])
            ends = (last.end_timestamp, last.end_timestamp)
            offsets = (last.end_physical_offset, last.end_physical_offset)
            data[: layout.INDEX_HEADER_SIZE] = index_format.IndexHeader(
                *ends, *offsets, 0, 1
            ).encode()
        return data

    # --- everything else -----------------------------------------------------------------------

    def unclean(self, process: bytes = b"4711") -> "StoreBuilder":
        """Leave the mark of a store that was not shut down; 4.x leaves it empty."""
        return self.file(names.ABORT, process)

    def checkpoint(self, physical: int, queue: int, index: int) -> "StoreBuilder":
        """Say up to which store times log, queues and index are on disk."""
        self._checkpoint = Checkpoint(physical, queue, index)
        return self

    def file(self, path: str, content: bytes | str = b"") -> "StoreBuilder":
        """Add any file; a table of config, something foreign."""
        self._files[path] = content.encode() if isinstance(content, str) else content
        return self

    def write(self) -> Path:
        """Bring it all to disk; return the store directory."""
        for name in self._log_dirs:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for base, data in self._log.items():
            _write(self.log_path(base), data)
        for (family, topic, queue_id), units in self._units.items():
            for base, data in self._queue_files(family, units).items():
                place = self.root / family / topic / str(queue_id)
                _write(place / names.offset_name(base), data)
        for number, data in enumerate(self._index):
            _write(self.index_path(number), data)
        for path, content in self._files.items():
            _write(self.root / path, content)
        last = self.placed[-1].store_timestamp if self.placed else 0
        page = self._checkpoint or Checkpoint(last, last, last)
        _write(self.root / names.CHECKPOINT, page.encode())
        return self.root

    def _queue_files(self, family: str, units: Mapping[int, bytes]) -> dict[int, bytearray]:
        is_batch = family == names.BATCH_CONSUME_QUEUE
        size = layout.BATCH_UNIT_SIZE if is_batch else layout.UNIT_SIZE
        room = size * self._queue_file_units
        files: dict[int, bytearray] = {}
        for index, unit in units.items():
            base, position = divmod(index * size, room)
            file = files.setdefault(base * room, bytearray(room))
            file[position : position + size] = unit
        return files


def _write(path: Path, data: bytes | bytearray) -> None:
    """Change a file in place, as a map does; make it if it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
