"""Bodies compressed by us and by RocketMQ; what is no such body is refused."""

import base64
import json
import random
import tracemalloc
from pathlib import Path

import pytest

from rocketlake.errors import ConfigError
from rocketlake.model import compression as compressions
from rocketlake.model import flags
from rocketlake.model.compression import (
    BODY_SIZE_MAX,
    Compression,
    body_size_max,
    compression,
    deflate,
    flagged,
    inflate,
    set_body_size_max,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
CASES = ("v46-compressed", "v4-compressed", "v5-compressed")

BODIES = {
    "empty": b"",
    "short": b"hello",
    "repeating": b"compressed body. " * 1000,
    "with zeros": bytes(70_000),
    "hardly": bytes(i * i * 7919 >> 5 & 0xFF for i in range(3000)),
}


def golden_bodies():
    for case in CASES:
        with (GOLDEN / case / "expected.jsonl").open() as lines:
            for line in lines:
                message = json.loads(line)
                if "inflated" in message:
                    name = f"{case}-{message['physicalOffset']}"
                    stored, plain = (base64.b64decode(message[k]) for k in ("body", "inflated"))
                    yield pytest.param(stored, message["sysFlag"], plain, id=name)


GOLDEN_BODIES = list(golden_bodies())


def test_golden_bodies_are_of_every_kind():
    kinds = {compression(case.values[1]) for case in GOLDEN_BODIES}
    assert kinds == set(Compression)


@pytest.mark.parametrize(("stored", "sys_flag", "plain"), GOLDEN_BODIES)
def test_inflate_of_a_body_of_the_reference_gives_what_the_reference_read(stored, sys_flag, plain):
    assert inflate(stored, sys_flag) == plain


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_inflate_of_a_deflated_body_gives_it_back(kind, body):
    assert inflate(deflate(body, kind), flagged(0, kind)) == body


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("kind", Compression)
def test_level_changes_nothing_for_the_reader(kind, level):
    body = BODIES["repeating"]
    assert inflate(deflate(body, kind, level=level), flagged(0, kind)) == body


def test_body_without_the_compressed_bit_comes_back_as_it_is():
    body = deflate(b"hello", Compression.ZSTD)
    assert inflate(body, flags.COMPRESSION_MASK) is body


# --- flags -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sys_flag", "expected"),
    [
        (0x000, None),
        (0x300, None),
        (0x001, Compression.ZLIB_OLD),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x301, Compression.ZLIB),
        (0x7FFFF9FF, Compression.LZ4),
    ],
)
def test_compression_is_read_from_its_bits(sys_flag, expected):
    assert compression(sys_flag) is expected


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_unknown_compression_is_refused(kind):
    with pytest.raises(ValueError, match=f"unknown compression type {kind}"):
        compression(kind << 8 | 1)
    with pytest.raises(ValueError, match=f"unknown compression type {kind}"):
        inflate(b"body", kind << 8 | 1)


@pytest.mark.parametrize("kind", Compression)
def test_flagged_sets_kind_and_keeps_all_other_bits(kind):
    others = 0x7FFFFFFF & ~(flags.COMPRESSED | flags.COMPRESSION_MASK)
    assert flagged(0x7FFFFFFF, kind) == others | 1 | kind << 8
    assert compression(flagged(0, kind)) is kind


# --- bodies that are not what their flags say ------------------------------------------------


def cuts_taken_for_whole(stored, sys_flag, step=1):
    """Return the sizes at which a cut-off body was inflated without a word, and to how much."""
    taken = []
    for size in range(0, len(stored), step):
        try:
            taken.append((size, len(inflate(stored[:size], sys_flag))))
        except ValueError:
            continue
    return taken


