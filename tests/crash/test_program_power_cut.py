"""The power goes while groups, delays, timers, retention, batch queues, deletions are at work."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from by_hand import Hands, by_hand
from msgspec import Struct
from platter import Image, Mark, Platter
from power_cuts import chances, corners
from program_run import (
    GROUP,
    MODES,
    PASSING,
    QUEUES,
    SERVICES,
    TOPICS,
    ProgramRun,
    State,
    make_topics,
    open_program,
)
from recovering import LATER_MS, check_verified
from sim_disk import EMPTY, SimDisk
from small_wheel import small_wheel

from rocketlake.embedded.inner_batch import is_inner_batch, unpack
from rocketlake.embedded.store import Store
from rocketlake.model.message import Message
from support.manual_clock import ManualClock

STEPS = 60
IMAGES = 80
LIVES = 4
NEW = 2  # messages that are put into each queue after the cut


class Cut(Struct, frozen=True):
    """What is left of a moment."""

    image: Image
    state: State
    name: str


class Cutter:
    """Cuts the power at chosen moments of a run; counts what was lost, to show that it was."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(f"cuts {seed}")
        self._seed = seed
        self.losses: Counter[str] = Counter()

    def choose(self, left: list[Cut]) -> Cut:
        """Choose one by chance."""
        return self._random.choice(left)

    def cuts(self, run: ProgramRun, image: Image, count: int) -> Iterator[Cut]:
        """Yield what is left of so many moments, each with a fate by chance."""
        journal = list(run.disk.journal)
        chosen = set(self._random.sample(range(len(journal)), min(count, len(journal))))
        platter, state = Platter(image), run.first
        for moment, effect in enumerate(journal):
            platter.apply(effect)
            if isinstance(effect, Mark):
                state = effect.note
            if moment in chosen:
                fates = {**corners(), **chances(f"{self._seed} {moment}")}
                name = self._random.choice(list(fates))
                left = platter.crash(fates[name])
                self.losses += fates[name].losses
                yield Cut(left, state, f"behind {moment} effects, {name}")


@pytest.mark.parametrize("mode", sorted(MODES))
def test_power_cut_while_everything_is_at_work(mode, crash_seed):
    cutter = Cutter(crash_seed)
    with by_hand() as hands, small_wheel():
        run = ProgramRun(mode, hands, crash_seed)
        run.play(STEPS)
        run.store.close()
        for cut in cutter.cuts(run, EMPTY, IMAGES):
            try:
                check_program(hands, cut.image, cut.state, mode)
            except Exception as error:
                error.add_note(f"{mode} --crash-seed={crash_seed}: {cut.name}")
                raise
    assert not run.disk.touched_holes
    assert run.expired > 0
    assert all(cutter.losses[kind] > 0 for kind in ("pages", "names"))


@pytest.mark.parametrize("mode", sorted(MODES))
def test_one_life_of_a_program_after_the_other(mode, crash_seed):
    """Each begins with what a power cut has left of the one before it, its recovery included."""
    cutter = Cutter(f"lives {crash_seed}")
    image, first, clock = EMPTY, None, ManualClock()
    with by_hand() as hands, small_wheel():
        for life in range(LIVES):
            seed = f"{crash_seed} {life}"
            run = ProgramRun(mode, hands, seed, clock=clock, image=image, first=first)
            run.play(STEPS // 3)
            run.store.close()
            left = list(cutter.cuts(run, image, IMAGES // 8))
            for cut in left:
                try:
                    check_program(hands, cut.image, cut.state, mode)
                except Exception as error:
                    error.add_note(f"{mode} --crash-seed={crash_seed}: life {life}, {cut.name}")
                    raise
            cut = cutter.choose(left)
            image, first = cut.image, cut.state.after_cut()
            clock = ManualClock(run.clock.now_ms() + 1000)


def check_program(hands: Hands, image: Image, state: State, mode: str) -> None:
    clock = ManualClock(LATER_MS)
    disk = SimDisk(image, now_ms=clock.now_ms)
    store = open_program(disk, clock, mode)
    assert state.topics <= {topic.name for topic in store.topics()}
    check_places(store, state)
    new = put_new(store)
    let_time_pass(hands, clock)
    check_delivered(store, state)
    check_group(store, state, new)
    check_deleted(store, state)
    store.close()
    assert not disk.touched_holes
    check_verified(disk)


def log_begin(store: Store) -> int:
    return store._parts.core.log.min_offset


def check_places(store: Store, state: State) -> None:
    """Each message that is safe and not expired is at its own queue offset."""
    begin = log_begin(store)
    for letter in state.letters[: state.safe]:
        if letter.is_delayed or letter.physical_offset < begin:
            continue
        result = store.get(letter.topic, letter.queue_id, letter.queue_offset, max_messages=1)
        assert result.messages, f"{letter} is lost: {result.status}"
        found = result.messages[0]
        assert (found.body, found.queue_offset) == (letter.body, letter.queue_offset), letter


def put_new(store: Store) -> set[bytes]:
    """Put messages; each gets the number behind the last one of its queue."""
    new = set()
    make_topics(store)
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            end = store.max_offset(topic, queue_id)
            for number in range(NEW):
                body = b"new %d %d %s" % (queue_id, number, topic.encode())
                receipt = store.put(Message(topic=topic, body=body), queue_id)
                assert receipt.is_ok, receipt
                assert receipt.queue_offset == end + number
                new.add(body)
    return new


def let_time_pass(hands: Hands, clock: ManualClock) -> None:
    for _ in range(5):
        clock.advance_ms(70_000)
        for name in ("rocketlake-dispatch", *SERVICES, "rocketlake-dispatch"):
            hands.run(name)


def read_topic(store: Store, topic: str) -> Counter[bytes]:
    """Read all queues of a topic; every message is at its own queue offset."""
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            result = store.get(topic, queue_id, offset)
            assert result.messages, f"{topic}/{queue_id} at {offset}: {result.status}"
            for message in result.messages:
                assert message.queue_offset == offset, f"{topic}/{queue_id}: {offset}"
                inside = unpack(message) if is_inner_batch(message) else [message]
                found.update(one.body for one in inside)
                offset += len(inside)
    return found


def check_delivered(store: Store, state: State) -> None:
    """Each delayed message that is safe and not expired is there at least once."""
    begin = log_begin(store)
    found = {topic: read_topic(store, topic) for topic in TOPICS}
    for letter in state.letters[: state.safe]:
        if letter.is_delayed and letter.physical_offset >= begin:
            assert found[letter.topic][letter.body], f"{letter} was not delivered"


def check_group(store: Store, state: State, new: set[bytes]) -> None:
    """The group has processed everything that is there, before the cut or now."""
    for topic in TOPICS:
        got = set()
        with store.consumer(GROUP, topic) as consumer:
            while messages := consumer.poll(100):
                got |= {message.body for message in messages}
                consumer.commit()
        there = set(read_topic(store, topic))
        skipped = there - got - state.processed
        assert not skipped, f"{topic}: the group skipped {sorted(skipped)[:3]}"
        assert there & new <= got


def check_deleted(store: Store, state: State) -> None:
    """No message of a topic that was deleted is there again."""
    back = state.deleted & set(read_topic(store, PASSING))
    assert not back, f"{PASSING}: {len(back)} messages are back"
