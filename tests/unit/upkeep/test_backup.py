"""Backups: whole while somebody writes, incremental, safe in a crash, refused if they must be."""

import json
import os
import shutil
import threading

import pytest
from msgspec import structs

import rocketlake
from rocketlake import Message, OfflineStore
from rocketlake.errors import DiskFullError
from rocketlake.files.descriptor import PosixWriter
from rocketlake.files.store_dir import StoreDir
from rocketlake.model.queues import QueueKey
from support import command
from support.golden import snapshot
from support.store_builder import StoreBuilder

SIZE = 2000


@pytest.fixture
def source(tmp_path):
    return tmp_path / "source"


@pytest.fixture
def builder(source):
    return StoreBuilder(source, log_file_size=SIZE)


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


def backup(source, copy, *arguments, code=0):
    ran = command.run("backup", source, copy, *arguments)
    assert ran.code == code, ran.err
    return ran


def bodies(root, topic="T"):
    with OfflineStore(root) as view:
        assert not view.damage.findings
        found = {
            key.queue_id: [
                message.body for batch in view.messages(key) for message in batch.columns.messages()
            ]
            for key in view.queues
            if key.topic == topic
        }
        assert view.traits.is_clean
    return found


def manifest(copy):
    return json.loads((copy / "backup.json").read_text())


def numbers(count, begin=0):
    return [str(number).encode() for number in range(begin, count)]


# --- what a copy holds -----------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_copy_is_a_store_of_its_own(builder, source, copy, is_clean):
    builder.records(40)
    if not is_clean:
        builder.records(5, dispatched=False).unclean().checkpoint(0, 0, 0)
    builder.write()
    before = snapshot(source)
    backup(source, copy)
    assert snapshot(source) == before
    count = 40 if is_clean else 45
    assert bodies(copy)[0] == (numbers(40) + ([] if is_clean else numbers(5)))
    with rocketlake.open_store(copy) as store:
        assert store.max_offset("T", 0) == count
        assert store.put(Message(topic="T", body=b"new"), queue_id=0).queue_offset == count


def test_manifest_tells_what_when_and_from_where(builder, source, copy):
    builder.records(40).write()
    backup(source, copy)
    found = manifest(copy)
    assert found["state"] == "complete"
    assert found["source"] == str(source)
    assert (found["log_begin"], found["log_end"]) == (0, builder.end)
    assert found["started_at"].endswith("+00:00")
    listed = {file["path"] for file in found["files"]}
    there = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert listed == there - {"backup.json", "lock", "abort.bak"}


def test_tables_are_copied_and_broken_ones_come_from_their_copies(builder, source, copy):
    builder.records(3)
    builder.file("config/topics.json", b'{"topicConfigTable":{}}')
    builder.file("config/consumerOffset.json", b'{"offsetTab')
    builder.file("config/consumerOffset.json.bak", b'{"offsetTable":{"T@g":{0:2}}}')
    builder.file("config/subscriptionGroup.json", b"")
    builder.write()
    ran = backup(source, copy, code=1)
    assert "consumerOffset.json.bak was taken" in ran.err
    assert "subscriptionGroup.json at 0: neither the table nor its copy can be read" in ran.err
    assert (copy / "config/consumerOffset.json").read_bytes() == b'{"offsetTable":{"T@g":{0:2}}}'
    assert (copy / "config/topics.json").exists()
    assert not (copy / "config/subscriptionGroup.json").exists()


def test_a_store_without_messages_is_copied_too(source, copy):
    (source / "commitlog").mkdir(parents=True)
    backup(source, copy)
    backup(source, copy)
    with rocketlake.open_store(source) as store:
        store.put(Message(topic="T", body=b"first"), queue_id=0)
    backup(source, copy)
    assert bodies(copy)[0] == [b"first"]


def test_holes_stay_holes(tmp_path, copy):
    builder = StoreBuilder(tmp_path / "source", log_file_size=8 << 20)
    builder.records(10).write()
    backup(builder.root, copy)
    (log,) = (copy / "commitlog").iterdir()
    assert log.stat().st_size == 8 << 20
    assert log.stat().st_blocks * 512 < 1 << 20


