"""Proof that every byte of a store is understood: decode it, encode the values again, compare."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import index as index_format
from rocketlake.format import layout, names, queue_unit
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.record import reencode
from rocketlake.store.disk.log import Chunk
from rocketlake.store.offline.view import OfflineStore


class Account(Struct, frozen=True, kw_only=True):
    """The bytes of one family: reproduced, known filler, and unexplained."""

    family: str
    items: int
    same: int
    filler: int
    unexplained: int
    detail: str = ""


def prove(store: OfflineStore, on_bytes: Callable[[int], None] | None = None) -> Iterator[Account]:
    """Yield an account for log, queues, index and checkpoint."""
    advance = on_bytes or (lambda _: None)
    yield _log(store, advance)
    yield _queues(store, advance)
    yield _index(store, advance)
    page = store.directory.read_small(names.CHECKPOINT)
    if page is not None:
        same = Checkpoint.decode(page).encode() == page
        yield Account(
            family=names.CHECKPOINT,
            items=1,
            same=len(page) if same else 0,
            filler=0,
            unexplained=0 if same else len(page),
        )


def total_bytes(store: OfflineStore) -> int:
    """Return how many bytes `prove` will go through, roughly."""
    queues = sum(file.size for queue in store.queues.values() for file in queue.files)
    return sum(f.size for f in store.log.files) + queues + sum(f.size for f in store.index_files)


def _log(store: OfflineStore, advance: Callable[[int], None]) -> Account:
    records = same = filler = unexplained = 0
    detail = ""
    for file in store.log.files:
        position = 0
        for chunk in _chunks_of(store, file):
            for message in chunk.columns.messages():
                skipped = message.physical_offset - file.base_offset - position
                if skipped:
                    unexplained += skipped
                    detail = detail or f"first: {file.path.name} at {position}"
                at = message.physical_offset - chunk.base_offset
                written = bytes(chunk.columns.buffer[at : at + message.store_size])
                records += 1
                if reencode(message) == written:
                    same += message.store_size
                else:
                    unexplained += message.store_size
                    detail = detail or f"first: the record at {message.physical_offset}"
                position = message.physical_offset + message.store_size - file.base_offset
        rest = store.log.read(file.base_offset + position, file.size - position)
        if _is_filler(rest):
            filler += len(rest)
        else:
            unexplained += len(rest)
            detail = detail or f"first: {file.path.name} at {position}"
        advance(file.size)
    return Account(
        family=names.COMMIT_LOG,
        items=records,
        same=same,
        filler=filler,
        unexplained=unexplained,
        detail=detail,
    )


def _chunks_of(store: OfflineStore, file: OffsetFile) -> Iterator[Chunk]:
    for step in store.log.walk(file.base_offset, file.base_offset + file.size):
        if isinstance(step, Chunk):
            yield step


def _is_filler(rest: bytes) -> bool:
    """Tell whether bytes are a file's blank record, or were never written."""
    if len(rest) >= layout.BLANK_HEADER_SIZE:
        magic = int.from_bytes(rest[4:8], "big", signed=True)
        if magic == layout.MAGIC_BLANK:
            return int.from_bytes(rest[:4], "big", signed=True) == len(rest)
    return not any(rest)


def _queues(store: OfflineStore, advance: Callable[[int], None]) -> Account:
    units = same = filler = unexplained = 0
    for queue in store.queues.values():
        for file in queue.files:
            data = store.read_file(file.path, file.size)
            size = queue.kind.unit_size
            for position in range(0, len(data) - size + 1, size):
                unit = data[position : position + size]
                if not any(unit):
                    filler += size
                elif _rewrite_unit(unit, is_batch=queue.kind.is_batch) == unit:
                    units, same = units + 1, same + size
                else:
                    unexplained += size
            filler += len(data) % size
            advance(file.size)
    return Account(
        family=names.CONSUME_QUEUE, items=units, same=same, filler=filler, unexplained=unexplained
    )


def _rewrite_unit(data: bytes, *, is_batch: bool) -> bytes:
    if not is_batch:
        unit = queue_unit.decode_units(data)[0]
        return queue_unit.QueueUnit(*(int(value) for value in unit.item())).encode()
    fields = queue_unit.decode_batch_units(data)[0]
    return queue_unit.BatchUnit(
        physical_offset=int(fields["physical_offset"]),
        size=int(fields["size"]),
        tags_code=int(fields["tags_code"]),
        store_timestamp=int(fields["store_timestamp"]),
        base_queue_offset=int(fields["base_queue_offset"]),
        batch_size=int(fields["batch_size"]),
        compacted_offset=int(fields["compacted_offset"]),
    ).encode()


def _index(store: OfflineStore, advance: Callable[[int], None]) -> Account:
    """Rebuild each index file from its entries and compare all of it."""
    entries = same = unexplained = 0
    for file in store.index_files:
        data = store.read_file(file.path, file.size)
        entries += file.header.entries_used
        is_empty = not file.header.entries_used and not any(data[layout.INDEX_HEADER_SIZE :])
        if is_empty or (file.slots is not None and rebuild_index(data, file.slots) == data):
            same += len(data)
        else:
            unexplained += len(data)
        advance(file.size)
    return Account(family=names.INDEX, items=entries, same=same, filler=0, unexplained=unexplained)


def rebuild_index(data: bytes, slots: int) -> bytes:
    """Rebuild an index file: header and entries from their values, slots from the chains."""
    header = index_format.IndexHeader.decode(data)
    out = bytearray(len(data))
    out[: layout.INDEX_HEADER_SIZE] = header.encode()
    for number in range(1, header.entry_count):
        at = index_format.entry_position(slots, number)
        entry = index_format.IndexEntry.decode(data, at)
        out[at : at + layout.INDEX_ENTRY_SIZE] = entry.encode()
        slot_at = index_format.slot_position(slots, entry.key_hash)
        out[slot_at : slot_at + 4] = number.to_bytes(4, "big")
    return bytes(out)
