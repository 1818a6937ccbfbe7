"""Every byte of a golden store is understood: what we decode encodes back to the same bytes."""

import numpy as np
import pytest

from rocketlake.format import layout, queue_unit
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.record import Check, StopReason, reencode, scan
from rocketlake.format.timer import MAGIC_ROLL, TimerCheckpoint, TimerUnit, WheelSlot, slot_position
from rocketlake.model.hashes import java_hash
from rocketlake.model.queues import QueueKey
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN

# --- commit log ------------------------------------------------------------------------------


def test_log_files_are_records_a_blank_one_and_zeros(opened):
    log_min, log_end = opened.case.log_bounds
    bases = [int(path.name) for path in opened.golden.log_files]
    assert bases == sorted(bases)
    assert bases[0] == log_min
    count = 0
    for base, path in zip(bases, opened.golden.log_files, strict=True):
        data = path.read_bytes()
        found = scan(data, base_offset=base, checks=Check.BODY_CRC | Check.OFFSET)
        written = b"".join(reencode(message) for message in found.columns.messages())
        assert written == data[: found.position], f"{path.name}: records written anew differ"
        count += len(found.columns)
        rest = data[found.position :]
        if base + len(data) <= log_end:
            assert found.reason == StopReason.END_OF_FILE
            magic = layout.MAGIC_BLANK.to_bytes(4, "big", signed=True)
            assert rest[:8] == len(rest).to_bytes(4, "big") + magic
            # 4.6 writes whatever its buffer held behind the header.
            assert opened.case.name.startswith("v46-") or not any(rest[8:])
        elif not (damage_in(opened.case, path.name) and base <= log_end):
            assert base + found.position == max(log_end, base)
            assert found.reason == StopReason.END_OF_DATA
            assert not any(rest)
        else:
            assert base + found.position == log_end, "the damage begins at the end of the log"
    assert count == len(opened.records)


def damage_in(case, name: str) -> bool:
    return any(name in text for text in case.manifest["damage"])


def test_whole_record_checksums_are_computed_not_copied(open_case):
    records = open_case("v5-crc").records
    assert records
    assert all("__CRC32#" in record.properties for record in records)
    changed = bytearray(reencode(records[0]))
    changed[layout.RECORD_QUEUE_ID_AT + 3] ^= 1
    checks = Check.RECORD_CRC | Check.OFFSET
    assert scan(changed, checks=checks).reason == StopReason.BAD_CRC


@pytest.mark.parametrize(("name", "versions"), [("v5-long-topic", {1, 2}), ("v5-basic", {1})])
def test_record_versions(open_case, name, versions):
    assert {record.version for record in open_case(name).records} == versions


# --- queues ----------------------------------------------------------------------------------


def test_plain_units_encode_to_the_same_bytes(opened):
    _, log_end = opened.case.log_bounds
    wanted = expected_units(opened, PLAIN)
    for path in opened.golden.files("consumequeue"):
        data = path.read_bytes()
        units = queue_unit.decode_units(data)
        written = b"".join(queue_unit.QueueUnit(*unit).encode() for unit in units.tolist())
        assert written == data
        used = queue_unit.valid_prefix(units)
        assert not any(data[used * layout.UNIT_SIZE :]), f"{path}: something behind the end"
        key = QueueKey(path.parent.parent.name, int(path.parent.name))
        first = int(path.name) // layout.UNIT_SIZE
        for number, unit in enumerate(units[:used].tolist(), first):
            # What lies behind the end of the log, or before its begin, nobody reads.
            if opened.view.min_offset <= unit[0] < log_end:
                assert wanted.pop((key, number)) == unit
    lost = {"v4-unclean-noqueue", "v5-unclean-noqueue"}
    left = {key for key, _ in wanted}
    assert left == ({QueueKey("CrashTopic", 1)} if opened.case.name in lost else set())


def test_batch_units_encode_to_the_same_bytes(opened):
    wanted = expected_units(opened, BATCHED)
    assert bool(wanted) == opened.case.name.endswith("-batchcq")
    for path in opened.golden.files("batchconsumequeue"):
        data = path.read_bytes()
        units = queue_unit.decode_batch_units(data)
        used = queue_unit.valid_prefix(units)
        fields = (*queue_unit.BatchUnit.__struct_fields__, "reserved")
        written = b""
        for unit in units[:used].tolist():
            values = dict(zip(fields, unit, strict=True))
            assert values.pop("reserved") == 0
            decoded = queue_unit.BatchUnit(**values)
            written += decoded.encode()
            message = opened.view.message_at(decoded.physical_offset)
            assert message is not None
            assert decoded.store_timestamp == message.store_timestamp
            key = QueueKey(path.parent.parent.name, int(path.parent.name))
            assert wanted.pop((key, decoded.base_queue_offset)) == unit[:3]
        assert data == written.ljust(len(data), b"\0")
    assert not wanted


