"""What dispatch takes from the records is what RocketMQ put into its queues and index files."""

from types import SimpleNamespace

import numpy as np
import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.format import index as index_format
from rocketlake.format.dispatch import Trait, dispatch_columns, key_entries
from rocketlake.format.index import ENTRY_DTYPE, IndexHeader
from rocketlake.format.queue_unit import is_ext_address
from rocketlake.format.record import RecordColumns
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.index.index_file import IndexShape
from support.golden import case_names
from support.manual_clock import ManualClock


def test_tags_codes_are_those_of_the_units(opened):
    codes, traits = {}, {}
    for chunk in opened.view.walk():
        found = dispatch_columns(chunk.columns)
        offsets = chunk.columns["physical_offset"].tolist()
        codes |= zip(offsets, found.tags_codes.tolist(), strict=True)
        traits |= zip(offsets, found.traits.tolist(), strict=True)
    for _, place, message in opened.messages:
        offset, code = message.physical_offset, int(place["tags_code"])
        assert traits[offset] & Trait.ENTERS_QUEUE
        if message.topic != SCHEDULE_TOPIC and not is_ext_address(code):
            assert codes[offset] == code
        if place["batch_size"] > 1 or message.topic == SCHEDULE_TOPIC:
            assert traits[offset] & Trait.IS_SPECIAL


def entries_of(paths, slots):
    """Hash and offset of every entry of index files, in their order."""
    found = []
    for path in paths:
        data = path.read_bytes()
        count = IndexHeader.decode(data).entries_used
        at = index_format.entry_position(slots, 1)
        entries = np.frombuffer(data, ENTRY_DTYPE, count, at)
        found += zip(entries["key_hash"].tolist(), entries["physical_offset"].tolist(), strict=True)
    return found


def test_keys_are_the_entries_of_the_index(opened, index_files):
    wanted = []
    for chunk in opened.view.walk():
        hashes, rows = key_entries(chunk.columns, with_tags=opened.case.is_5_5)
        offsets = chunk.columns["physical_offset"][rows]
        wanted += zip(hashes.tolist(), offsets.tolist(), strict=True)
    found = entries_of(index_files, opened.case.spec["options"]["maxHashSlotNum"])
    low, high = opened.view.min_offset, opened.view.max_offset
    in_log = [entry for entry in found if low <= entry[1] < high]
    # Only the cases whose index was deleted have none.
    assert in_log == wanted or (not index_files and opened.case.name.endswith("-noqueue"))


# Part of the log, or of the index, is gone.
INCOMPLETE = ("-expired", "-noqueue", "-unclean-crc", "-unclean-torn")
WHOLE = [name for name in case_names() if not name.endswith(INCOMPLETE)]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("rows", [1, 1000])
def test_index_files_of_the_log_are_those_of_rocketmq(open_case, tmp_path, name, rows):
    opened = open_case(name)
    options = opened.case.spec["options"]
    shape = IndexShape(
        slots=options["maxHashSlotNum"],
        entries=options["maxIndexNum"],
        count_every_put=name.startswith("v46-"),
        counts_empty=opened.case.is_5x,
        has_tags=opened.case.is_5_5,
    )
    place = tmp_path / "index"
    files = IndexFileSet(PosixFileOps(), ManualClock(), place, shape)
    files.load(is_clean=True, checkpoint=SimpleNamespace(index_timestamp=0, flush=lambda: None))
    for chunk in opened.view.walk():
        whole = chunk.columns.rows
        for start in range(0, len(whole), rows):
            part = RecordColumns(chunk.columns.buffer, whole[start : start + rows])
            files.put(part)
    files.close()
    written = [path.read_bytes() for path in sorted(place.iterdir())]
    assert written == [path.read_bytes() for path in opened.golden.files("index")]
