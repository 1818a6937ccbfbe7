"""CommitLog: what an append writes, where it rolls, and what it refuses."""

import threading
import time
from threading import Thread

import pytest

from rocketlake.errors import DiskFullError
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import PosixFileOps
from rocketlake.format.layout import MAGIC_BLANK
from rocketlake.format.record import Check, scan
from rocketlake.model.message import Message
from rocketlake.store.api import PutStatus
from rocketlake.store.log.commit_log import CommitLog, Step
from rocketlake.store.log.queue_offsets import QueueOffsets, QueueSlot
from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.options import StoreOptions
from support.manual_clock import ManualClock

FILE_SIZE = 4096
ALL = Check.BODY_CRC | Check.OFFSET


class FullMaker(MappedFileMaker):
    """Makes files while there is space."""

    is_full = False

    def create(self, place):
        if self.is_full:
            raise DiskFullError(str(place.path), place.size, 0)
        return super().create(place)


class Bench:
    """A log of small files."""

    def __init__(self, path, **options):
        self.clock = ManualClock()
        self.maker = FullMaker(PosixFileOps(), self.clock)
        self.files = MappedFileQueue(
            PosixFileOps(), self.clock, self.maker, path, file_size=FILE_SIZE
        )
        self.rolled = []
        self.log = CommitLog(self.files, self.clock, on_roll=self.rolled.append)
        self.shape = RecordShape.of(
            StoreOptions(mapped_file_size_commit_log=FILE_SIZE, max_message_size=2000, **options)
        )
        self.offsets = QueueOffsets()

    def frame(self, queue_id=0, *, is_guarded=True):
        if is_guarded:
            return self.shape.plain_frame("T", queue_id)
        return self.shape.frame(
            "T", queue_id, sys_flag=0, born_host=self.shape.endpoint, store_host=None
        )

    def put(self, body=b"body", queue_id=0, **fields):
        """Put as a store does: by the short way, and by the long one where that is closed."""
        slot, frame = self.offsets.slot("T", queue_id), self.frame(queue_id)
        message = Message(topic="T", body=body, **fields)
        return self.log.tail.append(message, slot, frame) or self.log.append_step(
            message, slot, frame, None
        )

    def records(self):
        """Read all files back, checked."""
        found = []
        for file in self.files.files:
            with file.slice(0) as held:
                columns = scan(held.view, base_offset=file.base_offset, checks=ALL).columns
                found += list(columns.messages())
        return found

    def close(self):
        self.files.close()


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_receipt_says_where_the_record_is(bench):
    bench.put(b"first")
    bench.clock.advance_ms(5)
    receipt = bench.put(b"second", queue_id=3)
    (_, record) = bench.records()
    assert record.body == b"second"
    assert receipt.status is PutStatus.PUT_OK
    assert receipt.physical_offset == record.physical_offset
    assert (receipt.queue_offset, record.queue_offset, record.queue_id) == (0, 0, 3)
    assert receipt.store_timestamp == record.store_timestamp == bench.clock.now_ms()
    assert receipt.size == record.store_size
    assert receipt.msg_id == record.msg_id


def test_message_is_born_when_it_is_stored_unless_it_says_otherwise(bench):
    bench.put()
    slot = bench.offsets.slot("T", 0)
    bench.log.append_step(Message(topic="T", body=b""), slot, bench.frame(), 77)
    first, second = bench.records()
    assert first.born_timestamp == first.store_timestamp
    assert second.born_timestamp == 77


def test_queue_offsets_count_on_for_each_queue(bench):
    receipts = [bench.put(queue_id=number) for number in (0, 1, 0, 0, 1)]
    assert [receipt.queue_offset for receipt in receipts] == [0, 0, 1, 2, 1]


def test_full_file_ends_with_a_blank_record_and_the_next_begins(bench):
    receipts = [bench.put(bytes(1000)) for _ in range(8)]
    records = bench.records()
    assert [r.physical_offset for r in records] == [r.physical_offset for r in receipts]
    assert [len(bench.files.files), len(bench.rolled)] == [3, 2]
    first = bench.files.files[0]
    end = records[2].physical_offset + records[2].store_size
    blank = bytes(first.map()[end : end + 8])
    assert blank == (FILE_SIZE - end).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(
        4, "big", signed=True
    )
    assert records[3].physical_offset == FILE_SIZE
    assert bench.log.max_offset == bench.log.wrote_where


