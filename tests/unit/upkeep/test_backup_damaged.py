"""Backups of stores whose next start would cut good records off: every byte is copied."""

import json

import pytest

import rocketlake
from rocketlake import Message, OfflineStore
from rocketlake.errors import DiskFullError
from rocketlake.files.descriptor import PosixWriter
from rocketlake.upkeep.salvage.cut_off import find_cut_off
from support import command
from support.golden import snapshot
from support.store_builder import StoreBuilder

SIZE = 2000
BAD = 13


@pytest.fixture
def source(tmp_path):
    return tmp_path / "source"


@pytest.fixture
def builder(source):
    return StoreBuilder(source, log_file_size=SIZE)


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


@pytest.fixture
def damaged(builder):
    """An unclean store whose next start would cut off all records behind the 14th."""
    builder.records(40).unclean().checkpoint(0, 0, 0).flip_body(BAD)
    return builder.write()


def backup(source, copy, *arguments, code=0):
    ran = command.run("backup", source, copy, *arguments)
    assert ran.code == code, ran.err
    return ran


def manifest(copy):
    return json.loads((copy / "backup.json").read_text())


def content(root):
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root): path.read_bytes() for path in files}


def good_records(root):
    (line,) = command.run("salvage", "--from", root / "commitlog", "--json").lines
    return line["records"]


def replayed(root):
    """Open a store, put again what that cut off, and return all its messages."""
    ran = command.run("salvage", root, "--replay")
    assert ran.code == 0, ran.err
    with rocketlake.open_store(root, read_only=True) as store:
        found = store.get("T", 0, 0, max_messages=100).messages
    return sorted(int(message.body) for message in found)


def test_records_behind_a_bad_one_are_copied_as_they_are(damaged, copy):
    before = snapshot(damaged)
    ran = backup(damaged, copy, "--verify", code=1)
    assert snapshot(damaged) == before
    assert "does not have its checksum; 26 good records" in ran.err
    assert "They are in the copy" in ran.err
    assert f"Next: rocketlake salvage {copy}" in ran.err
    for name in ("commitlog", "consumequeue", "index"):
        assert content(copy / name) == content(damaged / name)
    assert (copy / "abort").exists()
    assert manifest(copy)["state"] == "complete"
    assert good_records(copy) == 39
    assert replayed(copy) == [n for n in range(40) if n != BAD]


def test_clean_store_with_a_bad_record_in_its_last_file_is_copied_as_it_is(builder, copy):
    builder.records(40)
    last = len(builder.placed) - 2
    builder.flip_body(last).write()
    ran = backup(builder.root, copy, code=1)
    assert "1 good record " in ran.err
    assert not (copy / "abort").exists()
    assert good_records(copy) == 39
    assert replayed(copy) == [n for n in range(40) if n != last]


def test_second_backup_of_a_damaged_store_takes_what_is_new(builder, damaged, copy):
    backup(damaged, copy, code=1)
    for number in range(40, 60):
        builder.record(body=b"%d" % number)
    builder.write()
    ran = backup(damaged, copy, code=1)
    assert "46 good records" in ran.err
    assert content(copy / "commitlog") == content(damaged / "commitlog")
    assert replayed(copy) == [n for n in range(60) if n != BAD]


def test_backup_of_a_sound_store_that_was_damaged_since_loses_nothing(builder, source, copy):
    builder.records(30).unclean().checkpoint(0, 0, 0).write()
    backup(source, copy)
    for number in range(30, 50):
        builder.record(body=b"%d" % number)
    builder.flip_body(35).write()
    backup(source, copy, code=1)
    assert good_records(copy) == 49
    assert replayed(copy) == [n for n in range(50) if n != 35]


def test_backup_after_a_start_has_cut_the_source_goes_on(damaged, copy):
    """What the start saved in the source comes with it."""
    backup(damaged, copy, code=1)
    with rocketlake.open_store(damaged) as store:
        store.put(Message(topic="T", body=b"100"), queue_id=0)
    backup(damaged, copy)
    with OfflineStore(copy) as view:
        assert view.traits.is_clean
        assert sum(queue.max_offset for queue in view.queues.values()) == BAD + 1
    assert replayed(copy) == [*(n for n in range(40) if n != BAD), 100]


def test_damaged_copy_that_was_opened_since_is_refused(damaged, copy):
    backup(damaged, copy, code=1)
    rocketlake.open_store(copy).close()
    assert "was opened and written to since" in backup(damaged, copy, code=2).err


