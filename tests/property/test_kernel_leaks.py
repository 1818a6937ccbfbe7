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
import gc, json, os, sys
from types import SimpleNamespace
from rocketlake.format._kernel import native

host = bytes(8)
table = {"KEYS": "k1 k2", "名": "v" * 3000, "none": None}
message = SimpleNamespace(body=b"b" * 3000, flag=1, properties=table, keys=["a", "b"], tags="T")
wrong = SimpleNamespace(body=b"", flag=1 << 40, properties=table, keys=[], tags=None)
record = native.encode(b"Topic", b"b" * 4000, b"", 0, 0, 0, 0, host, host, 0, 0, 1, True)
log = bytes(record) * 3
raw = native.encode_properties(table, True)
rows, reasons, codes = bytearray(104 * 4), bytearray(4), bytearray(16)
places = bytes(24 * 4)
units, hashes, keep = bytes(20 * 50), bytes(4 * 5), bytearray(50)
index = bytearray(40 + 4 * 10 + 20 * 100)
envelope, room = (0, 0, 0, host, host, 0, 0, 1, True, True), bytearray(30_000)
found = bytearray(104 * 3)
twice = b"a\x01\xff\x02a\x01c"  # a name that comes twice takes another way to be printed
noisy = native.encode(b"\xff", b"", twice, 0, 0, 0, 0, host, host, 0, 0, 1, False)
noisy_row = bytearray(104)
assert native.scan(log, 0, len(log), 0, 0, found)[0] == 3
assert native.scan(noisy, 0, len(noisy), 0, 0, noisy_row)[0] == 1
inputs = [host, table, message, wrong, record, log, raw, rows, reasons, codes, places, units,
          hashes, keep, index, found, noisy, noisy_row, envelope, room]

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
    "append": lambda: native.append(room, 0, message, b"T", envelope, 0, 0, 0),
    "append full": lambda: native.append(room, 29_000, message, b"T", envelope, 0, 0, 0),
    "append refused": lambda: refused(native.append, room, 0, wrong, b"T", envelope, 0, 0, 0),
    "append_batch": lambda: native.append_batch(room, 0, [message] * 3, b"T", envelope, 0, 0, 0),
    "append_batch refused": lambda: refused(
        native.append_batch, room, 0, [message, wrong], b"T", envelope, 0, 0, 0),
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
    "filter_units": lambda: native.filter_units(units, hashes, keep),
    "java_hash": lambda: native.java_hash("标签" * 50),
    "key_hash": lambda: native.key_hash("Topic", "key" * 50),
    "index_put": lambda: native.index_put(index, 10, 100, 77, 1, 2, False),
    "index_put refused": lambda: refused(native.index_put, index, 10, 1000, 77, 1, 2, False),
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
for buffer in (record, rows, reasons, codes, keep, index, room):
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
