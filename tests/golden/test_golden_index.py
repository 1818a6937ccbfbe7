"""Index files: shape, chains and bytes, and every key of every record found through them."""

import pytest

from rocketlake.format import index as index_format
from rocketlake.format import layout
from rocketlake.format.index import IndexEntry, IndexHeader
from rocketlake.format.record import StoredMessage
from rocketlake.model.flags import TransactionType, transaction_type
from rocketlake.store.disk.log import store_timestamp
from rocketlake.store.offline import KeyQuery

EVER = 1 << 62
ALL = 1 << 30


def keys_of(record: StoredMessage, *, with_tags: bool = False) -> list[str]:
    """What dispatch gives to the index, in its order."""
    if transaction_type(record.sys_flag) is TransactionType.ROLLBACK:
        return []
    tags = [f"T#{record.tags}"] if with_tags and record.tags else []
    return [*filter(None, [record.unique_key]), *record.keys, *tags]


def entries_of(data: bytes, slots: int) -> list[IndexEntry]:
    count = IndexHeader.decode(data).entries_used
    places = (index_format.entry_position(slots, number) for number in range(1, count + 1))
    return [IndexEntry.decode(data, place) for place in places]


def test_slot_count_is_derived_from_the_chains(opened, index_files):
    options = opened.case.spec["options"]
    for path in index_files:
        data = path.read_bytes()
        wanted = options["maxHashSlotNum"]
        assert index_format.entries_for(len(data), wanted) == options["maxIndexNum"]
        used = IndexHeader.decode(data).entries_used
        assert index_format.find_slots(data) == (wanted if used else None)
    shapes = {file.slots for file in opened.view.index_files if file.header.entries_used}
    assert shapes <= {options["maxHashSlotNum"]}


def test_putting_the_entries_again_gives_the_same_bytes(opened, index_files):
    slots = opened.case.spec["options"]["maxHashSlotNum"]
    before: IndexHeader | None = None
    for path in index_files:
        data = path.read_bytes()
        header = IndexHeader.decode(data)
        written = new_file(len(data), slots, before)
        for entry in entries_of(data, slots):
            stored = time_of(opened, entry, header)
            assert index_format.put(
                *(written, slots, index_format.entries_for(len(data), slots)),
                *(entry.key_hash, entry.physical_offset, stored),
                opened.case.name.startswith("v46-"),
            )
        if not header.entries_used:
            # A file without keys: 5.x counts from 1 already, 4.x writes nothing.
            written[36:40] = header.entry_count.to_bytes(4, "big")
            assert header.entry_count == int(opened.case.is_5x)
        assert bytes(written) == data
        before = header


def new_file(size: int, slots: int, before: IndexHeader | None) -> bytearray:
    """A file as it is made: with the end of the file before it."""
    data = bytearray(size)
    if before is not None:
        times = (before.end_timestamp, before.end_timestamp)
        offsets = (before.end_physical_offset, before.end_physical_offset)
        data[: layout.INDEX_HEADER_SIZE] = IndexHeader(*times, *offsets, 0, 1).encode()
    return data


def time_of(opened, entry: IndexEntry, header: IndexHeader) -> int:
    """The store time of an entry's record; of an expired one what the entry says of it."""
    stored = store_timestamp(opened.view.log.read(entry.physical_offset, 80))
    if stored is not None:
        return stored
    assert entry.physical_offset < opened.view.min_offset
    return header.begin_timestamp + entry.time_diff_s * 1000


def test_entries_and_headers_encode_to_the_same_bytes(opened, index_files):
    slots = opened.case.spec["options"]["maxHashSlotNum"]
    for path in index_files:
        data = path.read_bytes()
        header = IndexHeader.decode(data)
        assert header.encode() == data[: layout.INDEX_HEADER_SIZE]
        begin = index_format.entry_position(slots, 1)
        written = b"".join(entry.encode() for entry in entries_of(data, slots))
        assert data[begin : begin + len(written)] == written
        assert not any(data[begin + len(written) :])


def test_every_key_is_found_through_the_chains(opened, index_files):
    slots = opened.case.spec["options"]["maxHashSlotNum"]
    files = [path.read_bytes() for path in index_files]
    for record in opened.records:
        for key in keys_of(record, with_tags=opened.case.is_5_5):
            hash_ = index_format.key_hash(record.topic, key)
            found = [
                offset
                for data in files
                for offset in index_format.lookup(data, slots, hash_, 0, EVER, ALL)
            ]
            assert found.count(record.physical_offset) == 1 or not files
    # Only the cases whose index was deleted have none.
    assert bool(files) != opened.case.name.endswith("-noqueue")


def test_every_entry_stands_for_a_key_of_its_record(opened, index_files):
    slots = opened.case.spec["options"]["maxHashSlotNum"]
    at = {record.physical_offset: record for record in opened.records}
    for path in index_files:
        for entry in entries_of(path.read_bytes(), slots):
            record = at.get(entry.physical_offset)
            if record is None:
                view = opened.view
                assert not view.min_offset <= entry.physical_offset < view.max_offset
                continue
            keys = keys_of(record, with_tags=opened.case.is_5_5)
            hashes = {index_format.key_hash(record.topic, key) for key in keys}
            assert entry.key_hash in hashes


def test_every_key_is_found_by_the_view(opened):
    wanted: dict[tuple[str, str], list[int]] = {}
    for record in opened.records:
        for key in dict.fromkeys(keys_of(record)):
            wanted.setdefault((record.topic, key), []).append(record.physical_offset)
    for (topic, key), offsets in wanted.items():
        found = opened.view.find(KeyQuery(topic=topic, key=key, limit=ALL))
        assert [message.physical_offset for message in found] == offsets


@pytest.mark.parametrize("name", ["v4-index", "v46-index", "v5-index"])
def test_follow_up_files_begin_with_the_end_of_the_one_before(stores, name):
    paths = stores.get(name).files("index")
    assert len(paths) == 7
    slots = stores.get(name).case.spec["options"]["maxHashSlotNum"]
    # The second file's first entry came 2.6 s behind the first file's end, which it counted from.
    first = entries_of(paths[1].read_bytes(), slots)[0]
    assert first.time_diff_s == 2
