"""A client's batch (docs/formats/commitlog.md): written, read, refused if lengths do not add up."""

import struct

import pytest

from rocketlake.format.batch import BatchEntry, decode_entries, encode_entries

PROPERTIES = b"a\x011\x02\x02"
ENTRY = struct.pack(">iiiii", 22 + 3 + 5, 0, 0, 7, 3) + b"abc" + struct.pack(">h", 5) + PROPERTIES


def test_entry_is_six_numbers_body_and_properties():
    assert encode_entries([BatchEntry(b"abc", PROPERTIES, 7)]) == ENTRY
    assert decode_entries(ENTRY) == [BatchEntry(b"abc", PROPERTIES, 7)]


def test_smallest_entry_has_22_bytes():
    data = encode_entries([BatchEntry(b"")])
    assert data == struct.pack(">iiiiih", 22, 0, 0, 0, 0, 0)
    assert decode_entries(data) == [BatchEntry(b"")]


def test_entries_come_back_in_their_order():
    entries = [BatchEntry(b"x" * i, b"a\x01%d\x02" % i, -i) for i in range(20)]
    data = encode_entries(entries)
    assert decode_entries(data) == entries
    assert len(data) == sum(22 + len(e.body) + len(e.raw_properties) for e in entries)


def test_no_bytes_are_no_entries():
    assert encode_entries([]) == b""
    assert decode_entries(b"") == []


def test_properties_of_an_entry_are_read_as_those_of_a_record():
    assert BatchEntry(b"", b"KEYS\x01k1\x02TAGS\x01A").properties == {"KEYS": "k1", "TAGS": "A"}


def test_magic_and_crc_of_an_entry_are_not_looked_at():
    data = bytearray(ENTRY)
    struct.pack_into(">ii", data, 4, -626843481, 12345)
    assert decode_entries(bytes(data)) == [BatchEntry(b"abc", PROPERTIES, 7)]


def test_properties_beyond_32767_bytes_are_refused():
    longest = BatchEntry(b"", b"p" * 32767)
    assert decode_entries(encode_entries([longest])) == [longest]
    with pytest.raises(ValueError, match="properties of 32768 bytes"):
        encode_entries([BatchEntry(b"", b"p" * 32768)])


def test_flag_beyond_32_bits_is_refused():
    with pytest.raises(ValueError, match=r"flag|number"):
        encode_entries([BatchEntry(b"", b"", 1 << 31)])


@pytest.mark.parametrize("size", range(1, len(ENTRY)))
def test_batch_cut_anywhere_is_refused_with_the_position(size):
    with pytest.raises(ValueError, match="at 30"):
        decode_entries(ENTRY + ENTRY[:size])


@pytest.mark.parametrize("size", [0, 21, 22, 29, 31, -1, 1 << 30])
def test_wrong_size_of_an_entry_is_refused(size):
    data = struct.pack(">i", size) + ENTRY[4:]
    with pytest.raises(ValueError, match="batch entry at 0 claims"):
        decode_entries(data)


@pytest.mark.parametrize("body_size", [-1, 2, 4, 8, 9, 100, (1 << 31) - 1])
def test_wrong_size_of_a_body_is_refused(body_size):
    data = ENTRY[:16] + struct.pack(">i", body_size) + ENTRY[20:]
    with pytest.raises(ValueError, match="batch entry at 0 claims"):
        decode_entries(data)


def test_negative_size_of_a_body_whose_sum_adds_up_is_refused():
    """Six bytes back the flag lies, and could be a length of properties up to the end."""
    data = struct.pack(">iiiii", 30, 0, 0, 14, -6) + bytes(10)
    with pytest.raises(ValueError, match="claims a body of -6 bytes"):
        decode_entries(data)


@pytest.mark.parametrize("properties_size", [-1, 0, 4, 6, 32767, -32768])
def test_wrong_size_of_properties_is_refused(properties_size):
    data = ENTRY[:23] + struct.pack(">h", properties_size) + ENTRY[25:]
    with pytest.raises(ValueError, match=f"batch entry at 0 claims {properties_size} property"):
        decode_entries(data)
