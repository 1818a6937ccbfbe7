"""Golden stores without their queues and index, and how what was made anew is compared."""

import json
import shutil
from pathlib import Path

import numpy as np

from rocketlake.format import index as index_format
from rocketlake.format import queue_unit
from rocketlake.format.index import ENTRY_DTYPE, IndexHeader
from rocketlake.store.index.index_file import IndexShape
from rocketlake.store.options import ReadOptions
from support.golden import Golden, GoldenStores
from support.store_bytes import QUEUE_FAMILIES, queue_bytes

LOST = ("-noqueue", "-unclean-crc", "-unclean-torn")
"""Cases whose queues are not those of their log: a start makes them so first."""


def without_queues(name: str, place: Path) -> Golden:
    """A copy of a golden store that has lost queues and index."""
    golden = GoldenStores.copy(name, place)
    for family in (*QUEUE_FAMILIES, "index"):
        shutil.rmtree(golden.root / family, ignore_errors=True)
    name_batch_topics(golden)
    return golden


def store_options(golden: Golden) -> dict[str, object]:
    """The options a store was written with, as a store is opened with."""
    options = dict(golden.case.options(golden.root))
    if golden.case.name.startswith("v46-"):
        options["compatVersion"] = "4.6"
    elif not golden.case.is_5x:
        options["compatVersion"] = "4.9"
    else:
        options["compatVersion"] = "5.5" if golden.case.is_5_5 else "5.3"
    return options


def read_options(golden: Golden) -> ReadOptions:
    options = golden.case.options(golden.root)
    return ReadOptions(max_hash_slot_num=options.get("maxHashSlotNum"))


def units_from(root: Path, log_min: int) -> dict[str, bytes]:
    """Queue files by path; of plain units only those of records that the log holds are left."""
    found = {}
    for name, data in queue_bytes(root).items():
        kept = _without_expired(data, log_min) if name.startswith("consumequeue/") else data
        if any(kept):
            found[name] = kept
    return found


def _without_expired(data: bytes, log_min: int) -> bytes:
    gone = queue_unit.decode_units(data)["physical_offset"] < log_min
    first = len(gone) if gone.all() else int(gone.argmin())
    return bytes(first * 20) + data[first * 20 :]


def entries_of(root: Path, slots: int, low: int, high: int) -> list[tuple[int, int]]:
    """Hash and offset of every entry of the index, in order, of records in a part of the log."""
    found = []
    for path in sorted((root / "index").iterdir()) if (root / "index").exists() else []:
        data = path.read_bytes()
        count = IndexHeader.decode(data).entries_used
        entries = np.frombuffer(data, ENTRY_DTYPE, count, index_format.entry_position(slots, 1))
        found += zip(entries["key_hash"].tolist(), entries["physical_offset"].tolist(), strict=True)
    return [entry for entry in found if low <= entry[1] < high]


def name_batch_topics(golden: Golden) -> None:
    """Let the table of topics say which queues are of batches, as a broker's does."""
    if not golden.case.name.endswith("-batchcq"):
        return
    config = {
        "topicName": "BcqTopic",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "attributes": {"queue.type": "BatchCQ"},
    }
    (golden.root / "config").mkdir(exist_ok=True)
    table = golden.root / "config" / "topics.json"
    table.write_text(json.dumps({"topicConfigTable": {"BcqTopic": config}}), encoding="utf-8")


def index_shape(golden: Golden) -> IndexShape:
    """What index files the store was written with."""
    options = golden.case.spec["options"]
    return IndexShape(
        slots=options["maxHashSlotNum"],
        entries=options["maxIndexNum"],
        counts_empty=golden.case.is_5x,
        has_tags=golden.case.is_5_5,
    )