def test_index_of_a_running_store_is_made_anew(builder, source, copy):
    """The newest index file may be half written: the log gives its keys."""
    for number in range(60):
        builder.record("T", 0, b"%d" % number, keys=[f"k{number}"])
    builder.unclean().checkpoint(0, 0, 0).write()
    newest = max((source / "index").iterdir())
    newest.write_bytes(b"\xff" * newest.stat().st_size)
    backup(source, copy)
    sizes = {path.stat().st_size for path in (copy / "index").iterdir()}
    assert sizes == {newest.stat().st_size}  # RocketMQ is told one size for all
    with rocketlake.open_store(copy) as store:
        for number in range(60):
            assert [m.body for m in store.query("T", f"k{number}")] == [b"%d" % number]


# --- while somebody writes -------------------------------------------------------------------


def test_copies_hold_what_was_there_when_they_began(tmp_path, copy):
    source = tmp_path / "live"
    acknowledged = []
    is_over = threading.Event()
    failures = []
    with rocketlake.open_store(source, mapped_file_size_commit_log=64 << 10) as store:

        def write():
            try:
                for number in range(100_000):
                    message = Message(topic="T", body=b"%d" % number, keys=[f"k{number}"])
                    store.put(message, queue_id=number % 4)
                    acknowledged.append(number)
                    pause_s = 0.002 if number % 100 == 0 else 0  # let the backup have its turn
                    if is_over.wait(pause_s):
                        return
            except Exception as error:  # noqa: BLE001 - shown by the test
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(3):
                wanted = len(acknowledged)
                backup(source, copy)
                held = sorted(int(body) for queue in bodies(copy).values() for body in queue)
                assert held == list(range(len(held)))
                assert len(held) >= wanted
        finally:
            is_over.set()
            writer.join()
        assert not failures
    backup(source, copy, "--verify")
    held = sorted(int(body) for queue in bodies(copy).values() for body in queue)
    assert held == acknowledged
    verified = command.run("verify", copy)
    assert verified.code == 0, verified.out
    with rocketlake.open_store(copy) as store:
        last = acknowledged[-1]
        assert [m.body for m in store.query("T", f"k{last}")] == [b"%d" % last]
        assert store.topic("T").read_queue_count == 4


def test_the_lock_of_this_process_stays(tmp_path, copy):
    """Closing any descriptor of `lock` would drop the lock of the process that copies."""
    source = tmp_path / "live"
    with rocketlake.open_store(source) as store:
        store.put(Message(topic="T", body=b"one"))
        backup(source, copy)
        with OfflineStore(source) as view:
            assert view.traits.held_by == os.getpid()


# --- the second time -------------------------------------------------------------------------


def test_only_what_is_new_is_copied(builder, source, copy):
    builder.records(40).write()
    backup(source, copy)
    before = {path: path.stat().st_ino for path in (copy / "commitlog").iterdir()}
    first = builder.log_path(0)
    first.write_bytes(bytes(first.read_bytes()[:4096]))  # the same, but newer
    end = builder.end
    for number in range(40, 60):
        builder.record(body=b"%d" % number)
    builder.write()
    ran = backup(source, copy)
    assert "new bytes copied" in ran.out
    copied = float(ran.out.split(": ")[1].split(" KiB")[0]) * 1024
    new = builder.end - end + 20 * 20  # records and units
    assert new - 60 <= copied < new + SIZE + 10_000  # blanks; index, checkpoint
    for path, inode in before.items():
        assert path.stat().st_ino == inode
    assert bodies(copy)[0] == numbers(60)
    assert manifest(copy)["log_end"] == builder.end


def test_nothing_new_costs_nothing(builder, source, copy):
    builder.records(40).write()
    backup(source, copy)
    ran = backup(source, copy, "--verify")
    assert bodies(copy)[0] == numbers(40)
    assert manifest(copy)["state"] == "complete"
    assert "new bytes copied" in ran.out


@pytest.mark.parametrize("prune", [False, True])
def test_what_expired_stays_unless_pruned(builder, source, copy, prune):
    builder.records(60).write()
    backup(source, copy)
    files = sorted(path.name for path in (copy / "commitlog").iterdir())
    builder.expire(2)
    for number in range(60, 70):
        builder.record(body=b"%d" % number)
    builder.write()
    ran = backup(source, copy, *(["--prune"] if prune else []))
    left = sorted(path.name for path in (copy / "commitlog").iterdir())
    assert left[: 2 if not prune else 0] == (files[:2] if not prune else [])
    held = bodies(copy)[0]
    if prune:
        assert "files removed" in ran.out
        with OfflineStore(source) as view:
            first = view.queues[QueueKey("T", 0)].min_offset
        assert held == numbers(70, first)
    else:
        assert "--prune removes them" in ran.err
        assert held == numbers(70)


