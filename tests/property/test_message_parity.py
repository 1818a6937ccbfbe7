"""Both kernels make the same messages, from fields, from rows and from queue units."""

import pickle
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import damaged_logs, garbage, hosts, i16, i32, i64, logs, property_bytes
from twins import answer, native, needs_native, scan_with

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format._kernel.codes import Check, ReadStop, StopReason
from rocketlake.format._kernel.pure.message import FIELDS
from rocketlake.model.endpoint import Endpoint

pytestmark = needs_native

NO_LIMITS = (0, 0, 1 << 62, 1 << 62, 1 << 62)
ALL = (1 << 63) - 1
DERIVED = ("msg_id", "tags", "keys", "unique_key")
HASH = struct.pack("=i", pure.java_hash("TagA"))

pieces = st.sampled_from(
    [
        *(b"KEYS", b"TAGS", b"UNIQ_KEY", b"KEY", b"KEYSX", b"x", b" ", b"k1", "名".encode()),
        *(b"\x01", b"\x01", b"\x02", b"\x02", b"\xff", b"\xe4\xb8", b"\xf0\x9f"),
    ]
)
property_strings = st.one_of(st.lists(pieces, max_size=24).map(b"".join), property_bytes)


def fields_of(message):
    """Everything a message tells but its plain body, in pure's order."""
    return {name: getattr(message, name) for name in (*DERIVED, *FIELDS)}


def body_of(message):
    try:
        return message.body
    except ValueError as error:
        return str(error)


def assert_same_messages(ours, theirs):
    assert [fields_of(m) for m in ours] == [fields_of(m) for m in theirs]
    assert [body_of(m) for m in ours] == [body_of(m) for m in theirs]


values = st.fixed_dictionaries(
    {
        "topic": st.text(max_size=5),
        "queue_id": i32,
        "queue_offset": i64,
        "physical_offset": i64,
        "store_size": i32,
        "store_timestamp": i64,
        "born_timestamp": i64,
        "born_host": hosts.map(Endpoint.decode),
        "store_host": hosts.map(Endpoint.decode),
        "flag": i32,
        "sys_flag": i32,
        "body_crc": i32,
        "reconsume_times": i32,
        "prepared_transaction_offset": i64,
        "raw_properties": property_strings,
        "stored_body": st.binary(max_size=20),
        "version": st.sampled_from([1, 2]),
    },
    optional={
        "properties": st.one_of(
            st.none(), st.dictionaries(st.sampled_from(["KEYS", "TAGS", "a"]), st.text(max_size=5))
        )
    },
)
PLAIN = {
    **dict.fromkeys(FIELDS, 0),
    "topic": "T",
    "raw_properties": b"KEYS\x01k\x02",
    "stored_body": b"b",
    "version": 1,
    "born_host": Endpoint(bytes(4), 1),
    "store_host": Endpoint(bytes(16), 2),
    "properties": None,
}


# --- one message -----------------------------------------------------------------------------


@given(values)
def test_message_of_any_fields_is_the_same(given_values):
    ours = native.StoredMessage(**given_values)
    theirs = pure.StoredMessage(**given_values)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert_same_messages([ours], [theirs])
    # Once the map was made, one property is looked up in it: the answers stay.
    assert fields_of(ours) == fields_of(theirs)


@given(property_strings)
def test_property_found_alone_is_the_one_of_the_map(raw):
    for kernel in (native, pure):
        message = kernel.StoredMessage(**PLAIN | {"raw_properties": raw})
        found = (message.tags, message.keys, message.unique_key)
        table = message.properties
        keys = [key for key in table.get("KEYS", "").split(" ") if key]
        assert found == (table.get("TAGS"), keys, table.get("UNIQ_KEY"))
        assert found == (message.tags, message.keys, message.unique_key)


@given(values, st.sampled_from(FIELDS), values)
def test_messages_are_equal_in_both_or_in_none(given_values, name, others):
    changed = dict(given_values)
    if name in others:
        changed[name] = others[name]
    same = [
        kernel.StoredMessage(**given_values) == kernel.StoredMessage(**changed)
        for kernel in (native, pure)
    ]
    assert same[0] == same[1]
    if changed == given_values:
        assert same == [True, True]


