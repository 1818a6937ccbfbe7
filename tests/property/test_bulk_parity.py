"""Both kernels stage the same records, and append staged ones the same, garbage included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import hosts, i32, i64
from twins import needs_native

from rocketlake.format._kernel import pure
from rocketlake.format._kernel.codes import BulkStop
from rocketlake.format.record import Check, scan

try:
    from rocketlake.format._kernel import native
except ImportError:
    native = None

pytestmark = needs_native

TOPICS = [b"T", b"another-topic", b"x" * 130]
texts = st.sampled_from([b"", b"a\x01b\x02", b"TAGS\x01t\x02KEYS\x01k\x02", b"odd", b"\x02"])
rows = st.tuples(
    st.binary(max_size=40), texts, st.integers(-1, 3), st.sampled_from([-3, -2, -1, 0, 1, 7]), i32
)
shapes = st.tuples(hosts, hosts, st.booleans(), st.booleans())


def columns(values):
    """Return the buffers of rows."""
    bodies = b"".join(v[0] for v in values)
    properties = b"".join(v[1] for v in values)
    ends = [np.cumsum([0, *(len(v[k]) for v in values)], dtype=np.int64) for k in (0, 1)]
    table = np.array([(v[2], v[3], v[4], v[4] // 2) for v in values], np.int32).reshape(-1, 4)
    return bodies, ends[0], properties, ends[1], table


def encode(kernel, values, shape, versions=(1, 1, 2)):
    born_host, store_host, trailing, reserve_crc = shape
    try:
        return kernel.encode_rows(
            *columns(values),
            *(TOPICS, versions, 1234567, born_host, store_host, trailing, reserve_crc),
        )
    except ValueError as error:
        return str(error)


@given(st.lists(rows, max_size=6), shapes)
def test_rows_are_staged_the_same(values, shape):
    assert encode(native, values, shape) == encode(pure, values, shape)


def append(kernel, data, routes, offsets, *, at=3, room=600, position=0, with_crc=False, place=77):
    buffer = bytearray(b"." * room)
    table = np.array(routes, np.int64).reshape(-1, 4)
    slots = np.array(offsets, np.int64)
    try:
        done = kernel.append_rows(buffer, at, data, position, table, slots, place, 99, with_crc)
    except ValueError as error:
        done = str(error)
    return done, bytes(buffer), table.tolist(), slots.tolist()


route = st.tuples(
    st.sampled_from([0, 2, 4, -1, 9, (1 << 63) - 1]),
    st.sampled_from([0, 1, 2, 2, 3, -1]),
    st.sampled_from([0, 1, 5, -1]),
    i64,
)


@given(
    st.lists(rows, max_size=6),
    shapes,
    st.lists(route, max_size=3),
    st.lists(i64, max_size=6),
    st.integers(-1, 700),
    st.booleans(),
    i64,
)
def test_rows_are_appended_the_same(values, shape, routes, offsets, room, with_crc, place):
    data = encode(pure, [(*v[:2], max(v[2], 0) % 3, *v[3:]) for v in values], shape)
    options = {"room": max(room, 0), "at": min(room, 3), "with_crc": with_crc, "place": place}
    assert append(native, data, routes, offsets, **options) == append(
        pure, data, routes, offsets, **options
    )


@given(st.lists(rows, min_size=1, max_size=3), st.data())
def test_garbage_is_answered_the_same(values, data):
    shape = (bytes(8), bytes(8), True, data.draw(st.booleans()))
    good = encode(pure, [(*v[:2], abs(v[2]) % 3, *v[3:]) for v in values], shape)
    for _ in range(data.draw(st.integers(0, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    routes, slots = [(0, 2, 1, 0), (2, 3, 0, 0), (5, 1, 0, 0)], [10, 20, 30, 40, 50, 60]
    with_crc = data.draw(st.booleans())
    position = data.draw(st.integers(-1, 20))
    answers = [
        append(kernel, cut, routes, slots, with_crc=with_crc, position=position)
        for kernel in (pure, native)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kernel", [pure, native])
def test_rows_take_turns_follow_keys_and_are_sealed(kernel):
    values = [(b"b%d" % i, b"", 0, -1, 0) for i in range(5)] + [(b"key", b"", 1, -2, -7)]
    data = encode(kernel, values, (bytes(8), bytes(8), True, True))
    routes, slots = [(0, 3, 2, 0), (3, 4, 0, 0)], [100, 200, 300, 0, 0, 0, 4]
    done, written, routes, slots = append(
        kernel, data, routes, slots, at=0, with_crc=True, room=4096
    )
    assert done == (BulkStop.DONE, 6, len(data), len(data))
    found = scan(
        written[: len(data)],
        base_offset=77,
        checks=Check.BODY_CRC | Check.RECORD_CRC_REQUIRED | Check.OFFSET,
    ).columns
    assert found["queue_id"].tolist() == [2, 0, 1, 2, 0, 3]
    assert found["queue_offset"].tolist() == [300, 100, 200, 301, 101, 4]
    assert found["store_timestamp"].tolist() == [99] * 6
    assert slots == [102, 201, 302, 0, 0, 0, 5]
    assert [route[2] for route in routes] == [1, 0]
    assert sum(route[3] for route in routes) == len(data)
