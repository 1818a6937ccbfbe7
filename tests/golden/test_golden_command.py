"""`info` and `dump` on every golden store, without options, as a user types them."""

import pytest

from support import command


def exit_code(name: str) -> int:
    """1 only where good records lie behind the damage."""
    return int(name.endswith("-unclean-crc"))


def test_info_tells_bounds_and_shutdown(golden):
    ran = command.run("info", golden.root, "--json")
    assert ran.code == exit_code(golden.case.name), ran.err
    found = ran.json
    assert found["shutdown"] == ("unclean" if golden.case.manifest["abort_file"] else "clean")
    log = found["commitLog"]
    assert (log["minOffset"], log["maxOffset"]) == golden.case.log_bounds
    assert log["files"] == len(golden.log_files)
    assert {
        (queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"])
        for queue in found["queues"]
    } == golden.case.bounds
    assert found["generation"] == ("5.x" if golden.case.is_5x else "4.x")
    families = {family["name"]: family for family in found["families"]}
    for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index"):
        files = golden.files(name)
        assert families.get(name, {"files": 0})["files"] == len(files)


def test_info_for_people_names_every_topic(golden):
    ran = command.run("info", golden.root, "--queues")
    assert ran.code == exit_code(golden.case.name), ran.err
    for topic, _ in golden.case.bounds:
        assert topic[:100] in ran.out
    assert "\x1b" not in ran.out


def test_dump_prints_the_expected_lines(golden):
    ran = command.run("dump", golden.root, "--json")
    assert ran.code == exit_code(golden.case.name), ran.err
    assert ran.lines == golden.case.messages


def test_dump_keeps_the_names_and_order_of_the_fields(golden):
    ran = command.run("dump", golden.root, "--json", "--limit", "1")
    (line,) = ran.lines
    rare = {"cqOffset", "batchNum", "ext"}
    wanted = [name for name in golden.case.messages[0] if name not in rare]
    assert [name for name in line if name not in rare] == wanted


def test_dump_for_people_has_a_row_for_each_message(golden):
    ran = command.run("dump", golden.root)
    assert ran.code == exit_code(golden.case.name), ran.err
    header, *rows = ran.out.splitlines()
    assert header.split() == [
        "TOPIC",
        "QUEUE",
        "OFFSET",
        "PHYSICAL",
        "STORED",
        "TAG",
        "KEYS",
        "SIZE",
        "BODY",
    ]
    assert len(rows) == len(golden.case.messages)


def test_dump_along_the_log_shows_every_record(golden, open_case):
    opened = open_case(golden.case.name)
    ran = command.run("dump", golden.root, "--log", "--json", "--body", "none")
    assert ran.code == exit_code(golden.case.name), ran.err
    assert [line["physicalOffset"] for line in ran.lines] == [
        record.physical_offset for record in opened.records
    ]
    in_queue = {
        message.physical_offset
        for key, _, message in opened.messages
        if (key.topic, key.queue_id) == (message.topic, message.queue_id)
    }
    assert {line["physicalOffset"] for line in ran.lines if line["queued"]} == in_queue


def test_dump_by_key_prints_the_messages_of_the_key(golden):
    by_offset = {line["physicalOffset"]: line for line in golden.case.messages}
    for query in golden.case.key_queries[:3]:
        ran = command.run(
            *("dump", golden.root, "--topic", query["topic"], "--key", query["key"], "--json")
        )
        assert ran.code == exit_code(golden.case.name), ran.err
        for line in ran.lines:
            assert line.pop("queued") == (line["physicalOffset"] in by_offset)
            if line["physicalOffset"] in by_offset:
                assert line == by_offset[line["physicalOffset"]]
        assert {line["physicalOffset"] for line in ran.lines} <= set(query["physicalOffsets"])


def test_dump_by_time_prints_the_messages_of_the_time(golden):
    times = sorted(line["storeTimestamp"] for line in golden.case.messages)
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    ran = command.run(
        *("dump", golden.root, "--from-time", begin, "--to-time", end, "--json", "--body", "none")
    )
    assert [(line["physicalOffset"], line["queueId"]) for line in ran.lines] == [
        (line["physicalOffset"], line["queueId"])
        for line in golden.case.messages
        if begin <= line["storeTimestamp"] < end
    ]


def test_damage_is_told_on_stderr(stores):
    golden = stores.get("v5-unclean-crc")
    ran = command.run("dump", golden.root, "--json")
    (problem,) = ran.problems
    assert problem.startswith(f"damage: {golden.log_files[3]} at 2966: ")
    assert "good records from 53583 on are left out" in problem


@pytest.mark.parametrize("name", ["v4-multi-dir", "v5-multi-dir"])
def test_log_directories_may_be_named(stores, name):
    golden = stores.get(name)
    place = ",".join(str(path) for path in golden.log_dirs)
    for arguments in (
        ("--commitlog", place),
        ("--options", '{"storePathCommitLog": "{store}/cl-b,{store}/cl-a"}'),
    ):
        ran = command.run("dump", golden.root, "--json", *arguments)
        assert ran.code == 0, ran.err
        assert ran.lines == golden.case.messages


@pytest.mark.parametrize("name", ["v4-basic", "v46-roll", "v5-unclean-torn", "v5-unclean-crc"])
def test_a_process_of_its_own_says_the_same(stores, name):
    golden = stores.get(name)
    ran = command.run_process("dump", golden.root, "--json")
    assert ran.code == exit_code(name), ran.err
    assert ran.lines == golden.case.messages
    info = command.run_process("info", golden.root, "--json")
    assert info.code == exit_code(name), info.err
    assert info.json["commitLog"]["maxOffset"] == golden.case.log_bounds[1]
