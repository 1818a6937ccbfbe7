"""Values -> records: the vector of the specification, every limit, and writing anew."""

import struct
import zlib

import pytest
from record_makers import (
    BORN_HOST,
    HOST_V6,
    STORE_HOST,
    VECTOR,
    VECTOR_ENVELOPE,
    VECTOR_MESSAGE,
    envelope,
    sealed,
)

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format.record import (
    Check,
    StopReason,
    crc31,
    decode_properties,
    encode,
    encode_batch,
    encode_properties,
    reencode,
    scan,
    seal,
    version_for,
)
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message

MAX_I32, MAX_I64 = (1 << 31) - 1, (1 << 63) - 1

# --- the vector ------------------------------------------------------------------------------


def test_encode_and_seal_give_the_vector_of_the_spec():
    record = encode(VECTOR_MESSAGE, VECTOR_ENVELOPE)
    assert seal(record, 0, 5, 4096, 1700000000123, False) == len(VECTOR)
    assert record.hex() == VECTOR.hex()


def test_encode_leaves_queue_offset_physical_offset_and_store_time_zero():
    record = encode(VECTOR_MESSAGE, VECTOR_ENVELOPE)
    differing = [i for i, (a, b) in enumerate(zip(record, VECTOR, strict=True)) if a != b]
    assert set(differing) <= {*range(20, 36), *range(56, 64)}
    assert not any(record[20:36])
    assert not any(record[56:64])


def test_seal_in_a_larger_buffer_touches_only_its_record():
    record = encode(VECTOR_MESSAGE, VECTOR_ENVELOPE)
    buffer = bytearray(b"\xaa" * 7) + record + b"\xbb" * 9
    assert seal(buffer, 7, 5, 4096, 1700000000123, False) == len(VECTOR)
    assert buffer == b"\xaa" * 7 + VECTOR + b"\xbb" * 9


def test_seal_again_overwrites_what_was_sealed():
    record = bytearray(VECTOR)
    seal(record, 0, -1, -2, -3, False)
    assert struct.unpack_from(">qq", record, 20) == (-1, -2)
    assert struct.unpack_from(">q", record, 56) == (-3,)
    seal(record, 0, 5, 4096, 1700000000123, False)
    assert record == VECTOR


@pytest.mark.parametrize("position", [-1, 1, 144, 145, 10_000, MAX_I64])
def test_seal_where_no_whole_record_lies_is_refused(position):
    record = bytearray(VECTOR)
    with pytest.raises(ValueError, match=f"no whole record at position {position}"):
        seal(record, position, 0, 0, 0, False)
    assert record == VECTOR


def test_seal_of_a_cut_record_is_refused_and_writes_nothing():
    for size in range(len(VECTOR)):
        record = bytearray(VECTOR[:size])
        with pytest.raises(ValueError, match="no whole record"):
            seal(record, 0, 1, 1, 1, False)
        assert record == VECTOR[:size]


# --- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "extra", "sys_flag"),
    [
        ({}, 0, 0x00),
        ({"born_host": HOST_V6}, 12, 0x10),
        ({"store_host": HOST_V6}, 12, 0x20),
        ({"born_host": HOST_V6, "store_host": HOST_V6}, 24, 0x30),
        ({"version": 2}, 1, 0x00),
        ({"version": 2, "born_host": HOST_V6, "store_host": HOST_V6}, 25, 0x30),
    ],
)
def test_size_grows_by_12_for_each_v6_host_and_by_1_for_version_2(changes, extra, sys_flag):
    record = sealed(b"hello", "TopicTest", **changes)
    assert len(record) == 91 + extra + 5 + 9
    assert struct.unpack_from(">i", record, 0) == (len(record),)
    assert struct.unpack_from(">i", record, 36) == (sys_flag,)
    born = changes.get("born_host", BORN_HOST).encode()
    store = changes.get("store_host", STORE_HOST).encode()
    at = 48 + len(born)
    assert record[48:at] == born
    assert struct.unpack_from(">q", record, at) == (1700000000123,)
    assert record[at + 8 : at + 8 + len(store)] == store


def test_host_bits_of_the_given_flag_give_way_to_the_hosts():
    assert struct.unpack_from(">i", sealed(sys_flag=0x7FFFFFFF), 36) == (0x7FFFFFCF,)
    v6 = sealed(sys_flag=0, born_host=HOST_V6, store_host=HOST_V6)
    assert struct.unpack_from(">i", v6, 36) == (0x30,)


