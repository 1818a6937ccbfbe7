"""A body that cannot be inflated is damage: the policy for it decides."""

from pathlib import Path

import pytest

from rocketlake.errors import StoreError
from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.model.flags import COMPRESSED
from support.spark_reading import read_table
from support.store_builder import StoreBuilder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store")
    plain = flagged(0, Compression.ZLIB)
    builder.record("orders", 0, deflate(b"good", Compression.ZLIB), sys_flag=plain)
    builder.record("orders", 0, b"no zlib", sys_flag=COMPRESSED)
    return builder.write()


def bodies(store: Path, **options: object) -> list[bytes]:
    found: list[bytes] = read_table(store, ("body",), topic="orders", **options)["body"].to_pylist()
    return found


def test_the_read_fails_and_says_where_and_what_to_do(store: Path) -> None:
    with pytest.raises(StoreError, match=r"00000000000000000000.*rawBody = true.*onDamage = skip"):
        bodies(store)


def test_it_is_as_stored_when_damage_is_passed_over(store: Path) -> None:
    assert bodies(store, onDamage="skip") == [b"good", b"no zlib"]


def test_raw_bodies_are_not_looked_at(store: Path) -> None:
    assert bodies(store, rawBody="true")[1] == b"no zlib"
    assert len(read_table(store, ("topic",), topic="orders")) == 2
