"""A topic is deleted, made again and the power goes: its messages of before do not come back."""

import pytest
from by_hand import by_hand
from embedded_run import open_with
from msgspec import Struct
from platter import Image, Mark, Platter
from power_cuts import chances, corners, some
from recovering import LATER_MS, check_verified, family_bytes
from sim_disk import EMPTY, SimDisk

from rocketlake.model.message import Message
from support.manual_clock import ManualClock

MODES: dict[str, dict[str, object]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {},
    "buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
}
BATCH = {"queue.type": "BatchCQ"}
LIVES: dict[str, tuple[tuple[int, dict[str, str]], ...]] = {
    "the same": ((2, {}), (2, {})),
    "fewer queues": ((2, {}), (1, {})),
    "batch queues": ((2, {}), (2, BATCH)),
    "plain queues": ((2, BATCH), (2, {})),
}
CASES = [("the same", mode) for mode in MODES] + [
    (lives, "sync") for lives in LIVES if lives != "the same"
]
OLD, NEW = 14, 5  # messages of each life: a queue file holds 5 units
GROUP = "billing"


class Promise(Struct, frozen=True):
    """What must hold if the power goes now."""

    new: tuple[tuple[bytes, int, int], ...] = ()
    """Messages of the second life that are safe, with their queues and queue offsets."""
    is_begun: bool = False
    """The deletion was asked for: the messages of the first life may be gone, all of them."""
    is_deleted: bool = False
    """It returned: they are gone."""


def play(disk, clock, hands, mode, lives):
    """Put into a topic, delete it, make it again and put into it; the store stays open."""
    (count, attributes), (new_count, new_attributes) = lives
    store = open_with(disk, clock, MODES[mode])
    store.create_topic("Passing", count, attributes=attributes)
    store.create_topic("Stays", 1)
    for number in range(OLD):
        store.put(Message(topic="Passing", body=b"old %d" % number), number % count)
        store.put(Message(topic="Stays", body=b"stays %d" % number))
    with store.consumer(GROUP, "Passing") as consumer:
        assert len(consumer.poll(OLD)) == OLD
        consumer.commit()
    store.flush()
    clock.advance_ms(61_000)
    hands.run("rocketlake-queue-flush")
    store.put(Message(topic="Passing", body=b"old last"), 0)
    store.flush()
    disk.note(Promise(is_begun=True))
    store.delete_topic("Passing")
    disk.note(Promise(is_begun=True, is_deleted=True))
    store.create_topic("Passing", new_count, attributes=new_attributes)
    new = []
    for number in range(NEW):
        body, queue_id = b"new %d" % number, number % new_count
        receipt = store.put(Message(topic="Passing", body=body), queue_id)
        new.append((body, queue_id, receipt.queue_offset))
        assert receipt.queue_offset == number // new_count
        if mode == "sync" or number == 2:
            store.flush()
            disk.note(Promise(tuple(new), is_begun=True, is_deleted=True))
    hands.run("rocketlake-dispatch")
    hands.run("rocketlake-queue-flush")
    disk.look()
    return store


def read(store, topic, queues):
    """Return the bodies of a topic by queue and queue offset."""
    found = {}
    for queue_id in range(queues):
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            (message,) = store.get(topic, queue_id, offset, max_messages=1).messages
            assert message.queue_offset == offset
            found[queue_id, offset] = message.body
            offset += 1
    return found


def check(image: Image, promise: Promise, mode: str) -> None:
    clock = ManualClock(LATER_MS)
    disk = SimDisk(image, now_ms=clock.now_ms)
    with by_hand():
        store = open_with(disk, clock, MODES[mode])
        disk.look()
        check_again(disk.kept(), mode)
        found = read(store, "Passing", 2)
        old = {body for body in found.values() if body.startswith(b"old")}
        assert not (old and promise.is_deleted), f"{len(old)} messages are back"
        assert len(old) in ((0, OLD + 1) if promise.is_begun else (OLD + 1,))
        assert not (old and len(old) < len(found)), "two lives in one topic"
        for body, queue_id, offset in promise.new:
            assert found.get((queue_id, offset)) == body
        assert len(read(store, "Stays", 1)) == OLD
        if store.topic("Passing") is None:
            store.create_topic("Passing", 1)
        end = store.max_offset("Passing", 0)
        receipt = store.put(Message(topic="Passing", body=b"after"), 0)
        assert receipt.queue_offset == end
        check_group(store)
        store.close()
    check_verified(disk)


def check_group(store) -> None:
    """The group gets every message of the second life."""
    there = set(read(store, "Passing", 2).values())
    got = set()
    with store.consumer(GROUP, "Passing") as consumer:
        while messages := consumer.poll(100):
            got |= {message.body for message in messages}
    assert {body for body in there if not body.startswith(b"old")} <= got


def check_again(image: Image, mode: str) -> None:
    """Recovering twice equals recovering once."""
    clock = ManualClock(LATER_MS + 1000)
    disk = SimDisk(image, now_ms=clock.now_ms)
    open_with(disk, clock, MODES[mode])
    disk.look()
    assert family_bytes(disk.kept()) == family_bytes(image)


@pytest.mark.parametrize(("lives", "mode"), CASES)
def test_power_cut_at_every_moment_of_a_topic_deletion(lives, mode, crash_seed):
    clock = ManualClock()
    disk = SimDisk(now_ms=clock.now_ms)
    with by_hand() as hands:
        play(disk, clock, hands, mode, LIVES[lives])
    platter, promise, losses = Platter(EMPTY), None, 0
    for moment, effect in enumerate(disk.journal, 1):
        platter.apply(effect)
        if isinstance(effect, Mark):
            promise = effect.note
        if promise is None:
            continue
        fates = {**corners(), **chances(f"{crash_seed} {moment}")}
        for name, fate in some(fates, moment, 2 if lives == "the same" else 1).items():
            try:
                check(platter.crash(fate), promise, mode)
            except Exception as error:
                error.add_note(f"{lives}, {mode}, behind {moment} effects, {name}")
                raise
            losses += fate.losses["names"]
    assert losses > 0