def test_no_new_file_is_a_status_and_the_next_put_tries_again(bench):
    for _ in range(3):
        bench.put(bytes(1000))
    bench.maker.is_full = True
    refused = bench.put(bytes(1000))
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert "no space" in refused.reason
    assert not refused.is_ok
    bench.maker.is_full = False
    again = bench.put(bytes(1000))
    assert (again.queue_offset, again.physical_offset) == (3, FILE_SIZE)
    assert len(bench.records()) == 4


@pytest.mark.parametrize(
    "fields",
    [{"delay_level": 1}, {"deliver_at": 5}, {"wait": False}, {"properties": {"DELAY": "1"}}],
)
def test_guarded_frame_lets_special_messages_not_pass(bench, fields):
    assert bench.put(**fields) is None
    assert bench.log.wrote_where == 0
    assert bench.offsets.slot("T", 0).next_offset == 0


def test_message_that_cannot_be_encoded_changes_nothing(bench):
    bench.put()
    end = bench.log.wrote_where
    with pytest.raises(ValueError, match="separator"):
        bench.put(tags="a\x01")
    assert bench.log.wrote_where == end
    assert not any(bench.files.files[0].map()[end:])
    assert bench.put().queue_offset == 1


def test_record_larger_than_a_file_is_refused_without_filling_one(bench):
    frame = bench.frame(is_guarded=False)
    slot = bench.offsets.slot("T", 0)
    message = Message(topic="T", body=bytes(FILE_SIZE))
    refused = bench.log.append_step(message, slot, frame, 1)
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    assert "does not fit" in refused.reason or "do not fit" in refused.reason
    assert bench.log.wrote_where == 0


class TestBatch:
    def append(self, bench, bodies, *, is_guarded=False):
        slot = bench.offsets.slot("T", 0)
        messages = [Message(topic="T", body=body) for body in bodies]
        return bench.log.append_batch(messages, slot, bench.frame(is_guarded=is_guarded))

    def test_records_lie_behind_each_other(self, bench):
        bench.put()
        receipt = self.append(bench, [b"a", b"bb", b"ccc"])
        records = bench.records()[1:]
        assert receipt.offsets == tuple(record.physical_offset for record in records)
        assert receipt.size == sum(record.store_size for record in records)
        assert (receipt.queue_offset, receipt.count) == (1, 3)
        assert [record.queue_offset for record in records] == [1, 2, 3]
        assert receipt.msg_id == ",".join(record.msg_id for record in records)

    def test_batch_that_does_not_fit_moves_to_the_next_file_as_a_whole(self, bench):
        bench.put(bytes(1900))
        receipt = self.append(bench, [bytes(800)] * 3)
        assert receipt.offsets[0] == FILE_SIZE
        assert len(bench.records()) == 4

    def test_batch_larger_than_a_file_is_refused(self, bench):
        refused = self.append(bench, [bytes(1500)] * 3)
        assert refused.status is PutStatus.MESSAGE_ILLEGAL
        assert bench.log.wrote_where == 0

    def test_guarded_frame_lets_a_large_batch_not_pass(self, bench):
        assert self.append(bench, [bytes(800)] * 3, is_guarded=True) is None
        assert bench.log.wrote_where == 0

    def test_batch_with_a_special_message_does_not_pass(self, bench):
        slot = bench.offsets.slot("T", 0)
        messages = [Message(topic="T", body=b""), Message(topic="T", body=b"", delay_level=1)]
        assert bench.log.append_batch(messages, slot, bench.frame()) is None
        assert slot.next_offset == 0

    def test_no_file_is_a_status(self, bench):
        bench.maker.is_full = True
        refused = self.append(bench, [b"a"])
        assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED


