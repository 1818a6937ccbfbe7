"""What is written is read again, for every codec of the format."""

import math
import struct
from datetime import datetime

from hypothesis import assume, given
from hypothesis import strategies as st
from log_strategies import (
    bodies,
    i16,
    i32,
    i64,
    logs,
    names,
    plain_texts,
    property_bytes,
)

from rocketlake.format import java_json, layout
from rocketlake.format.batch import BatchEntry, decode_entries, encode_entries
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.index import (
    IndexEntry,
    IndexHeader,
    entries_for,
    file_size,
    find_slots,
    key_hash,
    lookup,
    prove_slots,
    put,
)
from rocketlake.format.names import index_name, is_index_name, offset_name, parse_offset_name
from rocketlake.format.queue_unit import (
    BatchUnit,
    ExtUnit,
    QueueUnit,
    decode_batch_units,
    decode_units,
    ext_address,
    ext_offset,
    filter_units,
    is_ext_address,
    valid_prefix,
)
from rocketlake.format.record import (
    Check,
    Envelope,
    StopReason,
    decode_properties,
    encode,
    encode_batch,
    encode_properties,
    reencode,
    scan,
    seal,
)
from rocketlake.format.timer import TimerCheckpoint, TimerUnit, WheelSlot
from rocketlake.model.compression import Compression, deflate, flagged, inflate
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.ids import OffsetMessageId, UniqueId
from rocketlake.model.message import Message

addresses = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
endpoints = st.builds(Endpoint, addresses, i32)
filled_texts = plain_texts.filter(bool)
tables = st.dictionaries(names.filter(lambda n: n != "__CRC32#"), filled_texts, max_size=5)
envelopes = st.builds(
    Envelope,
    queue_id=i32,
    born_timestamp=i64,
    born_host=endpoints,
    store_host=endpoints,
    sys_flag=i32,
    reconsume_times=i32,
    prepared_transaction_offset=i64,
    version=st.sampled_from([1, 2]),
    trailing_separator=st.booleans(),
    reserve_crc=st.booleans(),
)
topics = st.text(st.characters(codec="utf-8"), max_size=30)

# --- records ---------------------------------------------------------------------------------


@given(topics, bodies, tables, i32, envelopes, i64, i64, i64)
def test_record_is_read_as_it_was_written(
    topic, body, table, flag, envelope, queue_offset, physical_offset, time
):
    assume(len(topic.encode()) <= 127)
    message = Message(topic=topic, body=body, properties=table, flag=flag)
    record = encode(message, envelope)
    crc = envelope.reserve_crc
    assert seal(record, 0, queue_offset, physical_offset, time, crc) == len(record)
    checks = Check.BODY_CRC | Check.OFFSET | (Check.RECORD_CRC_REQUIRED if crc else 0)
    found = scan(bytes(record), base_offset=physical_offset, checks=checks)
    assert (len(found.columns), found.reason) == (1, StopReason.END_OF_DATA)
    read = found.columns.message(0)
    assert (read.topic, read.stored_body, read.flag) == (topic, body, flag)
    assert {k: v for k, v in read.properties.items() if k != "__CRC32#"} == table
    assert (read.queue_offset, read.physical_offset) == (queue_offset, physical_offset)
    assert (read.store_timestamp, read.store_size) == (time, len(record))
    assert (read.born_host, read.store_host) == (envelope.born_host, envelope.store_host)
    assert read.sys_flag & ~0x30 == envelope.sys_flag & ~0x30
    for name in ("queue_id", "born_timestamp", "reconsume_times", "version"):
        assert getattr(read, name) == getattr(envelope, name)
    assert read.prepared_transaction_offset == envelope.prepared_transaction_offset
    assert reencode(read) == record


@given(st.lists(st.tuples(bodies, tables, i32), max_size=4), envelopes)
def test_batch_is_read_as_it_was_written(inner, envelope):
    messages = [Message(topic="T", body=b, properties=t, flag=f) for b, t, f in inner]
    data, sizes = encode_batch(messages, "T", envelope)
    found = scan(bytes(data), checks=Check.BODY_CRC)
    assert found.columns["size"].tolist() == sizes
    assert found.position == len(data)
    read = [(m.stored_body, m.flag, m.topic) for m in found.columns.messages()]
    assert read == [(body, flag, "T") for body, _, flag in inner]