@pytest.mark.parametrize(("stored", "sys_flag", "plain"), GOLDEN_BODIES)
def test_body_of_the_reference_cut_anywhere_is_refused(stored, sys_flag, plain):
    assert len(plain) > 0
    step = max(1, len(stored) // 50)
    assert cuts_taken_for_whole(stored, sys_flag, step) == []


@pytest.mark.parametrize("kind", Compression)
def test_deflated_body_cut_anywhere_is_refused(kind):
    stored = deflate(b"hello, " * 30, kind)
    assert cuts_taken_for_whole(stored, flagged(0, kind)) == []


@pytest.mark.parametrize("kind", Compression)
def test_body_of_many_blocks_cut_between_them_is_refused(kind):
    """Half of a body must never pass for the whole of it."""
    body = random.Random(7).randbytes(400_000)
    stored = deflate(body, kind)
    with pytest.raises(ValueError, match="not"):
        inflate(stored[: len(stored) // 2], flagged(0, kind))


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("body", [b"x", b"not compressed at all", bytes(64), b"\xff" * 64])
def test_garbage_is_refused(kind, body):
    with pytest.raises(ValueError, match=f"not {kind.name.removesuffix('_OLD')}"):
        inflate(body, flagged(0, kind))


@pytest.mark.parametrize("kind", Compression)
def test_body_of_another_kind_is_refused(kind):
    shape = {Compression.ZLIB_OLD: "zlib", Compression.ZLIB: "zlib"}
    for other in Compression:
        if shape.get(other, other) != shape.get(kind, kind):
            with pytest.raises(ValueError, match="not"):
                inflate(deflate(b"hello" * 50, other), flagged(0, kind))


# --- growth ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Compression)
def test_body_that_grows_beyond_the_limit_is_refused(kind):
    bomb = deflate(bytes(8 << 20), kind)
    assert len(bomb) < 64 << 10
    with pytest.raises(ValueError, match="grows beyond 1000 bytes"):
        inflate(bomb, flagged(0, kind), size_max=1000)


@pytest.mark.parametrize("kind", Compression)
def test_limit_is_the_largest_size_allowed(kind):
    stored = deflate(b"x" * 1000, kind)
    assert len(inflate(stored, flagged(0, kind), size_max=1000)) == 1000
    with pytest.raises(ValueError, match="grows beyond 999 bytes"):
        inflate(stored, flagged(0, kind), size_max=999)


@pytest.fixture
def limit():
    """The limit of the process, as it is without a setting."""
    yield set_body_size_max
    set_body_size_max(BODY_SIZE_MAX)


@pytest.mark.parametrize("kind", Compression)
def test_default_limit_ends_a_bomb_early(kind, limit):
    """A message of a few KiB must not take all memory when its body is asked for."""
    limit(1 << 20)
    bomb = deflate(bytes(16 << 20), kind)
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"grows beyond 1048576 bytes; raise the limit with rocket"
    ):
        inflate(bomb, flagged(0, kind))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20
    limit(16 << 20)
    assert len(inflate(bomb, flagged(0, kind))) == 16 << 20


def test_limit_without_a_setting_is_far_above_what_brokers_take():
    assert body_size_max() == BODY_SIZE_MAX == 64 << 20


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None])
def test_limit_that_is_no_size_is_refused(size, limit):
    with pytest.raises(ValueError, match="wanted a number of bytes"):
        limit(size)


def test_limit_of_the_environment():
    assert compressions._Limit("1000").size_max == 1000
    assert compressions._Limit(None).size_max == BODY_SIZE_MAX
    with pytest.raises(ConfigError, match="ROCKETLAKE_BODY_SIZE_MAX='lots'"):
        _ = compressions._Limit("lots").size_max


def test_body_of_many_empty_frames_is_read_in_one_go():
    """Each frame must not cost a copy of all that follows it."""
    empty, last = deflate(b"", Compression.ZSTD), deflate(b"end", Compression.ZSTD)
    stored = empty * 50_000 + last
    assert inflate(stored, flagged(0, Compression.ZSTD)) == b"end"