def test_a_queue_that_was_made_anew_is_copied_anew(tmp_path, copy):
    source = tmp_path / "live"
    with rocketlake.open_store(source) as store:
        for number in range(10):
            store.put(Message(topic="T", body=b"old %d" % number), queue_id=0)
        store.put(Message(topic="Other", body=b"other"), queue_id=0)
    backup(source, copy)
    with rocketlake.open_store(source) as store:
        store.delete_topic("T")
        store.create_topic("T", 1)
        for number in range(3):
            store.put(Message(topic="T", body=b"new %d" % number), queue_id=0)
    backup(source, copy)
    assert bodies(copy)[0] == [b"new 0", b"new 1", b"new 2"]
    assert bodies(copy, "Other")[0] == [b"other"]


# --- a crash in the middle -------------------------------------------------------------------


def test_an_interrupted_backup_keeps_the_former_and_goes_on(builder, source, copy, monkeypatch):
    builder.records(40).write()
    backup(source, copy)
    for number in range(40, 80):
        builder.record(body=b"%d" % number)
    builder.write()
    write = PosixWriter.write
    for allowed in range(0, 40, 3):
        left = allowed

        def limited(self, position, data):
            nonlocal left
            left -= 1
            if left < 0:
                raise DiskFullError("disk", len(data), 0)
            write(self, position, data)

        monkeypatch.setattr(PosixWriter, "write", limited)
        ran = command.run("backup", source, copy)
        monkeypatch.setattr(PosixWriter, "write", write)
        if ran.code == 0:
            break
        assert ran.code == 2
        assert "no space left" in ran.err
        scratch = copy.with_name(f"scratch{allowed}")
        shutil.copytree(copy, scratch)
        with rocketlake.open_store(scratch) as store:
            held = [m.body for m in store.get("T", 0, 0, max_messages=100).messages]
        assert held[:40] == numbers(40)
        assert held == numbers(len(held))
    else:
        pytest.fail("no backup came to its end")
    assert allowed > 9
    backup(source, copy, "--verify")
    assert bodies(copy)[0] == numbers(80)


def test_an_interrupted_first_backup_goes_on(builder, source, copy, monkeypatch):
    builder.records(40).write()
    write = PosixWriter.write
    left = 4

    def limited(self, position, data):
        nonlocal left
        left -= 1
        if left < 0:
            raise DiskFullError("disk", len(data), 0)
        write(self, position, data)

    monkeypatch.setattr(PosixWriter, "write", limited)
    backup(source, copy, code=2)
    assert manifest(copy)["state"] == "copying"
    assert (copy / "abort").exists()
    monkeypatch.setattr(PosixWriter, "write", write)
    assert "did not come to its end" in backup(source, copy).err
    assert bodies(copy)[0] == numbers(40)


def test_bytes_of_an_interrupted_backup_do_not_come_back(builder, source, copy, tmp_path):
    """A source that was cut after an interrupted backup: its old records must not reappear."""
    builder.records(10).write()
    backup(source, copy)
    longer = StoreBuilder(tmp_path / "longer", log_file_size=SIZE).records(18)
    longer.write()
    begun = manifest(copy) | {"state": "copying"}
    (copy / "backup.json").write_text(json.dumps(begun))
    shutil.copy(longer.log_path(0), copy / "commitlog")
    builder.record(body=b"10").write()
    backup(source, copy)
    assert bodies(copy)[0] == numbers(11)
    with OfflineStore(copy) as view:
        assert view.max_offset == builder.end


# --- refusals --------------------------------------------------------------------------------


def test_a_directory_that_is_something_else_is_left_alone(builder, source, tmp_path):
    builder.records(3).write()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    ran = backup(source, tmp_path / "home", code=2)
    assert "is no backup to go on with: it has thesis.txt" in ran.err
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("precious")
    assert "is a file" in backup(source, tmp_path / "file", code=2).err
    for inside in (source, source / "copy", tmp_path):
        assert "lie in each other" in backup(source, inside, code=2).err