def has_plain_properties(message):
    """Tell whether the property string is what its map is written as."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in message.properties.items()).encode()
    values = "".join(message.properties.values())
    written = {text, text + b"\x02"} if text else {b""}
    return "\x01" not in values and message.raw_properties in written


@given(logs())
def test_log_of_texts_written_anew_has_the_same_bytes(log):
    for message in scan(log.data, base_offset=log.base_offset, checks=0).columns.messages():
        start = message.physical_offset - log.base_offset
        names_of_checksum = message.raw_properties.count(b"__CRC32#")
        checksums = message.raw_properties[-20:-11].count(b"__CRC32#\x01")
        is_text = has_plain_properties(message) and "\ufffd" not in message.topic
        if is_text and names_of_checksum == checksums:
            assert reencode(message) == log.data[start : start + message.store_size]


# --- properties and batches ------------------------------------------------------------------


@given(st.dictionaries(names, filled_texts), st.booleans())
def test_properties_are_read_as_they_were_written(table, trailing):
    data = encode_properties(table, trailing)
    assert decode_properties(data) == table
    assert list(decode_properties(data)) == list(table)
    assert data.endswith(b"\x02") == (trailing and bool(table))


@given(st.dictionaries(names, st.one_of(st.none(), plain_texts)), st.booleans())
def test_properties_without_a_value_are_lost_and_nothing_else(table, trailing):
    kept = {name: value for name, value in table.items() if value}
    assert decode_properties(encode_properties(table, trailing)) == kept


@given(property_bytes)
def test_properties_read_from_any_bytes_can_be_written_and_read_again(data):
    table = decode_properties(data)
    assume(all("\x01" not in value for value in table.values()))
    assert decode_properties(encode_properties(table, True)) == table


@given(st.lists(st.builds(BatchEntry, bodies, property_bytes, i32), max_size=6))
def test_batch_entries_are_read_as_they_were_written(entries):
    assert decode_entries(encode_entries(entries)) == entries


@given(st.binary(max_size=120))
def test_any_bytes_are_batch_entries_or_refused(data):
    try:
        entries = decode_entries(data)
    except ValueError:
        return
    assert sum(22 + len(e.body) + len(e.raw_properties) for e in entries) == len(data)


# --- queue units -----------------------------------------------------------------------------


@given(st.lists(st.builds(QueueUnit, i64, i32, i64), max_size=8), st.binary(max_size=19))
def test_units_are_read_as_they_were_written(units, rest):
    data = b"".join(unit.encode() for unit in units) + rest
    rows = decode_units(data)
    assert [QueueUnit(*row) for row in rows.tolist()] == units
    good = [unit.physical_offset >= 0 and unit.size > 0 for unit in units]
    assert valid_prefix(rows) == [*good, False].index(False)


@given(st.lists(st.builds(QueueUnit, i64, i32, i64), max_size=8), st.frozensets(i32, max_size=4))
def test_filter_keeps_what_may_be_wanted(units, hashes):
    mask = filter_units(b"".join(unit.encode() for unit in units), hashes)
    low = [struct.unpack(">qi", struct.pack(">qq", 0, u.tags_code)[4:])[1] for u in units]
    wanted = [is_ext_address(u.tags_code) or h in hashes for u, h in zip(units, low, strict=True)]
    assert mask.tolist() == wanted


batch_units = st.builds(
    BatchUnit,
    physical_offset=i64,
    size=i32,
    tags_code=i64,
    store_timestamp=i64,
    base_queue_offset=i64,
    batch_size=i16,
    compacted_offset=i32,
)


@given(st.lists(batch_units, max_size=5))
def test_batch_units_are_read_as_they_were_written(units):
    rows = decode_batch_units(b"".join(unit.encode() for unit in units))
    fields = BatchUnit.__struct_fields__
    assert [BatchUnit(**dict(zip(fields, row[:7], strict=True))) for row in rows.tolist()] == units
    assert not rows["reserved"].any()


@given(i64, i64, st.binary(max_size=60), st.binary(max_size=20), st.binary(max_size=20))
def test_ext_unit_is_read_as_it_was_written(tags_code, time, bitmap, before, behind):
    unit = ExtUnit(tags_code, time, bitmap)
    data = before + unit.encode() + behind
    assert ExtUnit.decode(data, len(before)) == unit


@given(st.binary(max_size=60), st.one_of(st.integers(-5, 70), i64))
def test_any_bytes_are_an_ext_unit_or_none(data, position):
    unit = ExtUnit.decode(data, position)
    assert unit is None or data[position : position + unit.size] == unit.encode()


@given(st.integers(0, 9223372034707292159))
def test_ext_address_stands_for_its_offset(offset):
    assert is_ext_address(ext_address(offset))
    assert ext_offset(ext_address(offset)) == offset


# --- index, checkpoint, timer ----------------------------------------------------------------


@given(st.builds(IndexHeader, i64, i64, i64, i64, i32, i32))
def test_index_header_is_read_as_it_was_written(header):
    assert IndexHeader.decode(header.encode()) == header


@given(st.builds(IndexEntry, i32, i64, i32, i32), st.binary(max_size=9))
def test_index_entry_is_read_as_it_was_written(entry, before):
    assert IndexEntry.decode(before + entry.encode(), len(before)) == entry


@given(st.integers(1, 1000), st.integers(0, 1000))
def test_entries_of_an_index_file_follow_from_its_size(slots, entries):
    assert entries_for(file_size(slots, entries), slots) == entries


@given(st.integers(1, 30), st.lists(st.tuples(plain_texts, st.integers(0, 1 << 40)), max_size=20))
def test_keys_put_into_an_index_are_found_and_prove_its_slots(slots, keys):
    room = len(keys) + 3
    file = bytearray(file_size(slots, room))
    for key, offset in keys:
        assert put(file, slots, room, key_hash("T", key), offset, 1_700_000_000_000, False)
    for key, offset in keys:
        assert offset in lookup(file, slots, key_hash("T", key), 0, (1 << 63) - 1, 100)
    assert prove_slots(file, slots) == bool(keys)
    assert find_slots(file) in (slots, None)


@given(st.binary(max_size=600))
def test_slots_of_any_bytes_are_proven_or_none(data):
    slots = find_slots(data)
    assert slots is None or prove_slots(data, slots)


@given(st.builds(Checkpoint, i64, i64, i64, i64, i64))
def test_checkpoint_is_read_as_it_was_written(checkpoint):
    assert len(checkpoint.encode()) == layout.CHECKPOINT_SIZE
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint
    assert checkpoint.min_timestamp >= 0
    assert checkpoint.min_timestamp_index <= checkpoint.min_timestamp


@given(st.binary(max_size=60))
def test_any_bytes_are_a_checkpoint(data):
    known = data[:40].ljust(40, b"\0")
    assert Checkpoint.decode(data).encode()[:40] == known
    assert TimerCheckpoint.decode(data).encode()[:40] == known


timer_units = st.builds(
    TimerUnit,
    previous_position=i64,
    magic=i32.map(lambda n: n | 1),
    write_time=i64,
    delay=i32,
    physical_offset=i64,
    record_size=i32,
    topic_hash=i32,
)


@given(timer_units, st.binary(max_size=9))
def test_timer_unit_is_read_as_it_was_written(unit, before):
    assert TimerUnit.decode(before + unit.encode(), len(before)) == unit


@given(st.builds(WheelSlot, i64, i64, i64, i32, i32), st.binary(max_size=9))
def test_wheel_slot_is_read_as_it_was_written(slot, before):
    assert WheelSlot.decode(before + slot.encode(), len(before)) == slot


@given(st.builds(TimerCheckpoint, i64, i64, i64, i64, i64, i64, i64))
def test_timer_checkpoint_is_read_as_it_was_written(checkpoint):
    assert TimerCheckpoint.decode(checkpoint.encode()) == checkpoint


# --- names, hosts, ids, bodies ---------------------------------------------------------------


@given(st.integers(0, (1 << 63) - 1))
def test_offset_name_stands_for_its_offset(offset):
    name = offset_name(offset)
    assert len(name) == 20
    assert parse_offset_name(name) == offset


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_offset_names_sort_as_their_offsets(one, other):
    assert (offset_name(one) < offset_name(other)) == (one < other)


@given(st.text(max_size=25))
def test_any_text_is_a_name_of_digits_or_none(text):
    offset = parse_offset_name(text)
    assert (offset is not None) == (text.isascii() and text.isdigit() and len(text) <= 20)
    assert is_index_name(text) == (text.isascii() and text.isdigit() and len(text) == 17)


@given(st.datetimes(min_value=datetime(1970, 1, 1)))  # noqa: DTZ001 - local time, see names.py
def test_index_name_is_17_digits_that_sort_as_time(moment):
    name = index_name(moment)
    assert is_index_name(name)
    assert name[:14] == moment.strftime("%Y%m%d%H%M%S")
    assert int(name[14:]) == moment.microsecond // 1000


@given(endpoints)
def test_endpoint_is_read_as_it_was_written(endpoint):
    assert Endpoint.decode(endpoint.encode()) == endpoint
    assert Endpoint.parse(str(endpoint)) == endpoint


@given(endpoints, i64)
def test_offset_message_id_is_read_as_it_was_written(host, offset):
    text = str(OffsetMessageId(host, offset))
    assert OffsetMessageId.parse(text) == OffsetMessageId(host, offset)
    assert len(text) == (56 if host.is_v6 else 32)
    assert text == text.upper()


u16, u32 = st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 32) - 1)


@given(st.builds(UniqueId, addresses, u16, u32, u32, u16))
def test_unique_id_is_read_as_it_was_written(unique):
    assert UniqueId.parse(str(unique)) == unique
    assert len(str(unique)) == 24 + 2 * len(unique.address)


@given(bodies, st.sampled_from(Compression), i32)
def test_body_is_inflated_as_it_was_deflated(body, kind, sys_flag):
    assert inflate(deflate(body, kind), flagged(sys_flag, kind)) == body


@given(st.binary(max_size=80), st.sampled_from(Compression))
def test_any_bytes_are_inflated_or_refused(data, kind):
    for body in (data, deflate(data, kind)[:-1] + data[:3]):
        try:
            plain = inflate(body, flagged(0, kind), size_max=1000)
        except ValueError:
            continue
        assert len(plain) <= 1000


# --- JSON ------------------------------------------------------------------------------------

json_texts = st.text(st.characters(codec="utf-8"), max_size=10)
json_keys = st.one_of(json_texts.filter(lambda key: key != "$ref"), i64)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        i64,
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        json_texts,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(json_keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def without_nulls(value):
    """Leave members out that are null, as the reference does."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def typed(value):
    """Tell 1, 1.0 and True apart, and keep the order of members."""
    if isinstance(value, dict):
        return [(type(k).__name__, k, typed(v)) for k, v in value.items()]
    if isinstance(value, list):
        return [typed(v) for v in value]
    sign = math.copysign(1, value) if isinstance(value, float) else None
    return type(value).__name__, value, sign


@given(json_values, st.booleans())
def test_json_is_read_as_it_was_written(value, pretty):
    read = java_json.loads(java_json.dumps(value, pretty=pretty))
    assert typed(read) == typed(without_nulls(value))


@given(json_values, st.booleans())
def test_json_written_read_and_written_again_has_the_same_bytes(value, pretty):
    data = java_json.dumps(without_nulls(value), pretty=pretty)
    assert java_json.dumps(java_json.loads(data), pretty=pretty) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(data):
    try:
        value = java_json.loads(data)
    except ValueError:
        return
    again = java_json.loads(java_json.dumps(value, pretty=False))
    assert typed(again) == typed(without_nulls(value))
