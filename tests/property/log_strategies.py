"""What properties are tried on: numbers, texts, messages, records and logs, whole and damaged."""

import struct
from typing import NamedTuple

from hypothesis import strategies as st

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.model.message import Message

# --- numbers and texts -----------------------------------------------------------------------


def integers_of(bits):
    """Signed integers of so many bits; the ends and small ones often."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.one_of(
        st.integers(0, 300), st.integers(low, high), st.sampled_from([low, -1, 0, 1, high])
    )


i16, i32, i64 = integers_of(16), integers_of(32), integers_of(64)
u31 = st.integers(0, (1 << 31) - 1)

plain_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
names = st.one_of(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "__CRC32#", "WAIT", "a", "名"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8),
)
any_texts = st.lists(
    st.one_of(
        st.characters(codec="utf-8"), st.sampled_from("\ud800\udbff\udc00\udfff\ud83d\ude00")
    ),
    max_size=12,
).map("".join)
"""With halves of surrogate pairs, which are no text of UTF-8."""

bodies = st.one_of(st.binary(max_size=40), st.integers(41, 400).map(lambda n: b"\xa5" * n))
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))

# --- messages and records --------------------------------------------------------------------

messages = st.builds(
    Message,
    topic=st.just("T"),
    body=bodies,
    flag=i32,
    properties=st.dictionaries(names, st.one_of(plain_texts, st.none()), max_size=4),
    keys=st.lists(plain_texts.map(lambda text: text.replace(" ", "_")), max_size=3),
    tags=st.one_of(st.none(), plain_texts),
)

property_bytes = st.one_of(
    st.builds(
        pure.encode_properties, st.dictionaries(names, plain_texts, max_size=4), st.booleans()
    ),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"\xff", b"\xc3", "é".encode()])).map(
        b"".join
    ),
    st.binary(max_size=60),
)


class RecordFields(NamedTuple):
    """The arguments of `encode`, in their order."""

    topic: bytes
    body: bytes
    properties: bytes
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    version: int
    reserve_crc: bool


record_fields = st.builds(
    RecordFields,
    topic=st.binary(max_size=20),
    body=bodies,
    properties=property_bytes,
    queue_id=i32,
    flag=i32,
    sys_flag=i32,
    born_timestamp=i64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=i32,
    prepared_transaction_offset=i64,
    version=st.sampled_from([1, 2]),
    reserve_crc=st.booleans(),
)


class Log(NamedTuple):
    """Records behind each other, where they begin, and the offset of the first byte."""

    data: bytes
    positions: list[int]
    base_offset: int


@st.composite
def logs(draw, min_size=0, max_size=4):
    """A log of whole records at their own offsets; it may end in a blank record or in zeros."""
    base_offset = draw(st.one_of(st.just(0), st.integers(0, 1 << 50)))
    data = bytearray()
    positions = []
    for fields in draw(st.lists(record_fields, min_size=min_size, max_size=max_size)):
        record = pure.encode(*fields)
        at = base_offset + len(data)
        pure.seal(record, 0, draw(i64), at, draw(i64), fields.reserve_crc)
        positions.append(len(data))
        data += record
    rest = draw(st.integers(0, 40))
    if draw(st.booleans()) and rest >= layout.BLANK_HEADER_SIZE:
        data += struct.pack(">ii", rest, layout.MAGIC_BLANK)
        rest -= layout.BLANK_HEADER_SIZE
    return Log(bytes(data) + bytes(rest), positions, base_offset)


# --- damage ----------------------------------------------------------------------------------


@st.composite
def damaged_logs(draw):
    """A log with some bits flipped, some lengths replaced, and maybe its ends cut off."""
    log = draw(logs(min_size=1))
    data = bytearray(log.data)
    for bit in draw(st.lists(st.integers(0, 8 * len(data) - 1), max_size=3)):
        data[bit // 8] ^= 1 << bit % 8
    for start in draw(st.lists(st.sampled_from(log.positions), max_size=2)):
        at, letter = draw(st.sampled_from([(0, "i"), (4, "i"), (28, "q"), (36, "i"), (84, "i")]))
        number = draw({"i": st.one_of(magics, i32), "q": i64}[letter])
        struct.pack_into(">" + letter, data, start + at, number)
    cut = draw(st.integers(0, len(data))) if draw(st.booleans()) else len(data)
    return Log(bytes(data[:cut]), log.positions, log.base_offset)


magics = st.sampled_from([layout.MAGIC_V1, layout.MAGIC_V2, layout.MAGIC_BLANK])


@st.composite
def magic_garbage(draw):
    """Bytes that begin as a record does and are nothing of the kind."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        inner = bytearray(draw(st.binary(min_size=83, max_size=200)))
        size = len(inner) + 8 if draw(st.booleans()) else draw(i32)
        if draw(st.booleans()):
            # Small numbers where the lengths lie, so that more of them are believed.
            struct.pack_into(">i", inner, 28, draw(st.sampled_from([0, 0x10, 0x20, 0x30])))
            struct.pack_into(">i", inner, 76, draw(st.integers(-2, len(inner))))
        parts.append(struct.pack(">ii", size, draw(magics)) + inner)
    return b"".join(parts)


garbage = st.one_of(st.binary(max_size=300), magic_garbage(), damaged_logs().map(lambda x: x.data))
