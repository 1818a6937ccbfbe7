"""What dispatch takes from records: tags codes, traits, keys, and entries in one go."""

import numpy as np
import pytest
from record_makers import VECTOR, envelope

from rocketlake.format import index
from rocketlake.format.dispatch import KeyEntries, Trait, dispatch_columns, key_entries, put_entries
from rocketlake.format.record import encode, scan, seal
from rocketlake.model.hashes import java_hash, key_hash
from rocketlake.model.message import Message

TIME = 1_700_000_000_000


def columns_of(*messages, sys_flags=()):
    """Scan records of these messages, laid behind each other."""
    log = bytearray()
    for i, message in enumerate(messages):
        flag = sys_flags[i] if i < len(sys_flags) else 0
        record = encode(message, envelope(sys_flag=flag))
        seal(record, 0, i, len(log), TIME + 1000 * i, False)
        log += record
    found = scan(bytes(log))
    assert len(found.columns) == len(messages)
    return found.columns


def message(properties=None, topic="T", **fields):
    return Message(topic=topic, body=b"b", properties=properties or {}, **fields)


def with_properties(raw):
    """A record whose property string is exactly this."""
    record = bytearray(VECTOR[:105]) + raw
    record[0:4] = len(record).to_bytes(4, "big")
    record[103:105] = len(raw).to_bytes(2, "big")
    found = scan(bytes(record))
    assert len(found.columns) == 1
    return found.columns


def keys_of(columns):
    hashes, rows = key_entries(columns)
    return list(zip(hashes.tolist(), rows.tolist(), strict=True))


# --- columns ---------------------------------------------------------------------------------


def test_tags_code_of_the_spec_vector():
    found = dispatch_columns(scan(VECTOR).columns)
    assert found.tags_codes.tolist() == [2598919]
    assert found.traits.tolist() == [Trait.ENTERS_QUEUE | Trait.IS_INDEXED]


def test_tags_codes_are_signed_hashes_over_utf16():
    tags = [None, "TagA", "标签", "😀", "one much longer than the others"]
    found = dispatch_columns(columns_of(*(message(tags=tag) for tag in tags)))
    assert found.tags_codes.tolist() == [0, *(java_hash(tag) for tag in tags[1:])]
    assert java_hash(tags[-1]) < 0
    assert found.tags_codes.dtype == np.int64


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        (b"TAGS\x01a\x02TAGS\x01b\x02", "b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", "a"),
        (b"TAGS\x01\x02", None),
        (b"TAGS\x02", None),
        (b"TAGS\x01a\x01b", "a\x01b"),
        (b"XTAGS\x01a\x02", None),
        (b"x\x01TAGS\x02", None),
        (b"TAGS\x01\xff", "\ufffd"),
        (b"", None),
    ],
)
def test_tag_is_read_as_the_map_of_properties_has_it(raw, tag):
    codes = dispatch_columns(with_properties(raw)).tags_codes
    assert codes.tolist() == [0 if tag is None else java_hash(tag)]


def test_traits_follow_the_transaction():
    flags = [0x0, 0x4, 0x8, 0xC]
    found = dispatch_columns(columns_of(*[message()] * 4, sys_flags=flags))
    both = Trait.ENTERS_QUEUE | Trait.IS_INDEXED
    assert found.traits.tolist() == [both, Trait.IS_INDEXED, both, 0]


