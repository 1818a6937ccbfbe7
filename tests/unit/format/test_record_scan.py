"""Log bytes -> rows: what each field is read as, and each reason for which a scan ends."""

import struct

import numpy as np
import pytest
from record_makers import HOST_V6, VECTOR, blank, envelope, log_of, patched, sealed

from rocketlake.format import layout
from rocketlake.format.record import (
    ROW_DTYPE,
    Check,
    StopReason,
    encode,
    encode_properties,
    scan,
    scan_at,
    seal,
)
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message

R = StopReason
BODY_SIZE_AT, BODY_AT, TOPIC_SIZE_AT, PROPERTIES_SIZE_AT = 84, 88, 93, 103


def stop(data, *args, **kwargs):
    found = scan(data, *args, **kwargs)
    return len(found.columns), found.reason, found.position


# --- good records ----------------------------------------------------------------------------


def test_vector_is_read_field_by_field():
    found = scan(VECTOR, checks=Check.BODY_CRC)
    assert (len(found.columns), found.reason, found.position) == (1, R.END_OF_DATA, 145)
    expected = {
        "position": 0,
        "physical_offset": 4096,
        "queue_offset": 5,
        "born_timestamp": 1700000000000,
        "store_timestamp": 1700000000123,
        "prepared_transaction_offset": 0,
        "body_position": 88,
        "topic_position": 94,
        "properties_position": 105,
        "size": 145,
        "body_crc": 907060870,
        "queue_id": 1,
        "flag": 0,
        "sys_flag": 0,
        "reconsume_times": 0,
        "body_size": 5,
        "topic_size": 9,
        "properties_size": 40,
    }
    row = found.columns.rows[0]
    assert {name: int(row[name]) for name in ROW_DTYPE.names} == expected


def test_vector_is_read_as_a_message():
    message = scan(VECTOR).columns.message(0)
    assert (message.topic, message.body, message.version) == ("TopicTest", b"hello", 1)
    assert message.properties == {"KEYS": "k1", "UNIQ_KEY": "AC1200010001", "TAGS": "TagA"}
    assert message.raw_properties == VECTOR[105:]
    assert (str(message.born_host), str(message.store_host)) == (
        "192.168.0.1:1234",
        "10.0.0.2:10911",
    )
    assert message.msg_id == "0A00000200002A9F0000000000001000"
    assert (message.store_size, message.body_crc) == (145, 907060870)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("store", ["v4", "v6"])
@pytest.mark.parametrize("born", ["v4", "v6"])
def test_every_shape_of_record_is_read(born, store, version):
    hosts = {"v4": Endpoint(bytes([10, 0, 0, 9]), 99), "v6": HOST_V6}
    record = sealed(
        body=b"body",
        topic="题",
        at=7,
        version=version,
        born_host=hosts[born],
        store_host=hosts[store],
        reconsume_times=4,
    )
    message = scan(record).columns.message(0)
    assert (message.born_host, message.store_host) == (hosts[born], hosts[store])
    assert (message.topic, message.body, message.version) == ("题", b"body", version)
    assert (message.physical_offset, message.store_timestamp) == (7, 1700000000123)
    assert message.reconsume_times == 4


