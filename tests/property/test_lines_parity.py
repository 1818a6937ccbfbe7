"""Both kernels print the same JSON lines, and what they print can be read."""

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import damaged_logs, garbage, i64, logs, property_bytes
from twins import assert_same, needs_native, scan_with

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.ids import offset_message_id

pytestmark = needs_native

HOST = Endpoint(bytes([10, 0, 0, 2]), 10911).encode()
pieces = st.sampled_from(
    [
        b"\x01",
        b"\x02",
        b"a",
        b"ab",
        b'"',
        b"\\",
        b"\n",
        b"\x1f",
        b"\x7f",
        b"\xff",
        b"\xfe",
        "é".encode(),
    ]
)


def rows_of(data):
    return scan_with(pure, data, 0, len(data), 0, 0)[3]


def record_with(topic=b"T", body=b"", properties=b""):
    return bytes(pure.encode(topic, body, properties, 0, 0, 0, 0, HOST, HOST, 0, 0, 2, False))


def lines_of(data, rows, codes, with_body):
    """Return what both kernels print; None if both refuse."""
    packed = struct.pack(f"={len(codes)}q", *codes)
    outcome = assert_same("json_lines", data, rows, packed, with_body)
    return None if outcome[0] == "raised" else outcome[1]


@given(logs(), st.booleans(), st.lists(i64, min_size=8, max_size=8))
def test_log_is_printed_the_same_and_holds_its_values(log, with_body, codes):
    rows = rows_of(log.data)
    printed = lines_of(log.data, rows, codes, with_body)
    lines = [json.loads(line) for line in printed.split(b"\n")[:-1]]
    assert len(lines) == len(log.positions)
    values = struct.iter_unpack(layout.ROW_FORMAT, rows)
    for line, code, row in zip(lines, codes[: len(lines)], values, strict=True):
        properties = log.data[row[8] : row[8] + row[17]]
        host_at = row[0] + 56 + (20 if row[13] & 0x10 else 8)
        host = log.data[host_at : host_at + (20 if row[13] & 0x20 else 8)]
        assert line["properties"] == pure.decode_properties(properties)
        assert line["topic"] == log.data[row[7] : row[7] + row[16]].decode("utf-8", "replace")
        assert (line["physicalOffset"], line["storeSize"]) == (row[1], row[9])
        assert (line["queueOffset"], line["tagsCode"]) == (row[2], code)
        assert line["msgId"] == offset_message_id(host, row[1])
        assert line["storeHost"] == str(Endpoint.decode(host))
        body = base64.b64encode(log.data[row[6] : row[6] + row[15]]).decode()
        assert line.get("body") == (body if with_body else None)


@given(damaged_logs(), st.booleans())
def test_damaged_log_is_printed_the_same(log, with_body):
    lines_of(log.data, rows_of(log.data), [0] * 8, with_body)


@given(st.one_of(property_bytes, st.lists(pieces, max_size=16).map(b"".join)))
def test_properties_are_printed_the_same(properties):
    data = record_with(properties=properties)
    line = json.loads(lines_of(data, rows_of(data), [0], False))
    assert line["properties"] == pure.decode_properties(properties)
    assert list(line["properties"]) == list(pure.decode_properties(properties))


@pytest.mark.parametrize(
    "names",
    [
        (b"a", b"a"),
        ("é".encode(), "é".encode()),
        (b"\xff", b"\xfe"),
        (b"a\xc3", b"a\xe9"),
        (b"a", b"ab"),
    ],
)
def test_names_that_become_one_are_printed_once(names):
    properties = b"".join(name + b"\x01%d\x02" % i for i, name in enumerate(names))
    data = record_with(properties=b"first\x01x\x02" + properties)
    pairs = json.loads(lines_of(data, rows_of(data), [0], False), object_pairs_hook=list)
    printed = [name for name, _ in dict(pairs)["properties"]]
    assert len(printed) == len(set(printed))
    assert len(printed) == 1 + len({name.decode("utf-8", "replace") for name in names})


@given(st.lists(pieces, max_size=16).map(b"".join), st.binary(max_size=12))
def test_topic_and_body_are_printed_the_same(topic, body):
    data = record_with(topic=topic, body=body)
    line = json.loads(lines_of(data, rows_of(data), [0], True))
    assert line["topic"] == topic.decode("utf-8", "replace")
    assert base64.b64decode(line["body"]) == body


def test_every_byte_and_every_pair_with_a_byte_is_printed_the_same():
    for first in range(256):
        topic = bytes([first, 0x41, first])
        data = record_with(topic=topic, properties=b"n\x01" + topic)
        assert lines_of(data, rows_of(data), [0], True) is not None


@given(garbage, st.lists(st.integers(-2, 120), min_size=18, max_size=18), st.booleans())
def test_rows_made_up_are_printed_or_refused_the_same(data, numbers, with_body):
    row = struct.pack(layout.ROW_FORMAT, *numbers)
    lines_of(data, row, [1], with_body)


@given(garbage, st.binary(min_size=104, max_size=208), st.integers(0, 3))
def test_garbage_rows_are_printed_or_refused_the_same(data, rows, codes):
    lines_of(data, rows, [0] * codes, True)
