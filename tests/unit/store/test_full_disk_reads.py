"""Reads while the disk has no space for queues: what is dispatched can be read."""

from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import DiskFullError
from rocketlake.files.mapped_file import MappedFile


def test_queue_without_space_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reserve, is_full = MappedFile.reserve, False

    def refuse(file: MappedFile, size: int) -> None:
        if is_full and "consumequeue" in str(file.path):
            raise DiskFullError(str(file.path), size, 0)
        reserve(file, size)

    monkeypatch.setattr(MappedFile, "reserve", refuse)
    sizes = {"mapped_file_size_consume_queue": 20 * 20}
    with rocketlake.open_store(tmp_path / "store", **sizes) as store:
        for number in range(20):
            store.put(Message(topic="T", body=str(number).encode(), keys=["k"]), queue_id=0)
        assert store.max_offset("T", 0) == 20
        is_full = True
        for number in range(20, 50):
            assert store.put(Message(topic="T", body=str(number).encode()), queue_id=0).is_ok
        assert store.max_offset("T", 0) == 20
        assert len(store.get("T", 0, 0).messages) == 20
        assert len(store.query("T", "k")) == 20
        consumer = store.consumer("g", "T", timeout=0)
        assert len(list(consumer)) == 20
        is_full = False
        assert store.max_offset("T", 0) == 50
        assert [m.queue_offset for m in consumer] == [*range(20, 50)]


def test_messages_in_the_buffer_of_a_file_before_the_last_are_read(tmp_path: Path):
    """The pool has one buffer, so that the files behind its file have none."""
    options = {
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 1,
        "commit_interval_commit_log": 60_000,
        "mapped_file_size_commit_log": 4096,
    }
    with rocketlake.open_store(tmp_path / "store", **options) as store:
        for number in range(40):
            assert store.put(Message(topic="T", body=bytes(300)), queue_id=0).is_ok
            assert store.max_offset("T", 0) == number + 1
