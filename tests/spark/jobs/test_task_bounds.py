"""How arguments are divided among tasks: each once, evenly, with short tasks at the end."""

import random
from itertools import pairwise

import pytest

from rocketlake.spark.jobs.tasks import even_bounds, falling_bounds


def weights_of(chance):
    heavy = chance.random() < 0.5
    return [chance.uniform(0.1, 3) + 50 * (heavy and not n) for n in range(chance.randint(1, 900))]


@pytest.mark.parametrize("bounds_of", [even_bounds, falling_bounds])
def test_every_argument_is_in_one_task(bounds_of):
    chance = random.Random(14)
    for _ in range(100):
        weights, tasks = weights_of(chance), chance.randint(1, 16)
        bounds = bounds_of(weights, tasks)
        assert bounds == sorted(set(bounds))
        assert (bounds[0], bounds[-1]) == (0, len(weights))
        if bounds_of is even_bounds:
            assert len(bounds) - 1 <= tasks


def test_even_tasks_are_even():
    assert even_bounds([1.0] * 1024, 256) == list(range(0, 1025, 4))
    assert even_bounds([1.0] * 3, 256) == [0, 1, 2, 3]
    assert even_bounds([100.0, *[1.0] * 100], 2) == [0, 1, 101]


def makespan(weights, bounds, cores):
    """How long cores take that each take the next task when they have none."""
    free = [0.0] * cores
    for begin, end in pairwise(bounds):
        free[free.index(min(free))] += sum(weights[begin:end])
    return max(free)


def test_cores_end_together():
    chance = random.Random(15)
    for _ in range(200):
        cores = chance.choice((1, 2, 4))
        weights = [chance.uniform(0.8, 1.2) for _ in range(chance.randint(60, 300))]
        weights.insert(0, chance.uniform(0, sum(weights) / (2 * cores)))  # as a file of the index
        bounds = falling_bounds(weights, cores)
        ideal = sum(weights) / cores
        assert makespan(weights, bounds, cores) < 1.12 * ideal
        assert len(bounds) - 1 <= cores * 20
