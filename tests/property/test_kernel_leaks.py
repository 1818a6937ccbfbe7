"""The compiled kernel gives back all it takes, in a process of its own.

1. The workload calls every function, good calls and refused ones, with large and small data.
2. Blocks of the interpreter's allocator and the pages of the process are counted when the
   workload has run long enough to have filled every cache, and again much later.
3. A function that keeps one small object per call keeps thousands; one that keeps a buffer keeps
   many megabytes. The bounds lie far below both, and far above what an idle process gains.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from twins import needs_native

pytestmark = needs_native

WARM_UP, ROUNDS = 300, 3000
BLOCKS_MAX, PAGES_BYTES_MAX = 300, 12 << 20

WORKLOAD = r"""
import gc, json, os, pickle, struct, sys, zlib
from types import SimpleNamespace
from rocketlake.format._kernel import native

host = bytes(8)
table = {"KEYS": "k1 k2", "名": "v" * 3000, "none": None}
message = SimpleNamespace(topic="T", body=b"b" * 3000, flag=1, properties=table, keys=["a", "b"],
                          tags="T", delay_level=0, deliver_at=None, wait=True)
wrong = SimpleNamespace(topic="T", body=b"", flag=1 << 40, properties=table, keys=[], tags=None,
                        delay_level=0, deliver_at=None, wait=True)
record = native.encode(b"Topic", b"b" * 4000, b"", 0, 0, 0, 0, host, host, 0, 0, 1, True)
log = bytes(record) * 3
raw = native.encode_properties(table, True)
rows, reasons, codes = bytearray(104 * 4), bytearray(4), bytearray(16)
places = bytes(24 * 4)
units, hashes, keep = bytes(20 * 50), bytes(4 * 5), bytearray(50)
index = bytearray(40 + 4 * 10 + 20 * 100)
room = bytearray(30_000)
frame_values = (b"T", 0, 0, host, host, 0, 0, 1, True, True, 1 << 31, 1 << 31, 1 << 31, True)
frame = native.RecordFrame(*frame_values)
import threading
lock = threading.Lock()

class File:
    buffer, store_timestamp = bytearray(30_000), 0
    wrote = property(lambda self: 0, lambda self, value: None)

file, slot = File(), SimpleNamespace(next_offset=0)
edits = native.PropertyEdits({"x": "y"}, ["c"])
from rocketlake.store.api import SendFields
sent = SendFields("T", 0, memoryview(b"body"), "a\1b", bytes(8), 5)
homeless = SendFields("T", 0, b"body", "a\1b", bytes(7), 5)
wordy = SendFields("T", 0, b"body", "a\1b\2" * 200, bytes(8), 5)
unwritten = SendFields("T", 0, b"body", "\ud800", bytes(8), 5)
attached = native.LogTail(lock, lambda: 1, lambda *_: 1, 0, lambda: None, lambda *_: None)
attached.attach(file, 0)
found = bytearray(104 * 3)
twice = b"a\x01\xff\x02a\x01c"  # a name that comes twice takes another way to be printed
noisy = native.encode(b"\xff", b"", twice, 0, 0, 0, 0, host, host, 0, 0, 1, False)
noisy_row = bytearray(104)
from rocketlake.model.endpoint import Endpoint
end = Endpoint(bytes(4), 9)
parts = dict(
    topic="T", queue_id=1, queue_offset=2, physical_offset=3, store_size=4, store_timestamp=5,
    born_timestamp=6, born_host=end, store_host=end, flag=7, sys_flag=0, body_crc=8,
    reconsume_times=9, prepared_transaction_offset=10, raw_properties=raw, stored_body=b"b" * 3000)
stored = native.StoredMessage(**parts)
squeezed = {"sys_flag": 0x301, "stored_body": zlib.compress(bytes(9000))}
packed = native.StoredMessage(**parts | squeezed)
own_units = b"".join(struct.pack(">qiq", i * len(record), len(record), 0) for i in range(3))
wide_units = (own_units[:20] + bytes(26)) * 2
asked = (0, 20, 0, 99, log, len(log), 0, len(log), 1)
some, most = (0, 0, 9, 9, 1 << 40), (9, 1 << 40)
kept_list = []

