"""What a read of a queue returns: messages, statuses, where to go on."""

import pytest

from rocketlake.store.api import GetStatus
from support.read_parts import ReadParts, ask, numbers, ten_messages

KINDS = ("get", "columns")


def bodies(result):
    return [message.body for message in result.messages]


def bounds(result):
    return result.next_offset, result.min_offset, result.max_offset


@pytest.fixture
def parts(tmp_path):
    return ReadParts(tmp_path)


@pytest.fixture
def ten(tmp_path):
    return ten_messages(tmp_path)


# --- what is found ----------------------------------------------------------------------------


def test_messages_come_in_order_with_all_they_have(parts):
    parts.put(body=b"one", tags="a", keys=["k1", "k2"], properties={"p": "v"})
    parts.put(body=b"two")
    result = parts.reader().get(ask(0))
    assert result.status is GetStatus.FOUND
    assert result.is_found
    assert bodies(result) == [b"one", b"two"]
    assert bounds(result) == (2, 0, 2)
    first = result.messages[0]
    assert (first.topic, first.tags, first.keys) == ("T", "a", ["k1", "k2"])
    assert first.properties == {"p": "v", "KEYS": "k1 k2", "TAGS": "a"}
    assert (first.physical_offset, first.store_size) == (0, parts.units[0].size)
    assert not result.suggest_replica
    assert list(result.corrupt) == []


@pytest.mark.parametrize("kind", KINDS)
def test_reads_follow_each_other_over_the_files_of_the_log(ten, kind):
    read = getattr(ten.reader(), kind)
    found, offset = [], 0
    while (result := read(ask(offset, 3))).status is GetStatus.FOUND:
        found += numbers(result)
        offset = result.next_offset
    assert found == list(range(10))
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 10)


def test_one_get_goes_over_the_end_of_a_log_file_and_columns_stop_there(ten):
    assert numbers(ten.reader().get(ask(0))) == list(range(10))
    in_first = sum(unit.physical_offset < 4096 for unit in ten.units)
    result = ten.reader().columns(ask(0))
    assert numbers(result) == list(range(in_first))
    assert bounds(result) == (in_first, 0, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_read_ends_with_the_file_of_the_queue(tmp_path, kind):
    parts = ReadParts(tmp_path, queue_file_units=4)
    for _ in range(6):
        parts.put()
    result = getattr(parts.reader(), kind)(ask(1, is_limited=True))
    assert (numbers(result), result.next_offset) == ([1, 2, 3], 4)


def test_read_that_is_not_limited_goes_on_in_the_next_file(tmp_path):
    parts = ReadParts(tmp_path, queue_file_units=4)
    for _ in range(14):
        parts.put()
    for wanted, found in ((2, [1, 2]), (3, [1, 2, 3]), (8, range(1, 9)), (99, range(1, 14))):
        result = parts.reader().get(ask(1, wanted))
        assert (numbers(result), result.next_offset) == (list(found), 1 + len(found))


def test_columns_are_copies_that_can_be_read_when_the_log_is_gone(ten):
    result = ten.reader().columns(ask(2, 2))
    ten.log.expire(2)
    assert [m.body[:4] for m in result.columns.messages()] == [b"0002", b"0003"]
    assert result.columns["physical_offset"].tolist() == [
        unit.physical_offset for unit in ten.units[2:4]
    ]


def test_messages_outlive_the_files_they_came_from(ten):
    messages = ten.reader().get(ask(0, 4)).messages
    ten.log.expire(2)
    assert [m.body[:4] for m in messages] == [b"0000", b"0001", b"0002", b"0003"]


def test_light_queue_numbers_its_messages_itself(parts):
    parts.put(light=["%LMQ%a", "%LMQ%b"])
    parts.put(light=["%LMQ%b"])
    parts.put(light=["%LMQ%a"])
    for kind in KINDS:
        result = getattr(parts.reader(), kind)(ask(0, topic="%LMQ%a"))
        assert numbers(result) == [0, 1]
    light = parts.reader().get(ask(1, topic="%LMQ%a"))
    assert [m.topic for m in light.messages] == ["T"]
    assert light.messages[0].physical_offset == parts.units[2].physical_offset
    assert bounds(light) == (2, 0, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_file_that_was_opened_again_is_read_the_same(ten, kind):
    for file in ten.log.files.files:
        file.store_timestamp = 0  # nothing was appended by this process
    result = getattr(ten.reader(), kind)(ask(0, 4))
    assert numbers(result) == [0, 1, 2, 3]


# --- offsets that the queue does not have -------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 3),
        (2, GetStatus.OFFSET_TOO_SMALL, 3),
        (10, GetStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, GetStatus.OFFSET_OVERFLOW_BADLY, 10),
        (1 << 40, GetStatus.OFFSET_OVERFLOW_BADLY, 10),
    ],
)
def test_offset_outside_the_queue_is_corrected(ten, kind, offset, status, next_offset):
    ten.queue("T").min_offset = 3
    result = getattr(ten.reader(), kind)(ask(offset))
    assert (result.status, bounds(result)) == (status, (next_offset, 3, 10))
    assert numbers(result) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [True, False])
