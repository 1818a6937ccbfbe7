"""A store with two topics, keys, tags and times, for most tests of the source."""

from pathlib import Path

import pytest

from support.store_builder import BEGIN_MS, StoreBuilder

ORDERS = 300


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders over four queues, payments in one; one millisecond apart, from BEGIN_MS + 1 on."""
    builder = StoreBuilder(
        tmp_path_factory.mktemp("source") / "broker-a", log_file_size=16 << 10, queue_file_units=30
    )
    for number in range(ORDERS):
        builder.record(
            "orders",
            number % 4,
            b"order %d" % number,
            tags="odd" if number % 2 else "even",
            keys=[f"k{number}", f"ten{number // 10}"],
            properties={"n": str(number), "UNIQ_KEY": f"U{number}"},
        )
        if number % 15 == 0:
            builder.record("payments", 0, b"payment %d" % number)
    builder.file(
        "config/consumerOffset.json",
        '{"offsetTable": {"orders@billing": {"0": 70, "1": 75}, "gone@billing": {"0": 1}}}',
    )
    return builder.write()


@pytest.fixture
def begin_ms() -> int:
    return BEGIN_MS
