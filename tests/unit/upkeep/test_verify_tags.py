"""What RocketMQ 5.5 writes: tags in the index, and a sixth value in the checkpoint."""

import struct

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions

SLOTS, ENTRIES = 20, 40
SIZES = {
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": ENTRIES,
}
WITHOUT, WITH_TAGS = "5.3", "5.5"


def write(root, version, first, count):
    """Put messages with a tag, with keys, with both or with neither, as a release indexes them."""
    with rocketlake.open_store(root, SIZES, compat_version=version) as store:
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
        pytest.param((WITH_TAGS,), id="with"),
        pytest.param((WITHOUT, WITH_TAGS), id="before 5.5, then 5.5"),
        pytest.param((WITH_TAGS, WITHOUT), id="5.5, then before"),
        pytest.param((WITHOUT, WITH_TAGS, WITHOUT, WITH_TAGS), id="to and fro"),
    ],
)
@pytest.mark.parametrize("count", [1, 7, 300])
def test_index_with_tags_is_sound(tmp_path, parts, count):
    for number, version in enumerate(parts):
        write(tmp_path, version, number * count, count)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("version", [WITHOUT, WITH_TAGS])
@pytest.mark.parametrize("number", [*range(1, 12), ENTRIES - 2, ENTRIES - 1])
@pytest.mark.parametrize("field", [0, 4])
def test_damaged_entry_is_found(tmp_path, version, number, field):
    write(tmp_path, version, 0, 60)
    path = sorted((tmp_path / "index").iterdir())[0]
    data = bytearray(path.read_bytes())
    at = 40 + 4 * SLOTS + 20 * number + field
    kind = ">i" if field == 0 else ">q"
    value = struct.unpack_from(kind, data, at)[0]
    struct.pack_into(kind, data, at, value + SLOTS)  # the same slot
    path.write_bytes(data)
    assert findings(tmp_path) != []


@pytest.mark.parametrize("is_of_5_5", [False, True])
@pytest.mark.parametrize("version", [WITHOUT, WITH_TAGS])
def test_offset_of_the_queues_is_written_by_5_5_and_stays_true(tmp_path, version, is_of_5_5):
    path = tmp_path / "checkpoint"
    with rocketlake.open_store(tmp_path, SIZES, compat_version="5.3") as store:
        store.put(Message(topic="T", body=b"x"))
    assert Checkpoint.decode(path.read_bytes()).queue_physical_offset == 0
    page = bytearray(path.read_bytes())
    struct.pack_into(">q", page, 40, 1 if is_of_5_5 else 0)
    path.write_bytes(page)
    with rocketlake.open_store(tmp_path, SIZES, compat_version=version) as store:
        last = store.put(Message(topic="T", body=b"y")).physical_offset
    expected = last if is_of_5_5 or version == WITH_TAGS else 0
    assert Checkpoint.decode(path.read_bytes()).queue_physical_offset == expected
    assert findings(tmp_path) == []


# --- what writeWithoutMmap leaves behind the end --------------------------------------------------


def put_some(root, version="5.5"):
    """Return the only log file of a store, and where its records end."""
    with rocketlake.open_store(root, SIZES, compat_version=version) as store:
        for number in range(5):
            receipt = store.put(Message(topic="T", body=b"x" * (100 + number)), queue_id=0)
        return root / "commitlog" / f"{0:020d}", receipt.physical_offset + receipt.size


def write_at(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("gap", [0, 9])
def test_rest_of_the_last_page_is_no_damage(tmp_path, gap):
    path, end = put_some(tmp_path)
    write_at(path, end + gap, b"x" * (4096 - end - gap))
    assert findings(tmp_path) == []
    with OfflineStore(tmp_path) as view:
        pending = Verifier(view, VerifyOptions(jobs=1)).run().pending
    assert pending.torn_bytes == 4096 - end


@pytest.mark.parametrize("gap", [0, 9])
@pytest.mark.parametrize(("version", "size"), [("5.5", 4097), ("5.3", 4096)])
def test_other_bytes_behind_the_end_are_damage(tmp_path, gap, version, size):
    path, end = put_some(tmp_path, version)
    write_at(path, end + gap, b"x" * (size - end - gap))
    assert len(findings(tmp_path)) == 1


def test_last_record_that_is_damaged_is_no_rest_of_a_page(tmp_path):
    path, end = put_some(tmp_path)
    with rocketlake.open_store(tmp_path, SIZES, read_only=True) as store:
        last = store.get("T", 0, offset=4).messages[0].physical_offset
    write_at(path, last, b"y" * 40)
    assert end < 4096
    assert findings(tmp_path) != []
