"""An open store cuts its log, and is killed or the power goes: its parts agree again."""

import pytest
from by_hand import by_hand
from platter import Image, Mark, Platter
from power_cuts import chances, corners, some
from recovering import LATER_MS, check_verified
from sim_disk import EMPTY, SimDisk
from sim_store import open_on
from test_deletion_power_cut import QUEUES, put, read

from rocketlake.store.api import GetRequest
from rocketlake.store.disk.index import KeyQuery
from support.manual_clock import ManualClock

MODES = ("sync", "async", "buffers")
COUNT, KEPT, MORE = 90, 62, 66


def play(disk, clock, hands, mode):
    """Put, cut, put again; notes say how many messages are safe, and how many there may be."""
    store = open_on(disk, clock, mode)
    for number in range(COUNT):
        clock.advance_ms(100)
        put(store, [number])
    store.flush()
    store.catch_up()
    clock.advance_ms(61_000)
    hands.run("rocketlake-queue-flush")
    offset = next(
        message.physical_offset
        for message in store.get(asked(KEPT)).messages
        if message.queue_offset == KEPT // 3
    )
    disk.note((KEPT, COUNT))
    lost = store.truncate(offset)
    assert lost > 8192
    disk.note((KEPT, KEPT))
    clock.advance_ms(100)
    put(store, range(KEPT, MORE))
    store.flush()
    disk.note((MORE, MORE))
    hands.run("rocketlake-dispatch")
    hands.run("rocketlake-queue-flush")
    disk.look()
    return store


def asked(number):
    key = QUEUES[number % 3]
    return GetRequest(topic=key.topic, queue_id=key.queue_id, offset=number // 3, max_messages=1)


def check(image: Image, mode: str, safe: int, most: int) -> None:
    """The store has the first messages, each at its own place and key, and takes the next ones."""
    clock = ManualClock(LATER_MS)
    disk = SimDisk(image, now_ms=clock.now_ms)
    with by_hand(), open_on(disk, clock, mode) as store:
        numbers = sorted(read(store).values())
        assert numbers == list(range(len(numbers))), "a message is lost, or there twice"
        assert safe <= len(numbers) <= most
        for number in (0, KEPT - 1, KEPT, len(numbers) - 1, len(numbers)):
            topic = QUEUES[number % 3].topic
            found = store.query(KeyQuery(topic=topic, key=f"k{number}")).messages
            assert len(found) == (number < len(numbers)), f"key {number} of {len(numbers)}"
        put(store, range(len(numbers), len(numbers) + 4))
        assert sorted(read(store).values()) == list(range(len(numbers) + 4))
    check_verified(disk)


@pytest.mark.parametrize("mode", MODES)
def test_power_cut_at_every_moment_of_a_truncation(mode, crash_seed):
    clock = ManualClock()
    disk = SimDisk(now_ms=clock.now_ms)
    with by_hand() as hands:
        play(disk, clock, hands, mode)
    platter, promise, losses, cuts = Platter(EMPTY), None, 0, 0
    for moment, effect in enumerate(disk.journal, 1):
        platter.apply(effect)
        if isinstance(effect, Mark):
            promise = effect.note
        if promise is None:
            continue
        fates = {**corners(), **chances(f"{crash_seed} {moment}")}
        # What was put behind the last note may be there; what the cut has taken is not.
        most = MORE if promise[1] != COUNT else COUNT
        for name, fate in some(fates, moment, 2).items():
            try:
                check(platter.crash(fate), mode, promise[0], most)
            except Exception as error:
                error.add_note(f"{mode}, behind {moment} effects, {name}, {promise}")
                raise
            losses += fate.losses["names"]
            cuts += 1
    assert losses > 0
    assert cuts > 50
