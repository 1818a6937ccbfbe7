"""What dispatch takes from records, and index entries, by the nanosecond and against pure."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import corpus
import numpy as np
from measure import Figure, best_of

from rocketlake.clock import SystemClock
from rocketlake.files.file_traits import FilePlace, FileTraits
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import dispatch, index, layout, record
from rocketlake.format._kernel import pure
from rocketlake.model.message import Message

BATCH = 16_384


def columns_100b() -> Iterator[Figure]:
    count = 100_000
    columns = _columns(count)
    few = columns[0].rows[:2_000].view(np.uint8)
    codes, traits = np.empty(2_000, np.int64), np.empty(2_000, np.uint8)

    def native() -> None:
        for part in columns:
            dispatch.dispatch_columns(part)
            dispatch.key_entries(part)

    def slow() -> None:
        pure.dispatch_columns(columns[0].buffer, few, codes, traits)
        pure.key_entries(columns[0].buffer, few)

    fast_s, slow_s = best_of(7, native, slow)
    each = fast_s / count * 1e9
    detail = f"codes, traits and 2 keys; {slow_s / 2_000 * 1e9 / each:.0f} x pure"
    yield Figure("dispatch.columns_100b", each, 150, "ns/record", at_most=True, detail=detail)


def put_entries() -> Iterator[Figure]:
    """Into a mapped file of the default shape; new pages cost what the file system asks for."""
    count = 4_000_000
    numbers = np.arange(count, dtype=np.int64)
    hashes = np.random.default_rng(7).integers(0, 1 << 31, count, np.int32)
    entries = dispatch.KeyEntries(hashes, numbers * 230, corpus.STORED + numbers // 300)
    shape = (layout.DEFAULT_INDEX_SLOTS, layout.DEFAULT_INDEX_ENTRIES)
    with tempfile.TemporaryDirectory() as place:
        path = FilePlace(Path(place) / "index", 0, index.file_size(*shape))
        file = MappedFile(PosixFileOps(), SystemClock(), path, FileTraits(is_sparse=True))
        file.create()
        file.reserve(index.entry_position(shape[0], count + 1))
        cold, warm = (_put(file.buffer, shape, entries) for _ in range(2))
        file.destroy(0)
    detail = f"into pages never met before: {cold / count * 1e9:.0f}"
    cost = warm / count * 1e9
    yield Figure("dispatch.put_entries", cost, 60, "ns/entry", at_most=True, detail=detail)


def _put(buffer: memoryview, shape: tuple[int, int], entries: dispatch.KeyEntries) -> float:
    def put() -> None:
        buffer[: layout.INDEX_HEADER_SIZE] = bytes(layout.INDEX_HEADER_SIZE)
        for start in range(0, len(entries), BATCH):
            dispatch.put_entries(buffer, shape, entries.part(start, start + BATCH))

    (seconds,) = best_of(1, put)
    return seconds


def _columns(count: int) -> list[record.RecordColumns]:
    """Records of 100 bytes body with tag, key and unique key, scanned in batches."""
    rng = random.Random(7)
    messages = [
        Message(
            topic=corpus.TOPIC,
            body=rng.randbytes(100),
            properties={"UNIQ_KEY": f"{rng.getrandbits(128):032X}", "WAIT": "true"},
            tags="TagA",
            keys=[f"key-{i}"],
        )
        for i in range(count)
    ]
    data = bytes(record.encode_batch(messages, corpus.TOPIC, corpus.envelope())[0])
    found = []
    position = 0
    while position < len(data):
        part = record.scan(data, position, checks=record.Check.SHAPE, rows_max=BATCH)
        found.append(part.columns)
        position = part.position
    return found


WORKLOADS = {"dispatch.columns_100b": columns_100b, "dispatch.put_entries": put_entries}
