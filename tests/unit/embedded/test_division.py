"""A queue goes from hand to hand through nobody's; who waits is woken by what concerns it."""

import gc
import threading

import pytest
from embedded_fakes import WAIT_S

from rocketlake.embedded.consumer.group_assignment import Division, Member
from rocketlake.embedded.consumer.groups import Groups
from rocketlake.store.ports import Arrival


class Topic:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, topic: str) -> int:
        return self.count


@pytest.fixture
def topic():
    return Topic(4)


@pytest.fixture
def division(topic):
    return Division("billing", "orders", topic)


class Joined:
    """A member of a division, and what it heard from its last question."""

    def __init__(self, division: Division, queues=None) -> None:
        self.member = Member(queues)
        self._division = division
        self._held = frozenset()
        self._serials = {}
        division.join(self.member)

    def settle(self, busy=()) -> "Joined":
        change = self._division.settle(self.member, busy)
        self.taken = tuple(sorted(change.held - self._held))
        self.lost = tuple(sorted(self._held - change.held))
        self.leaving = change.leaving
        self.moves = {
            queue: move.offset
            for queue, move in change.moves.items()
            if queue not in self.taken and self._serials.get(queue) != move.serial
        }
        self._serials |= {queue: move.serial for queue, move in change.moves.items()}
        self._held = change.held
        return self

    def leave(self) -> None:
        self._division.leave(self.member)


def test_settle_only_member_takes_all(division):
    member = Joined(division)
    change = member.settle()
    assert change.taken == (0, 1, 2, 3)
    assert member.settle().taken == ()


def test_settle_queue_is_taken_only_after_its_holder_let_go(division):
    first = Joined(division)
    first.settle()
    second = Joined(division)
    assert second.settle().taken == ()
    assert first.settle().lost == (2, 3)
    assert second.settle().taken == (2, 3)


def test_settle_busy_queue_stays_until_it_is_committed(division):
    first = Joined(division)
    first.settle()
    second = Joined(division)
    change = first.settle(busy=[3])
    assert (change.lost, change.leaving) == ((2,), {3})
    assert second.settle().taken == (2,)
    assert first.settle().lost == (3,)
    assert second.settle().taken == (3,)


def test_leaving_queue_that_is_wanted_again_stays(division):
    first = Joined(division)
    first.settle()
    second = Joined(division)
    assert first.settle(busy=[2, 3]).leaving == {2, 3}
    second.leave()
    change = first.settle(busy=[2, 3])
    assert (change.lost, change.leaving) == ((), frozenset())


def test_leave_frees_queues_at_once(division):
    first, second = Joined(division), Joined(division)
    first.settle()
    second.settle()
    first.leave()
    assert second.settle().taken == (0, 1)
    assert division.member_count == 1


def test_change_of_queue_count_divides_anew(division, topic):
    member = Joined(division)
    member.settle()
    before = division.version
    topic.count = 6
    division.change()
    assert division.version != before
    assert member.settle().taken == (4, 5)
    topic.count = 1
    division.change()
    assert member.settle().lost == (1, 2, 3, 4, 5)


def test_move_reaches_the_holder_only(division):
    first, second = Joined(division, [0, 1]), Joined(division, [2, 3])
    first.settle()
    second.settle()
    division.move({0: 10, 2: 20, 7: 70})
    assert first.settle().moves == {0: 10}
    assert second.settle().moves == {2: 20}
    assert first.settle().moves == {}


def test_move_is_void_once_the_queue_changed_hands(division):
    first = Joined(division)
    first.settle()
    division.move({3: 30})
    second = Joined(division)
    assert first.settle().moves == {}
    assert second.settle().taken == (2, 3)
    assert second.settle().moves == {}


def test_end_of_a_member_in_the_middle_of_anything_is_only_noted(division):
    """The collector may run in a thread that holds the lock."""
    first, second = Joined(division), Joined(division)
    first.settle()
    before = division.version
    with division._lock:
        del first
    assert division.version != before
    assert second.settle().taken == (0, 1, 2, 3)


