"""What RocketMQ 5.5 writes: tags in the index, and a sixth value in the checkpoint."""

import struct

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.dispatch import key_and_tag_entries
from rocketlake.store import dispatch
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions

SLOTS, ENTRIES = 20, 40
SIZES = {
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": ENTRIES,
}
WITHOUT = dispatch.key_entries


def with_tags(columns):
    hashes, rows, _ = key_and_tag_entries(columns)
    return hashes, rows


def write(root, monkeypatch, entries, first, count):
    """Put messages with a tag, with keys, with both or with neither; `entries` indexes them."""
    monkeypatch.setattr(dispatch, "key_entries", entries)
    with rocketlake.open_store(root, SIZES) as store:
        for number in range(first, first + count):
            message = Message(
                topic="T",
                body=b"x" * 100,
                tags=f"tag{number % 3}" if number % 4 else None,
                keys=[f"k{number}"] if number % 5 else [],
            )
            store.put(message, queue_id=0)


def findings(root):
    found = []
    with OfflineStore(root) as view:
        report = Verifier(view, VerifyOptions(jobs=1)).run(found.append)
    assert report.findings == len(found)
    return [finding.reason for finding in found]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((WITHOUT,), id="without"),
        pytest.param((with_tags,), id="with"),
        pytest.param((WITHOUT, with_tags), id="before 5.5, then 5.5"),
        pytest.param((with_tags, WITHOUT), id="5.5, then before"),
        pytest.param((WITHOUT, with_tags, WITHOUT, with_tags), id="to and fro"),
    ],
)
@pytest.mark.parametrize("count", [1, 7, 300])
def test_index_with_tags_is_sound(tmp_path, monkeypatch, parts, count):
    for number, entries in enumerate(parts):
        write(tmp_path, monkeypatch, entries, number * count, count)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("entries", [WITHOUT, with_tags])
@pytest.mark.parametrize("number", [*range(1, 12), ENTRIES - 2, ENTRIES - 1])
@pytest.mark.parametrize("field", [0, 4])
def test_damaged_entry_is_found(tmp_path, monkeypatch, entries, number, field):
    write(tmp_path, monkeypatch, entries, 0, 60)
    path = sorted((tmp_path / "index").iterdir())[0]
    data = bytearray(path.read_bytes())
    at = 40 + 4 * SLOTS + 20 * number + field
    kind = ">i" if field == 0 else ">q"
    value = struct.unpack_from(kind, data, at)[0]
    struct.pack_into(kind, data, at, value + SLOTS)  # the same slot
    path.write_bytes(data)
    assert findings(tmp_path) != []


@pytest.mark.parametrize("is_of_5_5", [False, True])
def test_offset_of_the_queues_stays_true_where_5_5_has_written_it(tmp_path, is_of_5_5):
    path = tmp_path / "checkpoint"
    with rocketlake.open_store(tmp_path, SIZES) as store:
        store.put(Message(topic="T", body=b"x"))
    page = bytearray(path.read_bytes())
    struct.pack_into(">q", page, 40, 1 if is_of_5_5 else 0)
    path.write_bytes(page)
    with rocketlake.open_store(tmp_path, SIZES) as store:
        last = store.put(Message(topic="T", body=b"y")).physical_offset
    expected = last if is_of_5_5 else 0
    assert Checkpoint.decode(path.read_bytes()).queue_physical_offset == expected
    assert findings(tmp_path) == []
