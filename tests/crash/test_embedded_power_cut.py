"""The power goes while a program works: topics, progress of groups and delayed messages stay."""

import random
from collections import Counter

from by_hand import Hands, by_hand
from embedded_run import GROUP, TOPIC, Certain, EmbeddedRun, open_embedded
from platter import Image, Mark, Platter
from power_cuts import chances, corners, some
from recovering import LATER_MS, check_verified
from sim_disk import EMPTY, SimDisk
from sim_store import ROOT

from rocketlake.files.json_file import load_table
from rocketlake.model.topics import SCHEDULE_TOPIC
from support.manual_clock import ManualClock

STEPS = 40
TABLES = ("topics.json", "consumerOffset.json", "delayOffset.json")


def test_power_cut_at_every_moment_of_a_program(crash_seed):
    losses: Counter[str] = Counter()
    chooser = random.Random(f"embedded {crash_seed}")
    with by_hand() as hands:
        run = EmbeddedRun(hands, crash_seed)
        run.play(STEPS)
        platter, certain = Platter(EMPTY), Certain()
        for moment, effect in enumerate(run.disk.journal):
            platter.apply(effect)
            if isinstance(effect, Mark):
                certain = effect.note
            fates = {**corners(), **chances(f"{crash_seed} {moment}")}
            for name, fate in some(fates, chooser.randrange(8), 2).items():
                image = platter.crash(fate)
                losses += fate.losses
                try:
                    check_tables(image, certain)
                    check_store(hands, image, certain)
                except Exception as error:
                    error.add_note(f"--crash-seed={crash_seed}, behind {moment} effects, {name}")
                    raise
    assert not run.disk.touched_holes
    assert all(losses[kind] > 0 for kind in ("pages", "names", "sizes"))


def check_tables(image: Image, certain: Certain) -> None:
    """Each is the old one or the new one, whole; none is missing that was there."""
    disk = SimDisk(image)
    for name in TABLES:
        table = load_table(ROOT / "config" / name, ops=disk)
        assert table.problem is None, f"{name}: {table.problem}"
        assert table.source != "backup", name
    if certain.topics:
        assert load_table(ROOT / "config" / "topics.json", ops=disk).value


def check_store(hands: Hands, image: Image, certain: Certain) -> None:
    clock = ManualClock(LATER_MS)
    disk = SimDisk(image, now_ms=clock.now_ms)
    store = open_embedded(disk, clock)
    assert certain.topics <= {topic.name for topic in store.topics()}
    with store.consumer(GROUP, TOPIC) as consumer:
        first = [message.queue_offset for message in consumer.poll(1)]
        end = store.max_offset(TOPIC, 0)
        # A group goes on where it was, or a little before: messages come again, none is left out.
        assert certain.committed <= (first[0] if first else end) <= certain.committed_max
    waiting = sum(store.max_offset(SCHEDULE_TOPIC, level) for level in range(18))
    assert waiting >= len(certain.delayed)
    clock.advance_ms(3_600_000)
    for _ in range(3):
        hands.run("rocketlake-dispatch")
        hands.run("delay levels")
    bodies: Counter[bytes] = Counter()
    offset = 0
    while offset < store.max_offset(TOPIC, 0):
        result = store.get(TOPIC, 0, offset)
        bodies.update(message.body for message in result.messages)
        offset = result.next_offset
    assert all(bodies[body] == 1 for body in certain.bodies)
    assert certain.delayed <= bodies.keys()
    store.close()
    assert not disk.touched_holes
    check_verified(disk)