def test_topic_that_is_no_text_is_read_with_replacements():
    record = bytearray(sealed(b"", "TT"))
    record[89:91] = b"\xff\xfe"
    columns = scan(bytes(record)).columns
    assert columns.message(0).topic == "\ufffd\ufffd"
    assert columns.topics()[1] == ["\ufffd\ufffd"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_buffers_of_every_kind_are_scanned(kind):
    log, positions = log_of(3)
    columns = scan(kind(log)).columns
    assert columns["position"].tolist() == positions
    assert [message.stored_body for message in columns.messages()] == [
        b"body 0",
        b"body 1",
        b"body 2",
    ]


def test_topics_are_numbered_in_the_order_they_are_met():
    log = b"".join(sealed(b"", topic) for topic in ("B", "A", "A", "B", "", "C"))
    codes, names = scan(log).columns.topics()
    assert names == ["B", "A", "", "C"]
    assert codes.tolist() == [0, 1, 1, 0, 2, 3]


def test_topics_of_no_records_are_none():
    codes, names = scan(b"").columns.topics()
    assert (codes.tolist(), names) == ([], [])


# --- why it ends: nothing more ---------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 90, 91, 300])
def test_zeros_are_the_end_of_data(size):
    log, _ = log_of(2)
    assert stop(log + bytes(size)) == (2, R.END_OF_DATA, len(log))
    assert stop(bytes(size)) == (0, R.END_OF_DATA, 0)


@pytest.mark.parametrize("size", [8, 9, 100])
def test_blank_is_the_end_of_the_file(size):
    log, _ = log_of(2)
    assert stop(log + blank(size)) == (2, R.END_OF_FILE, len(log))
    assert stop(log + blank(8) + log) == (2, R.END_OF_FILE, len(log))


@pytest.mark.parametrize("size", [0, -1, 7, 1 << 30])
def test_size_of_a_blank_is_not_looked_at(size):
    assert stop(struct.pack(">ii", size, layout.MAGIC_BLANK)) == (0, R.END_OF_FILE, 0)


def test_blank_cut_inside_its_head_is_torn():
    head = struct.pack(">ii", 0x01020304, layout.MAGIC_BLANK)
    for size in range(1, 8):
        assert stop(head[:size]) == (0, R.TORN, 0)


def test_scan_ends_when_there_is_no_room_for_rows_and_goes_on_from_there():
    log, positions = log_of(5)
    seen = []
    position, reason = 0, R.OK
    while reason is R.OK:
        found = scan(log, position, rows_max=2)
        seen += found.columns["position"].tolist()
        position, reason = found.position, found.reason
    assert seen == positions
    assert (reason, position) == (R.END_OF_DATA, len(log))
    assert stop(log, rows_max=2) == (2, R.OK, positions[2])
    assert stop(log, rows_max=5) == (5, R.OK, len(log))
    assert stop(log, rows_max=6) == (5, R.END_OF_DATA, len(log))
    assert stop(log, rows_max=0) == (0, R.OK, 0)


# --- why it ends: torn -----------------------------------------------------------------------


def test_record_cut_at_each_byte_is_torn():
    for size in range(1, len(VECTOR)):
        # The first three bytes of its size are zeros, as where nobody has written yet.
        reason = R.END_OF_DATA if size <= 3 else R.TORN
        assert stop(VECTOR[:size]) == (0, reason, 0), size


def test_record_cut_behind_good_ones_is_torn_and_they_are_kept():
    log, positions = log_of(3)
    for size in range(positions[2] + 4, len(log)):
        assert stop(log[:size]) == (2, R.TORN, positions[2]), size
        assert stop(log, 0, size) == (2, R.TORN, positions[2]), size


# --- why it ends: bad magic ------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, -1, layout.MAGIC_V1 + 1, layout.MAGIC_V2 - 1, 0x41424344])
def test_unknown_magic_is_bad(magic):
    log, _ = log_of(1)
    assert stop(log + patched(VECTOR, 4, "i", magic)) == (1, R.BAD_MAGIC, len(log))


@pytest.mark.parametrize("size", [1, -1, 145])
def test_zero_magic_with_a_size_is_bad(size):
    assert stop(struct.pack(">ii", size, 0) + bytes(200)) == (0, R.BAD_MAGIC, 0)


def test_magic_is_looked_at_before_the_size():
    assert stop(patched(VECTOR, 0, "i", -5)) == (0, R.BAD_SIZE, 0)
    assert stop(struct.pack(">ii", -5, 77)) == (0, R.BAD_MAGIC, 0)


# --- why it ends: bad sizes ------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 90, -1, -145, -(1 << 31)])
def test_total_size_below_the_smallest_record_is_bad(size):
    log, _ = log_of(1)
    assert stop(log + patched(VECTOR, 0, "i", size)) == (1, R.BAD_SIZE, len(log))


@pytest.mark.parametrize("change", [-1, 1, 20])
def test_total_size_that_is_not_the_sum_of_the_lengths_is_bad(change):
    data = patched(VECTOR, 0, "i", len(VECTOR) + change) + bytes(64)
    assert stop(data, checks=Check.SHAPE) == (0, R.BAD_SIZE, 0)


def test_total_size_beyond_the_data_is_torn_not_bad():
    assert stop(patched(VECTOR, 0, "i", 146)) == (0, R.TORN, 0)
    assert stop(patched(VECTOR, 0, "i", (1 << 31) - 1)) == (0, R.TORN, 0)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("body_size", [-1, -(1 << 31), 4, 6, 58, 200, (1 << 31) - 1])
def test_body_size_that_does_not_add_up_is_bad(body_size, version):
    record = patched(sealed(b"hello", version=version), BODY_SIZE_AT, "i", body_size)
    assert stop(record, checks=Check.SHAPE) == (0, R.BAD_SIZE, 0)


@pytest.mark.parametrize("topic_size", [-1, -128, 8, 10, 50, 127])
def test_topic_size_that_does_not_add_up_is_bad(topic_size):
    record = patched(VECTOR, TOPIC_SIZE_AT, "b", topic_size)
    assert stop(record, checks=Check.SHAPE) == (0, R.BAD_SIZE, 0)


@pytest.mark.parametrize("topic_size", [-1, -32768, 8, 10, 9 << 8, 32767])
def test_topic_size_of_version_2_that_does_not_add_up_is_bad(topic_size):
    record = patched(sealed(version=2), TOPIC_SIZE_AT, "h", topic_size)
    assert stop(record, checks=Check.SHAPE) == (0, R.BAD_SIZE, 0)


@pytest.mark.parametrize("properties_size", [-1, -32768, 0, 39, 41, 32767])
def test_properties_size_that_does_not_add_up_is_bad(properties_size):
    record = patched(VECTOR, PROPERTIES_SIZE_AT, "h", properties_size)
    assert stop(record, checks=Check.SHAPE) == (0, R.BAD_SIZE, 0)


def test_negative_body_size_whose_sum_adds_up_is_bad():
    """Ten bytes back lie, made up, a topic of no bytes and properties up to the end."""
    record = sealed(bytes(9), "", prepared_transaction_offset=0x13000000)
    assert (len(record), 78 + 1 + 2 + 0x13) == (100, 100)
    assert stop(patched(record, BODY_SIZE_AT, "i", -10), checks=0) == (0, R.BAD_SIZE, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_negative_topic_size_whose_sum_adds_up_is_bad(version):
    """Five bytes back, inside the body, lies a made-up length of properties up to the end."""
    at = BODY_AT + 20 + version - 5
    record = sealed(bytes(20), "", version=version)
    record = patched(record, at, "h", len(record) - at - 2)
    record = patched(record, BODY_AT + 20, "bh"[version - 1], -5)
    assert stop(record, checks=0) == (0, R.BAD_SIZE, 0)


@pytest.mark.parametrize("size", [128, 200, 255])
def test_topic_beyond_127_bytes_of_version_1_is_bad(size):
    """The length of a topic is a signed byte there, whatever the sum of the lengths says."""
    record = bytearray(sealed(b"", "", version=2))
    record[4:8] = layout.MAGIC_V1.to_bytes(4, "big", signed=True)
    record[BODY_AT : BODY_AT + 2] = bytes([size]) + b"T" * size
    assert stop(patched(record, 0, "i", len(record))) == (0, R.BAD_SIZE, 0)


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30, -1])
def test_v6_bits_of_a_record_too_small_for_them_are_bad(sys_flag):
    smallest = sealed(b"", "")
    assert len(smallest) == layout.RECORD_MIN_SIZE
    assert stop(smallest) == (1, R.END_OF_DATA, 91)
    assert stop(patched(smallest, 36, "i", sys_flag)) == (0, R.BAD_SIZE, 0)


