"""A store in memory, a clock that is set by hand, and the parts around them."""

import pytest
from delay_fakes import MemoryStore

from rocketlake.delay.store_access import Usage
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.book import TableLocation
from support.manual_clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000_500)


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
def usage():
    return Usage()


@pytest.fixture
def place(tmp_path, clock, store):
    return TableLocation(PosixFileOps(), clock, tmp_path / "config", flush_log=lambda: store.sync())  # noqa: PLW0108 - tests replace it
