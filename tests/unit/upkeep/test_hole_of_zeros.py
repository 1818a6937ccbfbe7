"""Zeros in the middle of the log, from a bad disk or a power cut, with good records behind them."""

import shutil

import pytest

import rocketlake
from rocketlake import Message
from support import command

COUNT = 300
BAD = 90
SIZES = {"mappedFileSizeCommitLog": 1 << 17, "mappedFileSizeConsumeQueue": 20_000}


def run(*arguments, code=0):
    ran = command.run(*arguments)
    assert ran.code == code, ran
    return ran


def body(number):
    return b"%05d" % number + b"z" * 100


@pytest.fixture(params=["clean", "unclean"])
def store_and_good(request, tmp_path):
    """A store with 4 KiB of zeros where a record begins, and the bodies that are still good."""
    root = tmp_path / "store"
    with rocketlake.open_store(root, SIZES) as store:
        store.create_topic("T", 1)
        receipts = [store.put(Message(topic="T", body=body(number))) for number in range(COUNT)]
        store.flush()
        if request.param == "unclean":
            copy = tmp_path / "copy"
            shutil.copytree(root, copy)
    if request.param == "unclean":
        root = copy
    hole = receipts[BAD].physical_offset
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(hole)
        file.write(bytes(4096))
    good = [
        number
        for number, receipt in enumerate(receipts)
        if not hole - receipt.size < receipt.physical_offset < hole + 4096
    ]
    return root, [body(number) for number in good]


def bodies_in(directory):
    data = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    return [body(number) for number in range(COUNT) if body(number) in data]


def test_start_saves_what_lies_behind(store_and_good):
    root, good = store_and_good
    with rocketlake.open_store(root) as store:
        assert any("good records from" in note for note in store.recovery.notes)
        assert store.max_offset("T", 0) == BAD
    assert sorted({*bodies_in(root / "commitlog"), *bodies_in(root / "salvage")}) == good


def test_backup_copies_all_and_says_what_a_start_would_cut(store_and_good, tmp_path):
    root, good = store_and_good
    done = run("backup", root, tmp_path / "backup", code=1)
    assert "They are in the copy" in done.err
    assert bodies_in(tmp_path / "backup" / "commitlog") == good


def test_salvage_lists_every_good_record(store_and_good, tmp_path):
    root, good = store_and_good
    done = run("salvage", root, "--out", tmp_path / "out.jsonl")
    assert f"{len(good)} records" in done.err


def test_verify_finds_the_hole_and_repair_takes_nothing_away(store_and_good):
    root, good = store_and_good
    assert "bytes that were never written; records go on at" in run("verify", root, code=1).out
    assert "next: rocketlake salvage" in run("repair", root, "--yes", code=1).out
    assert bodies_in(root / "commitlog") == good