def test_an_interrupted_backup_of_a_damaged_store_keeps_the_former(
    builder, damaged, copy, monkeypatch
):
    backup(damaged, copy, code=1)
    for number in range(40, 60):
        builder.record(body=b"%d" % number)
    builder.write()
    write = PosixWriter.write
    for allowed in range(40):
        left = allowed

        def limited(self, position, data):
            nonlocal left
            left -= 1
            if left < 0:
                raise DiskFullError("disk", len(data), 0)
            write(self, position, data)

        monkeypatch.setattr(PosixWriter, "write", limited)
        ran = command.run("backup", damaged, copy)
        monkeypatch.setattr(PosixWriter, "write", write)
        if ran.code == 1:
            break
        assert good_records(copy) >= 39
    else:
        pytest.fail("no backup came to its end")
    assert allowed > 3
    assert good_records(copy) == 59


def test_damaged_store_in_use_is_copied_with_what_it_holds(tmp_path, copy):
    source = tmp_path / "live"
    options = {"mapped_file_size_commit_log": 64 << 10, "max_message_size": 4000}
    with rocketlake.open_store(source, **options) as store:
        places = []
        for number in range(1000):
            message = Message(topic="T", body=b"%d" % number + bytes(100))
            places.append(store.put(message, queue_id=number % 4).physical_offset)
        store.flush()
        first = source / "commitlog" / f"{0:020}"
        with first.open("r+b") as file:
            file.seek(places[3] + 95)
            file.write(b"\xff\xff")
        ran = backup(source, copy, code=1)
        assert "996 good records" in ran.err
        assert good_records(copy) == 999
        for number in range(1000, 1100):
            store.put(Message(topic="T", body=b"%d" % number), queue_id=0)
        backup(source, copy, code=1)
        assert good_records(copy) == 1099


def test_record_that_a_writer_finishes_meanwhile_is_not_taken_for_a_bad_one(builder):
    """It looked torn when the end of the log was looked for; others stand behind it since."""
    builder.records(12).unclean().checkpoint(0, 0, 0).write()
    log = builder.log_path(0)
    whole = log.read_bytes()
    torn = builder.placed[5].physical_offset + 50
    log.write_bytes(whole[:torn] + bytes(len(whole) - torn))
    with OfflineStore(builder.root) as view:
        assert view.max_offset == builder.placed[5].physical_offset
        log.write_bytes(whole)
        assert find_cut_off(view) is None


# --- files that were cut short ------------------------------------------------------------------


def cut(root, family, size):
    path = sorted(file for file in (root / family).rglob("*") if file.is_file())[0]
    with path.open("r+b") as file:
        file.truncate(size)
    return path


def test_store_whose_log_file_was_cut_short_is_copied_as_it_is(builder, copy, tmp_path):
    source = builder.records(40).write()
    cut(source, "commitlog", SIZE // 2)
    good = good_records(source)
    for _ in range(2):  # the second one goes on with the first
        ran = backup(source, copy, code=1)
        assert "a start of the store, or of the copy, refuses the file" in ran.err
        assert f"Next: rocketlake salvage NEW --from {copy}/commitlog --replay" in ran.err
        assert manifest(copy)["state"] == "complete"
    assert content(copy / "commitlog") == content(source / "commitlog")
    ran = command.run("salvage", tmp_path / "new", "--from", copy / "commitlog", "--replay")
    assert ran.code == 0, ran.err
    with rocketlake.open_store(tmp_path / "new", read_only=True) as store:
        assert len(store.get("T", 0, 0, max_messages=100).messages) == good


def test_store_whose_queue_file_was_cut_short_is_copied_and_repaired(builder, copy):
    source = builder.records(40).write()
    path = cut(source, "consumequeue", 60)
    ran = backup(source, copy, code=1)
    damaged = copy / path.relative_to(source)
    assert f"{damaged} was cut short to 60 bytes" in ran.err
    damaged.unlink()  # as the note says
    assert command.run("repair", copy, "--yes").code == 0
    with rocketlake.open_store(copy) as store:
        assert len(store.get("T", 0, 0, max_messages=100).messages) == 40


@pytest.mark.parametrize("words", [("repair",), ("salvage",), ("salvage", "--replay")])
def test_log_file_cut_short_has_a_way_out_that_loses_nothing(builder, words):
    """It was to be moved away, with all its good records."""
    builder.records(40).unclean().checkpoint(0, 0, 0)
    source = builder.write()
    cut(source, "commitlog", SIZE // 2)
    ran = command.run(words[0], source, *words[1:])
    text = " ".join((ran.out + ran.err).split())
    assert "rocketlake salvage NEW --from" in text
    assert "commitlog --replay" in text
    assert "The next start cuts" not in text