def test_smallest_record_read_as_version_2_is_bad():
    assert stop(patched(sealed(b"", ""), 4, "i", layout.MAGIC_V2)) == (0, R.BAD_SIZE, 0)


# --- why it ends: checksums ------------------------------------------------------------------

EVERY_CHECK_OF_SUMS = [
    Check.BODY_CRC,
    Check.RECORD_CRC,
    Check.RECORD_CRC_REQUIRED,
    Check.BODY_CRC | Check.RECORD_CRC,
]


def test_body_with_another_checksum_is_bad_if_looked_at():
    log, _ = log_of(1)
    data = log + patched(VECTOR, BODY_AT, "B", 0x48)
    assert stop(data, checks=Check.BODY_CRC) == (1, R.BAD_CRC, len(log))
    assert stop(data, checks=Check.SHAPE) == (2, R.END_OF_DATA, len(data))
    # A record without the whole-record checksum has only the one of its body.
    assert stop(data, checks=Check.RECORD_CRC) == (2, R.END_OF_DATA, len(data))


def test_checksum_of_an_empty_body_is_not_looked_at():
    assert stop(patched(sealed(b""), 8, "i", 12345)) == (1, R.END_OF_DATA, 100)


def test_whole_record_checksum_covers_each_byte_before_it():
    record = sealed(b"hello", reserve_crc=True, at=4096)
    assert stop(record, checks=Check.RECORD_CRC_REQUIRED) == (1, R.END_OF_DATA, len(record))
    for at in range(8, len(record)):
        flipped = bytearray(record)
        flipped[at] ^= 1
        count, reason, _ = stop(bytes(flipped), checks=Check.RECORD_CRC_REQUIRED)
        assert (count, reason) in ((0, R.BAD_CRC), (0, R.BAD_SIZE)), at


