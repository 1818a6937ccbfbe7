"""RocketMQ and we exclude each other; readers are welcome all the time."""

from pathlib import Path

import pytest
from reference_store import ReferenceStore

import rocketlake
from rocketlake import Message
from rocketlake.errors import StoreLockedError
from rocketlake.files.ops import PosixFileOps
from support import command

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

VERSIONS = ("5.5.0", "5.3.3", "4.9.7")
SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def bodies(store: rocketlake.ReadOnlyStore) -> list[bytes]:
    return [bytes(message.body) for message in store.get("T", 0, 0).messages]


@pytest.mark.parametrize("version", VERSIONS)
def test_store_that_rocketmq_has_open_is_refused_and_can_be_read(tmp_path: Path, version: str):
    root = tmp_path / "store"
    with rocketlake.open_store(root, SIZES) as store:
        store.put(Message(topic="T", body=b"one"), queue_id=0)
    with ReferenceStore(version).holding(root, **SIZES) as held:
        assert held["load"], held
        for _ in range(2):
            with pytest.raises(StoreLockedError) as caught:
                rocketlake.open_store(root)
            assert caught.value.holder == held["pid"]
            assert f"process {held['pid']} has it open" in str(caught.value)
            with rocketlake.open_store(root, read_only=True) as reader:
                assert bodies(reader) == [b"one"]
        assert f"in use by process {held['pid']}" in command.run("info", root).out
        assert PosixFileOps().lock_holder(root / "lock") == held["pid"]
    with rocketlake.open_store(root) as store:
        assert store.put(Message(topic="T", body=b"two"), queue_id=0).queue_offset == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_store_that_we_have_open_is_refused_by_rocketmq(tmp_path: Path, version: str):
    """Also after readers of this process have come and gone."""
    root = tmp_path / "store"
    with rocketlake.open_store(root, SIZES) as store:
        store.put(Message(topic="T", body=b"one"), queue_id=0)
        with rocketlake.open_store(root, read_only=True) as reader:
            assert bodies(reader) == [b"one"]
        assert command.run("info", root).code == 0
        with ReferenceStore(version).holding(root, **SIZES) as held:
            assert not held["load"]
            assert "Lock failed" in held["error"]
        assert store.put(Message(topic="T", body=b"two"), queue_id=0).queue_offset == 1
    with ReferenceStore(version).holding(root, **SIZES) as held:
        assert held["load"], held