def read_and_look():
    found = []
    native.read_units(found, own_units, *asked, None, some, True)
    assert len(found) == 3
    for each in found:
        each.topic, each.body, each.keys, each.tags, each.properties, each.keys, each.msg_id
        each.born_host, each.store_host, each.unique_key, each == found[0], hash(each), repr(each)
    pickle.loads(pickle.dumps(found[0]))

assert native.scan(log, 0, len(log), 0, 0, found)[0] == 3
assert native.scan(noisy, 0, len(noisy), 0, 0, noisy_row)[0] == 1
many = b"TAGS\x01\xe6\xa0\x02KEYS\x01" + b"k " * 900 + b"\x02UNIQ_KEY\x01u"
keyed = native.encode(b"T", b"", many, 0, 0, 0, 0, host, host, 0, 0, 1, False)
keyed_row, traits, offsets = bytearray(104), bytearray(4), bytearray(8 * 50)
assert native.scan(keyed, 0, len(keyed), 0, 0, keyed_row)[0] == 1
small_hashes, small_numbers = bytes(4 * 50), bytes(8 * 50)
inputs = [keyed, keyed_row, traits, offsets, small_hashes, small_numbers]
inputs += [host, table, message, wrong, record, log, raw, rows, reasons, codes, places, units,
           hashes, keep, index, found, noisy, noisy_row, frame_values, frame, room, end, parts,
           own_units, wide_units, asked, some, most, kept_list, stored, packed]

import array
at_each = array.array("q", [0, 3000, 6000])
none_each = array.array("q", [0, 0, 0])
pair = memoryview(array.array("i", [0, -1, 0, 1, 0, -1, 0, 1])).cast("B").cast("i", [2, 4])
beyond = memoryview(array.array("i", [0, -1, 0, 1, 7, -1, 0, 1])).cast("B").cast("i", [2, 4])
columns = (bytes(6000), at_each, b"", none_each)
shape = ([b"T"], [1], 0, host, host, True, True)
staged = native.encode_rows(*columns, pair, *shape)
route = memoryview(array.array("q", [0, 2, 0, 0])).cast("B").cast("q", [1, 4])
slots = array.array("q", [0, 0])

def refused(function, *arguments):
    try:
        function(*arguments)
    except (ValueError, TypeError, OverflowError):
        return
    raise AssertionError(function)

