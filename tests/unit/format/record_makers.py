"""Records for the tests of this folder: the vector of the specification, and changes of it."""

import struct

from rocketlake.format import layout
from rocketlake.format.record import Envelope, encode, seal
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message

BORN_HOST = Endpoint(bytes([192, 168, 0, 1]), 1234)
STORE_HOST = Endpoint(bytes([10, 0, 0, 2]), 10911)
HOST_V6 = Endpoint(bytes.fromhex("20010db8000000000000000000000007"), 7)

VECTOR = bytes.fromhex(
    "00000091daa320a73610a6860000000100000000000000000000000500000000"
    "00001000000000000000018bcfe56800c0a80001000004d20000018bcfe5687b"
    "0a00000200002a9f0000000000000000000000000000000568656c6c6f09546f"
    "7069635465737400284b455953016b3102554e49515f4b455901414331323030"
    "3031303030310254414753015461674102"
)
"""Physical offset 4096, body at 88, topic at 94, properties at 105."""

VECTOR_MESSAGE = Message(
    topic="TopicTest",
    body=b"hello",
    properties={"KEYS": "k1", "UNIQ_KEY": "AC1200010001", "TAGS": "TagA"},
)
VECTOR_ENVELOPE = Envelope(
    queue_id=1, born_timestamp=1700000000000, born_host=BORN_HOST, store_host=STORE_HOST
)


def envelope(**changes):
    values = {name: getattr(VECTOR_ENVELOPE, name) for name in Envelope.__struct_fields__}
    return Envelope(**(values | changes))


def sealed(body=b"hello", topic="TopicTest", at=0, queue_offset=0, **changes):
    """Return a whole record that says it lies at `at`."""
    record = encode(Message(topic=topic, body=body), envelope(**changes))
    seal(record, 0, queue_offset, at, 1700000000123, changes.get("reserve_crc", False))
    return bytes(record)


def log_of(count, **changes):
    """Return records behind each other, each at its own offset, and where they begin."""
    log = b""
    positions = []
    for i in range(count):
        positions.append(len(log))
        log += sealed(b"body %d" % i, at=len(log), queue_offset=i, **changes)
    return log, positions


def blank(size, written=8):
    """Return the filler of the last `size` bytes of a file."""
    head = struct.pack(">ii", size, layout.MAGIC_BLANK)
    return head[:written].ljust(size, b"\0")


def patched(data, position, field, value):
    """Return the bytes with one big-endian number changed; `field` is its struct letter."""
    out = bytearray(data)
    struct.pack_into(">" + field, out, position, value)
    return bytes(out)
