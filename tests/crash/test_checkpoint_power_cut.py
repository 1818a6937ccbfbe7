"""The checkpoint speaks of no record that a power cut can take."""

import pytest
from by_hand import by_hand
from embedded_run import open_with
from platter import Platter
from power_cuts import chances, corners
from recovering import LATER_MS, check_verified
from sim_disk import EMPTY, SimDisk
from sim_store import ROOT

from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.message import Message
from support.manual_clock import ManualClock

MODES: dict[str, dict[str, object]] = {
    "async": {"flush_commit_log_thorough_interval": 10_000},
    "buffers": {
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 3,
        "flush_commit_log_thorough_interval": 10,
    },
}
STEPS = {
    "async": ("rocketlake-dispatch", "rocketlake-queue-flush", "index-flush"),
    "buffers": ("rocketlake-flush", "rocketlake-dispatch", "rocketlake-queue-flush", "index-flush"),
}
"""With write buffers the log is flushed as far as it is committed, which is not far."""
SOON = {"flush_consume_queue_thorough_interval": 50}


def put(store, clock, count):
    for number in range(count):
        clock.advance_ms(10)
        store.put(Message(topic="T", body=bytes(100), keys=[f"k{number}"]), 0)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_checkpoint_is_never_ahead_of_the_log_on_the_disk(mode, crash_seed):
    """Queues and index are flushed more often than the log."""
    clock = ManualClock()
    disk = SimDisk(now_ms=clock.now_ms)
    with by_hand() as hands:
        store = open_with(disk, clock, MODES[mode] | SOON)
        store.create_topic("T", 1)
        put(store, clock, 3)
        store.flush()
        for _ in range(6):
            put(store, clock, 7)
            if mode == "buffers":
                hands.run("rocketlake-commit")
            put(store, clock, 1)
            clock.advance_ms(60)
            for name in STEPS[mode]:
                hands.run(name)
        disk.look()
        platter = Platter(EMPTY)
        for moment, effect in enumerate(disk.journal, 1):
            platter.apply(effect)
            if moment % 5:
                continue
            fates = {**corners(), **chances(f"{crash_seed} {moment}")}
            name = list(fates)[moment // 5 % len(fates)]
            later = ManualClock(LATER_MS)
            image = platter.crash(fates[name])
            after = SimDisk(image, now_ms=later.now_ms)
            try:
                newest = open_with(after, later, MODES[mode]).recovery.last_timestamp
                page = Checkpoint.decode(image.contents().get(ROOT / "checkpoint", b""))
                assert newest >= page.physical_timestamp
                assert page.physical_timestamp >= max(page.queue_timestamp, page.index_timestamp)
                check_verified(SimDisk(after.kept(), now_ms=later.now_ms))
            except Exception as error:
                error.add_note(f"{mode}, behind {moment} effects, {name}")
                raise
