"""verify: each kind of damage is found, told once, and told where it is."""

import os
import pickle
import struct

import pytest

from rocketlake.format import layout
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.flags import INNER_BATCH, NEED_UNWRAP
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.findings import Kind
from rocketlake.upkeep.verify.index_piece import check_index_file
from rocketlake.upkeep.verify.log_piece import check_log_file
from rocketlake.upkeep.verify.store_layout import look
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support.engine import open_engine, request
from support.manual_clock import ManualClock
from support.store_builder import BEGIN_MS, StoreBuilder

SIZE = 2048


@pytest.fixture
def builder(tmp_path):
    """Two topics in four files of the log, with tags, keys and two index files."""
    made = StoreBuilder(tmp_path / "store", log_file_size=SIZE, index_shape=(10, 30))
    for number in range(30):
        made.record("T", number % 2, f"body {number}".encode(), tags="A", keys=[f"k{number}"])
        made.record("U", 0, b"u", keys=[f"u{number}", "same"] if number % 3 == 0 else ())
    return made


def verify(root, **options):
    """Return kind, file name, position and reason of all findings, and the summary."""
    verifier = Verifier(root, VerifyOptions(jobs=1, **options))
    summary = verifier.run()
    found = [
        (fault.kind, os.path.relpath(fault.path, root), fault.position, fault.reason)
        for fault in verifier.ledger.faults
    ]
    return found, summary


def only(root, **options):
    found, summary = verify(root, **options)
    assert len(found) == 1, found
    assert summary.findings == 1
    assert summary.kinds == {found[0][0].value: 1}
    return found[0]


