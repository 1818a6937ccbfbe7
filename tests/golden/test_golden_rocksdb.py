"""Stores whose queues, tables or timer RocketMQ 5.5.0 keeps in RocksDB (tests/golden/rocksdb)."""

import base64
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import rocksdict

import rocketlake
from rocketlake import Message
from rocketlake.embedded.bulk_store import open_bulk, preview_store
from rocketlake.errors import StoreError
from rocketlake.files.json_file import load_table
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import java_json
from rocketlake.metadata import groups, offsets, topics
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.traits import refuse_rocksdb
from rocketlake.store.offline import OfflineStore
from support import command
from support.golden import ROCKSDB_DATA, GoldenStores, sha256, snapshot

QUEUES = ("queues-expired", "queues-killed", "tables-v2")
CASES = (*QUEUES, "timer")
EXTRA = "rocketlake[rocksdb]"


@pytest.fixture
def unpack(tmp_path):
    return lambda name: GoldenStores.copy(name, tmp_path / "in", ROCKSDB_DATA)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary directories are made; it must be empty again at the end."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def read_messages(root):
    """Read every message as the lines of expected.jsonl have it."""
    with OfflineStore(root) as store:
        return {
            (key.topic, key.queue_id, int(place["queue_offset"])): (
                message.physical_offset,
                message.store_size,
                int(place["tags_code"]),
                message.body,
            )
            for key in store.queues
            for batch in store.messages(key)
            for place, message in zip(batch.places, batch.columns.messages(), strict=True)
        }


def expected_messages(case):
    return {
        (line["topic"], line["queueId"], line["queueOffset"]): (
            line["physicalOffset"],
            line["storeSize"],
            line["tagsCode"],
            base64.b64decode(line["body"]),
        )
        for line in case.messages
    }


def read_bounds(root):
    with OfflineStore(root) as store:
        assert store.rocksdb_problem is None
        assert store.damage.findings == []
        return {
            (key.topic, key.queue_id): (queue.min_offset, queue.max_offset)
            for key, queue in store.queues.items()
        }


