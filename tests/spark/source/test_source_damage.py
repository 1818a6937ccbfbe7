"""Damage in each file and field: what skip and asRecovered read, and what table damage says."""

import os
import random
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import StoreError
from rocketlake.spark.jobs.archive.plan import ArchiveSettings, plan_archive
from rocketlake.spark.jobs.archive.run import carry_out
from rocketlake.spark.jobs.archive.tasks import write_task
from rocketlake.spark.schema import MESSAGE_SCHEMA
from rocketlake.spark.stream.stream_reader import make_stream_reader
from support.damaged_store import LOG_FILE, QUEUE_UNITS, DamagedStore, Wound
from support.spark_reading import read_rows, read_table
from support.store_builder import StoreBuilder

COUNT = 165
PLACE = ("physical_offset", "body")
SIZE, MAGIC, QUEUE_OFFSET, PHYSICAL, BODY = 0, 4, 20, 28, 88


def places(store: DamagedStore, how: str = "skip", **options: object) -> list[int]:
    given = {"topicPattern": ".*", **options}
    table = read_table(store.root, PLACE, onDamage=how, **given)
    return sorted(table["physical_offset"].to_pylist())


def share(store: DamagedStore, physical_offset: int) -> float:
    """Where a byte of the log is, as a wound says it; a little more, against rounding."""
    return (physical_offset + 0.5) / store.builder.end


