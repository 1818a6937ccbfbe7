"""Long runs, not part of `make test`: ROCKETLAKE_SOAK_S says for how many seconds each.

make soak                          two minutes each
ROCKETLAKE_SOAK_S=3600 make soak   an hour each
"""

import os
import time
from collections.abc import Iterator

import pytest

# Without the variable nothing is collected here.
collect_ignore_glob = [] if os.environ.get("ROCKETLAKE_SOAK_S") else ["test_*.py"]


@pytest.fixture
def rounds() -> Iterator[int]:
    """Numbers from 0 on until the time is over."""

    def count() -> Iterator[int]:
        end = time.monotonic() + float(os.environ["ROCKETLAKE_SOAK_S"])
        number = 0
        while time.monotonic() < end:
            yield number
            number += 1

    return count()
