"""Bit flags of messages."""

from enum import IntEnum
from typing import Final

COMPRESSED: Final = 0x0001
MULTI_TAGS: Final = 0x0002
TRANSACTION_MASK: Final = 0x000C
BORN_HOST_V6: Final = 0x0010
STORE_HOST_V6: Final = 0x0020
NEED_UNWRAP: Final = 0x0040
INNER_BATCH: Final = 0x0080
COMPRESSION_MASK: Final = 0x0700
COMPRESSION_SHIFT: Final = 8


class TransactionType(IntEnum):
    """The transaction bits of a system flag."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


def transaction_type(sys_flag: int) -> TransactionType:
    """Return what the transaction bits say."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


def enters_queue(sys_flag: int) -> bool:
    """Tell whether a record with these flags belongs into its consume queue."""
    return sys_flag & TRANSACTION_MASK in (TransactionType.NONE, TransactionType.COMMIT)


def is_indexed(sys_flag: int) -> bool:
    """Tell whether the keys of a record with these flags belong into the index."""
    return sys_flag & TRANSACTION_MASK != TransactionType.ROLLBACK


def host_sizes(sys_flag: int) -> tuple[int, int]:
    """Return the encoded sizes of born host and store host."""
    return (20 if sys_flag & BORN_HOST_V6 else 8), (20 if sys_flag & STORE_HOST_V6 else 8)