class TestStep:
    def test_without_a_slot_the_queue_offset_is_0_and_none_moves(self, bench):
        bench.put()
        frame = bench.frame(is_guarded=False)
        receipt = bench.log.append_step(Message(topic="T", body=b""), None, frame, 1)
        assert receipt.queue_offset == 0
        assert bench.put().queue_offset == 1

    def test_step_moves_by_its_count_and_light_queues_by_one(self, bench):
        slot, light = bench.offsets.slot("T", 0), QueueSlot("%LMQ%a", 0, 9)
        message = Message(topic="T", body=b"", properties={"p": "?"})

        def rewrite():
            properties = {"p": f"{slot.next_offset},{light.next_offset}"}
            return Message(topic="T", body=b"", properties=properties)

        step = Step(5, [light], rewrite)
        frame = bench.frame(is_guarded=False)
        for _ in range(2):
            bench.log.append_step(message, slot, frame, 1, step=step)
        assert [record.properties["p"] for record in bench.records()] == ["0,9", "5,10"]
        assert (slot.next_offset, light.next_offset) == (10, 11)


class TestReading:
    def test_message_is_found_where_its_record_begins(self, bench):
        receipt = bench.put(b"found")
        assert bench.log.message_at(receipt.physical_offset).body == b"found"
        assert bench.log.message_at(receipt.physical_offset, receipt.size).body == b"found"
        assert bench.log.message_at(receipt.physical_offset, receipt.size - 1) is None
        assert bench.log.message_at(receipt.physical_offset + 1) is None
        assert bench.log.message_at(receipt.physical_offset + receipt.size) is None

    def test_damaged_record_is_not_found(self, bench):
        receipt = bench.put(b"found")
        bench.files.files[0].map()[receipt.physical_offset + 90] ^= 1
        assert bench.log.message_at(receipt.physical_offset) is None

    def test_store_time_of_a_record(self, bench):
        receipt = bench.put()
        assert bench.log.store_timestamp_at(receipt.physical_offset) == receipt.store_timestamp
        assert bench.log.store_timestamp_at(receipt.physical_offset + 4) == -1
        assert bench.log.store_timestamp_at(10 * FILE_SIZE) == -1

    def test_bounds_of_an_empty_log(self, bench):
        assert (bench.log.min_offset, bench.log.max_offset) == (-1, 0)


def test_truncated_log_goes_on_at_its_new_end(bench):
    receipts = [bench.put(bytes(1000)) for _ in range(5)]
    bench.log.cut(receipts[2].physical_offset)
    assert bench.put(b"new").physical_offset == receipts[2].physical_offset
    assert [record.body[:3] for record in bench.records()] == [bytes(3), bytes(3), b"new"]


def test_many_threads_get_every_number_once(tmp_path):
    bench = Bench(tmp_path)
    got = []

    def write():
        got.append([bench.put(bytes(50)).queue_offset for _ in range(100)])

    threads = [Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for numbers in got for number in numbers) == list(range(800))
    assert all(numbers == sorted(numbers) for numbers in got)
    assert [record.queue_offset for record in bench.records()] == list(range(800))
    bench.close()


def test_short_way_is_closed_until_the_long_one_has_opened_a_file(bench):
    slot, frame = bench.offsets.slot("T", 0), bench.frame()
    message = Message(topic="T", body=bytes(1000))
    assert bench.log.tail.append(message, slot, frame) is None
    assert bench.put().queue_offset == 0
    assert bench.log.tail.append(message, slot, frame).queue_offset == 1
    bench.log.cut(bench.log.wrote_where)
    assert bench.log.tail.append(message, slot, frame) is None
    assert bench.put().queue_offset == 2


def test_closed_log_takes_nothing_more(bench):
    bench.put()
    end = bench.log.wrote_where
    bench.log.close()
    for refused in (bench.put(), TestBatch().append(bench, [b"a"])):
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert refused.reason == "the store is closed"
    assert bench.log.wrote_where == end


def test_slow_append_is_told(bench):
    told = []
    bench.log.on_slow = lambda lock_ns, copy_ns: told.append(lock_ns + copy_ns)
    bench.put()
    with bench.log.pause():
        putter = threading.Thread(target=bench.put)
        putter.start()
        started = time.perf_counter()
        while time.perf_counter() < started + 0.03:
            pass
    putter.join()
    assert len(told) == 1
    assert told[0] > 10_000_000
