"""Which member gets which queue: fair, and as before where that is fair."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rocketlake.embedded.consumer.assignment import assign_queues

ANY = None


def counts(wanted: dict[int, int]) -> list[int]:
    return sorted(Counter(wanted.values()).values())


def test_divide_one_member_has_all():
    assert assign_queues(range(3), {7: ANY}, {}) == {0: 7, 1: 7, 2: 7}


def test_divide_nobody_has_none():
    assert assign_queues(range(3), {}, {0: 1}) == {}


def test_divide_second_member_takes_half_and_leaves_the_rest_where_it_was():
    before = assign_queues(range(4), {1: ANY}, {})
    after = assign_queues(range(4), {1: ANY, 2: ANY}, before)
    assert counts(after) == [2, 2]
    assert after == {0: 1, 1: 1, 2: 2, 3: 2}


def test_divide_queues_of_one_who_left_go_to_the_others_only():
    before = {0: 1, 1: 1, 2: 2, 3: 2, 4: 3, 5: 3}
    after = assign_queues(range(6), {1: ANY, 3: ANY}, before)
    assert {queue: after[queue] for queue in (0, 1, 4, 5)} == {0: 1, 1: 1, 4: 3, 5: 3}
    assert counts(after) == [3, 3]


def test_divide_more_members_than_queues_some_have_none():
    after = assign_queues(range(2), {1: ANY, 2: ANY, 3: ANY}, {})
    assert after == {0: 1, 1: 2}


def test_divide_new_queues_go_to_those_with_fewest():
    after = assign_queues(range(5), {1: ANY, 2: ANY}, {0: 1, 1: 1, 2: 2})
    assert counts(after) == [2, 3]
    assert after[0] == after[1] == 1


def test_divide_member_gets_only_what_it_may_have():
    after = assign_queues(range(4), {1: frozenset({0}), 2: ANY}, {})
    assert after == {0: 1, 1: 2, 2: 2, 3: 2}
    assert assign_queues(range(2), {1: frozenset({5})}, {}) == {}


ALLOWED = st.one_of(st.none(), st.frozensets(st.integers(0, 9), max_size=5))


@given(
    count=st.integers(0, 10),
    steps=st.lists(st.dictionaries(st.integers(1, 5), ALLOWED, max_size=5), min_size=1, max_size=4),
)
def test_divide_every_queue_is_given_fairly_and_nothing_moves_without_need(count, steps):
    wanted: dict[int, int] = {}
    for members in steps:
        wanted = assign_queues(range(count), members, wanted)
        for queue in range(count):
            able = [m for m, allowed in members.items() if allowed is None or queue in allowed]
            assert (wanted.get(queue) in able) if able else queue not in wanted
        if all(allowed is None for allowed in members.values()):
            loads = [list(wanted.values()).count(member) for member in members]
            assert not loads or max(loads) - min(loads) <= 1
        assert assign_queues(range(count), members, wanted) == wanted
