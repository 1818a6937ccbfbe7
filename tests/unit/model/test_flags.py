"""The bits of a system flag (docs/formats/commitlog.md)."""

import pytest

from rocketlake.model import flags
from rocketlake.model.flags import TransactionType, enters_queue, host_sizes, transaction_type


def test_masks_are_those_of_the_format():
    assert {
        "COMPRESSED": flags.COMPRESSED,
        "MULTI_TAGS": flags.MULTI_TAGS,
        "TRANSACTION_MASK": flags.TRANSACTION_MASK,
        "BORN_HOST_V6": flags.BORN_HOST_V6,
        "STORE_HOST_V6": flags.STORE_HOST_V6,
        "NEED_UNWRAP": flags.NEED_UNWRAP,
        "INNER_BATCH": flags.INNER_BATCH,
        "COMPRESSION_MASK": flags.COMPRESSION_MASK,
    } == {
        "COMPRESSED": 0x1,
        "MULTI_TAGS": 0x2,
        "TRANSACTION_MASK": 0xC,
        "BORN_HOST_V6": 0x10,
        "STORE_HOST_V6": 0x20,
        "NEED_UNWRAP": 0x40,
        "INNER_BATCH": 0x80,
        "COMPRESSION_MASK": 0x700,
    }
    assert flags.COMPRESSION_MASK >> flags.COMPRESSION_SHIFT == 0x7


@pytest.mark.parametrize("others", [0, 0x7FFFFFF3, -13])
@pytest.mark.parametrize(
    ("bits", "expected", "queued"),
    [
        (0x0, TransactionType.NONE, True),
        (0x4, TransactionType.PREPARED, False),
        (0x8, TransactionType.COMMIT, True),
        (0xC, TransactionType.ROLLBACK, False),
    ],
)
def test_transaction_type_is_two_bits_whatever_the_others(bits, expected, queued, others):
    assert transaction_type(others | bits) is expected
    assert enters_queue(others | bits) is queued


@pytest.mark.parametrize(
    ("sys_flag", "sizes"),
    [(0, (8, 8)), (0x10, (20, 8)), (0x20, (8, 20)), (0x30, (20, 20)), (~0x30, (8, 8))],
)
def test_host_sizes_follow_the_v6_bits_alone(sys_flag, sizes):
    assert host_sizes(sys_flag) == sizes