@pytest.mark.parametrize("checks", EVERY_CHECK_OF_SUMS)
def test_record_with_right_checksums_passes_every_check(checks):
    record = sealed(b"hello", reserve_crc=True)
    assert stop(record, checks=checks) == (1, R.END_OF_DATA, len(record))


def test_record_without_whole_checksum_is_bad_only_where_one_is_required():
    assert stop(VECTOR, checks=Check.RECORD_CRC) == (1, R.END_OF_DATA, 145)
    assert stop(VECTOR, checks=Check.RECORD_CRC_REQUIRED) == (0, R.BAD_CRC, 0)
    assert stop(VECTOR, checks=Check.RECORD_CRC_REQUIRED | Check.BODY_CRC) == (0, R.BAD_CRC, 0)


def test_whole_checksum_stands_in_for_that_of_the_body():
    """With a checksum of the whole record the body's own is not checked."""
    record = encode(Message(topic="T", body=b"hello"), envelope(reserve_crc=True))
    struct.pack_into(">i", record, 8, 1)
    seal(record, 0, 0, 0, 0, True)
    both = Check.BODY_CRC | Check.RECORD_CRC
    assert stop(bytes(record), checks=both) == (1, R.END_OF_DATA, len(record))
    assert stop(bytes(record), checks=Check.BODY_CRC) == (0, R.BAD_CRC, 0)


def test_property_of_the_checksums_name_elsewhere_is_no_checksum():
    table = {"__CRC32#": "0000000000", "z": "last"}
    record = encode(Message(topic="T", body=b"", properties=table), envelope())
    assert b"__CRC32#\x01" in encode_properties(table, True)
    assert stop(bytes(record), checks=Check.RECORD_CRC) == (1, R.END_OF_DATA, len(record))
    assert stop(bytes(record), checks=Check.RECORD_CRC_REQUIRED) == (0, R.BAD_CRC, 0)


# --- why it ends: offsets --------------------------------------------------------------------


def test_record_of_another_place_is_bad_if_looked_at():
    checks = Check.OFFSET | Check.BODY_CRC
    assert stop(VECTOR, base_offset=4096, checks=checks) == (1, R.END_OF_DATA, 145)
    assert stop(VECTOR, base_offset=4095, checks=checks) == (0, R.BAD_OFFSET, 0)
    assert stop(VECTOR, base_offset=0, checks=Check.BODY_CRC) == (1, R.END_OF_DATA, 145)
    assert stop(bytes(6) + VECTOR, 6, base_offset=4090, checks=checks)[:2] == (1, R.END_OF_DATA)


def test_offset_is_looked_at_before_the_checksum():
    wrong = patched(VECTOR, BODY_AT, "B", 0)
    assert stop(wrong, checks=Check.OFFSET | Check.BODY_CRC) == (0, R.BAD_OFFSET, 0)


# --- bounds ----------------------------------------------------------------------------------


