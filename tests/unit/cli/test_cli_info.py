"""`rocketlake info`: what it tells of a store, for people and for programs."""

import fcntl
import os
from pathlib import Path

import pytest

from support import command
from support.store_builder import BEGIN_MS, StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=1000)


def info(root, *arguments, code=0):
    ran = command.run("info", root, "--json", *arguments)
    assert ran.code == code, ran.err
    return ran.json


def test_object_for_programs(builder):
    builder.records(12).record("U", 3, b"u", keys=["k"])
    found = info(builder.write())
    assert found["path"] == str(builder.root)
    assert found["shutdown"] == "clean"
    assert found["inUseBy"] is None
    assert found["generation"] == "5.x"
    assert found["messages"] == 13
    assert found["damage"] == []
    log = found["commitLog"]
    assert (log["minOffset"], log["maxOffset"], log["files"]) == (0, builder.end, 2)
    assert log["fileSize"] == 1000
    assert log["firstStoreTimestamp"] == BEGIN_MS + 1
    assert log["lastStoreTimestamp"] == BEGIN_MS + 13
    assert found["queues"] == [
        {
            "topic": topic,
            "queueId": queue_id,
            "minOffset": 0,
            "maxOffset": count,
            "messages": count,
            "notDispatched": 0,
            "kind": "plain",
        }
        for topic, queue_id, count in (("T", 0, 12), ("U", 3, 1))
    ]
    assert [(t["topic"], t["messages"]) for t in found["topics"]] == [("T", 12), ("U", 1)]


def test_families_and_checkpoint(builder):
    builder.records(12).checkpoint(1, 2, 3).file("config/topics.json", "{}")
    found = info(builder.write())
    families = {family["name"]: family for family in found["families"]}
    assert families["commitlog"]["files"] == 2
    assert families["commitlog"]["bytes"] == 2000
    assert families["commitlog"]["first"] == "0" * 20
    assert families["commitlog"]["last"] == "00000000000000001000"
    assert families["consumequeue"]["files"] == 1
    assert families["checkpoint"]["bytes"] == 4096
    assert found["checkpoint"]["physicalTimestamp"] == 1
    assert found["checkpoint"]["indexTimestamp"] == 3


def test_index_files(builder):
    for number in range(45):
        builder.record(keys=[f"k{number}"])
    found = info(builder.write())["index"]
    assert [(file["entries"], file["slots"]) for file in found] == [(39, 10), (6, 10)]


def test_groups_and_their_lag(builder):
    builder.records(12).file(
        "config/consumerOffset.json",
        '{"offsetTable":{"T@CG_1":{0:5},"T@CG_2":{0:12,1:7},"Gone@CG_1":{0:3}}}',
    )
    builder.file(
        "config/subscriptionGroup.json",
        '{"subscriptionGroupTable":{"Idle":{"groupName":"Idle"},"CG_1":{"groupName":"CG_1"}}}',
    )
    found = info(builder.write())["groups"]
    assert [(g["group"], g["topic"], g["lag"], g["missed"], g["offsets"]) for g in found] == [
        ("CG_1", "Gone", 0, 0, {"0": 3}),
        ("CG_1", "T", 7, 0, {"0": 5}),
        ("CG_2", "T", 0, 0, {"0": 12, "1": 7}),
        ("Idle", "", 0, 0, {}),
    ]


def test_group_behind_what_has_expired(builder):
    builder.records(25).expire(1).file(
        "config/consumerOffset.json", '{"offsetTable":{"T@CG":{0:4}}}'
    )
    store = builder.write()
    (group,) = info(store)["groups"]
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 1000)
    assert (group["lag"], group["missed"]) == (25 - first, first - 4)
    assert group["missedIn"] == [{"queueId": 0, "first": 4, "end": first}]
    line = f"CG missed {first - 4} messages of T queue 0, deleted before it consumed them"
    assert line in " ".join(command.run("info", store).out.split())


def test_configured_topics_without_messages_are_named(builder):
    table = '{"topicConfigTable":{"Idle":{"topicName":"Idle"}}}'
    root = builder.record("T").file("config/topics.json", table).write()
    topics = info(root)["topics"]
    assert [(topic["topic"], topic["queues"]) for topic in topics] == [("Idle", 0), ("T", 1)]
    ran = command.run("info", root)
    assert "Idle" in ran.out


def test_broken_table_is_a_note_not_the_end(builder):
    root = builder.records(3).file("config/consumerOffset.json", "{broken").write()
    found = info(root)
    assert any("consumerOffset.json" in note for note in found["notes"])
    assert found["messages"] == 3
    ran = command.run("info", root)
    assert ran.code == 0
    assert "note: " in ran.err


def test_backup_of_a_broken_table_is_read(builder):
    builder.records(3).file("config/consumerOffset.json", "")
    builder.file("config/consumerOffset.json.bak", '{"offsetTable":{"T@CG":{0:1}}}')
    root = builder.write()
    found = info(root)
    (group,) = found["groups"]
    assert group["lag"] == 2
    (note,) = found["notes"]
    assert note == (
        f"{root}/config: consumerOffset.json: the file is empty;"
        " consumerOffset.json.bak, the copy, is used"
    )
    assert f"note: {note}" in " ".join(command.run("info", root).err.split())