@pytest.mark.parametrize(("version", "magic"), [(1, "daa320a7"), (2, "daa320ab")])
def test_version_decides_magic_and_width_of_the_topic_length(version, magic):
    record = sealed(b"", "T", version=version)
    assert record[4:8].hex() == magic
    assert record[88:] == b"\1".rjust(version, b"\0") + b"T" + b"\0\0"


def test_body_crc_is_31_bits_of_crc32():
    # The masking example of docs/formats/commitlog.md.
    assert zlib.crc32(b"body") == 3685223346
    assert crc31(b"body") == 1537739698
    assert struct.unpack_from(">i", sealed(b"body"), 8) == (1537739698,)
    assert struct.unpack_from(">i", sealed(b""), 8) == (0,)


@pytest.mark.parametrize(
    ("topic", "version"),
    [("T" * 127, 1), ("T" * 128, 2), ("题" * 127, 1), ("题" * 128, 2)],
)
def test_version_for_counts_characters(topic, version):
    assert version_for(topic) == version


def test_version_for_counts_characters_as_java_does():
    """Compat: String#length counts UTF-16 units, so a character may count twice."""
    assert version_for("%RETRY%" + "😀" * 60) == 1
    assert version_for("%RETRY%" + "😀" * 61) == 2


# --- the whole-record checksum ---------------------------------------------------------------


def test_crc_digits_of_the_spec_are_lowest_first():
    from rocketlake.format._kernel.pure.scanning import crc_digits  # noqa: PLC0415

    assert crc_digits(907060870) == b"0780607090"
    assert crc_digits(0) == b"0000000000"
    assert crc_digits(MAX_I32) == b"7463847412"


@pytest.mark.parametrize("trailing", [True, False])
def test_seal_with_crc_writes_the_checksum_of_all_before_it(trailing):
    reserved = envelope(reserve_crc=True, trailing_separator=trailing)
    record = encode(VECTOR_MESSAGE, reserved)
    # The separator before the checksum is there in either case.
    assert len(record) == len(VECTOR) + 20
    assert record[-21:] == b"\x02__CRC32#\x010000000000\x02"
    seal(record, 0, 5, 4096, 1700000000123, True)
    digits = f"{zlib.crc32(record[:-20]) & 0x7FFFFFFF:010d}"[::-1].encode()
    assert record[-20:] == b"__CRC32#\x01" + digits + b"\x02"
    assert struct.unpack_from(">h", record, 103) == (40 + 20,)


def test_checksum_of_a_record_without_properties_has_no_separator_before_it():
    record = encode(Message(topic="T", body=b""), envelope(reserve_crc=True))
    assert len(record) == 91 + 1 + 20
    assert record[-22:-20] == struct.pack(">h", 20)


def test_seal_with_crc_where_no_room_was_kept_is_refused():
    for record in (bytearray(VECTOR), bytearray(sealed(b"", "T"))):
        with pytest.raises(ValueError, match="position 0 has no room for its checksum"):
            seal(record, 0, 5, 4096, 1700000000123, True)


# --- limits ----------------------------------------------------------------------------------


def test_largest_values_of_every_field_come_back():
    for sign in (1, -1):
        i32, i64 = (MAX_I32, MAX_I64) if sign > 0 else (-(1 << 31), -(1 << 63))
        message = Message(topic="T", body=b"", flag=i32)
        filled = envelope(
            queue_id=i32,
            sys_flag=i32,
            born_timestamp=i64,
            reconsume_times=i32,
            prepared_transaction_offset=i64,
            born_host=Endpoint(bytes(4), i32),
        )
        record = encode(message, filled)
        seal(record, 0, i64, i64, i64, False)
        row = scan(bytes(record)).columns.message(0)
        assert (row.flag, row.queue_id, row.reconsume_times) == (i32, i32, i32)
        assert (row.born_timestamp, row.prepared_transaction_offset) == (i64, i64)
        assert (row.queue_offset, row.physical_offset, row.store_timestamp) == (i64, i64, i64)
        assert row.sys_flag == i32 & ~0x30
        assert row.born_host.port == i32


TOO_LARGE = "a number does not fit into its field"


@pytest.mark.parametrize("beyond", [1 << 31, -(1 << 31) - 1, 1 << 64])
@pytest.mark.parametrize("field", ["queue_id", "sys_flag", "reconsume_times"])
def test_number_beyond_32_bits_is_refused(field, beyond):
    with pytest.raises(ValueError, match=TOO_LARGE):
        encode(VECTOR_MESSAGE, envelope(**{field: beyond}))