def test_settle_that_was_not_heard_says_the_same_again(division):
    """An exception may end the caller before it takes note."""
    first = Joined(division)
    first.settle()
    Joined(division).settle()
    division.move({0: 9})
    unheard = division.settle(first.member, ())
    heard = division.settle(first.member, ())
    assert (heard.held, heard.leaving, heard.moves) == (
        *(unheard.held, unheard.leaving, unheard.moves),
    )


# --- waiting --------------------------------------------------------------------------------------


def waiting_thread(division: Division, woken: threading.Event) -> threading.Thread:
    def run() -> None:
        with division.listening() as ticket:
            if division.wait(ticket, WAIT_S):
                woken.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def until_awaited(division: Division) -> None:
    done = threading.Event()
    while not division.is_awaited:
        done.wait(0.001)


@pytest.mark.parametrize("act", ["ring", "close", "change"])
def test_wait_is_ended_by(division, act):
    woken = threading.Event()
    thread = waiting_thread(division, woken)
    until_awaited(division)
    getattr(division, act)()
    thread.join(WAIT_S)
    assert woken.is_set()
    assert not division.is_awaited


def test_wait_ring_between_ticket_and_wait_is_not_missed(division):
    with division.listening() as ticket:
        division.ring()
        assert division.wait(ticket, WAIT_S)


def test_wait_time_runs_out(division):
    with division.listening() as ticket:
        assert not division.wait(ticket, 0.001)


def test_listening_with_is_called_until_it_ends(division):
    calls = []
    with division.listening_with(lambda: calls.append(1)):
        assert division.is_awaited
        division.ring()
    division.ring()
    assert calls == [1]


def arrival(topic: str) -> Arrival:
    return Arrival(
        topic=topic,
        queue_id=0,
        next_offset=1,
        tags_code=0,
        store_timestamp=0,
        bitmap=None,
        properties={},
    )


@pytest.fixture
def groups():
    return Groups(Topic(4))


def test_arrivals_wake_only_waiters_of_their_topic(groups):
    calls = []
    orders, bills = groups.division("g", "orders"), groups.division("g", "bills")
    with (
        orders.listening_with(lambda: calls.append("orders")),
        bills.listening_with(lambda: calls.append("bills")),
    ):
        groups.arrived([arrival("bills")])
        assert calls == ["bills"]
        groups.arrived([arrival("bills")] * 100)  # a burst is not looked at
        assert sorted(calls) == ["bills", "bills", "orders"]


def test_arrivals_are_not_looked_at_when_nobody_waits(groups):
    class Untouchable(list):
        def __iter__(self):
            raise AssertionError("looked at")

    groups.division("g", "orders")
    groups.arrived(Untouchable([1]))


def test_division_of_a_group_and_topic_is_always_the_same(groups):
    assert groups.division("g", "orders") is groups.division("g", "orders")
    assert groups.division("h", "orders") is not groups.division("g", "orders")
    assert groups.find("nobody", "orders") is None


def test_division_that_no_consumer_has_is_forgotten(groups):
    for number in range(10):
        groups.division("g", f"topic{number}")
    kept = groups.division("g", "orders")
    gc.collect()
    assert groups.find("g", "topic3") is None
    assert list(groups._table) == [("g", "orders")]
    assert groups.find("g", "orders") is kept


def test_topic_changed_reaches_its_divisions_only(groups):
    orders, bills = groups.division("g", "orders"), groups.division("g", "bills")
    before = orders.version, bills.version
    groups.topic_changed("orders")
    assert orders.version > before[0]
    assert bills.version == before[1]


def test_close_closes_divisions_of_now_and_later(groups):
    orders = groups.division("g", "orders")
    groups.close()
    assert orders.is_closed
    assert groups.division("g", "later").is_closed
    gc.collect()