@pytest.mark.parametrize(
    "name",
    ["DELAY", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"],
)
def test_record_with_a_property_that_changes_its_way_is_special(name):
    found = dispatch_columns(columns_of(message({name: "1"}), message({name + "S": "1"})))
    assert [bool(traits & Trait.IS_SPECIAL) for traits in found.traits] == [True, False]


def test_inner_batch_is_special_by_its_flag_alone():
    found = dispatch_columns(columns_of(message(), message(), sys_flags=[0x80, 0x40]))
    assert [bool(traits & Trait.IS_SPECIAL) for traits in found.traits] == [True, False]


def test_no_records_give_empty_columns():
    columns = scan(b"").columns
    assert len(dispatch_columns(columns).tags_codes) == 0
    assert keys_of(columns) == []


def test_part_of_the_rows_is_read_alone():
    columns = columns_of(*(message(tags=tag, keys=[tag]) for tag in "abcdef"))
    columns.rows = columns.rows[1::2]
    assert dispatch_columns(columns).tags_codes.tolist() == [98, 100, 102]
    assert keys_of(columns) == [(key_hash("T", key), row) for row, key in enumerate("bdf")]


# --- keys ------------------------------------------------------------------------------------


def test_unique_key_comes_first_then_the_others_as_they_stand():
    one = message({"KEYS": "k2 k1", "UNIQ_KEY": "u"})
    columns = columns_of(one, message(topic="Other", keys=["k1"]), message())
    assert keys_of(columns) == [
        (key_hash("T", "u"), 0),
        (key_hash("T", "k2"), 0),
        (key_hash("T", "k1"), 0),
        (key_hash("Other", "k1"), 1),
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("  spaced   keys ", ["spaced", "keys"]),
        (" ", []),
        ("a\tb", ["a\tb"]),
        ("é 标", ["é", "标"]),
    ],
)
def test_keys_are_cut_at_single_spaces(text, keys):
    found = keys_of(columns_of(message({"KEYS": text})))
    assert found == [(key_hash("T", key), 0) for key in keys]


def test_what_was_rolled_back_has_no_keys_and_what_was_prepared_has():
    one = message(keys=["k"])
    columns = columns_of(one, one, one, one, sys_flags=[0xC, 0x4, 0x8, 0x0])
    assert [row for _, row in keys_of(columns)] == [1, 2, 3]


def test_unique_key_with_spaces_is_one_key():
    assert keys_of(columns_of(message({"UNIQ_KEY": "a b"}))) == [(key_hash("T", "a b"), 0)]


# --- entries ---------------------------------------------------------------------------------


def test_entries_in_one_go_are_the_same_bytes_as_one_by_one():
    slots, room = 7, 40
    rng = np.random.default_rng(4)
    numbers = np.arange(30)
    hashes = rng.integers(0, 1 << 31, 30, np.int32)
    entries = KeyEntries(hashes, numbers * 100, TIME + numbers * 700)
    for every in (False, True):
        wanted = bytearray(index.file_size(slots, room))
        for number in range(30):
            place = (int(hashes[number]), number * 100, TIME + number * 700)
            assert index.put(wanted, slots, room, *place, every)
        file = bytearray(len(wanted))
        for start, stop in ((0, 11), (11, 11), (11, None)):
            part = entries.part(start, stop)
            assert put_entries(file, (slots, room), part, count_every_put=every) == len(part)
        assert file == wanted


def test_full_file_takes_no_more_entries():
    file = bytearray(index.file_size(3, 5))
    entries = KeyEntries(np.arange(9, dtype=np.int32), np.arange(9), np.arange(9))
    assert put_entries(file, (3, 5), entries) == 4
    before = bytes(file)
    assert put_entries(file, (3, 5), entries) == 0
    assert file == before


def test_entries_for_a_buffer_of_another_shape_are_refused():
    entries = KeyEntries(np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="100 bytes do not hold 10 slots and 30 entries"):
        put_entries(bytearray(100), (10, 30), entries)


def test_walk_takes_the_begin_of_the_file_as_the_time_of_its_first_entry():
    """As RocketMQ does: the first entry of a follow-up file counts from the end of another."""
    file = bytearray(index.file_size(1, 5))
    file[:40] = index.IndexHeader(TIME, TIME, 9, 9, 0, 0).encode()
    index.put(file, 1, 5, 7, 100, TIME + 60_000, False)
    index.put(file, 1, 5, 7, 200, TIME + 61_500, False)
    found = np.zeros(5, np.int64)
    assert index.walk(file, 1, 7, 0, TIME + 60_000, TIME + 60_000, found) == (1, 0)
    assert found[0] == 100
    assert index.walk(file, 1, 7, 0, TIME + 61_000, TIME + 61_000, found) == (1, 0)
    assert found[0] == 200


def test_walk_goes_on_where_it_stopped():
    file = bytearray(index.file_size(2, 9))
    for number in range(1, 8):
        index.put(file, 2, 9, 4 if number % 2 else 6, 100 * number, TIME, False)
    found = np.zeros(2, np.int64)
    assert index.walk(file, 2, 4, 0, 0, 1 << 60, found) == (2, 4)
    assert found.tolist() == [700, 500]
    assert index.walk(file, 2, 4, 4, 0, 1 << 60, found) == (2, 0)
    assert found.tolist() == [300, 100]