@pytest.mark.parametrize("beyond", [1 << 31, -(1 << 31) - 1, 1 << 64])
def test_flag_beyond_32_bits_is_refused(beyond):
    with pytest.raises(ValueError, match=TOO_LARGE):
        encode(Message(topic="T", body=b"", flag=beyond), VECTOR_ENVELOPE)


@pytest.mark.parametrize("beyond", [1 << 63, -(1 << 63) - 1])
@pytest.mark.parametrize("field", ["born_timestamp", "prepared_transaction_offset"])
def test_number_beyond_64_bits_is_refused(field, beyond):
    with pytest.raises(ValueError, match=TOO_LARGE):
        encode(VECTOR_MESSAGE, envelope(**{field: beyond}))


@pytest.mark.parametrize("beyond", [1 << 31, -(1 << 31) - 1])
@pytest.mark.parametrize("host", ["born_host", "store_host"])
def test_port_beyond_32_bits_is_refused(host, beyond):
    with pytest.raises(ValueError, match=r"port|number"):
        encode(VECTOR_MESSAGE, envelope(**{host: Endpoint(bytes(4), beyond)}))


@pytest.mark.parametrize("size", [0, 5, 15, 17])
@pytest.mark.parametrize("host", ["born_host", "store_host"])
def test_host_of_another_size_is_refused(host, size):
    with pytest.raises(ValueError, match=f"8 or 20 bytes, not {size + 4}"):
        encode(VECTOR_MESSAGE, envelope(**{host: Endpoint(bytes(size), 1)}))


@pytest.mark.parametrize(("version", "limit"), [(1, 127), (2, 32767)])
def test_topic_beyond_its_length_field_is_refused(version, limit):
    longest = sealed(b"", "T" * limit, version=version)
    assert scan(longest).columns["topic_size"].tolist() == [limit]
    with pytest.raises(ValueError, match=f"topic of {limit + 1} bytes; version {version} holds"):
        sealed(b"", "T" * (limit + 1), version=version)


def test_topic_is_measured_in_bytes():
    with pytest.raises(ValueError, match="topic of 129 bytes"):
        sealed(b"", "题" * 43)


def test_properties_beyond_32767_bytes_are_refused():
    def message(size):
        return Message(topic="T", body=b"", properties={"n": "v" * (size - 3)})

    record = encode(message(32767), VECTOR_ENVELOPE)
    assert scan(bytes(record)).columns["properties_size"].tolist() == [32767]
    with pytest.raises(ValueError, match="properties of 32768 bytes"):
        encode(message(32768), VECTOR_ENVELOPE)


def test_properties_and_checksum_together_are_bound_by_32767_bytes():
    def message(size):
        return Message(topic="T", body=b"", properties={"n": "v" * (size - 3)})

    assert len(encode(message(32747), envelope(reserve_crc=True))) == 91 + 1 + 32767
    with pytest.raises(ValueError, match="properties of 32768 bytes"):
        encode(message(32748), envelope(reserve_crc=True))


@pytest.mark.parametrize("version", [0, 3, -1])
def test_unknown_version_is_refused(version):
    with pytest.raises(ValueError, match=f"version 1 or 2, not {version}"):
        encode(VECTOR_MESSAGE, envelope(version=version))


def test_body_beyond_the_format_is_refused():
    class Huge:
        def __len__(self):
            return layout.MAX_I32 - 131071

    host = BORN_HOST.encode()
    with pytest.raises(ValueError, match="body of 2147352576 bytes"):
        pure.encode(b"T", Huge(), b"", 0, 0, 0, 0, host, host, 0, 0, 1, False)


# --- properties ------------------------------------------------------------------------------


def test_properties_are_written_with_and_without_the_last_separator():
    table = {"a": "1", "b": "2"}
    assert encode_properties(table, True) == b"a\x011\x02b\x012\x02"
    assert encode_properties(table, False) == b"a\x011\x02b\x012"
    assert encode_properties({}, True) == encode_properties({}, False) == b""
    assert encode_properties({"a": None, "b": "2", "c": None}, False) == b"b\x012"


@pytest.mark.parametrize(
    "table", [{"": "v"}, {"a\x01": "v"}, {"a\x02": "v"}, {"a": "\x01"}, {"a": "v\x02w"}]
)
def test_property_that_would_be_read_differently_is_refused(table):
    with pytest.raises(ValueError, match="property"):
        encode_properties(table, True)