CALLS = {
    "scan": lambda: native.scan(log, 0, len(log), 0, 15, rows),
    "scan refused": lambda: refused(native.scan, log, -1, 0, 0, 0, rows),
    "scan_at": lambda: native.scan_at(log, places, 15, rows, reasons),
    "crc31": lambda: native.crc31(log),
    "intern_topics": lambda: native.intern_topics(log, rows, 4, codes),
    "encode": lambda: native.encode(
        b"Topic", message.body, raw, 0, 0, 0, 0, host, host, 0, 0, 1, True),
    "encode refused": lambda: refused(
        native.encode, b"Topic", message.body, raw, 1 << 40, 0, 0, 0, host, host, 0, 0, 1, True),
    "encode_batch": lambda: native.encode_batch(
        [message] * 3, b"T", 0, 0, 0, host, host, 1, True, True),
    "encode_batch refused": lambda: refused(
        native.encode_batch, [message, wrong], b"T", 0, 0, 0, host, host, 1, True, True),
    "RecordFrame": lambda: native.RecordFrame(*frame_values),
    "RecordFrame refused": lambda: refused(native.RecordFrame, b"T" * 200, *frame_values[1:]),
    "LogTail": lambda: native.LogTail(lock, None, None, None, None, None).attach(file, 0),
    "LogTail.append": lambda: attached.append(message, slot, frame),
    "LogTail.append refused": lambda: refused(attached.append, wrong, slot, frame),
    "append": lambda: native.append(room, 0, message, frame, 0, 0, 0, 0),
    "append full": lambda: native.append(room, 29_000, message, frame, 0, 0, 0, 0),
    "append refused": lambda: refused(native.append, room, 0, wrong, frame, 0, 0, 0, 0),
    "LogTail.append_fields": lambda: attached.append_fields(sent, slot, frame, edits, True),
    "LogTail.append_fields refused": lambda: refused(
        attached.append_fields, homeless, slot, frame, edits, True),
    "PropertyEdits": lambda: native.PropertyEdits({"a": "b"}, ["c"]),
    "PropertyEdits refused": lambda: refused(native.PropertyEdits, {"": "b"}, []),
    "append_fields": lambda: native.append_fields(room, 0, wordy, frame, edits, 0, 0, 0),
    "append_fields refused": lambda: refused(
        native.append_fields, room, 0, unwritten, frame, edits, 0, 0, 0),
    "append_batch": lambda: native.append_batch(room, 0, [message] * 3, frame, 0, 0, 0, 0),
    "append_batch refused": lambda: refused(
        native.append_batch, room, 0, [message, wrong], frame, 0, 0, 0, 0),
    "encode_rows": lambda: native.encode_rows(*columns, pair, *shape),
    "encode_rows refused": lambda: refused(native.encode_rows, *columns, beyond, *shape),
    "append_rows": lambda: native.append_rows(room, 0, staged, 0, route, slots, 0, 0, True),
    "append_rows refused": lambda: refused(
        native.append_rows, room, 0, staged, -1, route, slots, 0, 0, True),
    "are_inert": lambda: native.are_inert([message, message]),
    "are_inert refused": lambda: native.are_inert([message, wrong]),
    "set_together": lambda: native.set_together(((slot, "next_offset", 0),)),
    "set_together refused": lambda: refused(native.set_together, ((slot, "next_offset"),)),
    "seal": lambda: native.seal(record, 0, 1, 2, 3, True),
    "seal refused": lambda: refused(native.seal, record, 1, 1, 2, 3, True),
    "encode_properties": lambda: native.encode_properties(table, False),
    "encode_properties refused": lambda: refused(
        native.encode_properties, {"a": "v" * 3000, "b": "\x01"}, False),
    "encode_properties no text": lambda: refused(
        native.encode_properties, {"a": "v" * 3000, "b": "\ud800"}, False),
    "message_properties": lambda: native.message_properties(message, True),
    "decode_properties": lambda: native.decode_properties(raw),
    "decode_properties view": lambda: native.decode_properties(memoryview(raw)),
    "json_lines": lambda: native.json_lines(log, found, bytes(24), True),
    "json_lines noisy": lambda: native.json_lines(noisy, noisy_row, bytes(8), True),
    "json_lines refused": lambda: refused(native.json_lines, b"", found, bytes(24), True),
    "arrow_columns": lambda: native.arrow_columns(log, found, 511),
    "arrow_columns noisy": lambda: native.arrow_columns(noisy, noisy_row, 511),
    "arrow_columns keyed": lambda: native.arrow_columns(keyed, keyed_row, 511),
    "arrow_columns refused": lambda: refused(native.arrow_columns, b"", found, 511),
    "StoredMessage": lambda: native.StoredMessage(**parts).properties,
    "StoredMessage inflated": lambda: native.StoredMessage(**parts | squeezed).body,
    "StoredMessage refused": lambda: refused(
        lambda: native.StoredMessage(**parts | {"sys_flag": 1 << 40})),
    "StoredMessage looked at": lambda: (
        stored.keys, stored.tags, stored.born_host, stored.msg_id, packed.body, stored == packed),
    "make_messages": lambda: native.make_messages(log, found),
    "make_messages refused": lambda: refused(native.make_messages, b"", found),
    "read_units": read_and_look,
    "read_units damaged": lambda: native.read_units(
        [], own_units, *asked[:6], 5, len(log), 1, None, some, False),
    "read_units filtered": lambda: native.read_units([], own_units, *asked, hashes, some, False),
    "read_units refused": lambda: refused(
        native.read_units, [], own_units, *asked, hashes, (0, 0, 0, 0, -1), False),
    "read_units no hashes": lambda: refused(
        native.read_units, kept_list, own_units, *asked, 5, some, False),
    "read_units no log": lambda: refused(
        native.read_units, kept_list, own_units, *asked[:4], None, *asked[5:], None, some, False),
    "read_ranges": lambda: native.read_ranges(own_units, *asked, hashes, some, True),
    "read_ranges refused": lambda: refused(
        native.read_ranges, own_units, *asked, hashes, (0, 0, 0, 0, -1), False),
    "read_columns": lambda: native.read_columns(own_units, *asked, most, False),
    "read_columns wide": lambda: native.read_columns(
        wide_units, 0, 46, *asked[2:], most, True),
    "read_columns refused": lambda: refused(
        native.read_columns, own_units, *asked, (1, -1), False),
    "filter_units": lambda: native.filter_units(units, hashes, keep),
    "java_hash": lambda: native.java_hash("标签" * 50),
    "key_hash": lambda: native.key_hash("Topic", "key" * 50),
    "index_put": lambda: native.index_put(index, 10, 100, 77, 1, 2, False),
    "index_put refused": lambda: refused(native.index_put, index, 10, 1000, 77, 1, 2, False),
    "dispatch_columns": lambda: native.dispatch_columns(log, found, offsets, traits),
    "dispatch_columns noisy": lambda: native.dispatch_columns(keyed, keyed_row, offsets, traits),
    "key_entries": lambda: native.key_entries(keyed, keyed_row),
    "key_entries none": lambda: native.key_entries(log, found),
    "put_entries": lambda: native.put_entries(
        index, 10, 100, small_hashes, small_numbers, small_numbers, False),
    "put_entries refused": lambda: refused(
        native.put_entries, index, 10, 1000, small_hashes, small_numbers, small_numbers, False),
    "index_walk": lambda: native.index_walk(index, 10, 77, 0, 0, 1 << 60, offsets),
    "index_walk refused": lambda: refused(
        native.index_walk, index, 10, 1 << 40, 0, 0, 1 << 60, offsets),
    "index_lookup": lambda: native.index_lookup(index, 10, 77, 0, 1 << 60, 64),
}