def test_scan_starts_and_ends_where_it_is_told():
    log, positions = log_of(4)
    found = scan(log, positions[1], positions[3])
    assert found.columns["position"].tolist() == positions[1:3]
    assert (found.reason, found.position) == (R.END_OF_DATA, positions[3])
    assert stop(log, 0, 1 << 40) == (4, R.END_OF_DATA, len(log))


@pytest.mark.parametrize("start", [145, 146, 10_000])
def test_start_at_or_beyond_the_end_finds_nothing(start):
    assert stop(VECTOR, start) == (0, R.END_OF_DATA, start)
    assert stop(VECTOR, 0, 0) == (0, R.END_OF_DATA, 0)
    assert stop(VECTOR, 0, -7) == (0, R.END_OF_DATA, 0)


def test_negative_start_is_refused():
    with pytest.raises(ValueError, match="not at -1"):
        scan(VECTOR, -1)


# --- scan_at ---------------------------------------------------------------------------------


def at(data, *places, **kwargs):
    columns, reasons = scan_at(data, np.array(places, np.int64).reshape(-1, 3), **kwargs)
    return columns, [StopReason(reason) for reason in reasons]


def test_scan_at_reads_places_in_the_given_order():
    log, positions = log_of(4)
    size = positions[1]
    places = [(positions[i], size, positions[i]) for i in (3, 0, 0, 2)]
    columns, reasons = at(log, *places, checks=Check.BODY_CRC | Check.OFFSET)
    assert reasons == [R.OK] * 4
    assert columns["queue_offset"].tolist() == [3, 0, 0, 2]
    assert columns["position"].tolist() == [places[i][0] for i in range(4)]
    assert columns.message(3).body == b"body 2"


def test_scan_at_of_no_places_is_empty():
    columns, reasons = at(VECTOR)
    assert (len(columns), reasons) == (0, [])


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ((0, 145, 4096), R.OK),
        ((0, 145, 4097), R.BAD_OFFSET),
        ((0, 144, 4096), R.TORN),
        ((0, 146, 4096), R.TORN),
        ((0, 90, 4096), R.BAD_SIZE),
        ((0, 0, 4096), R.BAD_SIZE),
        ((0, -1, 4096), R.BAD_SIZE),
        ((0, -(1 << 63), 4096), R.BAD_SIZE),
        ((0, (1 << 63) - 1, 4096), R.TORN),
        ((-1, 145, 4096), R.TORN),
        ((-(1 << 63), 145, 4096), R.TORN),
        ((1, 145, 4096), R.TORN),
        (((1 << 63) - 1, 145, 4096), R.TORN),
        ((1, 144, 4096), R.BAD_MAGIC),
        ((0, 145, -(1 << 63)), R.BAD_OFFSET),
    ],
)
def test_scan_at_of_a_wrong_place_says_what_is_wrong(place, reason):
    columns, reasons = at(VECTOR, place, checks=Check.OFFSET)
    assert reasons == [reason]
    assert columns["size"].tolist() == [145 if reason is R.OK else 0]


def test_scan_at_with_more_than_the_record_claimed_is_a_bad_size():
    log, positions = log_of(2)
    columns, reasons = at(log, (0, len(log), 0), (0, positions[1], 0))
    assert reasons == [R.BAD_SIZE, R.OK]
    assert columns.rows[0].tobytes() == bytes(layout.ROW_SIZE)


def test_scan_at_gives_zero_rows_for_bad_places_and_goes_on():
    wrong = patched(VECTOR, BODY_AT, "B", 0)
    log = VECTOR + wrong + VECTOR
    columns, reasons = at(log, *((i * 145, 145, 4096) for i in range(3)))
    assert reasons == [R.OK, R.BAD_CRC, R.OK]
    assert columns["body_size"].tolist() == [5, 0, 5]
    assert columns.rows[1].tobytes() == bytes(layout.ROW_SIZE)
    assert at(log, (145, 145, 4096), checks=Check.SHAPE)[1] == [R.OK]


def test_scan_at_of_blank_and_zeros_names_them():
    data = blank(100) + bytes(100)
    assert at(data, (0, 100, 0), (100, 100, 0))[1] == [R.END_OF_FILE, R.END_OF_DATA]