@pytest.mark.parametrize(
    ("data", "table"),
    [
        (b"", {}),
        (b"\x02\x02\x01\x02", {}),
        (b"a\x011", {"a": "1"}),
        (b"a\x011\x02", {"a": "1"}),
        (b"a\x01\x02b\x012\x02", {"b": "2"}),
        (b"\x01v\x02b\x012", {"b": "2"}),
        (b"plain\x02b\x012", {"b": "2"}),
        (b"a\x01x\x01y\x02", {"a": "x\x01y"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        ("键\x01值\x02".encode(), {"键": "值"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_properties_are_read_as_the_parser_since_4_9_1_does(data, table):
    assert decode_properties(data) == table
    assert decode_properties(memoryview(data)) == table


def test_keys_and_tags_are_written_behind_the_properties():
    message = Message(
        topic="T", body=b"", tags="TagA", keys=["k1", "k2"], properties={"UNIQ_KEY": "X"}
    )
    row = scan(bytes(encode(message, VECTOR_ENVELOPE))).columns.message(0)
    assert row.raw_properties == b"UNIQ_KEY\x01X\x02KEYS\x01k1 k2\x02TAGS\x01TagA\x02"


def test_keys_and_tags_among_the_properties_are_kept():
    message = Message(topic="T", body=b"", tags="no", keys=["no"], properties={"TAGS": "yes"})
    row = scan(bytes(encode(message, VECTOR_ENVELOPE))).columns.message(0)
    assert row.properties == {"TAGS": "yes", "KEYS": "no"}


# --- batch, and writing anew -----------------------------------------------------------------


def test_batch_is_the_records_of_its_messages_behind_each_other():
    messages = [
        Message(topic="T", body=b"one", flag=7, tags="A"),
        Message(topic="T", body=b"", keys=["k"]),
        Message(topic="T", body=b"three" * 100, properties={"a": "b"}),
    ]
    for changes in ({}, {"reserve_crc": True}, {"trailing_separator": False, "version": 2}):
        records = [bytes(encode(message, envelope(**changes))) for message in messages]
        data, sizes = encode_batch(messages, "T", envelope(**changes))
        assert data == b"".join(records)
        assert sizes == [len(record) for record in records]


def test_batch_with_one_message_that_does_not_fit_is_refused():
    messages = [Message(topic="T", body=b""), Message(topic="T", body=b"", flag=1 << 31)]
    with pytest.raises(ValueError, match=TOO_LARGE):
        encode_batch(messages, "T", VECTOR_ENVELOPE)


@pytest.mark.parametrize("trailing", [True, False])
@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_reencode_gives_the_bytes_of_the_record(version, crc, trailing):
    made = envelope(
        version=version,
        reserve_crc=crc,
        trailing_separator=trailing,
        born_host=HOST_V6,
        sys_flag=0x0F41,
        reconsume_times=3,
        prepared_transaction_offset=77,
    )
    record = encode(VECTOR_MESSAGE, made)
    seal(record, 0, 5, 4096, 1700000000123, crc)
    found = scan(bytes(record), checks=Check.SHAPE)
    assert found.reason is StopReason.END_OF_DATA
    assert reencode(found.columns.message(0)) == record


def test_reencode_of_the_vector_gives_the_vector():
    assert reencode(scan(VECTOR).columns.message(0)) == VECTOR


def bare_record(topic, properties):
    host = BORN_HOST.encode()
    return pure.encode(topic, b"", properties, 0, 0, 0, 0, host, host, 0, 0, 1, False)


@pytest.mark.parametrize(
    "properties",
    [
        # A property is cut at its first 0x01, so a value may hold more of them.
        b"a\x01x\x01y\x02",
        # Names of the checksum that are none: too short, or not at the end.
        b"__CRC32#\x010\x02",
        b"__CRC32#\x010000000000\x02z\x01last\x02",
    ],
    ids=["name separator", "short checksum", "checksum not last"],
)
def test_reencode_of_unusual_properties_gives_the_bytes_of_the_record(properties):
    record = bare_record(b"T", properties)
    assert reencode(scan(bytes(record)).columns.message(0)) == record


def test_reencode_of_a_topic_that_is_no_text_raises_nothing():
    """A scan takes it; whoever compares bytes must be able to go on with the next record."""
    record = bare_record(b"\xff" * 100, b"")
    assert reencode(scan(bytes(record)).columns.message(0)) != record