@pytest.mark.parametrize("kernel", [native, pure], ids=["native", "pure"])
def test_message_equals_one_whose_map_was_made(kernel):
    one, other = kernel.StoredMessage(**PLAIN), kernel.StoredMessage(**PLAIN)
    assert one.properties == {"KEYS": "k"}
    assert one == other
    assert other == one
    assert one != kernel.StoredMessage(**PLAIN | {"properties": {"KEYS": "other"}})
    assert one != "text"


@pytest.mark.parametrize("kernel", [native, pure], ids=["native", "pure"])
def test_pickled_message_comes_back_as_the_kernel_in_use(kernel):
    message = kernel.StoredMessage(**PLAIN | {"properties": {"a": "b"}})
    back = pickle.loads(pickle.dumps(message))
    assert fields_of(back) == fields_of(message)


def refused_cases():
    for name in FIELDS:
        if isinstance(PLAIN[name], int) and name != "version":
            yield name, 1 << 70
            yield name, -(1 << 63) - 1
    for name in ("queue_id", "store_size", "flag", "sys_flag", "body_crc", "reconsume_times"):
        yield name, 1 << 31
        yield name, -(1 << 31) - 1
    yield from (("version", 0), ("version", 3), ("topic", b"T"), ("topic", None))
    yield from (("raw_properties", "text"), ("stored_body", bytearray(b"b")))
    for name in ("born_host", "store_host"):
        yield from ((name, Endpoint(b"", 1)), (name, Endpoint(bytes(4), 1 << 40)))


@pytest.mark.parametrize(("name", "value"), list(refused_cases()))
def test_field_that_does_not_fit_is_refused_the_same(name, value):
    texts = []
    for kernel in (native, pure):
        with pytest.raises((ValueError, TypeError)) as error:
            kernel.StoredMessage(**PLAIN | {name: value})
        texts.append((error.type, str(error.value)))
    assert texts[0] == texts[1]


def test_message_that_was_never_made_does_not_end_the_process():
    empty = native.StoredMessage.__new__(native.StoredMessage)
    assert (empty.keys, empty.tags, empty.body) == ([], None, None)


# --- rows ------------------------------------------------------------------------------------


def rows_of(data):
    return scan_with(pure, data, 0, len(data), 0, 0)[3]


@given(logs())
def test_rows_of_a_log_become_the_same_messages(log):
    rows = rows_of(log.data)
    ours, theirs = native.make_messages(log.data, rows), pure.make_messages(log.data, rows)
    assert len(ours) == len(log.positions)
    assert_same_messages(ours, theirs)


def test_messages_of_one_topic_share_its_text():
    record = bytes(pure.encode(b"Topic", b"", b"", 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, 1, False))
    one, other = native.make_messages(record * 2, rows_of(record * 2))
    assert one.topic is other.topic


@given(garbage, st.lists(st.integers(-2, 120), min_size=18, max_size=18))
def test_rows_made_up_become_messages_or_are_refused_the_same(data, numbers):
    row = struct.pack(layout.ROW_FORMAT, *numbers)
    ours, theirs = (answer(kernel, "make_messages", data, row)[0] for kernel in (native, pure))
    if theirs[0] == "raised":
        assert ours == theirs
    else:
        assert_same_messages(ours[1], theirs[1])


# --- units -----------------------------------------------------------------------------------

codes = st.one_of(st.just(pure.java_hash("TagA")), st.integers(-9, 9), st.just(-(1 << 40)), i64)


@st.composite
def reads(draw):
    """A log, whole or damaged, the units that may point into it, and what is asked."""
    log = draw(st.one_of(logs(), damaged_logs()))
    is_batch = draw(st.booleans())
    units = bytearray()
    for position in draw(st.lists(st.sampled_from([*log.positions, 5, 1 << 40]), max_size=6)):
        size = (
            struct.unpack_from(">i", log.data.ljust(position + 4, b"\0"), position)[0]
            if (position < 1 << 30)
            else 100
        )
        offset = log.base_offset + position
        units += struct.pack(
            ">qiq", offset, draw(st.sampled_from([size, size, size, 91])), draw(codes)
        )
        if is_batch:
            units += struct.pack(">qqhii", 0, draw(st.integers(-2, 9)), draw(i16), -1, 0)
    units += draw(st.binary(max_size=19))
    return {
        "units": bytes(units),
        "start": draw(st.integers(0, 2)),
        "unit_size": layout.BATCH_UNIT_SIZE if is_batch else layout.UNIT_SIZE,
        "queue_offset": draw(st.one_of(st.integers(0, 5), i64)),
        "stop_offset": draw(st.one_of(st.just(ALL), st.integers(0, 9), i64)),
        "log": log.data,
        "log_size": draw(st.one_of(st.just(len(log.data)), st.integers(-1, 300), i64)),
        "log_base": log.base_offset,
        "log_end": log.base_offset + draw(st.sampled_from([len(log.data), 200, 1 << 62])),
        "checks": draw(st.integers(0, 31)),
    }


