"""A queue is free between two owners, and a waiting consumer is woken by what concerns it."""

import gc
import threading

import pytest
from embedded_fakes import WAIT_S

from rocketlake.embedded.consumer.group_assignment import GroupAssignment, Member
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
def assignment(topic):
    return GroupAssignment("billing", "orders", topic)


class Joined:
    """A member of an assignment, and the result of its last rebalance."""

    def __init__(self, assignment: GroupAssignment, queues=None) -> None:
        self.member = Member(queues)
        self._assignment = assignment
        self._held = frozenset()
        self._serials = {}
        assignment.join(self.member)

    def rebalance(self, busy=()) -> "Joined":
        change = self._assignment.rebalance(self.member, busy)
        self.taken = tuple(sorted(change.held - self._held))
        self.lost = tuple(sorted(self._held - change.held))
        self.leaving = change.leaving
        self.resets = {
            queue: reset.offset
            for queue, reset in change.resets.items()
            if queue not in self.taken and self._serials.get(queue) != reset.serial
        }
        self._serials |= {queue: reset.serial for queue, reset in change.resets.items()}
        self._held = change.held
        return self

    def leave(self) -> None:
        self._assignment.leave(self.member)


def test_rebalance_only_member_takes_all(assignment):
    member = Joined(assignment)
    change = member.rebalance()
    assert change.taken == (0, 1, 2, 3)
    assert member.rebalance().taken == ()


def test_rebalance_queue_is_taken_only_after_its_holder_let_go(assignment):
    first = Joined(assignment)
    first.rebalance()
    second = Joined(assignment)
    assert second.rebalance().taken == ()
    assert first.rebalance().lost == (2, 3)
    assert second.rebalance().taken == (2, 3)


def test_rebalance_busy_queue_stays_until_it_is_committed(assignment):
    first = Joined(assignment)
    first.rebalance()
    second = Joined(assignment)
    change = first.rebalance(busy=[3])
    assert (change.lost, change.leaving) == ((2,), {3})
    assert second.rebalance().taken == (2,)
    assert first.rebalance().lost == (3,)
    assert second.rebalance().taken == (3,)


def test_leaving_queue_that_is_wanted_again_stays(assignment):
    first = Joined(assignment)
    first.rebalance()
    second = Joined(assignment)
    assert first.rebalance(busy=[2, 3]).leaving == {2, 3}
    second.leave()
    change = first.rebalance(busy=[2, 3])
    assert (change.lost, change.leaving) == ((), frozenset())


def test_leave_frees_queues_at_once(assignment):
    first, second = Joined(assignment), Joined(assignment)
    first.rebalance()
    second.rebalance()
    first.leave()
    assert second.rebalance().taken == (0, 1)
    assert assignment.member_count == 1


def test_reassign_follows_the_queue_count(assignment, topic):
    member = Joined(assignment)
    member.rebalance()
    before = assignment.version
    topic.count = 6
    assignment.reassign()
    assert assignment.version != before
    assert member.rebalance().taken == (4, 5)
    topic.count = 1
    assignment.reassign()
    assert member.rebalance().lost == (1, 2, 3, 4, 5)


def test_reset_reaches_the_holder_only(assignment):
    first, second = Joined(assignment, [0, 1]), Joined(assignment, [2, 3])
    first.rebalance()
    second.rebalance()
    assignment.reset_offsets({0: 10, 2: 20, 7: 70})
    assert first.rebalance().resets == {0: 10}
    assert second.rebalance().resets == {2: 20}
    assert first.rebalance().resets == {}


def test_move_is_void_once_the_queue_changed_hands(assignment):
    first = Joined(assignment)
    first.rebalance()
    assignment.reset_offsets({3: 30})
    second = Joined(assignment)
    assert first.rebalance().resets == {}
    assert second.rebalance().taken == (2, 3)
    assert second.rebalance().resets == {}


def test_end_of_a_member_in_the_middle_of_anything_is_only_noted(assignment):
    """The collector may run in a thread that holds the lock."""
    first, second = Joined(assignment), Joined(assignment)
    first.rebalance()
    before = assignment.version
    with assignment._lock:
        del first
    assert assignment.version != before
    assert second.rebalance().taken == (0, 1, 2, 3)


def test_rebalance_that_was_not_heard_says_the_same_again(assignment):
    """An exception may end the caller before it takes note."""
    first = Joined(assignment)
    first.rebalance()
    Joined(assignment).rebalance()
    assignment.reset_offsets({0: 9})
    unheard = assignment.rebalance(first.member, ())
    heard = assignment.rebalance(first.member, ())
    assert (heard.held, heard.leaving, heard.resets) == (
        unheard.held,
        unheard.leaving,
        unheard.resets,
    )


# --- waiting --------------------------------------------------------------------------------------


def waiting_thread(assignment: GroupAssignment, woken: threading.Event) -> threading.Thread:
    def run() -> None:
        with assignment.listening() as ticket:
            if assignment.wait(ticket, WAIT_S):
                woken.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def until_awaited(assignment: GroupAssignment) -> None:
    done = threading.Event()
    while not assignment.is_awaited:
        done.wait(0.001)


@pytest.mark.parametrize("act", ["notify", "close", "reassign"])
def test_wait_is_ended_by(assignment, act):
    woken = threading.Event()
    thread = waiting_thread(assignment, woken)
    until_awaited(assignment)
    getattr(assignment, act)()
    thread.join(WAIT_S)
    assert woken.is_set()
    assert not assignment.is_awaited


def test_wait_ring_between_ticket_and_wait_is_not_missed(assignment):
    with assignment.listening() as ticket:
        assignment.notify()
        assert assignment.wait(ticket, WAIT_S)


def test_wait_time_runs_out(assignment):
    with assignment.listening() as ticket:
        assert not assignment.wait(ticket, 0.001)


def test_listening_with_is_called_until_it_ends(assignment):
    calls = []
    with assignment.listening_with(lambda: calls.append(1)):
        assert assignment.is_awaited
        assignment.notify()
    assignment.notify()
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
    orders, bills = groups.assignment("g", "orders"), groups.assignment("g", "bills")
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

    groups.assignment("g", "orders")
    groups.arrived(Untouchable([1]))


def test_division_of_a_group_and_topic_is_always_the_same(groups):
    assert groups.assignment("g", "orders") is groups.assignment("g", "orders")
    assert groups.assignment("h", "orders") is not groups.assignment("g", "orders")
    assert groups.find("nobody", "orders") is None


def test_division_that_no_consumer_has_is_forgotten(groups):
    for number in range(10):
        groups.assignment("g", f"topic{number}")
    kept = groups.assignment("g", "orders")
    gc.collect()
    assert groups.find("g", "topic3") is None
    assert list(groups._table) == [("g", "orders")]
    assert groups.find("g", "orders") is kept


def test_topic_changed_reaches_its_divisions_only(groups):
    orders, bills = groups.assignment("g", "orders"), groups.assignment("g", "bills")
    before = orders.version, bills.version
    groups.topic_changed("orders")
    assert orders.version > before[0]
    assert bills.version == before[1]


def test_close_closes_divisions_of_now_and_later(groups):
    orders = groups.assignment("g", "orders")
    groups.close()
    assert orders.is_closed
    assert groups.assignment("g", "later").is_closed
    gc.collect()
