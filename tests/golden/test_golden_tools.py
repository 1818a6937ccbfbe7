"""`export`, `grep` and `backup` on every golden store: they show what RocketMQ reads."""

import base64
import json

import pyarrow.parquet as pq
import pytest

from rocketlake.model.compression import inflate
from support import command
from support.golden import GoldenStores

PLAIN = {
    "topic": "topic",
    "queue_id": "queueId",
    "physical_offset": "physicalOffset",
    "store_timestamp": "storeTimestamp",
    "born_timestamp": "bornTimestamp",
    "msg_id": "msgId",
    "properties": "properties",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "reconsume_times": "reconsumeTimes",
    "born_host": "bornHost",
    "store_host": "storeHost",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "store_size": "storeSize",
}


def exit_code(name: str) -> int:
    """1 only where good records lie behind the damage."""
    return int(name.endswith("-unclean-crc"))


def expected_row(line):
    properties = line["properties"]
    body = inflate(base64.b64decode(line["body"]), line["sysFlag"])
    return {
        **{ours: line[theirs] for ours, theirs in PLAIN.items()},
        "queue_offset": line.get("cqOffset", line["queueOffset"]),
        "unique_key": properties.get("UNIQ_KEY"),
        "keys": properties.get("KEYS", "").split(),
        "tags": properties.get("TAGS"),
        "body": body,
    }


def test_export_has_the_expected_messages(golden, tmp_path):
    wanted = [expected_row(line) for line in golden.case.messages]
    for name in ("out.jsonl", "out.parquet"):
        ran = command.run("export", golden.root, tmp_path / name)
        assert ran.code == exit_code(golden.case.name), ran.err
    with (tmp_path / "out.jsonl").open(encoding="utf-8", newline="\n") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        row["body"] = base64.b64decode(row["body"])
    assert rows == wanted
    table = pq.read_table(tmp_path / "out.parquet")
    for name in ("store_timestamp", "born_timestamp"):
        index = table.column_names.index(name)
        table = table.set_column(index, name, table[name].cast("int64"))
    rows = table.to_pylist()
    for row in rows:
        row["properties"] = dict(row["properties"])
    assert rows == wanted


def test_grep_for_anything_finds_every_message(golden):
    ran = command.run("grep", golden.root, "", "--json")
    assert ran.code == 2 * exit_code(golden.case.name), ran.err
    # A message of several light queues is found once.
    found = {line["physicalOffset"] for line in ran.lines}
    assert found == {line["physicalOffset"] for line in golden.case.messages}
    assert len(found) == len(ran.lines)


def test_backup_shows_the_same_messages(golden, tmp_path):
    copy = tmp_path / "copy"
    dirs = ",".join(map(str, golden.log_dirs))
    ran = command.run("backup", golden.root, copy, "--commitlog", dirs)
    assert ran.code == exit_code(golden.case.name), ran.err
    # Where a start would cut good records off, the copy has all bytes, and is as unclean.
    is_cut = golden.case.name.endswith("-unclean-crc")
    assert ("They are in the copy" in ran.err) is is_cut
    dumped = command.run("dump", copy, "--json")
    assert dumped.code == int(is_cut), dumped.err
    assert dumped.lines == golden.case.messages
    info = command.run("info", copy, "--json").json
    assert info["shutdown"] == ("unclean" if is_cut else "clean")
    assert info["commitLog"]["maxOffset"] == golden.case.log_bounds[1]
    assert info["generation"] == ("5.x" if golden.case.is_5x else "4.x")
    verified = command.run("verify", copy)
    # The progress in the tables of these two is beyond their queues from the begin.
    is_unsound = is_cut or golden.case.name.endswith("-config")
    assert verified.code == int(is_unsound), verified.out


@pytest.mark.parametrize("name", ["v5-index", "v4-index", "v5-unclean-kill"])
def test_backup_finds_messages_by_key(stores: GoldenStores, name, tmp_path):
    golden = stores.get(name)
    assert command.run("backup", golden.root, tmp_path / "copy").code == 0
    asked = {(query["topic"], query["key"]) for query in golden.case.key_queries}
    assert asked
    for topic, key in asked:
        answers = [
            command.run("dump", root, "--topic", topic, "--key", key, "--json").lines
            for root in (golden.root, tmp_path / "copy")
        ]
        assert answers[0] == answers[1]