limits = st.one_of(
    st.just(NO_LIMITS),
    st.tuples(*[st.integers(0, 4)] * 4, st.integers(0, 400)),
    st.tuples(*[st.sampled_from([0, 1, 3, 1 << 62])] * 5),
)
hash_sets = st.one_of(st.none(), st.just(HASH), st.just(b""), st.just(bytes(10)))


def read_with(kernel, asked, hashes, bounds, release=False):
    messages = []
    outcome, _ = answer(kernel, "read_units", messages, *asked.values(), hashes, bounds, release)
    return messages, outcome


@given(reads(), hash_sets, limits, st.booleans())
def test_units_are_read_the_same(asked, hashes, bounds, release):
    ours, our_outcome = read_with(native, asked, hashes, bounds, release)
    theirs, their_outcome = read_with(pure, asked, hashes, bounds)
    assert our_outcome == their_outcome
    assert_same_messages(ours, theirs)


@given(reads(), hash_sets, limits, st.booleans())
def test_ranges_of_records_are_found_the_same(asked, hashes, bounds, release):
    arguments = (*asked.values(), hashes, bounds)
    ours, _ = answer(native, "read_ranges", *arguments, release)
    theirs, _ = answer(pure, "read_ranges", *arguments, False)
    assert ours == theirs
    messages, (_, read) = read_with(pure, asked, hashes, bounds)
    if ours[0] == "tuple" and not asked["checks"] & Check.HEAD_ONLY:
        ranges, *outcome = ours[1]
        assert tuple(outcome) == read
        sizes = sum(end - begin for begin, end in ranges)
        assert sizes == sum(message.store_size for message in messages)
        assert all(one[1] != other[0] for one, other in pairwise(ranges))


def test_records_behind_each_other_are_one_range():
    data, units = log_of(4)
    size = len(data) // 4
    skipped = units[:20] + units[40:]
    for kernel in (native, pure):
        found = kernel.read_ranges(*asked_of(data, units).values(), None, NO_LIMITS, False)
        assert found == ([(0, 4 * size)], 4, ReadStop.END, 0, 54, 4, 4 * size)
        found = kernel.read_ranges(*asked_of(data, skipped).values(), None, NO_LIMITS, False)
        assert found[0] == [(0, size), (2 * size, 4 * size)]


@given(reads(), st.tuples(st.sampled_from([0, 1, 2, 1 << 62]), st.sampled_from([0, 300, 1 << 62])))
def test_units_are_read_as_columns_the_same(asked, bounds):
    for release in (False, True):
        ours, _ = answer(native, "read_columns", *asked.values(), bounds, release)
        theirs, _ = answer(pure, "read_columns", *asked.values(), bounds, False)
        assert ours == theirs


@given(reads(), st.tuples(st.sampled_from([0, 1, 2, 1 << 62]), st.sampled_from([0, 300, 1 << 62])))
def test_columns_hold_the_messages_that_units_give(asked, bounds):
    data, rows, *outcome = pure.read_columns(*asked.values(), bounds, False)
    bounds = (0, 0, bounds[0], 1 << 62, bounds[1])
    messages, (_, read) = read_with(pure, asked, None, bounds)
    assert tuple(outcome) == read[:4]
    assert_same_messages(native.make_messages(data, rows), messages)


def log_of(count):
    """Records of one size and their plain units."""
    data, units = bytearray(), b""
    for number in range(count):
        made = pure.encode(
            *(b"Topic", b"%03d" % number, b"TAGS\x01TagA\x02", 0, 0, 0, 0),
            *(bytes(8), bytes(8), 0, 0, 1, False),
        )
        pure.seal(made, 0, 7, 1000 + len(data), 0, False)
        units += struct.pack(">qiq", 1000 + len(data), len(made), pure.java_hash("TagA"))
        data += made
    return bytes(data), units


