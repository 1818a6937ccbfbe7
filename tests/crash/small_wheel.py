"""A timer wheel of a few pages: that of RocketMQ has 38 MB, too much for thousands of images."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from rocketlake.delay import timer_recovery, timer_wheel
from rocketlake.format import layout
from rocketlake.format.timer import slot_position

SLOTS = 1024
ROLL_WINDOW = 100
"""Messages that are further ahead, in seconds, go to a nearer slot first."""


@contextmanager
def small_wheel() -> Iterator[None]:
    """Have wheels turn after so many slots within this block."""
    size = SLOTS * layout.WHEEL_SLOT_SIZE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_wheel, "_SIZE", size)
        patch.setattr(timer_wheel, "_CHUNK", size)
        patch.setattr(timer_wheel, "slot_position", partial(slot_position, slots=SLOTS))
        patch.setattr(timer_recovery, "_WHEEL_TURN_SLOTS", SLOTS // 2 - 60)
        yield
