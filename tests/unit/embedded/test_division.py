"""A queue goes from hand to hand through nobody's; who waits is woken by what concerns it."""

import gc
import threading

import pytest
from embedded_fakes import WAIT_S

from rocketlake.embedded.division import Division
from rocketlake.embedded.groups import Groups
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


def test_settle_only_member_takes_all(division):
    member = division.join(None)
    change = division.settle(member, busy=())
    assert change.taken == (0, 1, 2, 3)
    assert division.settle(member, busy=()).taken == ()


def test_settle_queue_is_taken_only_after_its_holder_let_go(division):
    first = division.join(None)
    division.settle(first, busy=())
    second = division.join(None)
    assert division.settle(second, busy=()).taken == ()
    assert division.settle(first, busy=()).lost == (2, 3)
    assert division.settle(second, busy=()).taken == (2, 3)


def test_settle_busy_queue_stays_until_it_is_committed(division):
    first = division.join(None)
    division.settle(first, busy=())
    second = division.join(None)
    change = division.settle(first, busy=[3])
    assert (change.lost, change.leaving) == ((2,), {3})
    assert division.settle(second, busy=()).taken == (2,)
    assert division.settle(first, busy=()).lost == (3,)
    assert division.settle(second, busy=()).taken == (3,)


def test_leaving_queue_that_is_wanted_again_stays(division):
    first = division.join(None)
    division.settle(first, busy=())
    second = division.join(None)
    assert division.settle(first, busy=[2, 3]).leaving == {2, 3}
    division.leave(second)
    change = division.settle(first, busy=[2, 3])
    assert (change.lost, change.leaving) == ((), frozenset())


def test_leave_frees_queues_at_once(division):
    first, second = division.join(None), division.join(None)
    division.settle(first, busy=())
    division.settle(second, busy=())
    division.leave(first)
    assert division.settle(second, busy=()).taken == (0, 1)
    assert division.member_count == 1


def test_change_of_queue_count_divides_anew(division, topic):
    member = division.join(None)
    division.settle(member, busy=())
    before = division.version
    topic.count = 6
    division.change()
    assert division.version > before
    assert division.settle(member, busy=()).taken == (4, 5)
    topic.count = 1
    division.change()
    assert division.settle(member, busy=()).lost == (1, 2, 3, 4, 5)


def test_move_reaches_the_holder_only(division):
    first, second = division.join([0, 1]), division.join([2, 3])
    division.settle(first, busy=())
    division.settle(second, busy=())
    division.move({0: 10, 2: 20, 7: 70})
    assert division.settle(first, busy=()).moves == {0: 10}
    assert division.settle(second, busy=()).moves == {2: 20}
    assert division.settle(first, busy=()).moves == {}


def test_move_is_void_once_the_queue_changed_hands(division):
    first = division.join(None)
    division.settle(first, busy=())
    division.move({3: 30})
    second = division.join(None)
    assert division.settle(first, busy=()).moves == {}
    assert division.settle(second, busy=()).taken == (2, 3)
    assert division.settle(second, busy=()).moves == {}


def test_abandon_in_the_middle_of_anything_is_only_noted(division):
    """The collector may run in a thread that holds the lock."""
    first, second = division.join(None), division.join(None)
    division.settle(first, busy=())
    with division._bell:
        division.abandon(first)
    before = division.version
    assert division.settle(second, busy=()).taken == (0, 1, 2, 3)
    assert division.version > before


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
