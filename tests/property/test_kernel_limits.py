"""Both kernels at the ends of their numbers, where C wraps and Python does not.

What could bring the interpreter down is called in a process of its own.
"""

import struct
import subprocess
import sys
from itertools import product

import pytest
from twins import differences, needs_native

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format.index import IndexEntry, IndexHeader, entry_position, file_size
from rocketlake.model.endpoint import Endpoint

pytestmark = needs_native

MAX, MIN = (1 << 63) - 1, -(1 << 63)
HOST = Endpoint(bytes([10, 0, 0, 2]), 10911).encode()

ASK_BOTH = """
import sys
from types import SimpleNamespace
sys.path[:0] = {path!r}
from twins import answer
from rocketlake.format._kernel import {kernel} as kernel
host, most = bytes(8), 1 << 31
frame = kernel.RecordFrame(b"T", 0, 0, host, host, 0, 0, 1, True, True, most, most, most, False)
print(answer(kernel, {name!r}, *{arguments}))
"""


def apart(kernel, name, arguments):
    """Return what a kernel answers in a process of its own; how the process ended if it died."""
    code = ASK_BOTH.format(path=sys.path, kernel=kernel, name=name, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() if done.returncode == 0 else f"died with {done.returncode}"


# --- far outside, where a wrong sum reads or writes somewhere else ---------------------------

COUNT_OF_2_30 = "bytearray(bytes(36) + (1 << 30).to_bytes(4, 'big') + bytes(960))"
FAR_OUTSIDE = {
    "scan to the smallest end": (
        "scan",
        f"[b'x' * 200, {MAX}, {MIN + 7}, 0, 0, bytearray(104)]",
    ),
    "scan from far to far below": (
        "scan",
        f"[b'x' * 200, {1 << 62}, {-(1 << 62) - 100}, 0, 0, bytearray(104)]",
    ),
    "put with 2^62 slots": (
        "index_put",
        f"[bytearray(1000), {1 << 62}, 3, 123456789, 0, 0, False]",
    ),
    "put with 2^62 + 1 slots": (
        "index_put",
        f"[bytearray(1000), {(1 << 62) + 1}, 3, 123456789, 0, 0, False]",
    ),
    "put with 2^62 entries": (
        "index_put",
        f"[bytearray(1000), 10, {1 << 62}, 5, 0, 0, False]",
    ),
    "put with 2^62 entries and a large count": (
        "index_put",
        f"[{COUNT_OF_2_30}, 10, {1 << 62}, 5, 0, 0, False]",
    ),
    "lookup with 2^62 slots": (
        "index_lookup",
        f"[bytes(1000), {1 << 62}, 123456789, {MIN}, {MAX}, 9]",
    ),
    "lookup with the most slots": (
        "index_lookup",
        f"[bytes(1000), {MAX}, 123456789, {MIN}, {MAX}, 9]",
    ),
    "put of many with 2^62 slots": (
        "put_entries",
        f"[bytearray(1000), {1 << 62}, 3, bytes(8), bytes(16), bytes(16), False]",
    ),
    "put of many with 2^62 entries and a large count": (
        "put_entries",
        f"[{COUNT_OF_2_30}, 10, {1 << 62}, bytes(8), bytes(16), bytes(16), False]",
    ),
    "put of many behind a large count": (
        "put_entries",
        f"[{COUNT_OF_2_30}, 10, 40, bytes(8), bytes(16), bytes(16), False]",
    ),
    "walk with the most slots": (
        "index_walk",
        f"[bytes(1000), {MAX}, 123456789, 0, {MIN}, {MAX}, bytearray(80)]",
    ),
    "walk from the last entry": (
        "index_walk",
        f"[{COUNT_OF_2_30}, 10, 5, {MAX}, {MIN}, {MAX}, bytearray(80)]",
    ),
    "walk from the first entry of all": (
        "index_walk",
        f"[{COUNT_OF_2_30}, 10, 5, {MIN}, {MIN}, {MAX}, bytearray(80)]",
    ),
    "topics of the most rows": (
        "intern_topics",
        f"[b'', bytes(104), {MAX}, bytearray(4)]",
    ),
    "seal at the last position": ("seal", f"[bytearray(200), {MAX}, 0, 0, 0, True]"),
    "append at the last position": (
        "append",
        f"[bytearray(9), {MAX}, None, frame, 0, 0, 0, 0]",
    ),
    "append of the last offsets": (
        "append_batch",
        f"[bytearray(500), 0, [SimpleNamespace(body=b'', flag=0, properties={{}}, keys=[], "
        f"tags=None)] * 3, frame, {MAX}, {MAX}, {MAX}, {MAX}]",
    ),
    "place at the last position": (
        "scan_at",
        f"[bytes(200), ({MAX}).to_bytes(8, sys.byteorder) * 3, 0, bytearray(104), bytearray(1)]",
    ),
}


@pytest.mark.parametrize("case", FAR_OUTSIDE)
def test_numbers_far_outside_are_answered_the_same(case):
    name, arguments = FAR_OUTSIDE[case]
    assert apart("native", name, arguments) == apart("pure", name, arguments)


# --- beyond what C has room for --------------------------------------------------------------


def sealed_record():
    record = pure.encode(b"T", b"body", b"", 0, 0, 0, 0, HOST, HOST, 0, 0, 1, False)
    pure.seal(record, 0, 0, 0, 0, False)
    return record


BEYOND = [1 << 63, -(1 << 63) - 1, 1 << 80]


def test_seal_with_a_number_beyond_64_bits_is_refused_the_same():
    calls = {}
    for place, number in product(range(4), BEYOND):
        numbers = [0, 0, 0, 0]
        numbers[place] = number
        name = ("position", "queue_offset", "physical_offset", "store_timestamp")[place]
        calls[name, number] = ("seal", sealed_record(), *numbers, False)
    assert differences(calls) == {}


def test_version_beyond_32_bits_is_refused_the_same():
    fields = (b"T", b"", b"", 0, 0, 0, 0, HOST, HOST, 0, 0)
    numbers = [1 << 31, 1 << 40, -(1 << 40), 1 << 80]
    assert differences({n: ("encode", *fields, n, False) for n in numbers}) == {}


def test_scan_with_a_number_beyond_64_bits_is_answered_the_same():
    calls = {}
    for place, number in product((1, 2, 3), BEYOND):
        arguments = [bytes(sealed_record()), 0, 94, 0, 0, bytearray(2 * layout.ROW_SIZE)]
        arguments[place] = number
        calls["scan", place, number] = ("scan", *arguments)
    assert differences(calls) == {}


def test_index_with_a_number_beyond_its_field_is_answered_the_same():
    file = bytearray(file_size(5, 10))
    entries = [(1 << 31, 0, 0), (-(1 << 31) - 1, 0, 0), (0, 1 << 63, 0), (0, 0, 1 << 63)]
    calls = {entry: ("index_put", file, 5, 10, *entry, False) for entry in entries}
    calls |= {hash_: ("index_lookup", file, 5, hash_, 0, 0, 9) for hash_ in (1 << 31, -(1 << 63))}
    out = bytearray(8)
    for place, number in product(range(5), (*BEYOND, 1 << 31)):
        arguments = [5, 0, 0, 0, 0]
        arguments[place] = number
        calls["walk", place, number] = ("index_walk", file, *arguments, out)
    for place, number in product(range(2), BEYOND):
        shape = [5, 10]
        shape[place] = number
        calls["put", place, number] = ("put_entries", file, *shape, b"", b"", b"", False)
    assert differences(calls) == {}


class Word(str):
    """A text of a class of its own, as a member of a StrEnum is."""

    __slots__ = ()


def test_text_of_a_class_of_its_own_is_hashed_the_same():
    calls = {
        "java_hash": ("java_hash", Word("TagA")),
        "topic": ("key_hash", Word("TopicTest"), "key1"),
        "key": ("key_hash", "TopicTest", Word("key1")),
    }
    assert differences(calls) == {}


def test_bytes_that_are_no_whole_numbers_are_answered_the_same():
    record, rows = bytes(sealed_record()), bytes(2 * layout.ROW_SIZE)
    place = struct.pack("=qqq", 0, len(record), 0)
    calls = {}
    for extra in (1, 4, 7, 8, 16):
        places = place + bytes(extra)
        calls["places", extra] = ("scan_at", record, places, 0, bytearray(rows), bytearray(2))
        calls["hashes", extra] = ("filter_units", bytes(40), bytes(4 + extra), bytearray(2))
        calls["codes", extra] = ("intern_topics", record, rows, 2, bytearray(4 + extra))
    assert differences(calls) == {}


# --- chains that lead in a circle ------------------------------------------------------------


def circle():
    """Return an index of 2 entries that point at each other, and a header that claims many."""
    data = bytearray(file_size(1, 3))
    data[:40] = IndexHeader(1, 1, 0, 0, 1, (1 << 31) - 1).encode()
    struct.pack_into(">i", data, 40, 1)
    for number, previous in ((1, 2), (2, 1)):
        at = entry_position(1, number)
        data[at : at + 20] = IndexEntry(7, number, 0, previous).encode()
    return bytes(data)


def test_lookup_in_a_circle_ends_after_as_many_steps_as_there_are_entries():
    """Counted, not timed: a garbage count must not decide how long a lookup takes."""
    lines = 0

    def trace(_frame, _event, _argument):
        nonlocal lines
        lines += 1
        if lines > 2000:
            raise RuntimeError("the lookup goes in a circle")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = pure.index_lookup(circle(), 1, 8, 0, MAX, 64)
    finally:
        sys.settrace(before)
    assert found == []


FOLLOW_CIRCLE = """
import signal
from rocketlake.format._kernel import native
signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
print(native.index_lookup(bytes.fromhex({data!r}), 1, 8, 0, (1 << 63) - 1, 64))
"""


def test_lookup_in_a_circle_ends_soon_in_the_compiled_kernel():
    """Two steps are nothing; after a second of work, 2^31 of them are interrupted."""
    code = FOLLOW_CIRCLE.format(data=circle().hex())
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
