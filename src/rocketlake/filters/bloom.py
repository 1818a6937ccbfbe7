"""The bloom filter bits that the reference keeps beside a queue unit.

1. For each message they tell which SQL92 consumer groups of the topic want it: every group owns
   `hash_count` positions in a bitmap of `bit_count` bits.
2. Bit p is in byte p // 8, mask 1 << p % 8.
3. A clear bit proves that the group does not want the message; set bits prove nothing.
"""

import math
from collections.abc import Iterable
from typing import Self

from msgspec import Struct

Buffer = bytes | bytearray | memoryview

ERROR_RATE_PERCENT = 20
EXPECTED_COUNT = 32

_LONG_MASK = (1 << 64) - 1
_INT_SIGN = 1 << 31
_INT_MASK = (1 << 32) - 1
_BYTE_BITS = 8


class BloomFilter(Struct, frozen=True):
    """The size of a bitmap, and the number of positions of one consumer group."""

    hash_count: int
    bit_count: int

    @classmethod
    def sized(
        cls, *, error_rate_percent: int = ERROR_RATE_PERCENT, expected_count: int = EXPECTED_COUNT
    ) -> Self:
        """Return the filter for a number of groups and a rate of false hits, in whole bytes.

        Raises:
            ValueError: The error rate is not between 1 and 99, or the expected count is below 1.
        """
        if not 1 <= error_rate_percent < 100:
            raise ValueError(f"error rate must be 1 to 99 percent, not {error_rate_percent}")
        if expected_count < 1:
            raise ValueError(f"expected count must be at least 1, not {expected_count}")
        # Compat: BloomFilter's constructor, division by division: the roundings must be its own.
        rate = error_rate_percent / 100.0
        hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits_each = math.log(1 / rate) / math.log(2)
        bit_count = math.ceil(expected_count * bits_each * (math.log(math.e) / math.log(2)))
        return cls(hash_count, math.ceil(bit_count / _BYTE_BITS) * _BYTE_BITS)

    @property
    def byte_count(self) -> int:
        """Bytes of one bitmap."""
        return self.bit_count // _BYTE_BITS

    def bit_positions(self, group: str, topic: str) -> tuple[int, ...]:
        """Return the positions of a consumer group of a topic; two of them may be equal."""
        # Compat: as String#getBytes, which writes '?' for half a surrogate pair.
        word = murmur3_x64(f"{group}#{topic}".encode("utf-8", "replace"))
        low, high = word & _INT_MASK, word >> 32
        positions = []
        for index in range(1, self.hash_count + 1):
            mixed = (low + index * high) & _INT_MASK
            if mixed & _INT_SIGN:
                mixed ^= _INT_MASK
            positions.append(mixed % self.bit_count)
        return tuple(positions)

    def set_bits(self, positions: Iterable[int], bitmap: bytearray) -> None:
        """Mark a message as wanted by the owner of these positions.

        Raises:
            ValueError: The bitmap is not of this filter's size.
        """
        if len(bitmap) != self.byte_count:
            raise ValueError(f"bitmap must have {self.byte_count} bytes, not {len(bitmap)}")
        for position in positions:
            bitmap[position // _BYTE_BITS] |= 1 << position % _BYTE_BITS

    def is_hit(self, positions: Iterable[int], bitmap: Buffer) -> bool:
        """Tell whether the owner of these positions may want the message.

        A bitmap of another size was written under other settings: it rules nothing out.
        """
        if len(bitmap) != self.byte_count:
            return True
        return all(
            bitmap[position // _BYTE_BITS] >> position % _BYTE_BITS & 1 for position in positions
        )


_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK_SIZE = 16


def murmur3_x64(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64-128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % _BLOCK_SIZE
    for start in range(0, whole, _BLOCK_SIZE):
        k1, k2 = _words(data[start : start + _BLOCK_SIZE])
        h1 ^= _scatter(k1, _C1, _C2, 31)
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _LONG_MASK
        h2 ^= _scatter(k2, _C2, _C1, 33)
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _LONG_MASK
    # The rest of the data counts as one block filled up with zeros: zeros scatter to zero.
    k1, k2 = _words(data[whole:])
    h1 ^= _scatter(k1, _C1, _C2, 31) ^ len(data)
    h2 ^= _scatter(k2, _C2, _C1, 33) ^ len(data)
    h1 = (h1 + h2) & _LONG_MASK
    h2 = (h2 + h1) & _LONG_MASK
    return (_finish(h1) + _finish(h2)) & _LONG_MASK


def _words(block: bytes) -> tuple[int, int]:
    """The two little-endian words of a block; missing bytes are zeros."""
    return int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")


def _scatter(word: int, first: int, second: int, turn: int) -> int:
    """One word of a block, mixed before it meets the state."""
    return _rotate(word * first & _LONG_MASK, turn) * second & _LONG_MASK


def _rotate(word: int, turn: int) -> int:
    """The word with its bits turned to the left."""
    return (word << turn | word >> (64 - turn)) & _LONG_MASK


def _finish(word: int) -> int:
    """The state's last mixing, after which every bit depends on every other."""
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _LONG_MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _LONG_MASK
    return word ^ word >> 33
