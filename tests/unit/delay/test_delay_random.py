"""Random days of a timer and of levels: each message comes, never early, and twice only by a crash.

The store in memory keeps what was put, as a store does whose process is killed.
"""

import random
from collections import Counter

import pytest
from timer_bench import TimerBench

from rocketlake.delay.level_scheduler import LevelRules, LevelScheduler
from rocketlake.delay.levels import DelayLevels
from rocketlake.metadata.offsets import DelayOffsets
from rocketlake.store.api import PutStatus

LEVELS = DelayLevels((1_000, 5_000, 10_000, 30_000))
WINDOW = 40  # slots; most messages are rolled
END_MS = 600_000


class Days:
    """What happens, chosen by chance, and what must come of it."""

    def __init__(self, store, place, usage, seed):
        self.random = random.Random(seed)
        self.bench = TimerBench(store, place, usage, roll_window_slots=WINDOW)
        self.store = store
        self.clock = store.clock
        self.expected = {}  # body -> when it is due
        self.kills = 0
        self.levels = None
        self.start_levels()

    def start_levels(self):
        offsets = DelayOffsets.load(self.bench.place)
        rules = LevelRules(levels=LEVELS, flush_interval_ms=3_000)
        self.levels = LevelScheduler(self.store, self.clock, offsets, rules, usage=self.bench.usage)

    def send(self):
        body = b"%d" % len(self.expected)
        now = self.clock.now_ms()
        if self.random.random() < 0.3:
            level = self.random.randint(1, 4)
            receipt = self.store.send(body=body, delay_level=level)
            due = now + LEVELS.delay_ms(level)
        else:
            due = now + self.random.choice([1, 400, 1_000, 7_300, 55_000, 130_000, 200_001])
            receipt = self.store.send(body=body, deliver_at=due, properties={"UNIQ_KEY": "u"})
        if receipt.is_ok:
            self.expected[body] = due

    def run(self):
        self.bench.timer.run_once()
        self.levels.run_once()

    def wait(self):
        self.clock.advance_ms(self.random.choice([0, 1, 99, 100, 999, 1_000, 3_500, 20_000]))

    def stop(self):
        self.store.refuse = lambda _request: None
        # Puts that failed are done before a clean stop, which would otherwise repeat a half slot.
        self.clock.advance_ms(2_000)
        self.run()
        self.bench.timer.close()
        self.levels.close()
        self.restart()

    def kill(self):
        self.kills += 1
        self.bench.kill()
        self.restart()

    def restart(self):
        self.clock.advance_ms(self.random.choice([0, 500, 9_000]))
        self.bench.restart()
        self.start_levels()

    def fail(self):
        share = self.random.choice([0.0, 0.0, 0.5, 1.0])
        chance = random.Random(self.random.random())
        self.store.refuse = lambda _request: (
            PutStatus.OS_PAGE_CACHE_BUSY if chance.random() < share else None
        )

    def finish(self):
        self.store.refuse = lambda _request: None
        for _ in range(END_MS // 20_000):
            self.clock.advance_ms(20_000)
            self.run()
        self.run()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("is_killed", [False, True])
def test_every_message_comes_and_none_early(store, place, usage, seed, is_killed):
    days = Days(store, place, usage, seed)
    steps = [days.send] * 6 + [days.run] * 4 + [days.wait] * 3 + [days.fail, days.stop]
    if is_killed:
        steps.append(days.kill)
    for _ in range(150):
        days.random.choice(steps)()
    days.finish()
    found = store.messages()
    counts = Counter(message.stored_body for message in found)
    assert set(counts) == set(days.expected)
    for message in found:
        assert message.store_timestamp >= days.expected[message.stored_body]
    if not days.kills:
        assert set(counts.values()) <= {1}
    assert len(days.expected) > 10
    assert days.bench.timer.unset_count == 0
    assert days.levels.waiting_count == 0