def expected_units(opened, kind):
    """Offset, size and tags code by queue and queue offset, from what RocketMQ read."""
    lines = iter(opened.case.messages)
    found = {}
    for (topic, queue_id), (low, high) in opened.case.bounds.items():
        key, number = QueueKey(topic, queue_id), low
        while number < high and (topic, queue_id) != ("EarlyTopic", 0):
            line = next(lines)
            assert line.get("cqOffset", line["queueOffset"]) == number
            # An extension hides the address of its unit in 5.x: take it from our view.
            code = line["tagsCode"]
            if "ext" in line:
                code = int(opened.view.queues[key].units(number, 1)["tags_code"][0])
            if opened.view.queues[key].kind is kind:
                found[key, number] = (line["physicalOffset"], line["storeSize"], code)
            number += line.get("batchNum", 1)
    assert next(lines, None) is None
    return found


def test_extension_units_encode_to_the_same_bytes(opened):
    for path in opened.golden.files("consumequeue_ext"):
        data = path.read_bytes()
        position = count = 0
        while (unit := queue_unit.ExtUnit.decode(data, position)) is not None:
            assert unit.encode() == data[position : position + unit.size]
            position += unit.size
            count += 1
        assert count
        # A full file ends with the mark -1; the rest is zero.
        rest = data[position:]
        assert rest[:2] in (b"\xff\xff", b"\0\0")
        assert not any(rest[2:])
    assert bool(opened.golden.files("consumequeue_ext")) == opened.case.name.endswith("-ext")


# --- checkpoint and timer --------------------------------------------------------------------


def test_checkpoint_encodes_to_the_same_bytes(opened):
    data = (opened.root / "checkpoint").read_bytes()
    page = Checkpoint.decode(data)
    assert page.encode() == data
    assert page == opened.view.checkpoint
    newest = max(put.get("storeTimestamp", 0) for put in opened.case.puts)
    newest = max(newest, *(record.store_timestamp for record in opened.records))
    assert 0 <= page.physical_timestamp <= newest
    assert 0 < page.queue_timestamp <= newest
    if opened.view.traits.is_clean and not opened.case.is_5_5:
        assert page.queue_timestamp == newest
    # 5.5 sets it with the time of the queues, at a thorough flush; a clean stop makes none.
    held = [r.physical_offset for r in opened.records if r.store_timestamp <= page.queue_timestamp]
    assert page.queue_physical_offset in (held if opened.case.is_5_5 else [0])
    # It is set when an index file is full, not before.
    full = {file.header.end_timestamp for file in opened.view.index_files[:-1]}
    assert page.index_timestamp in (full or {0})
    assert (page.primary_flushed_offset, page.confirm_offset) == (0, 0)


def timer_units(opened) -> dict[int, TimerUnit]:
    units = {}
    for path in opened.golden.files("timerlog"):
        data, base, position = path.read_bytes(), int(path.name), 0
        while (unit := TimerUnit.decode(data, position)) is not None:
            assert unit.encode() == data[position : position + layout.TIMER_UNIT_SIZE]
            units[base + position] = unit
            position += layout.TIMER_UNIT_SIZE
        assert not any(data[position:])
    return units


def test_timer_units_point_to_records(open_case):
    opened = open_case("v5-timer")
    units = timer_units(opened)
    assert len(units) == 6  # seven with a delay, one of them due already
    for unit in units.values():
        message = opened.view.message_at(unit.physical_offset)
        assert message is not None
        assert message.store_size == unit.record_size
        assert message.topic == "rmq_sys_wheel_timer"
        assert unit.topic_hash == java_hash(message.properties["REAL_TOPIC"])
        out_time = int(message.properties["TIMER_OUT_MS"])
        # Too far for the wheel: it comes up for another round before its time.
        assert unit.due < out_time if unit.magic & MAGIC_ROLL else unit.due == out_time


def test_wheel_slots_lead_to_the_units(open_case):
    opened = open_case("v5-timer")
    units = timer_units(opened)
    data = (opened.root / "timerwheel").read_bytes()
    assert len(data) == layout.WHEEL_SLOTS * layout.WHEEL_SLOT_SIZE
    table = np.frombuffer(data, np.uint8).reshape(-1, layout.WHEEL_SLOT_SIZE)
    seen = []
    for number in np.flatnonzero(table.any(axis=1)).tolist():
        position = number * layout.WHEEL_SLOT_SIZE
        slot = WheelSlot.decode(data, position)
        assert slot.encode() == data[position : position + layout.WHEEL_SLOT_SIZE]
        assert slot_position(slot.time) == position
        chain = [slot.last_position]
        while units[chain[-1]].previous_position >= 0:
            chain.append(units[chain[-1]].previous_position)
        assert (chain[-1], len(chain)) == (slot.first_position, slot.count)
        assert {units[at].due // 1000 for at in chain} == {slot.time}
        seen += chain
    assert sorted(seen) == sorted(units)


def test_timer_checkpoint_encodes_to_the_same_bytes(open_case):
    opened = open_case("v5-timer")
    data = (opened.root / "config" / "timercheck").read_bytes()
    page = TimerCheckpoint.decode(data)
    assert page.encode() == data
    assert page.flushed_position == 6 * layout.TIMER_UNIT_SIZE
    queue = opened.view.queues[QueueKey("rmq_sys_wheel_timer", 0)]
    assert page.queue_offset == queue.max_offset == 6
