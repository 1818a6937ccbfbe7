"""Rounds of units against one-by-one appends, as the reference makes them (spec of the append)."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from queue_makers import KEY, bounds, columns, offsets, open_set, reopen

from rocketlake.store.queue.unit_kind import can_hold


class Model:
    """A queue that takes one unit after the other."""

    def __init__(self):
        self.units = []
        self.begin = 0
        self.reach = -1

    @property
    def end(self):
        return self.begin + len(self.units)

    def put(self, place, size, number, *, is_contradicted=False):
        if place + size <= self.reach:
            return
        if is_contradicted:
            pass  # its number is not believed: it comes to the end
        elif self.reach < 0:
            self.begin = number
        elif number != 0 and number < self.end:
            return
        elif number > self.end and can_hold(number - self.end, self.reach, place):
            self.units += [self.reach] * (number - self.end)  # places of messages that are lost
        self.units.append(place)
        self.reach = place + size

    def is_contradicted(self, part, index):
        """Whether a single unit leaps ahead, and the next one does not follow it."""
        number = part[index][2]
        follows = index > 0 and number == part[index - 1][2] + 1
        if follows or index + 1 == len(part) or part[index + 1][2] == number + 1:
            return False
        return self.end < part[index + 1][2] < number


steps = st.sampled_from([1] * 12 + [0, 2, 5, -3, -1000])
records = st.tuples(steps, st.integers(1, 50), st.sampled_from([0, 0, 0, 7]))
"""How far a number is from the one before, the size of a record, and the hole before it."""


@st.composite
def logs(draw):
    number = draw(st.sampled_from([0, 0, 1, 4, 9, 13]))
    place = 0
    log = []
    for step, size, hole in draw(st.lists(records, min_size=1, max_size=40)):
        place += hole
        log.append((place, size, number))
        place += size
        number = max(number + step, 0)
    return log


@st.composite
def rounds(draw):
    """A log, and which parts of it are dispatched one after the other, some again."""
    log = draw(logs())
    parts = draw(
        st.lists(st.tuples(st.integers(0, len(log)), st.integers(0, len(log))), max_size=6)
    )
    return log, [(min(part), max(part)) for part in parts]


def consecutive(part):
    """Cut a part where its numbers jump."""
    jumps = [n for n, (a, b) in enumerate(pairwise(part), 1) if b[2] != a[2] + 1]
    return [part[a:b] for a, b in pairwise([0, *jumps, len(part)])]


@settings(max_examples=150, deadline=None)
@given(rounds(), st.booleans())
@example(([(0, 1, 0), (1, 1, 1), (2, 1, 2), (3, 1, 4), (4, 1, 1)], [(3, 5)]), False)
def test_rounds_are_units_one_by_one(case, is_packed):
    log, parts = case
    model = Model()
    with tempfile.TemporaryDirectory() as root:
        queues = open_set(Path(root), file_size=80)
        queue = queues.get_or_create(KEY)
        for start, stop in parts:
            part = log[start:stop]
            units = columns(*((place, size) for place, size, _ in part))
            if is_packed and part:
                for piece in consecutive(part):
                    data = columns(*((place, size) for place, size, _ in piece)).tobytes()
                    ends = (piece[0][0], piece[-1][0] + piece[-1][1])
                    queue.append_packed(memoryview(data), piece[0][2], len(piece), *ends)
            else:
                queue.put(units, np.array([number for _, _, number in part], np.int64))
            for index, (place, size, number) in enumerate(part):
                leaps = not is_packed and model.is_contradicted(part, index)
                model.put(place, size, number, is_contradicted=leaps)
            assert offsets(queue) == model.units
            assert bounds(queue) == (model.begin, model.end, model.reach)
        queues.close()
        again = reopen(Path(root), 0, file_size=80).find(KEY)
        if again is not None:
            assert offsets(again) == model.units
            assert bounds(again) == (model.begin, model.end, model.reach)