@pytest.mark.parametrize("name", ["delayOffset.json", "consumerFilter.json"])
def test_tables_that_are_not_shown_are_looked_at(builder, name):
    builder.records(3).file(f"config/{name}", "{broken").file(f"config/{name}.bak", "{}")
    (note,) = info(builder.write())["notes"]
    assert f"/config: {name}: " in note
    assert note.endswith(f"; {name}.bak, the copy, is used")


def test_unclean_store(builder):
    builder.records(3).records(2, dispatched=False).unclean()
    found = info(builder.write())
    assert found["shutdown"] == "unclean"
    assert found["queues"][0]["notDispatched"] == 2
    assert found["queues"][0]["maxOffset"] == 5
    assert any("not shut down cleanly" in note for note in found["notes"])


def test_store_in_use_is_named(builder):
    root = builder.records(3).unclean().write()
    with (root / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        found = info(root)
        assert found["inUseBy"] == os.getpid()
        ran = command.run("info", root)
        assert f"in use by process {os.getpid()}" in ran.out


def test_torn_end_is_no_damage(builder):
    builder.records(3).torn_record(40).unclean()
    assert info(builder.write())["damage"] == []


def test_damage_ends_with_1_and_is_told(builder):
    builder.records(3).flip_body(1)
    root = builder.write()
    found = info(root, code=1)
    (text,) = found["damage"]
    assert text.startswith(f"{root}/commitlog/{'0' * 20} at {builder.placed[1].physical_offset}: ")
    ran = command.run("info", root)
    assert ran.code == 1
    assert ran.problems == [f"damage: {text}"]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("dledger-n0/data/x", "the DLedger log is not read"),
        ("tieredstore/T/x", "what was moved to tiered storage is not read"),
    ],
)
def test_what_is_not_read_is_said(builder, place, text):
    root = builder.records(3).file(place, b"x").write()
    found = info(root)
    assert any(note.startswith(text) for note in found["notes"])
    assert found["variants"]
    assert text in command.run("info", root).err


def test_rocksdb_that_cannot_be_read_is_damage(builder):
    root = builder.records(3).file("consumequeue/CURRENT", b"x").write()
    ran = command.run("info", root)
    assert ran.code == 1
    assert "queues are kept in RocksDB, and shown from the log instead: " in ran.err
    assert "the RocksDB database cannot be read" in ran.err


@pytest.mark.parametrize("place", ["timerwheel", "compaction/compactionLog/T/0/x"])
def test_variants_are_shown_to_people(builder, place):
    ran = command.run("info", builder.records(3).file(place, b"x").write())
    assert ran.code == 0
    assert "also holds: " in ran.out


def test_tables_for_people(builder):
    builder.records(12).record("U", 3).file(
        "config/consumerOffset.json", '{"offsetTable":{"T@CG_1":{0:5}}}'
    )
    root = builder.write()
    ran = command.run("info", root)
    assert ran.code == 0, ran.err
    for text in ("clean stop", "commit log 0 to", "in 2 files of 1000 B", "Topics", "CG_1"):
        assert text in ran.out
    assert "Queues" not in ran.out.split()
    assert "not dispatched" in command.run("info", root, "--queues").out


def test_empty_store(tmp_path):
    (tmp_path / "commitlog").mkdir()
    found = info(tmp_path)
    assert found["commitLog"]["maxOffset"] == 0
    assert found["commitLog"]["firstStoreTimestamp"] is None
    assert found["queues"] == []
    assert command.run("info", tmp_path).code == 0


def test_names_that_look_like_markup_are_shown_as_they_are(builder):
    root = builder.record("[red]T[bold]").write()
    assert "[red]T[bold]" in command.run("info", root).out


def test_control_characters_do_not_reach_the_terminal(builder):
    root = builder.record("T\x1b[31m\x07").write()
    ran = command.run("info", root, "--queues")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out


@pytest.mark.parametrize("arguments", [["--json"], [], ["--queues"]])
def test_directory_name_that_is_no_text_does_no_harm(builder, arguments):
    """Linux names are bytes; a broken one below consumequeue is no reason to fall over."""
    root = builder.records(3).write()
    Path(os.fsdecode(os.fsencode(root) + b"/consumequeue/\xff\xfe/0")).mkdir(parents=True)
    for name in ("info", "dump"):
        ran = command.run_process(name, root, *(a for a in arguments if name == "info"))
        assert "Traceback" not in ran.err
        assert ran.code == 0
        assert "T" in ran.out


def test_log_in_other_directories(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000, log_dirs=("x/a", "x/b")).records(25)
    root = builder.write()
    place = f"{root}/x/a,{root}/x/b"
    for arguments in (
        ("--commitlog", place),
        ("--options", f'{{"storePathCommitLog": "{place}"}}'),
        (
            *("--commitlog", f"{root}/x/a"),
            *("--options", f'{{"readOnlyCommitLogStorePaths": "{root}/x/b"}}'),
        ),
    ):
        log = info(root, *arguments)["commitLog"]
        assert log["files"] == 3
        assert log["maxOffset"] == builder.end