def without_extra(*arguments):
    """Run the command in a process that cannot import rocksdict."""
    code = (
        "import sys; sys.modules['rocksdict'] = None\n"
        "from rocketlake.cli.main import run; sys.argv[0] = 'rocketlake'; run()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_case_has_its_sums(unpack, name):
    golden = unpack(name)
    manifest = golden.case.manifest
    sums = manifest["case_files"]
    assert {file: sha256(golden.case.path / file) for file in sums} == sums
    found = {path: content for path, (_, _, content) in snapshot(golden.root).items()}
    assert {path: content for path, content in found.items() if content != "directory"} == {
        line["path"]: line["sha256"] for line in manifest["store_files"]
    }


@pytest.mark.parametrize("name", QUEUES)
def test_queues_are_those_that_rocketmq_reads(unpack, temporary, name):
    golden = unpack(name)
    assert read_bounds(golden.root) == golden.case.bounds
    assert read_messages(golden.root) == expected_messages(golden.case)


@pytest.mark.parametrize("name", ["queues-expired", "queues-killed"])
def test_tables_are_those_that_rocketmq_exports(unpack, temporary, name):
    golden = unpack(name)
    exported = golden.case.path / "exported"
    config = golden.root / "config"
    want_topics = load_table(exported / "topics.json", topics.decode).value
    assert topics.load(config).topics == want_topics.topics
    want_groups = load_table(exported / "subscriptionGroup.json", groups.decode).value
    found = groups.load(config)
    assert (found.groups, found.forbidden) == (want_groups.groups, want_groups.forbidden)
    assert found.version.counter == want_groups.version.counter
    want_offsets = load_table(exported / "consumerOffset.json", offsets.decode).value
    assert offsets.load(config).offsets == want_offsets.offsets


def test_tables_of_version_2_are_what_was_put_there(unpack, temporary):
    golden = unpack("tables-v2")
    wanted, config = golden.case.spec["config"], golden.root / "config"
    found = topics.load(config)
    assert {name for name in found.topics if not name.startswith("rmq")} >= {
        topic["name"] for topic in wanted["topics"]
    }
    assert found.topics["W"].read_queue_count == 8
    assert found.topics["W"].attributes == {"message.type": "NORMAL"}
    assert found.version.counter > 0
    assert groups.load(config).groups["billing"].retry_max_times == 3
    progress = {
        (entry.group, entry.topic, queue): offset
        for entry in offsets.load(config).progress()
        for queue, offset in entry.offsets.items()
    }
    assert progress == {
        (line["group"], line["topic"], line["queueId"]): line["offset"]
        for line in wanted["offsets"]
    }


@pytest.mark.parametrize("name", CASES)
def test_reading_leaves_the_store_as_it_is(unpack, temporary, name):
    golden = unpack(name)
    before = snapshot(golden.root)
    read_messages(golden.root)
    for arguments in (["info", "--json"], ["dump"], ["dump", "--log", "--json"], ["verify"]):
        ran = command.run(arguments[0], golden.root, *arguments[1:])
        assert ran.code == 0, ran.err
    assert ("are not checked" in ran.err) == (name in QUEUES)
    assert snapshot(golden.root) == before


def test_store_that_may_not_be_written_is_read(unpack, temporary):
    golden = unpack("queues-expired")
    for path in (golden.root, *golden.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert read_bounds(golden.root) == golden.case.bounds
    finally:
        for path in (golden.root, *golden.root.rglob("*")):
            path.chmod(0o755)


def test_info_shows_queues_groups_and_progress(unpack, temporary):
    golden = unpack("queues-expired")
    found = json.loads(command.run("info", golden.root, "--json").out)
    queues = {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in found["queues"]}
    assert queues == golden.case.bounds
    assert [note for note in found["notes"] if "RocksDB" in note] == []
    progress = {(g["group"], g["topic"]): g["offsets"] for g in found["groups"] if g["topic"]}
    assert progress == {("billing", "T"): {"0": 30, "1": 41}, ("audit", "W"): {"3": 2}}
    assert "Never" in {topic["topic"] for topic in found["topics"]}


@pytest.mark.parametrize("name", QUEUES)
def test_without_the_extra_the_log_is_shown_and_the_output_says_so(unpack, name):
    golden = unpack(name)
    before = snapshot(golden.root)
    ran = without_extra("info", golden.root, "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    notes = " ".join(found["notes"])
    assert "shown from the log instead" in notes
    assert EXTRA in notes
    assert "topics.json is not the table in use" in notes
    assert found["messages"] == len(golden.case.messages)
    dumped = without_extra("dump", golden.root, "--json")
    assert dumped.returncode == 0, dumped.stderr
    assert len(dumped.stdout.splitlines()) == len(golden.case.messages)
    refused = without_extra("rebuild", golden.root, "--to", golden.root.with_name("copy"))
    assert refused.returncode == 2
    assert EXTRA in refused.stderr
    assert not golden.root.with_name("copy").exists()
    assert snapshot(golden.root) == before


@pytest.mark.parametrize("name", QUEUES)
def test_copy_with_file_queues_is_a_store_to_go_on_with(unpack, tmp_path, temporary, name):
    golden = unpack(name)
    before, copy = snapshot(golden.root), tmp_path / "copy"
    ran = command.run("rebuild", golden.root, "--to", copy)
    assert ran.code == 0, ran.err
    assert snapshot(golden.root) == before
    assert read_bounds(copy) == golden.case.bounds
    assert read_messages(copy) == expected_messages(golden.case)
    assert command.run("verify", copy).code == 0
    with OfflineStore(copy) as store:
        assert store.traits.is_clean
        assert store.traits.variants == []
    exported = golden.case.path / "exported"
    if exported.exists():
        table = java_json.loads((copy / "config" / "consumerOffset.json").read_bytes())
        wanted = java_json.loads((exported / "consumerOffset.json").read_bytes())
        assert table["offsetTable"] == wanted["offsetTable"]
        for file in ("topics.json", "subscriptionGroup.json"):
            table = java_json.loads((copy / "config" / file).read_bytes())
            wanted = java_json.loads((exported / file).read_bytes())
            for member in set(wanted) - {"dataVersion"}:
                assert table[member] == wanted[member]
    with rocketlake.open_store(copy) as store:
        end = golden.case.bounds["T", 2][1]
        receipt = store.put(Message(topic="T", body=b"more"), queue_id=2)
        assert receipt.queue_offset == end
        assert [m.body for m in store.get("T", 2, end).messages] == [b"more"]


def test_queue_without_a_message_keeps_its_numbers_in_the_copy(unpack, tmp_path):
    golden = unpack("queues-expired")
    assert command.run("rebuild", golden.root, "--to", tmp_path / "copy").code == 0
    with rocketlake.open_store(tmp_path / "copy") as store:
        assert store.put(Message(topic="Gone", body=b"x"), queue_id=0).queue_offset == 12


def test_topic_deleted_from_rocksdb_is_not_in_the_copy(unpack, tmp_path):
    golden = unpack("tables-v2")
    with raw(golden.root / "consumequeue") as database:
        for family in ("default", "offset"):
            entries = database.get_column_family(family)
            for key in [key for key in entries.keys() if key[5:].startswith(b"Gone\1")]:  # noqa: SIM118
                del entries[key]
            entries.close()
    assert ("Gone", 0) not in read_bounds(golden.root)
    ran = command.run("rebuild", golden.root, "--to", tmp_path / "copy")
    assert ran.code == 0, ran.err
    wanted = {key: value for key, value in golden.case.bounds.items() if key[0] != "Gone"}
    assert read_bounds(tmp_path / "copy") == wanted


def test_a_backup_of_the_store_is_brought_up_to_date(unpack, tmp_path, temporary):
    golden = unpack("queues-expired")
    for _ in range(2):
        ran = command.run("backup", golden.root, tmp_path / "backup", "--verify")
        assert ran.code == 0, ran.err
        assert read_bounds(tmp_path / "backup") == golden.case.bounds
    assert "no file" not in ran.err
    refused = command.run("rebuild", golden.root, "--to", tmp_path / "backup")
    assert refused.code == 2
    assert "is a backup" in refused.err


def test_store_with_files_is_not_copied_that_way(unpack, tmp_path):
    golden = unpack("queues-expired")
    command.run("rebuild", golden.root, "--to", tmp_path / "copy")
    ran = command.run("rebuild", tmp_path / "copy", "--to", tmp_path / "other")
    assert ran.code == 2
    assert "queues and tables in files" in ran.err
    assert not (tmp_path / "other").exists()


def test_hints_name_a_directory_as_a_shell_takes_it(unpack, tmp_path):
    golden = unpack("queues-expired")
    root = golden.root.rename(tmp_path / "my store")
    with pytest.raises(StoreError) as caught:
        rocketlake.open_store(root)
    assert f"'rocketlake rebuild {shlex.quote(str(root))} --to DIRECTORY'" in str(caught.value)
    assert command.run("rebuild", root, "--to", tmp_path / "copy").code == 0
    ran = command.run("rebuild", (tmp_path / "copy").rename(tmp_path / "a copy"), "--to", "x")
    place = shlex.quote(str(tmp_path / "a copy"))
    assert f"'rocketlake rebuild {place}' makes" in ran.err
    assert f"'rocketlake backup {place} DIRECTORY' copies" in ran.err


def test_a_copy_is_not_called_a_backup(unpack, tmp_path):
    golden = unpack("queues-expired")
    target = tmp_path / "copy"
    target.write_bytes(b"")
    ran = command.run("rebuild", golden.root, "--to", target)
    assert "is a file; a copy is a directory" in ran.err
    target.unlink()
    target.mkdir()
    (target / "thesis.txt").write_bytes(b"")
    ran = command.run("rebuild", golden.root, "--to", target)
    assert "is no copy to go on with: it has thesis.txt" in ran.err
    (target / "thesis.txt").unlink()
    assert command.run("backup", golden.root, target).code == 0
    manifest = target / "backup.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"copying"'))
    ran = command.run("rebuild", golden.root, "--to", target)
    assert ran.code == 0, ran.err
    assert "the last copy did not come to its end" in ran.err
    assert "backup" not in ran.err


# --- damage ---------------------------------------------------------------------------------------


def test_damaged_database_is_damage_and_the_log_is_shown(unpack, temporary):
    golden = unpack("tables-v2")
    (table,) = list((golden.root / "consumequeue").glob("000010.sst"))
    data = bytearray(table.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    table.write_bytes(data)
    ran = command.run("info", golden.root, "--json")
    assert ran.code == 1
    assert any("RocksDB database cannot be read" in text for text in json.loads(ran.out)["damage"])
    assert read_messages(golden.root) == expected_messages(golden.case)


def test_no_damage_of_a_database_ends_the_process(unpack, tmp_path):
    """Every file of every database, with bytes changed and cut off: an answer or an error."""
    golden = unpack("queues-killed")
    code = """
import random, sys
from pathlib import Path
from rocketlake.errors import StoreError
from rocketlake.metadata import groups, offsets, topics
from rocketlake.store.offline import OfflineStore
from rocketlake.store.disk.traits import refuse_rocksdb

root, answered, refused = Path(sys.argv[1]), 0, 0
dice = random.Random(13)
files = [p for p in sorted(root.rglob("*")) if p.is_file() and p.stat().st_size
         and p.parent.name in {"consumequeue", "metadata"}]
for path in files:
    good = path.read_bytes()
    for number in range(12):
        bad = bytearray(good)
        if number < 4:
            del bad[dice.randrange(len(bad)):]
        for _ in range(number):
            if bad:
                bad[dice.randrange(len(bad))] = dice.randrange(256)
        path.write_bytes(bad)
        try:
            with OfflineStore(root) as store:
                for key in store.queues:
                    for _ in store.messages(key):
                        pass
            for table in (topics, groups, offsets):
                table.load(root / "config")
            answered += 1
        except StoreError:
            refused += 1
    path.write_bytes(good)
print(len(files), answered, refused)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(golden.root)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    count, answered, refused = map(int, ran.stdout.split())
    assert answered + refused == 12 * count
    assert answered
    assert refused


# --- doors that write -----------------------------------------------------------------------------


def raw(path: Path):
    """Open a database for writing, as a broker does."""
    families = rocksdict.Rdict.list_cf(str(path))
    options = {name: rocksdict.Options(raw_mode=True) for name in families}
    return rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True), options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["repair", "--yes"],
        ["repair", "--dry-run"],
        ["rebuild"],
        ["rebuild", "--dry-run"],
        ["dispatch"],
        ["salvage", "--replay", "--from", "{log}"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", QUEUES)
def test_command_that_writes_refuses_before_anything_changes(unpack, name, arguments):
    golden = unpack(name)
    before = snapshot(golden.root)
    log = golden.root.with_name("log")
    shutil.copytree(golden.root / "commitlog", log)
    rest = [argument.replace("{log}", str(log)) for argument in arguments[1:]]
    ran = command.run(arguments[0], golden.root, *rest)
    assert ran.code == 2, (ran.out, ran.err)
    assert "rebuild" in ran.err
    assert "--to" in ran.err
    assert snapshot(golden.root) == before


@pytest.mark.parametrize("name", QUEUES)
def test_program_that_writes_is_refused_before_anything_changes(unpack, name):
    golden = unpack(name)
    before = snapshot(golden.root)
    doors = (
        rocketlake.open_store,
        lambda path: rocketlake.open_store(path, dispatch="external"),
        open_bulk,
        preview_store,
    )
    for door in doors:
        with pytest.raises(StoreError, match=r"rebuild .* --to"):
            door(golden.root)
        assert snapshot(golden.root) == before


# --- the timer ------------------------------------------------------------------------------------


def test_store_whose_timer_rocksdb_has_is_not_opened_for_writing(unpack, temporary):
    """RocketMQ delivered all nine messages, and only the database says so."""
    golden = unpack("timer")
    before = snapshot(golden.root)
    with pytest.raises(StoreError, match="holds how far they were delivered"):
        rocketlake.open_store(golden.root)
    assert snapshot(golden.root) == before
    with OfflineStore(golden.root) as store:
        assert store.queues[QueueKey("T", 0)].max_offset == 9
    code = (
        "import sys; sys.modules['rocksdict'] = None\n"
        "import rocketlake; rocketlake.open_store(sys.argv[1])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(golden.root)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode
    assert "may hold how far they were delivered" in ran.stderr
    assert EXTRA in ran.stderr
    assert snapshot(golden.root) == before


def test_store_whose_timer_rocksdb_lacks_is_opened(unpack):
    """Its database holds something, but not of the timer."""
    golden = unpack("timer")
    with raw(golden.root / "rocksdbstore") as database:
        timer = database.get_column_family("timer")
        for key in list(timer.keys()):
            del timer[key]
        timer.close()
        database[b"an entry of the index"] = b"x"
    (golden.root / "rocksdbstore" / "rocksdict-config.json").unlink()
    refuse_rocksdb(StoreDir(PosixFileOps(), golden.root))