def change(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_sound_store(builder):
    found, summary = verify(builder.write())
    assert found == []
    assert summary.is_sound
    assert (summary.records, summary.units, summary.queues) == (60, 60, 3)
    assert summary.keys == 50
    assert summary.state == "clean stop"


def test_findings_are_told_as_they_come_and_bytes_too(builder):
    root = builder.flip_body(3).write()
    told, counted = [], []
    Verifier(root).run(told.append, counted.append)
    assert [finding.position for finding in told] == [builder.placed[3].physical_offset]
    index = sum(path.stat().st_size for path in (root / "index").iterdir())
    assert sum(counted) > builder.placed[-1].end - SIZE + index


def test_an_open_store_can_be_given(builder):
    with OfflineStore(builder.write()) as store:
        assert Verifier(store).run().is_sound


# --- the log -----------------------------------------------------------------------------------


def test_body_that_has_another_checksum(builder):
    place, after = builder.placed[7:9]
    found = only(builder.flip_body(7).write())
    name = f"commitlog/{builder.log_path(0).name}"
    assert found[:3] == (Kind.RECORD, name, place.physical_offset)
    assert (
        found[3] == f"a record does not have its checksum; records go on at {after.physical_offset}"
    )


def test_broken_length_does_not_hide_what_follows(builder):
    place = builder.placed[20]
    found = only(builder.flip(place.physical_offset + 1).write())
    assert found[0] is Kind.RECORD
    assert f"records go on at {builder.placed[21].physical_offset}" in found[3]


def test_stored_offset_of_another_place(builder):
    place = builder.placed[5].physical_offset + layout.RECORD_PHYSICAL_OFFSET_AT + 7
    found = only(builder.flip(place).write())
    assert found[3].startswith("a record of another place of the log; records go on at ")


def test_last_record_damaged_after_a_clean_stop(builder):
    found = only(builder.flip_body(59).write())
    assert found[0] is Kind.LOG_END
    assert "no good record follows" in found[3]


def test_store_time_that_leaves_its_neighbours(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    builder.record().record(stored=BEGIN_MS + 5000).record(stored=BEGIN_MS + 3).record()
    found = only(builder.checkpoint(0, 0, 0).write())
    assert found[0] is Kind.RECORD
    assert found[2] == builder.placed[1].physical_offset
    assert found[3].startswith(f"stored at {BEGIN_MS + 5000}, but the record before at")


def test_clock_that_was_set_back_is_no_damage(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    builder.records(3).record(stored=BEGIN_MS - 60_000).records(3)
    assert verify(builder.write())[0] == []


def test_blank_record_of_another_size(builder):
    end = next(p for p in reversed(builder.placed) if p.physical_offset < SIZE).end
    found = only(builder.overwrite(end, struct.pack(">i", 77)).write())
    left = SIZE - end
    text = f"the blank record says 77 bytes, but the file has {left} left"
    assert found == (Kind.RECORD, f"commitlog/{builder.log_path(0).name}", end, text)


def test_blank_record_that_is_gone(builder):
    end = next(p for p in reversed(builder.placed) if p.physical_offset < SIZE).end
    found = only(builder.overwrite(end, bytes(8)).write())
    assert found[0] is Kind.RECORD
    assert "without a blank record" in found[3]


def test_bytes_behind_the_end(builder):
    found = only(builder.overwrite(builder.end + 100, b"x").write())
    path = builder.log_path(builder.end // SIZE * SIZE)
    text = "bytes behind the end of the log that are not zero"
    assert found == (Kind.LOG_END, f"commitlog/{path.name}", builder.end % SIZE + 100, text)


def test_missing_log_file(builder):
    found, _ = verify(builder.lose_log_file(SIZE).write())
    assert (Kind.LOG_FILE, "a file is missing") in [(f[0], f[3].rpartition(": ")[2]) for f in found]


def test_whole_record_checksum_covers_everything(tmp_path):
    builder = StoreBuilder(tmp_path / "store", log_file_size=1000)
    builder.record(with_crc=True).record(keys=["k"], tags="A", with_crc=True).record(with_crc=True)
    place = builder.placed[1]
    builder.write()
    path = builder.log_path(0)
    whole = path.read_bytes()
    for position in range(place.physical_offset, place.end):
        change(path, position, bytes([whole[position] ^ 0x10]))
        assert verify(builder.root)[0], f"byte {position - place.physical_offset} of the record"
        change(path, position, whole[position : position + 1])
    assert verify(builder.root)[0] == []


def test_checksum_that_a_message_brought_along_is_no_damage(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    builder.record().record(properties={"__CRC32#": "0123456789"}).record()
    assert verify(builder.write())[0] == []


# --- queues ------------------------------------------------------------------------------------


def test_unit_that_points_where_no_record_begins(builder):
    unit = QueueUnit(81, 120, 0)
    found = only(builder.unit("U", 0, 17, unit).write())
    place = builder.placed[35]
    assert (place.topic, place.queue_offset) == ("U", 17)
    assert found[:3] == (Kind.UNIT, f"consumequeue/U/0/{'0' * 20}", 17 * 20)
    assert found[3] == (
        "queue U/0: unit 17 points to 81, where no record begins; its record lies at "
        f"{place.physical_offset}"
    )


def test_unit_that_points_to_another_message(builder):
    other = builder.placed[0]
    unit = QueueUnit(other.physical_offset, other.size, 0)
    found = only(builder.unit("U", 0, 4, unit).write())
    assert "unit 4 points to 0, where message 0 of T/0 lies; its record lies at" in found[3]


def test_unit_of_a_message_twice(builder):
    place = builder.placed[3]
    unit = QueueUnit(place.physical_offset, place.size, 0)
    found = only(builder.unit("U", 0, 2, unit).write())
    assert f"unit 2 points to {place.physical_offset}, where message 1 of U/0 lies" in found[3]


def test_unit_with_another_size_or_tag(builder):
    place = builder.placed[4]
    builder.unit("T", 0, 1, QueueUnit(place.physical_offset, place.size + 1, 65))
    found = only(builder.write())
    assert found[3] == (
        f"queue T/0: unit 1 says {place.size + 1} bytes, its record at {place.physical_offset} "
        f"has {place.size}"
    )
    builder.unit("T", 0, 1, QueueUnit(place.physical_offset, place.size, 66))
    found = only(builder.write())
    assert f"unit 1 has the tags code 66, its record at {place.physical_offset} 65" in found[3]


def test_unit_of_zeros_between_others(builder):
    found = only(builder.unit("U", 0, 3, bytes(20)).write())
    assert "unit 3 is no valid unit (offset 0, size 0); its record lies at" in found[3]


def test_queue_that_lost_its_end(builder):
    found = only(builder.lose_units("T", 1, 10).write())
    assert found[0] is Kind.LACKS_UNITS
    assert found[3].startswith("queue T/1: it ends at 10, but the log holds 5 messages of it from")


def test_queue_that_is_gone(builder):
    found = only(builder.lose_queue("T", 1).write())
    assert found[:2] == (Kind.LACKS_UNITS, "consumequeue/T/1")
    assert found[3].startswith("queue T/1: there is none, but the log holds 15 messages of it")


def test_units_behind_the_end_of_the_log(builder):
    found = only(builder.unit("U", 0, 30, QueueUnit(builder.end + 500, 100, 0)).write())
    assert (
        found[3] == f"queue U/0: unit 30 points to {builder.end + 500}, behind the end of the log"
    )


def test_queue_offset_of_a_record_changed(builder):
    place = builder.placed[11]
    found = only(builder.flip(place.physical_offset + layout.RECORD_QUEUE_OFFSET_AT + 7).write())
    assert found[0] is Kind.UNIT
    assert "unit 5 points to" in found[3]
    assert "where message 250 of U/0 lies" in found[3]


def test_deleted_topic_is_no_damage(builder):
    table = '{"topicConfigTable":{"T":{"topicName":"T"}}}'
    builder.lose_queue("U", 0).file("config/topics.json", table)
    found, summary = verify(builder.write())
    assert found == []
    assert summary.deleted_topics == {"U": 30}


def test_topic_that_was_made_again_is_no_damage(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    builder.records(5, dispatched=False)
    for number in range(2):
        builder.record(queue_offset=number)
    found, summary = verify(builder.record("U").write())
    assert found == []
    assert summary.earlier_lives == 5


def test_light_queues_and_inner_batches(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    builder.record("P", light=["%LMQ%a", "%LMQ%b"]).inner_batch(3).inner_batch(4)
    builder.record("P", light=["%LMQ%a"])
    assert verify(builder.write())[0] == []
    path = builder.root / "batchconsumequeue" / "B" / "0" / ("0" * 20)
    change(path, 46 + 37, b"\x09")
    found = only(builder.root)
    assert found[3].startswith("queue B/0: batch unit 1 has batch size 9, its record at ")
    builder.write()
    builder.unit("%LMQ%a", 0, 1, QueueUnit(7, 100, 0)).write()
    assert "queue %LMQ%a/0: unit 1 points to 7, where no record begins" in only(builder.root)[3]


@pytest.mark.parametrize("text", ["0", "-5"])
def test_inner_batch_of_no_message_is_no_damage(tmp_path, text):
    """Dispatch counts such a record as one message; verify had its own rule and skipped it."""
    bits = INNER_BATCH | NEED_UNWRAP
    with open_engine(tmp_path, batch_topics=["B"]) as store:
        for number in ("2", text, "3"):
            store.put(request("B", properties={"INNER_NUM": number}, sys_flag=bits))
        store.catch_up()
    assert verify(tmp_path)[0] == []


def test_expired_messages_are_no_damage(builder):
    assert verify(builder.expire(1).write())[0] == []


# --- the index ---------------------------------------------------------------------------------


def entry_position(number):
    return 40 + 10 * 4 + number * 20


def test_entry_with_another_offset(builder):
    builder.write()
    change(builder.index_path(), entry_position(5) + 4, struct.pack(">q", 5))
    found, _ = verify(builder.root)
    assert {fault[:3] for fault in found} >= {
        (Kind.INDEX, f"index/{builder.index_path().name}", entry_position(5))
    }
    assert any("entry 5 points to 5, the key's record is at " in fault[3] for fault in found)


def test_entry_with_another_time(builder):
    builder.write()
    change(builder.index_path(), entry_position(3) + 12, struct.pack(">i", 60))
    found = only(builder.root)
    assert "entry 3 says 60 s after the file's begin, its record was stored 0 s after" in found[3]


def test_chain_and_slot_of_another_entry(builder):
    builder.write()
    data = builder.index_path().read_bytes()
    change(builder.index_path(), entry_position(9) + 16, struct.pack(">i", 8))
    found, _ = verify(builder.root)
    assert any("chain" in fault[3] for fault in found)
    builder.index_path().write_bytes(data)
    change(builder.index_path(), 40 + 3 * 4, struct.pack(">i", 29))
    found, _ = verify(builder.root)
    assert any(fault[2] in (52, entry_position(29)) for fault in found)


@pytest.mark.parametrize("position", [0, 8, 16, 24, 32])
def test_header_of_the_index(builder, position):
    builder.write()
    change(builder.index_path(), position + 3, b"\x55")
    found, _ = verify(builder.root)
    assert {fault[0] for fault in found} == {Kind.INDEX}


def test_index_that_lacks_keys(builder):
    builder.write()
    builder.index_path(0).unlink()
    found = only(builder.root)
    assert found[0] is Kind.LACKS_KEYS
    assert found[3].startswith("the index lacks 29 keys of records from 0 to ")


def test_keys_that_rocketmq_put_again_at_a_restart(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    for number in range(5):
        builder.record(keys=[f"k{number}", "both"])
        if number in (2, 4):
            builder._put_keys(builder.placed[-1], [f"k{number}", "both"])
    assert verify(builder.write())[0] == []
    builder._put_keys(builder.placed[1], ["k1"])
    builder.record(keys=["more"])
    found, _ = verify(builder.write())
    assert any("entry 15 points to" in fault[3] for fault in found)


def test_store_without_index_is_sound(builder):
    found, summary = verify(builder.lose_index().write())
    assert found == []
    assert any("there is no index" in note for note in summary.pending.notes)


# --- what a start does, checkpoint, tables -----------------------------------------------------


def test_unclean_stop_leaves_pending_work(builder):
    builder.record("T", 0, b"new", dispatched=False).torn_record(40)
    found, summary = verify(builder.unclean().checkpoint(1, 1, 1).write())
    assert found == []
    assert summary.state == "unclean stop"
    assert summary.pending.not_dispatched == 1
    assert 0 < summary.pending.torn_bytes <= 40
    assert summary.pending.keys_to_index == 50


def test_good_records_behind_a_bad_one_are_damage_after_an_unclean_stop_too(builder):
    found = only(builder.flip_body(57).unclean().write())
    assert found[0] is Kind.RECORD


def test_store_in_use(tmp_path):
    root = tmp_path / "store"
    with open_engine(root, ManualClock()) as store:
        for number in range(40):
            store.put(request("T", number % 3, str(number).encode(), keys=[f"k{number}"]))
            if number % 8 == 0:
                found, summary = verify(root)
                assert found == []
                assert summary.state == f"in use by process {os.getpid()}"
                assert summary.records == number + 1
    assert verify(root)[1].state == "clean stop"


def test_checkpoint_ahead_of_the_log(builder):
    last = builder.placed[-1].store_timestamp
    found = only(builder.checkpoint(last + 1, last, last).write())
    assert found[:3] == (Kind.CHECKPOINT, "checkpoint", 0)
    assert str(last + 1) in found[3]


def test_broken_table_and_its_copy(builder):
    good = '{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}'
    builder.file("config/topics.json", "{broken").file("config/topics.json.bak", good)
    found = only(builder.write())
    assert found[:2] == (Kind.TABLE, "config/topics.json")
    assert "is read from topics.json.bak" in found[3]


def test_progress_beyond_the_end(builder):
    table = '{"offsetTable":{"T@G":{0:15,1:16},"Gone@G":{0:99}}}'
    found = only(builder.file("config/consumerOffset.json", table).write())
    assert found[0] is Kind.PROGRESS
    assert found[3] == "group G is at 16 of T/1, which ends at 15"


def test_pieces_of_work_can_be_sent_to_another_process(builder):
    with OfflineStore(builder.flip_body(3).write()) as store:
        layout_ = pickle.loads(pickle.dumps(look(store)))
    bases = [file.base_offset for file in layout_.log_files]
    for place in layout_.index:
        assert pickle.loads(pickle.dumps(check_index_file(place))) == []
    reports = [check_log_file(layout_, number) for number in range(len(bases))]
    again = pickle.loads(pickle.dumps(reports))
    assert [report.records for report in again] == [report.records for report in reports]
    assert sum(report.units.confirmed for report in again) == 59


def test_only_a_part(builder):
    builder.unit("U", 0, 17, QueueUnit(81, 120, 0)).lose_units("T", 1, 10)
    root = builder.write()
    assert verify(root, what=frozenset({"log"}))[0] == []
    assert verify(root, what=frozenset({"index"}))[0] == []
    assert len(verify(root, what=frozenset({"queues"}))[0]) == 2


@pytest.mark.parametrize("size", [41, 44, 48, 52, 56, 60, 80, 100])
def test_index_file_cut_to_almost_nothing_is_told(builder, size):
    root = builder.write()
    path = next((root / "index").iterdir())
    os.truncate(path, size)
    found, summary = verify(root)
    assert not summary.is_sound
    assert any(name == os.path.relpath(path, root) for _, name, _, _ in found)