def test_another_store_is_refused(builder, source, copy, tmp_path):
    builder.records(30).write()
    backup(source, copy)
    before = snapshot(copy)
    other = StoreBuilder(tmp_path / "other", log_file_size=SIZE)
    for number in range(50):
        other.record(body=b"other %d" % number)
    assert "does not begin as" in backup(other.write(), copy, code=2).err
    shorter = StoreBuilder(tmp_path / "shorter", log_file_size=SIZE).records(2).write()
    assert "before that of the backup" in backup(shorter, copy, code=2).err
    assert snapshot(copy) == before


def test_a_gap_in_the_log_is_refused_or_pruned(builder, source, copy):
    builder.records(10).write()
    backup(source, copy)
    builder.records(60).expire(3).write()
    ran = backup(source, copy, code=2)
    assert "what lay between has expired" in ran.err
    backup(source, copy, "--prune")
    with OfflineStore(source) as view:
        begin = view.min_offset
    assert manifest(copy)["log_begin"] == begin


def test_a_copy_that_was_written_to_is_refused(builder, source, copy):
    builder.records(10).write()
    backup(source, copy)
    with rocketlake.open_store(copy) as store:
        store.put(Message(topic="T", body=b"mine"))
    builder.records(5).write()
    assert "was opened and written to since" in backup(source, copy, code=2).err
    with rocketlake.open_store(copy) as store:
        assert "is open as a store" in backup(source, copy, code=2).err


def test_stores_of_other_kinds_are_refused(builder, source, copy):
    builder.records(3).file("rocksdbstore/000013.sst", b"x")
    ran = backup(builder.write(), copy, code=2)
    assert "RocksDB message database" in ran.err
    assert "stop the broker" in ran.err
    assert not copy.exists()


def test_queues_in_a_rocksdb_that_cannot_be_read_are_refused(builder, source, copy):
    builder.records(3).file("consumequeue/CURRENT", b"MANIFEST-000001")
    ran = backup(builder.write(), copy, code=2)
    assert "keeps its consume queues in RocksDB, and cannot be copied" in ran.err
    assert not copy.exists()


# --- damage ----------------------------------------------------------------------------------


def test_damage_of_the_source_is_told(builder, source, copy):
    builder.records(60).flip_body(3).checkpoint(2**50, 2**50, 2**50).write()
    ran = backup(source, copy, code=1)
    assert "damage: " in ran.err
    assert "does not have its checksum" in ran.err
    assert manifest(copy)["log_end"] == builder.end


def test_verify_reads_the_copy_again(tmp_path, copy):
    builder = StoreBuilder(tmp_path / "source", log_file_size=40_000).records(300)
    source = builder.write()
    backup(source, copy)
    log = copy / "commitlog" / builder.log_path(0).name
    data = bytearray(log.read_bytes())
    data[builder.placed[150].end - 3] ^= 1  # of the topic, which no checksum of a record covers
    log.write_bytes(data)
    backup(source, copy)
    ran = backup(source, copy, "--verify", code=1)
    assert f"{log} at 0: the first" in ran.err
    assert "do not have the checksum" in ran.err


def test_a_log_that_ends_with_a_file_is_copied(tmp_path, copy):
    """The next file is there and empty: the log ends where it begins."""
    builder = StoreBuilder(tmp_path / "source", log_file_size=SIZE).records(30).roll()
    builder.spare_file().unclean().checkpoint(0, 0, 0)
    backup(builder.write(), copy)
    assert bodies(copy)[0] == numbers(30)
    builder.record(body=b"30").write()
    backup(builder.root, copy)
    assert bodies(copy)[0] == numbers(31)


def test_file_that_was_being_made_when_it_was_listed_is_copied_in_its_size(
    builder, source, copy, monkeypatch
):
    """A writer's `fallocate` has reached a part of the size; the units are written behind it."""
    builder.records(10).unclean().checkpoint(0, 0, 0).write()
    queue_dir = source / "consumequeue" / "T" / "0"
    whole = {file.name: file.stat().st_size for file in queue_dir.iterdir()}
    listed = StoreDir.offset_files
    lists = []

    def listed_early(directory, path):
        found = listed(directory, path)
        if path == queue_dir:
            lists.append(path)
            if len(lists) == 1:
                return [structs.replace(file, size=240) for file in found]
        return found

    with monkeypatch.context() as patched:
        patched.setattr(StoreDir, "offset_files", listed_early)
        backup(source, copy)
    copied = (copy / "consumequeue" / "T" / "0").iterdir()
    assert {file.name: file.stat().st_size for file in copied} == whole
    assert bodies(copy)[0] == numbers(10)