def asked_of(data, units, **changes):
    asked = {
        "units": units, "start": 0, "unit_size": 20, "queue_offset": 50, "stop_offset": ALL,
        "log": data, "log_size": len(data), "log_base": 1000, "log_end": 1000 + len(data),
        "checks": Check.BODY_CRC | Check.OFFSET,
    }  # fmt: skip
    return asked | changes


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("release", [False, True])
def test_many_units_are_read_in_order(count, release):
    data, units = log_of(count)
    size = len(data) // count
    messages, (_, outcome) = read_with(native, asked_of(data, units), HASH, NO_LIMITS, release)
    assert outcome == (count, ReadStop.END, 0, 50 + count, count, size * count)
    assert [m.body for m in messages] == [b"%03d" % i for i in range(count)]
    assert [m.queue_offset for m in messages] == list(range(50, 50 + count))


@pytest.mark.parametrize("kernel", [native, pure], ids=["native", "pure"])
def test_reading_stops_before_what_it_does_not_take(kernel):
    data, units = log_of(6)
    size = len(data) // 6
    full = (2, 2 * size, 4, 1 << 62, 1 << 62)
    bodies = bytearray(data)
    bodies[3 * size + 88] ^= 1
    cases = {
        "full by messages": (asked_of(data, units), full, ReadStop.FULL, 0, 2),
        "ended by messages": (asked_of(data, units), (0, 0, 9, 3, 1 << 62), ReadStop.FULL, 0, 3),
        "full by bytes": (asked_of(data, units), (0, 0, 9, 9, 5 * size), ReadStop.FULL, 0, 5),
        "the first passes": (asked_of(data, units), (0, 0, 0, 0, 1), ReadStop.FULL, 0, 1),
        "the end": (asked_of(data, units, stop_offset=54), NO_LIMITS, ReadStop.END, 0, 4),
        "outside": (asked_of(data, units, log_end=1000 + 3 * size), NO_LIMITS, 2, 0, 3),
        "before": (asked_of(data, units, log_base=1001), NO_LIMITS, ReadStop.OUTSIDE, 0, 0),
        "damaged": (
            *(asked_of(bytes(bodies), units), NO_LIMITS),
            *(ReadStop.DAMAGED, StopReason.BAD_CRC, 3),
        ),
        "torn": (asked_of(data[:-1], units), NO_LIMITS, ReadStop.DAMAGED, StopReason.TORN, 5),
    }
    found = {}
    for name, (asked, bounds, *_) in cases.items():
        messages, (_, outcome) = read_with(kernel, asked, None, bounds)
        found[name] = (outcome[1], outcome[2], outcome[0])
        assert len(messages) == outcome[0], name
        assert outcome[3] == 50 + outcome[0], name
        assert outcome[4] == bounds[0] + outcome[0], name
    assert found == {name: tuple(case[2:]) for name, case in cases.items()}


@pytest.mark.parametrize("kernel", [native, pure], ids=["native", "pure"])
def test_units_with_other_hashes_are_passed_over_and_not_read(kernel):
    data, units = log_of(3)
    other = units[:12] + bytes(8) + units[20:]
    ext = units[:12] + struct.pack(">q", layout.EXT_ADDRESS_MAX) + units[20:]
    broken = b"\xff" * 91 + data[91:]
    messages, (_, outcome) = read_with(kernel, asked_of(broken, other), HASH, NO_LIMITS)
    assert ([m.queue_offset for m in messages], outcome[:2]) == ([51, 52], (3, ReadStop.END))
    messages, _ = read_with(kernel, asked_of(data, ext), HASH, NO_LIMITS)
    assert [m.queue_offset for m in messages] == [50, 51, 52]


@pytest.mark.parametrize("change", [{"unit_size": 21}, {"start": -1}, {"start": 1 << 70}])
@pytest.mark.parametrize("name", ["read_units", "read_columns", "read_ranges"])
def test_question_without_sense_is_refused_the_same(name, change):
    asked = asked_of(*log_of(1), **change)
    more = ((1, 1), False) if name == "read_columns" else (None, NO_LIMITS, False)
    first = ([],) if name == "read_units" else ()
    ours, theirs = (answer(k, name, *first, *asked.values(), *more)[0] for k in (native, pure))
    assert ours == theirs
    assert ours[:2] == ("raised", "ValueError")


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("limit", [-1, (1 << 62) + 1, 1 << 90])
def test_limit_out_of_range_is_refused_the_same(place, limit):
    bounds = tuple(limit if i == place else 1 for i in range(5))
    outcomes = [
        read_with(kernel, asked_of(*log_of(1)), None, bounds)[1] for kernel in (native, pure)
    ]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == ("raised", "ValueError")