def test_replica_keeps_to_the_offset_of_its_reader(ten, kind, kept):
    ten.queue("T").min_offset = 3
    reader = ten.reader(broker_role="SLAVE", offset_check_in_slave=not kept)
    read = getattr(reader, kind)
    assert read(ask(1)).next_offset == (1 if kept else 3)
    assert read(ask(77)).next_offset == (77 if kept else 10)
    assert read(ask(5, topic="none")).next_offset == (5 if kept else 0)
    assert read(ask(4, 2)).next_offset == 6


def test_oldest_releases_send_readers_back_to_a_begin_of_zero(ten):
    reader = ten.reader(compat_version="4.6")
    assert reader.get(ask(11)).next_offset == 0
    ten.queue("T").min_offset = 3
    assert reader.get(ask(11)).next_offset == 10
    assert ten.reader(compat_version="4.9").get(ask(11)).next_offset == 10


@pytest.mark.parametrize("kind", KINDS)
def test_queue_that_is_not_there_or_empty_says_so(parts, kind):
    read = getattr(parts.reader(), kind)
    assert read(ask(7)).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert read(ask(7)).next_offset == 0
    parts.queue("T")
    assert read(ask(7)).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert bounds(read(ask(7))) == (0, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_queue_file_sends_readers_to_the_next(tmp_path, kind):
    parts = ReadParts(tmp_path, queue_file_units=4)
    for _ in range(10):
        parts.put()
    queue = parts.queue("T")
    queue.files.files = (queue.files.files[0], queue.files.files[2])
    result = getattr(parts.reader(), kind)(ask(5))
    assert (result.status, bounds(result)) == (GetStatus.OFFSET_FOUND_NULL, (8, 0, 10))
    replica = getattr(parts.reader(broker_role="SLAVE"), kind)(ask(5))
    assert (replica.status, replica.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 5)


# --- how much -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("wanted", "got"), [(1, 1), (2, 2), (0, 1), (-5, 1)])
def test_at_least_one_message_is_returned(ten, kind, wanted, got):
    assert len(numbers(getattr(ten.reader(), kind)(ask(0, wanted)))) == got


def test_caller_may_have_more_messages_than_a_broker_gives(tmp_path):
    parts = ReadParts(tmp_path, queue_file_units=200, log_file_size=1 << 20)
    for _ in range(100):
        parts.put(body=b"x" * 4000)
    size = parts.units[0].size
    reader = parts.reader()
    assert len(reader.get(ask(0, 90)).messages) == 90
    assert len(reader.get(ask(0, 90, is_limited=True)).messages) == 32
    assert len(reader.get(ask(0, 7, is_limited=True)).messages) == 7
    assert 80 * size > 262_144, "more bytes than a broker gives"


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_end_a_read_but_not_before_its_first_message(ten, kind):
    size = ten.units[0].size
    read = getattr(ten.reader(), kind)
    assert len(numbers(read(ask(0, max_bytes=3 * size)))) == 3
    assert len(numbers(read(ask(0, max_bytes=3 * size - 1)))) == 2
    assert len(numbers(read(ask(0, max_bytes=1)))) == 1
    assert len(numbers(read(ask(0, max_bytes=1 << 60)))) >= 9


def test_limited_read_keeps_to_the_bytes_for_memory(ten):
    size = ten.units[0].size
    reader = ten.reader(max_transfer_bytes_on_message_in_memory=4 * size)
    assert len(reader.get(ask(0, is_limited=True)).messages) == 4
    assert len(reader.get(ask(0)).messages) == 10


def test_limited_read_of_columns_keeps_to_the_limits_too(ten):
    reader = ten.reader(max_transfer_count_on_message_in_memory=4)
    assert numbers(reader.columns(ask(0, is_limited=True))) == [0, 1, 2, 3]


def test_limited_read_of_what_left_memory_gets_less(ten):
    size = ten.units[0].size
    memory = 10 * (5 * size) // 4  # of which 40 percent are two messages
    reader = ten.reader(memory_size=memory, max_transfer_count_on_message_in_disk=3)
    assert len(reader.get(ask(0, is_limited=True)).messages) == 3
    reader = ten.reader(memory_size=memory, max_transfer_bytes_on_message_in_disk=2 * size)
    assert len(reader.get(ask(0, is_limited=True)).messages) == 2
    assert len(reader.get(ask(0)).messages) == 10


def test_limits_become_those_of_memory_where_a_read_gets_there(ten):
    """Seven messages on disk end a read, but the ones behind them are in memory."""
    end = ten.log.max_offset
    inside = end - ten.units[5].physical_offset
    reader = ten.reader(memory_size=inside * 10, access_message_in_memory_max_ratio=10)
    limited = ask(2, is_limited=True)
    assert len(reader.get(limited).messages) == 8
    reader = ten.reader(
        memory_size=inside * 10,
        access_message_in_memory_max_ratio=10,
        max_transfer_count_on_message_in_disk=3,
    )
    assert numbers(reader.get(limited)) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert numbers(reader.get(ask(1, is_limited=True))) == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_log_that_left_memory_is_read_all_the_same(ten, kind):
    reader = ten.reader(memory_size=10)
    assert numbers(getattr(reader, kind)(ask(1, 3))) == [1, 2, 3]


def test_reader_far_behind_is_sent_to_a_replica(ten):
    near = ten.log.max_offset - ten.units[6].physical_offset
    options = {"memory_size": near * 10, "access_message_in_memory_max_ratio": 10}
    reader = ten.reader(**options)
    assert reader.get(ask(0, 2)).suggest_replica
    assert not reader.get(ask(6, 2)).suggest_replica
    assert not reader.get(ask(0, 10)).suggest_replica
    assert not ten.reader().get(ask(0, 2)).suggest_replica


# --- batch queues -------------------------------------------------------------------------------


@pytest.fixture
def batches(parts):
    """Inner batches of 3, 4, 2 and 5 messages, at 0, 3, 7 and 9."""
    for count in (3, 4, 2, 5):
        parts.put_inner_batch(count)
    return parts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("offset", "wanted", "found", "next_offset"),
    [
        (0, 32, [0, 3, 7, 9], 14),
        (0, 1, [0], 3),
        (0, 6, [0], 3),
        (0, 7, [0, 3], 7),
        (0, 9, [0, 3, 7], 9),
        (5, 2, [3], 7),
        (8, 7, [7, 9], 14),
        (13, 1, [9], 14),
    ],
)
def test_inner_batch_is_one_message_that_counts_as_many(
    batches, kind, offset, wanted, found, next_offset
):
    result = getattr(batches.reader(), kind)(ask(offset, wanted, topic="B"))
    assert (numbers(result), result.next_offset) == (found, next_offset)
    assert result.max_offset == 14


