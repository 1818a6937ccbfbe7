"""A store for an hour: nothing acknowledged is lost, and the process does not grow.

ROCKETLAKE_SOAK_S=3600 ROCKETLAKE_SOAK_SEED=7 make soak ARGS='-s -k life'
"""

import os
import random
import sys
import time
from collections.abc import Iterator

import pytest
from soak_life import Life, Sample, take_sample

from rocketlake.embedded.store import Store

pytestmark = pytest.mark.soak

OPENINGS = 12
SETTLES_S = 3.0
SAMPLES = 60
ROUND_S = 0.5
BACKUP_ROUNDS = 8
CLOSED = {"anonymous_kib": 12 << 10, "descriptors": 0, "threads": 0, "maps": 40}
OPEN = {"anonymous_kib": 24 << 10, "descriptors": 8, "threads": 4, "maps": 200}
"""What the later half of a run may have more than the first, while the store is closed or open.

Memory and maps are also those of the allocator, which keeps some for each thread; an open store
has as many maps as there are files between two deletions."""


def test_life_of_a_store_for_long(tmp_path):
    seconds = float(os.environ["ROCKETLAKE_SOAK_S"])
    seed = int(os.environ.get("ROCKETLAKE_SOAK_SEED") or random.SystemRandom().randrange(1 << 31))
    life = Life(tmp_path, seed)
    begin = time.monotonic()
    at_rest: list[Sample] = []
    at_work: list[Sample] = []
    say(f"seed {seed}, {seconds:.0f} s")
    while (spent := time.monotonic() - begin) < seconds:
        with life.opened() as store:
            open_s = min(max(seconds / OPENINGS, 5.0), seconds - spent)
            for sample in live(life, store, open_s, max(seconds / SAMPLES, 2.0)):
                at_work.append(sample)
                say(f"{time.monotonic() - begin:6.0f} s  open:   {sample}")
        life.check_released()
        at_rest.append(sample_at_rest(at_rest))
        say(f"{time.monotonic() - begin:6.0f} s  closed: {at_rest[-1]}")
        say(f"{'':10}{life.counts}")
    counts = life.counts
    assert min(counts.acked) > 0
    assert min(counts.consumed, counts.queries, counts.topics, counts.backups, counts.later) > 0
    assert counts.deleted_files > 0
    check_level(at_rest, CLOSED)
    check_level(at_work, OPEN)


def sample_at_rest(earlier: list[Sample]) -> Sample:
    """Look at a process whose store is closed.

    Why more than once: for the system, a thread that was joined is there a moment longer.
    """
    threads = min((sample.threads for sample in earlier), default=0)
    deadline = time.monotonic() + SETTLES_S
    while (sample := take_sample()).threads > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    return sample


def live(life: Life, store: Store, seconds: float, sample_s: float) -> Iterator[Sample]:
    end = time.monotonic() + seconds
    next_sample = time.monotonic() + sample_s
    number = 0
    with life.working(store):
        while time.monotonic() < end and not life.is_failing:
            life.look_after(store)
            if number % BACKUP_ROUNDS == 0:
                life.back_up()
            number += 1
            if time.monotonic() >= next_sample:
                next_sample = time.monotonic() + sample_s
                yield take_sample()
            # How often this is done is a part of the load.
            time.sleep(ROUND_S)
    life.await_later(store)


def check_level(samples: list[Sample], slacks: dict[str, int]) -> None:
    """What a process has does not grow with time."""
    assert len(samples) >= 4, f"only {len(samples)} samples; ROCKETLAKE_SOAK_S is too short"
    middle = len(samples) // 2
    for name, slack in slacks.items():
        before = max(getattr(sample, name) for sample in samples[:middle])
        after = max(getattr(sample, name) for sample in samples[middle:])
        assert after <= before + slack, f"{name} grows: {before}, then {after}"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