def record_in(store: DamagedStore, file: str) -> int:
    """Return the number of a record in the first, a middle or the last file of the log."""
    last = store.placed[-1].physical_offset // LOG_FILE
    wanted = {"first": 0, "middle": last // 2, "last": last}[file]
    found = [i for i, p in enumerate(store.placed) if p.physical_offset // LOG_FILE == wanted]
    return found[len(found) // 3]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("file", ["first", "middle", "last"])
@pytest.mark.parametrize("field", [SIZE, MAGIC, PHYSICAL, BODY])
def test_one_bad_field_costs_one_message(tmp_path, is_clean, file, field) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=is_clean)
    lost = store.placed[record_in(store, file)]
    kind = "zeros" if field == PHYSICAL else "ones"
    size = 1 if field == BODY else 4
    store.hurt(Wound("log", share(store, lost.physical_offset + field), size, kind))
    wanted = sorted(p.physical_offset for p in store.placed if p != lost)
    if field == PHYSICAL and lost.physical_offset < 1 << 32:
        store.hurt(Wound("log", share(store, lost.physical_offset + field), 8, "ones"))
    for parts in (1, 4):
        assert places(store, minPartitions=parts) == wanted
    (row,) = read_table(store.root, table="damage").to_pylist()
    assert (row["physical_offset"], row["bytes"]) == (lost.physical_offset, lost.size)
    is_held = is_clean or file != "last"  # of what dispatch has not seen no unit tells
    assert row["messages"] == is_held
    assert row["lost"] == [f"{lost.topic}/{lost.queue_id} {lost.queue_offset}"] * is_held
    assert str(store.builder.log_path(lost.physical_offset // LOG_FILE * LOG_FILE)) == row["file"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_as_recovered_ends_where_a_start_would_cut(tmp_path, is_clean) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=is_clean)
    first = store.placed[record_in(store, "last")]
    store.hurt(Wound("log", share(store, first.physical_offset), 300))
    before = [p.physical_offset for p in store.placed if p.end <= first.physical_offset]
    assert places(store, "asRecovered") == before
    assert places(store) == sorted(store.whole)
    assert len(places(store)) > len(before)
    with pytest.raises(StoreError, match="onDamage = skip reads the rest"):
        places(store, "fail")


def test_the_last_record_is_lost_alone(tmp_path) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=True)
    last = store.placed[-1]
    store.hurt(Wound("log", share(store, last.physical_offset), last.size))
    assert places(store) == sorted(store.whole)
    rows = read_table(store.root, table="damage").to_pylist()
    assert sum(row["messages"] or 0 for row in rows) == 1


def test_a_torn_end_is_no_damage(tmp_path) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=False)
    store.builder.torn_record(60).write()
    assert places(store) == sorted(store.whole)
    assert read_table(store.root, table="damage").num_rows == 0


@pytest.mark.parametrize("at", [0.0, 0.4, 0.75, 1.0])
@pytest.mark.parametrize("kind", ["zeros", "random", "ones"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_bad_units_cost_their_messages(tmp_path, at, kind, is_clean) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=is_clean)
    store.hurt(Wound("queue", at, 20 if at == 1.0 else 60, kind))
    found = places(store)
    assert not store.whole - set(found)
    assert set(Counter(found).values()) == {1}
    rows = read_table(store.root, table="damage").to_pylist()
    lost = {p.physical_offset for p in store.placed} - set(found)
    told = sum(row["messages"] or 0 for row in rows)
    if at < 1.0:
        assert told == len(lost)
    else:  # whether a unit at the end was one cannot be known, and the log may have its record
        assert told <= len(lost) <= 1
        assert rows or kind == "zeros" or not is_clean


def test_random_bytes_in_a_queue_stop_nothing(tmp_path) -> None:
    """The weights of such units were NaN: batch, stream and archive ended with a ValueError."""
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=True)
    file = store.root / "consumequeue" / "T" / "0" / f"{QUEUE_UNITS * 20:020d}"
    with file.open("r+b") as opened:
        opened.seek(11)
        opened.write(random.Random(1).randbytes(200))
    hurt = range(QUEUE_UNITS, QUEUE_UNITS + 11)
    wanted = sorted(
        p.physical_offset
        for p in store.placed
        if (p.topic, p.queue_id) != ("T", 0) or p.queue_offset not in hurt
    )
    for parts in (1, 4, 16):
        assert places(store, minPartitions=parts) == wanted
    settings = ArchiveSettings(source_options={"onDamage": "skip"})
    plan = plan_archive(store.root, tmp_path / "a", settings)
    report = carry_out(plan, lambda w, tasks: [f for t in tasks for f in write_task(t, w)], "now")
    assert (report.rows, report.left_out) == (len(wanted), len(hurt))
    given = {"path": str(store.root), "topicPattern": ".*", "onDamage": "skip"}
    reader = make_stream_reader(given, MESSAGE_SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows = [b.num_rows for part in reader.partitions(start, end) for b in reader.read(part)]
    assert sum(rows) == len(wanted)


def test_a_unit_that_points_to_another_queues_record(tmp_path) -> None:
    """That record was read as a message of this queue, with `fail` too."""
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=True)
    lost = store.placed[40]
    other = next(
        p
        for p in store.placed
        if (p.topic, p.queue_id) != (lost.topic, lost.queue_id) and p.size != lost.size
    )
    path = store.root / "consumequeue" / lost.topic / str(lost.queue_id)
    per_file = QUEUE_UNITS
    file = path / f"{lost.queue_offset // per_file * per_file * 20:020d}"
    position = lost.queue_offset % per_file * 20
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(struct.pack(">qi", other.physical_offset, other.size))
    wanted = sorted(p.physical_offset for p in store.placed if p != lost)
    where = (
        f"the unit points to {other.physical_offset}, where message {other.queue_offset} of"
        f" {other.topic}/{other.queue_id} is"
    )
    mine = f"message {lost.queue_offset} of {lost.topic}/{lost.queue_id}"
    for parts in (1, 4):
        assert places(store, minPartitions=parts) == wanted
        with pytest.raises(StoreError, match=f"{where}; {mine} is left out"):
            places(store, "fail", topicPattern=".*", minPartitions=parts)
        (row,) = read_table(store.root, table="damage", minPartitions=parts).to_pylist()
        assert (row["file"], row["file_position"], row["messages"]) == (str(file), position, 1)
        assert row["reason"] == where
        assert row["lost"] == [f"{lost.topic}/{lost.queue_id} {lost.queue_offset}"]


def test_records_may_name_other_queues(tmp_path) -> None:
    """Light queues, and queues of topics that a record names itself."""
    root = tmp_path / "s"
    builder = StoreBuilder(root).unclean()
    names = {"INNER_MULTI_DISPATCH": "%LMQ%1,named", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    builder.record(body=b"x", properties=names, dispatched=False).write()
    assert read_table(root, PLACE, topicPattern=".*").num_rows == 3
    assert not read_table(root, table="damage").num_rows


@pytest.mark.parametrize("number", [0, 1, 3, 4])
@pytest.mark.parametrize("damage", ["gone", "zeroed", "short"])
def test_keys_of_an_index_file_that_is_bad_are_found(tmp_path, number, damage) -> None:
    """They were missing in silence: only the log behind the last index file was scanned."""
    root = tmp_path / "s"
    with rocketlake.open_store(root, max_hash_slot_num=10, max_index_num=40) as store:
        for index in range(200):
            store.put(Message(topic="T", body=b"x", keys=[f"k{index}"]))
    file = sorted((root / "index").iterdir())[number]
    if damage == "gone":
        file.unlink()
    elif damage == "zeroed":
        with file.open("r+b") as opened:
            opened.write(bytes(40))
    else:
        os.truncate(file, 30)
    for key in range(0, 200, 9):
        assert read_table(root, PLACE, topic="T", key=f"k{key}").num_rows == 1


def test_a_topic_whose_queues_are_gone_is_read_from_the_log(tmp_path) -> None:
    """It counted as deleted, though topics.json has it: no message, and no error."""
    root = tmp_path / "s"
    with rocketlake.open_store(root) as store:
        for index in range(40):
            store.put(Message(topic="TU"[index % 2], body=b"x"))
    shutil.rmtree(root / "consumequeue" / "T")
    assert read_table(root, PLACE, topic="T").num_rows == 20
    assert read_table(root, PLACE, topicPattern=".*").num_rows == 40
    with rocketlake.open_store(root) as store:
        store.delete_topic("T")
    assert read_table(root, PLACE, topicPattern=".*").num_rows == 20


def test_records_from_before_an_earlier_cut_do_not_count(tmp_path) -> None:
    store = DamagedStore(tmp_path / "s", 40, is_clean=False)
    builder = store.builder
    kept = builder.placed[29]
    first_cut = builder.placed[30]
    # A start cut the log behind `kept`, and one message was put since; others still stand behind.
    assert first_cut.physical_offset // LOG_FILE == kept.physical_offset // LOG_FILE
    builder.end = first_cut.physical_offset
    builder.record("V", 0, b"new", stored=builder.placed[-1].store_timestamp + 60_000)
    new = builder.placed[-1]
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 0)):
        cut = [p for p in builder.placed[30:40] if (p.topic, p.queue_id) == (topic, queue_id)]
        builder.lose_units(topic, queue_id, min(p.queue_offset for p in cut))
    builder.write()
    wanted = [p.physical_offset for p in builder.placed[:30]] + [new.physical_offset]
    assert places(store) == wanted


def test_what_a_gap_costs_is_summed(tmp_path) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=True)
    for at in (0.1, 0.5, 0.9):
        store.hurt(Wound("log", at, 300))
    rows = [row for row in read_table(store.root, table="damage").to_pylist() if row["bytes"]]
    lost = {p.physical_offset for p in store.placed} - set(places(store))
    assert sum(row["messages"] for row in rows) == len(lost)
    assert sum(row["bytes"] for row in rows) == sum(
        p.size for p in store.placed if p.physical_offset in lost
    )
    assert len(rows) == 3
    shown = read_rows(store.root, table="log", onDamage="skip")
    good = [row["physical_offset"] for row in shown if row["stop_reason"] is None]
    assert sorted(good) == places(store)


def test_a_good_store_has_no_damage(tmp_path: Path) -> None:
    for is_clean in (True, False):
        store = DamagedStore(tmp_path / str(is_clean), COUNT, is_clean=is_clean)
        assert read_table(store.root, table="damage", minPartitions=5).num_rows == 0
        assert QUEUE_UNITS < COUNT


def test_an_archive_says_what_it_passed_over(tmp_path) -> None:
    store = DamagedStore(tmp_path / "s", COUNT, is_clean=True)
    lost = store.placed[record_in(store, "last")]
    store.hurt(Wound("log", share(store, lost.physical_offset), 4, "ones"))
    settings = ArchiveSettings(source_options={"onDamage": "skip"})

    def stage(writing, tasks):
        return [file for task in tasks for file in write_task(task, writing)]

    report = carry_out(plan_archive(store.root, tmp_path / "a", settings), stage, "now")
    assert (report.rows, report.left_out) == (COUNT - 1, 1)
    assert (report.damaged, report.damaged_bytes) == (1, lost.size)
    text = f"message {lost.queue_offset} of {lost.topic}/{lost.queue_id} is left out"
    assert any(text in line for line in report.lines())
