"""Both kernels lay out the same Arrow columns, and what they lay out is what messages say."""

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import damaged_logs, garbage, i64, logs, property_bytes
from twins import assert_same, differences, needs_native, scan_with

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format._kernel.codes import ArrowColumn
from rocketlake.model.endpoint import Endpoint

pytestmark = needs_native

EVERY = int(sum(ArrowColumn))
HOST = Endpoint(bytes([10, 0, 0, 2]), 10911).encode()
subsets = st.integers(0, EVERY)
odd_texts = ("é", "名", "🚀", "12345678", " ", "a", "ab", "TAGS", "KEYS", "UNIQ_KEY")
odd_bytes = (b"\x01", b"\x02", b"\xff", b"\xc3", b"\xe6\xa0", b"\xed\xa0\x80")
pieces = st.sampled_from([*odd_bytes, *(text.encode() for text in odd_texts)])


def rows_of(data, rows=8):
    return scan_with(pure, data, 0, len(data), 0, 0, rows)[3]


def record_with(topic=b"T", body=b"", properties=b"", hosts=(HOST, HOST)):
    fields = (topic, body, properties, 0, 0, 0, 0, *hosts, 0, 0, 2, False)
    return bytes(pure.encode(*fields))


def columns_of(data, rows, wanted=EVERY):
    """Return what both kernels lay out, by column; None if both refuse."""
    outcome = assert_same("arrow_columns", data, rows, wanted)
    if outcome[0] == "raised":
        return None
    chosen = [column for column in ArrowColumn if wanted & column]
    return dict(zip(chosen, outcome[1], strict=True))


def offsets_of(raw):
    return struct.unpack(f"={len(raw) // 4}i", raw)


def texts(offsets, data):
    ends = offsets_of(offsets)
    assert ends[0] == 0
    assert ends[-1] == len(data)
    return [data[a:b] for a, b in pairwise(ends)]