def test_get_of_batches_counts_their_messages(batches):
    batches.reader().get(ask(0, topic="B"))
    assert batches.stats.get_transferred_count == 14


def test_damaged_batch_is_stepped_over_as_a_whole(batches):
    unit = batches.queue("B", is_batch=True).units(3, 1)
    batches.log.flip(int(unit["physical_offset"][0]) + 88)
    result = batches.reader().get(ask(0, topic="B"))
    assert (numbers(result), result.next_offset) == ([0, 7, 9], 14)
    assert [unit.queue_offset for unit in result.corrupt] == [3]


def test_limited_read_of_batches_ends_by_messages_counted(batches):
    reader = batches.reader(max_transfer_count_on_message_in_memory=4)
    result = reader.get(ask(0, topic="B", is_limited=True))
    assert (numbers(result), result.next_offset) == ([0, 3], 7)


# --- counting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_reads_are_counted(ten, kind):
    read = getattr(ten.reader(), kind)
    for offset in (0, 5, 10, 99):
        read(ask(offset, 4))
    read(ask(0, topic="none"))
    stats = ten.stats
    assert (stats.get_found_count, stats.get_miss_count) == (2, 3)
    assert stats.get_transferred_count == 8
    for _ in range(27):
        read(ask(0, 1))
    assert stats.get.total == 32  # two of them were timed and speak for all
