"""The proof of understanding notices every changed byte that matters."""

import pytest

from rocketlake.store.offline import OfflineStore
from rocketlake.store.offline.proof import prove
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    made = StoreBuilder(tmp_path, log_file_size=1000)
    for number in range(25):
        made.record(body=b"%d" % number, keys=[f"k{number}"], tags="A")
    return made.inner_batch(3)


def unexplained(root):
    with OfflineStore(root) as store:
        return {account.family: account.unexplained for account in prove(store)}


def test_whole_store_is_explained(builder):
    with OfflineStore(builder.write()) as store:
        accounts = {account.family: account for account in prove(store)}
    assert {family: account.unexplained for family, account in accounts.items()} == {
        "commitlog": 0,
        "consumequeue": 0,
        "index": 0,
        "checkpoint": 0,
    }
    assert accounts["commitlog"].items == 26
    assert accounts["commitlog"].same == sum(place.size for place in builder.placed)
    assert accounts["consumequeue"].items == 26
    assert accounts["index"].items == 25


def test_bad_record_is_unexplained(builder):
    found = unexplained(builder.flip_body(3).write())
    assert found["commitlog"] >= builder.placed[3].size


def test_bytes_behind_the_end_are_unexplained(builder):
    assert unexplained(builder.overwrite(builder.end + 50, b"x").write())["commitlog"] > 0


def test_blank_record_that_lies_about_its_size_is_unexplained(builder):
    last = max(place.end for place in builder.placed if place.end <= 1000)
    assert unexplained(builder.overwrite(last, b"\0\0\0\x09").write())["commitlog"] == 1000 - last


def test_broken_chain_of_the_index_is_unexplained(builder):
    root = builder.write()
    path = builder.index_path(0)
    data = bytearray(path.read_bytes())
    data[43] ^= 1
    path.write_bytes(data)
    assert unexplained(root)["index"] == len(data)


def test_byte_behind_the_checkpoint_fields_is_unexplained(builder):
    root = builder.write()
    data = bytearray((root / "checkpoint").read_bytes())
    data[100] = 1
    (root / "checkpoint").write_bytes(data)
    assert unexplained(root)["checkpoint"] == 4096


def test_reserved_bytes_of_a_batch_unit_are_unexplained(builder):
    root = builder.write()
    path = root / "batchconsumequeue" / "B" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[45] = 1
    path.write_bytes(data)
    assert unexplained(root)["consumequeue"] == 46