def optional(validity, offsets, data):
    found = texts(offsets, data)
    if not validity:
        return found
    assert len(validity) == (len(found) + 7) // 8
    return [text if validity[i // 8] >> i % 8 & 1 else None for i, text in enumerate(found)]


def lists(offsets, values):
    ends = offsets_of(offsets)
    assert ends[-1] == len(values)
    return [values[a:b] for a, b in pairwise(ends)]


def values_of(columns):
    """Return the values of each column, row by row, as Arrow reads them."""
    found = {}
    for column, buffers in columns.items():
        if column is ArrowColumn.KEYS:
            found[column] = lists(buffers[0], texts(*buffers[1:]))
        elif column is ArrowColumn.PROPERTIES:
            pairs = list(zip(texts(*buffers[1:3]), texts(*buffers[3:]), strict=True))
            found[column] = lists(buffers[0], pairs)
        else:
            found[column] = optional(*buffers)
    return found


def encoded(value):
    if isinstance(value, list):
        return [each.encode() for each in value]
    if isinstance(value, dict):
        return [(name.encode(), text.encode()) for name, text in value.items()]
    return value.encode() if isinstance(value, str) else value


ATTRIBUTES = {
    ArrowColumn.TOPIC: lambda message: message.topic,
    ArrowColumn.MSG_ID: lambda message: message.msg_id,
    ArrowColumn.UNIQUE_KEY: lambda message: message.unique_key,
    ArrowColumn.KEYS: lambda message: message.keys,
    ArrowColumn.TAGS: lambda message: message.tags,
    ArrowColumn.BODY: lambda message: message.stored_body,
    ArrowColumn.PROPERTIES: lambda message: message.properties,
    ArrowColumn.BORN_HOST: lambda message: str(message.born_host),
    ArrowColumn.STORE_HOST: lambda message: str(message.store_host),
}


def assert_as_messages(data, rows, wanted=EVERY):
    columns = columns_of(data, rows, wanted)
    messages = pure.make_messages(data, rows)
    expected = {
        column: [encoded(value(message)) for message in messages]
        for column, value in ATTRIBUTES.items()
        if wanted & column
    }
    assert values_of(columns) == expected


@given(logs(), subsets)
def test_columns_of_a_log_are_those_of_its_messages(log, wanted):
    assert_as_messages(log.data, rows_of(log.data))
    assert_as_messages(log.data, rows_of(log.data), wanted)


@given(damaged_logs(), subsets)
def test_columns_of_a_damaged_log_are_those_of_its_messages(log, wanted):
    assert_as_messages(log.data, rows_of(log.data), wanted)


@given(st.lists(st.one_of(property_bytes, st.lists(pieces, max_size=16).map(b"".join)), max_size=9))
def test_properties_are_those_of_the_messages(strings):
    data = b"".join(record_with(properties=each) for each in strings)
    assert_as_messages(data, rows_of(data, 9))


@given(st.lists(pieces, max_size=16).map(b"".join), st.binary(max_size=12))
def test_topic_and_body_are_those_of_the_message(topic, body):
    data = record_with(topic=topic, body=body)
    assert_as_messages(data, rows_of(data))


def test_every_byte_and_every_pair_of_lead_and_next_is_decoded_the_same():
    for first in range(256):
        for size in (1, 4, 7, 8, 9, 17):
            text = bytes([first]) * size
            data = record_with(topic=b"a" + text, properties=b"TAGS\x01x" + text)
            assert_as_messages(data, rows_of(data))
    for lead in range(0xC0, 0x100):
        strings = (
            b"KEYS\x01" + bytes([lead, second]) + b" " + bytes([lead, second, 0xA0, 0x80, 0x80])
            for second in range(0x7F, 0xC1)
        )
        data = b"".join(record_with(properties=each) for each in strings)
        assert_as_messages(data, rows_of(data, 66))


@pytest.mark.parametrize(
    "names",
    [
        (b"a", b"a"),
        (b"ab", b"ba", b"ab"),
        ("é".encode(), "é".encode()),
        (b"\xff", b"\xfe"),
        (b"a\xc3", b"a\xe9"),
        (b"a", b"ab", b"a", b"ab", b"TAGS", b"TAGS"),
        tuple(b"n%d" % i for i in range(200)),
        tuple(b"n%d" % (i % 100) for i in range(200)),
        tuple(bytes([97 + i % 26, 97 + i // 26]) for i in range(64)),
        tuple(bytes([97 + i % 26, 97 + i // 26]) for i in range(65)),
    ],
)
def test_names_that_become_one_are_there_once(names):
    properties = b"".join(name + b"\x01%d\x02" % i for i, name in enumerate(names))
    records = [record_with(properties=b"first\x01x\x02" + properties), record_with(), b""]
    data = b"".join([*records, record_with(properties=b"a\x01b")])
    assert_as_messages(data, rows_of(data))


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20), i64)
def test_hosts_are_spelled_as_endpoints_are(small, large, offset):
    records = []
    for flag, hosts in ((0, (small, small)), (0x10, (large, small)), (0x30, (large, large))):
        record = pure.encode(b"T", b"", b"", 0, 0, flag, 0, *hosts, 0, 0, 1, False)
        pure.seal(record, 0, 0, offset, 0, False)
        records += [bytes(record)] * 2
    data = b"".join(records)
    assert_as_messages(data, rows_of(data))


def test_worst_bytes_fit_into_what_was_made_ready():
    """Every byte becomes three, every name is one byte, every key is one byte."""
    cases = [b"\xff" * 32_767, b"\xff\x01\xff\x02" * 8191, b"KEYS\x01" + b"\xff " * 16_000]
    cases += [b"TAGS\x01" + b"\xff" * 32_000, b"UNIQ_KEY\x01" + b"\xff" * 32_000]
    data = b"".join(record_with(topic=b"\xff" * 3000, properties=each) for each in cases)
    assert_as_messages(data, rows_of(data))


@pytest.mark.parametrize("order", ["large first", "large last", "mixed"])
def test_many_rows_of_uneven_sizes_are_those_of_the_messages(order):
    """What the first rows need says little of what the last ones do."""
    rng = random.Random(11)
    strings = [rng.randbytes(rng.choice((0, 9, 40))) for _ in range(300)]
    strings += [b"KEYS\x01" + b"k\xff " * rng.choice((1, 3000)) for _ in range(40)]
    strings += [b"%d\x01v\x02" % i * rng.choice((1, 5000 // len(str(i)))) for i in range(40)]
    strings += [b"TAGS\x01" + b"t" * 20_000, b"UNIQ_KEY\x01" + "é".encode() * 9000]
    rng.shuffle(strings)
    if order != "mixed":
        strings.sort(key=len, reverse=order == "large first")
    hosts = [HOST, bytes(range(100, 108))]
    records = [
        record_with(topic=b"t" * (i % 50), properties=each, hosts=(hosts[i % 2], hosts[i % 3 // 2]))
        for i, each in enumerate(strings)
    ]
    data = b"".join(records)
    assert_as_messages(data, rows_of(data, len(strings)))


@given(garbage, st.lists(st.integers(-2, 120), min_size=18, max_size=18), subsets)
def test_rows_made_up_are_laid_out_or_refused_the_same(data, numbers, wanted):
    columns_of(data, struct.pack(layout.ROW_FORMAT, *numbers), wanted)


@given(garbage, st.binary(max_size=208), subsets)
def test_garbage_rows_are_laid_out_or_refused_the_same(data, rows, wanted):
    columns_of(data, rows, wanted)


def test_rows_that_may_hold_more_than_a_column_are_refused_the_same():
    buffer = bytes(40_000)
    large = struct.pack(layout.ROW_FORMAT, *[0] * 15, 40_000, 32_000, 32_000)
    counts = {ArrowColumn.TOPIC: 22_370, ArrowColumn.TAGS: 22_370, ArrowColumn.BODY: 53_688}
    calls = {
        column.name: ("arrow_columns", buffer, large * count, int(column))
        for column, count in counts.items()
    }
    # What is not asked for does not count.
    calls["hosts"] = ("arrow_columns", buffer, large * 53_688, int(ArrowColumn.BORN_HOST))
    assert differences(calls) == {}
    with pytest.raises(ValueError, match="take fewer"):
        pure.arrow_columns(buffer, large * 53_688, int(ArrowColumn.BODY))


@pytest.mark.parametrize("wanted", [-1, 1 << 9, 1 << 40, (1 << 80) | 1])
def test_bits_that_name_no_column_are_passed_over(wanted):
    data = record_with(body=b"body")
    assert_same("arrow_columns", data, rows_of(data), wanted)