def pages_bytes():
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

def run(call, times):
    for _ in range(times):
        call()
    gc.collect()
    return sys.getallocatedblocks(), pages_bytes()

missing = {name for name, value in vars(native).items() if callable(value) and name[0] != "_"}
missing -= {name.split()[0] for name in CALLS}
report = {"missing": sorted(missing), "grown": {}}
for name, call in CALLS.items():
    run(call, WARM_UP)
    references = [sys.getrefcount(each) for each in inputs]
    blocks, pages = run(call, WARM_UP)
    blocks_later, pages_later = run(call, ROUNDS)
    later = [sys.getrefcount(each) for each in inputs]
    kept = [i for i, count in enumerate(later) if count != references[i]]
    report["grown"][name] = [blocks_later - blocks, pages_later - pages, kept]
for buffer in (record, rows, reasons, codes, keep, index, room, traits, offsets):
    buffer.append(0)  # fails while somebody still holds the buffer
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def report():
    code = WORKLOAD.replace("WARM_UP", str(WARM_UP)).replace("ROUNDS", str(ROUNDS))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_function_is_called(report):
    assert report["missing"] == []


def test_no_call_keeps_objects(report):
    grown = {name: blocks for name, (blocks, _, _) in report["grown"].items()}
    assert {name: blocks for name, blocks in grown.items() if blocks > BLOCKS_MAX} == {}


def test_no_call_keeps_what_it_was_given(report):
    assert {name: kept for name, (_, _, kept) in report["grown"].items() if kept} == {}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="pages are counted on Linux")
def test_no_call_keeps_memory(report):
    grown = {name: pages for name, (_, pages, _) in report["grown"].items()}
    assert {name: pages for name, pages in grown.items() if pages > PAGES_BYTES_MAX} == {}
