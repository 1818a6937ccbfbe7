"""A last record whose properties a power cut has taken in part."""

import shutil

import pytest

from rocketlake.embedded.open_store import open_store
from rocketlake.model.message import Message

SECTOR = 512
OPTIONS = {"mapped_file_size_commit_log": 1 << 16, "flush_interval_commit_log": 60_000}


@pytest.fixture
def crashed(tmp_path):
    """Return a function that puts messages, and gives the store as a crash leaves it."""

    def make(*messages, **options):
        root, copy = tmp_path / "store", tmp_path / "crashed"
        with open_store(root, **OPTIONS, **options) as store:
            store.create_topic("T", 1)
            receipts = [store.put(message, 0) for message in messages]
            shutil.copytree(root, copy)
        return copy, receipts

    return make


def cut_off(root, position):
    """Make zeros of what a disk would not have written from a sector on."""
    assert position % SECTOR == 0
    (path,) = (root / "commitlog").glob("0*00")
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(SECTOR))


def names_of(store):
    return [message.body for message in store.get("T", 0, 0, 32).messages]


@pytest.mark.parametrize("taken", [1, 40])
def test_record_without_the_end_of_its_properties_is_cut(crashed, tmp_path, taken):
    first = Message(topic="T", body=b"first", keys=["k1"])
    probe = Message(topic="T", body=bytes(700), keys=["k" * 60])
    root, (_, two) = crashed(first, probe)
    shutil.rmtree(root)
    shutil.rmtree(tmp_path / "store")
    end = two.physical_offset + two.size
    body = bytes(700 + (-end) % SECTOR + taken)
    root, (_, two) = crashed(first, Message(topic="T", body=body, keys=["k" * 60]))
    end = two.physical_offset + two.size
    assert end % SECTOR == taken
    cut_off(root, end - taken)
    with open_store(root, read_only=True) as view:
        assert names_of(view) == [b"first"]
    with open_store(root, **OPTIONS) as store:
        assert names_of(store) == [b"first"]
        assert [found.body for found in store.query("T", "k1")] == [b"first"]
        assert store.put(Message(topic="T", body=b"next", keys=["k2"]), 0).queue_offset == 1
        assert names_of(store) == [b"first", b"next"]


def test_zeros_in_a_property_are_no_lost_page(crashed):
    """The separator at the end shows that all of the properties are there."""
    zeros = Message(topic="T", body=b"zeros", keys=["k"], properties={"zeros": "\0" * 2000})
    root, _ = crashed(Message(topic="T", body=b"first", keys=["k1"]), zeros)
    with open_store(root, **OPTIONS) as store:
        assert names_of(store) == [b"first", b"zeros"]


def test_zeros_at_the_end_stay_where_no_separator_is_written(crashed):
    """Releases from 4.9.1 to 5.1 end properties with the last value, which may be zeros."""
    zeros = Message(topic="T", body=b"zeros", properties={"zz": "\0" * 2000})
    root, _ = crashed(Message(topic="T", body=b"first"), zeros, compat_version="4.9")
    with open_store(root, **OPTIONS, compat_version="4.9") as store:
        assert names_of(store) == [b"first", b"zeros"]
