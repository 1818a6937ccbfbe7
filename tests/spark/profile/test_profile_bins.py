"""Bins: every number has one, percentiles from them are as exact as they say."""

import itertools
import random

import pytest

from rocketlake.spark.jobs.profile import bins
from rocketlake.spark.jobs.profile import number_text as figures
from rocketlake.spark.jobs.profile import time_axis as axis

NUMBERS = [*range(-2, 200), *(2**k + d for k in range(5, 42) for d in (-1, 0, 1))]


def test_every_number_lies_within_its_bin():
    for number in NUMBERS:
        first, end = bins.bounds(bins.bin_of(number))
        assert first <= max(number, -1) < end, number


def test_bins_follow_each_other_without_a_gap():
    ends = [bins.bounds(number) for number in range(600)]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_are_off_by_no_more_than_they_say(share):
    rng = random.Random(1)
    values = sorted(int(rng.lognormvariate(5, 2)) for _ in range(5000))
    counts: dict[int, int] = {}
    for value in values:
        counts[bins.bin_of(value)] = counts.get(bins.bin_of(value), 0) + 1
    exact = values[max(int(share * len(values) + 0.999999) - 1, 0)]
    (found,) = bins.percentiles(counts, [share])
    assert found == pytest.approx(exact, rel=bins.RELATIVE_ERROR, abs=0.5)


def test_percentiles_of_nothing_are_none_and_none_is_above_the_highest():
    assert bins.percentiles({}, [0.5, 0.99]) == [None, None]
    assert bins.percentiles({bins.bin_of(213): 1}, [0.5], 213) == [213]
    assert bins.percentiles({bins.NEGATIVE: 3}, [0.5], -5) == [0.0]


def test_doublings_join_bins_and_keep_empty_ones_between():
    counts = [(bins.bin_of(n), 1) for n in (-7, 0, 1, 3, 40, 41)]
    assert bins.doublings(counts) == [
        *((-1, 0, 1), (0, 1, 1), (1, 2, 1), (2, 4, 1)),
        *((4, 8, 0), (8, 16, 0), (16, 32, 0), (32, 64, 2)),
    ]
    assert bins.doublings([]) == []


@pytest.mark.parametrize("span_ms", [0, 1, 999, 60_000, 86_400_000, 10**12, 10**14])
def test_steps_are_neither_many_nor_shorter_than_they_may(span_ms):
    step = axis.step_for(span_ms)
    assert step >= 100
    assert span_ms / step <= axis.STEPS_MAX


def test_spelling_of_numbers_and_times():
    assert [figures.short_count(n) for n in (0, 0.25, 7, 9999, 12_345, 2.5e9)] == [
        *("0", "0.25", "7", "9,999", "12.3 k", "2.5 G"),
    ]
    assert [axis.span_text(n) for n in (0, 0.5, 12, 1500, 90_000, 86_400_000)] == [
        *("0 ms", "0.5 ms", "12 ms", "1.5 s", "1.5 min", "1 d"),
    ]
    assert axis.utc_text(1 << 62) == f"{1 << 62} ms"
    assert figures.share_text(1, 10_000) == "< 0.1 %"
    assert figures.share_text(1, 0) == "-"
