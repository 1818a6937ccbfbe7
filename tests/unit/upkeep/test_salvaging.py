"""Salvage: records found in raw bytes, listed, exported, and put again once."""

import base64
import json
import random

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.flags import TransactionType
from rocketlake.upkeep.salvage import raw_records
from rocketlake.upkeep.salvage.raw_records import RawFile
from support import command
from support.golden import GoldenStores
from support.store_builder import StoreBuilder

SIZE = 2000
DAMAGED = 4


@pytest.fixture
def builder(tmp_path):
    """Three files of records with unique keys; one of the second file is bad."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=SIZE)
    for number in range(30):
        builder.record(
            "T",
            number % 2,
            b"%d" % number,
            tags="A",
            keys=[f"k{number}"],
            properties={"UNIQ_KEY": f"U{number}"},
        )
    builder.unclean().checkpoint(0, 0, 0)
    return builder.flip_body(DAMAGED)


@pytest.fixture
def store(builder):
    """The store after a start, which cut and saved what lies behind the bad record."""
    root = builder.write()
    rocketlake.open_store(root).close()
    return root


def salvage(*arguments, code=0):
    ran = command.run("salvage", *arguments)
    assert ran.code == code, ran.err
    return ran


def messages(root):
    with rocketlake.open_store(root, read_only=True) as store:
        return {
            message.body: message
            for queue in range(2)
            for message in store.get("T", queue, 0, max_messages=100).messages
        }


def scanned(path, base=None):
    return [
        message
        for columns in RawFile(PosixFileOps(), path, base).records()
        for message in columns.messages()
    ]


# --- what a start saved ----------------------------------------------------------------------


def test_list_names_what_there_is(store):
    ran = salvage(store)
    assert " 25 " in ran.out
    assert "T 25" in ran.out
    assert "not replayed" in ran.out
    assert "a record does not have its checksum" in " ".join(ran.out.split())
    (line,) = salvage(store, "--list", "--json").lines
    assert line["records"] == 25
    assert line["topics"] == {"T": 25}
    assert line["cut"]["position"] > 0


def test_replay_brings_the_messages_back_once(store):
    before = messages(store)
    assert sorted(map(int, before)) == list(range(DAMAGED))
    ran = salvage(store, "--replay")
    assert "25 messages put again" in ran.out
    after = messages(store)
    assert sorted(map(int, after)) == [n for n in range(30) if n != DAMAGED]
    for number in range(DAMAGED + 1, 30):
        again = after[b"%d" % number]
        assert (again.queue_id, again.tags, again.keys) == (number % 2, "A", [f"k{number}"])
        assert again.unique_key == f"U{number}"
    assert "replayed 20" in salvage(store).out
    assert "was replayed before" in salvage(store, "--replay").err
    assert "25 are still in the store" in salvage(store, "--replay", "--from", _place(store)).out
    assert len(messages(store)) == 29
    assert "25 messages put again" in salvage(store, "--replay", "--force").out


def _place(store):
    (place,) = (store / "salvage").iterdir()
    return place


def test_replay_keeps_the_birth(builder, store):
    (born,) = {
        (m.born_timestamp, str(m.born_host))
        for m in scanned(next(_place(store).glob("0*")))
        if m.body == b"20"
    }
    salvage(store, "--replay")
    again = messages(store)[b"20"]
    assert (again.born_timestamp, str(again.born_host)) == born
    assert again.store_timestamp != born[0]


def test_replay_goes_on_after_a_crash(store):
    """Some were put again before a crash, and the directory is not marked: none comes twice."""
    with rocketlake.open_store(store) as opened:
        for path in sorted(_place(store).glob("0*"))[:1]:
            for message in scanned(path)[:3]:
                assert opened.put_again(message).is_ok
    ran = salvage(store, "--replay")
    assert "22 messages put again" in ran.out
    assert "3 are still in the store" in ran.out


def test_export_writes_them(store, tmp_path):
    out = tmp_path / "cut.jsonl"
    assert "25 records in " in salvage(store, "--out", out).err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    bodies = [int(base64.b64decode(row["body"])) for row in rows]
    assert bodies == list(range(DAMAGED + 1, 30))


def test_nothing_saved_is_no_error(tmp_path):
    root = StoreBuilder(tmp_path / "store", log_file_size=SIZE).records(3).write()
    assert "nothing was cut off" in salvage(root).err
    assert "no store at" in salvage(tmp_path / "nowhere", code=2).err
    assert "name the STORE" in salvage(code=2).err
    assert "name the STORE to replay to" in salvage("--from", root, "--replay", code=2).err


def test_a_second_store_of_the_same_name_has_the_lock(store):
    with rocketlake.open_store(store):
        assert "open" in salvage(store, "--replay", code=2).err


# --- what is put again -----------------------------------------------------------------------


def test_halves_of_transactions_are_left_out(tmp_path):
    builder = StoreBuilder(tmp_path / "raw", log_file_size=SIZE)
    builder.record("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half")
    builder.record("T", 0, b"prepared", sys_flag=TransactionType.PREPARED)
    builder.record("T", 0, b"committed", sys_flag=TransactionType.COMMIT)
    raw = builder.write()
    ran = salvage(tmp_path / "new", "--from", raw, "--replay")
    assert "a new store is created" in ran.err
    assert "1 message put again (1 without a unique key" in ran.out
    assert "2 halves of transactions and records of the broker left out" in ran.out
    with rocketlake.open_store(tmp_path / "new") as store:
        (message,) = store.get("T", 0, 0).messages
        assert (message.body, message.sys_flag) == (b"committed", 0)


def test_delayed_messages_wait_again(tmp_path):
    with rocketlake.open_store(tmp_path / "old") as store:
        store.put(Message(topic="T", body=b"later", delay_level=18), queue_id=1)
    salvage(tmp_path / "new", "--from", tmp_path / "old", "--replay")
    lines = command.run("dump", tmp_path / "new", "--json", "--body", "text").lines
    assert [(line["topic"], line["body"]) for line in lines] == [("SCHEDULE_TOPIC_XXXX", "later")]
    assert lines[0]["properties"]["REAL_TOPIC"] == "T"
    assert lines[0]["tagsCode"] > lines[0]["storeTimestamp"]


def test_queues_and_topics_that_are_missing_are_made(tmp_path):
    builder = StoreBuilder(tmp_path / "raw", log_file_size=SIZE)
    builder.record("T", 9, b"nine").record("T", 2, b"two").record("T", 2, b"three")
    salvage(tmp_path / "new", "--from", builder.write(), "--replay")
    with rocketlake.open_store(tmp_path / "new") as store:
        assert store.topic("T").read_queue_count == 10
        assert [m.body for m in store.get("T", 2, 0).messages] == [b"two", b"three"]
        assert [m.body for m in store.get("T", 9, 0).messages] == [b"nine"]


def test_what_is_refused_is_told(tmp_path):
    builder = StoreBuilder(tmp_path / "raw", log_file_size=SIZE)
    builder.record("T", 70_000, b"far away").record("T", 0, b"near")
    ran = salvage(tmp_path / "new", "--from", builder.write(), "--replay", code=1)
    assert "1 message put again" in ran.out
    assert "1 refused, the first being T queue 70000 offset 0: topic 'T': 70001" in ran.out


@pytest.mark.parametrize("name", ["v5-ipv6", "v5-compressed", "v4-basic", "v5-crc"])
def test_golden_messages_survive_a_replay(tmp_path_factory, tmp_path, name):
    golden = GoldenStores.copy(name, tmp_path_factory.mktemp(name))
    has_odd_names = name in {"v4-basic", "v5-crc"}  # a queue or a topic that cannot be made
    salvage(tmp_path / "new", "--from", golden.root, "--replay", code=int(has_odd_names))
    fields = ("bornTimestamp", "bornHost", "flag", "reconsumeTimes", "body", "properties")

    def kept(line):
        found = {field: line[field] for field in fields}
        found["properties"] = {k: v for k, v in line["properties"].items() if k != "__CRC32#"}
        return line["topic"], line["queueId"], json.dumps(found, sort_keys=True)

    makeable = (m for m in golden.case.messages if m["queueId"] < 65_536 and len(m["topic"]) < 128)
    wanted = [kept(message) for message in makeable]
    lines = command.run("dump", tmp_path / "new", "--json").lines
    assert sorted(map(kept, lines)) == sorted(wanted)


# --- raw bytes -------------------------------------------------------------------------------


def test_files_are_found_in_whatever_is_named(builder, tmp_path):
    root = builder.write()
    (tmp_path / "files").mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        (tmp_path / "files" / f"rescued-{number}.bin").write_bytes(path.read_bytes())
    for place in (root, root / "commitlog", tmp_path / "files"):
        (line,) = salvage("--from", place, "--json").lines
        assert line["records"] == 29
    first = builder.log_path(0)
    (line,) = salvage("--from", first, "--json").lines
    assert line["records"] == sum(place.physical_offset < SIZE for place in builder.placed) - 1
    assert "nothing to scan" in salvage("--from", tmp_path / "none", code=2).err
    (tmp_path / "empty").mkdir()
    assert "no files of a commit log" in salvage("--from", tmp_path / "empty", code=2).err


def test_records_are_found_behind_any_damage(builder, tmp_path, monkeypatch):
    """Garbage of any length at any place takes the records it hits, and no others."""
    monkeypatch.setattr(raw_records, "_WINDOW", 512)
    builder = StoreBuilder(tmp_path / "more", log_file_size=20_000).records(100)
    builder.write()
    data = builder.log_path(0).read_bytes()
    chance = random.Random(7)
    path = tmp_path / "00000000000000000000"
    for _ in range(200):
        begin, length = chance.randrange(len(data)), chance.choice([1, 3, 60, 200, 700])
        hit = bytearray(data)
        hit[begin : begin + length] = chance.randbytes(min(length, len(data) - begin))
        path.write_bytes(hit)
        untouched = {
            place.physical_offset
            for place in builder.placed
            if place.end <= begin or begin + length <= place.physical_offset
        }
        found = [message.physical_offset for message in scanned(path)]
        assert found == sorted(set(found))
        assert untouched <= set(found)
        assert len(set(found) - untouched) <= length // 60 + 2


def test_records_larger_than_the_window(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_records, "_WINDOW", 512)
    builder = StoreBuilder(tmp_path / "store", log_file_size=40_000)
    for number in range(6):
        builder.record(body=bytes([number]) * (5000 if number % 2 else 10))
    builder.write()
    found = scanned(builder.log_path(0))
    assert [message.physical_offset for message in found] == [p[0] for p in builder.placed]


def test_a_wrong_name_does_not_hide_records(builder, tmp_path):
    builder.write()
    for name in ("00000000000000099999", "00000000000000000000.old", "file"):
        path = tmp_path / name
        path.write_bytes(builder.log_path(SIZE).read_bytes())
        found = [message.physical_offset for message in scanned(path)]
        assert found[0] == SIZE
        assert len(found) > 5


def test_no_record_is_found_in_a_body(tmp_path):
    """A body may hold a whole record: it lies at another place than it claims."""
    inner = StoreBuilder(tmp_path / "inner", log_file_size=SIZE).records(3)
    inner.write()
    record = inner.log_path(0).read_bytes()[: inner.placed[-1].end]
    outer = StoreBuilder(tmp_path / "outer", log_file_size=SIZE)
    outer.record("T", 0, b"first").record("T", 0, record).record("T", 0, b"last")
    outer.flip(outer.placed[1].physical_offset + 1)  # its size: the walk must search
    outer.write()
    assert [message.body for message in scanned(outer.log_path(0))] == [b"first", b"last"]


# --- before a start cuts ---------------------------------------------------------------------


def test_store_that_was_not_cut_yet_shows_what_its_log_holds(builder):
    root = builder.write()
    ran = salvage(root)
    assert "25 good records" in ran.err
    assert "25 not cut off yet" in ran.out
    (line,) = salvage(root, "--json").lines
    (raw,) = salvage("--from", root / "commitlog", "--json").lines
    assert line.pop("cut_off")["records"] == 25
    assert line == raw
    assert raw["records"] == 29
    out = root.parent / "all.jsonl"
    salvage(root, "--out", out)
    assert len(out.read_text().splitlines()) == 29


def test_replay_of_a_store_that_was_not_cut_yet_brings_everything_back(builder):
    root = builder.write()
    ran = salvage(root, "--replay")
    assert "25 messages put again" in ran.out
    assert sorted(map(int, messages(root))) == [n for n in range(30) if n != DAMAGED]
    assert salvage(root, "--replay").out == ""
    assert sorted(map(int, messages(root))) == [n for n in range(30) if n != DAMAGED]


def test_store_without_damage_has_nothing_to_salvage(tmp_path):
    builder = StoreBuilder(tmp_path / "store", log_file_size=SIZE).records(30)
    root = builder.unclean().checkpoint(0, 0, 0).torn_record(40).write()
    ran = salvage(root)
    assert ran.out == ""
    assert "no good record behind the end of its log" in ran.err
