"""Which member of a group gets which queue: sticky and fair; pure."""

from collections.abc import Iterable, Mapping


def assign_queues(
    queues: Iterable[int],
    members: Mapping[int, frozenset[int] | None],
    before: Mapping[int, int],
) -> dict[int, int]:
    """Return the member of each queue that some member may have.

    `members` has, in the order in which they joined, the queues that each may have; None is all.
    `before` is the current assignment: a queue keeps its member unless that has at least two more
    queues than another member that may have it.
    """
    wanted: dict[int, int] = {}
    counts = dict.fromkeys(members, 0)
    free = []
    for queue in sorted(queues):
        member = before.get(queue)
        if member is not None and member in members and _may_have(members[member], queue):
            wanted[queue] = member
            counts[member] += 1
        else:
            free.append(queue)
    for queue in free:
        able = [member for member, allowed in members.items() if _may_have(allowed, queue)]
        if able:
            member = min(able, key=counts.__getitem__)
            wanted[queue] = member
            counts[member] += 1
    while _level(wanted, counts, members):
        pass
    return wanted


def _may_have(allowed: frozenset[int] | None, queue: int) -> bool:
    return allowed is None or queue in allowed


def _level(
    wanted: dict[int, int], counts: dict[int, int], members: Mapping[int, frozenset[int] | None]
) -> bool:
    """Move one queue from a member with many to one with few; False if they are level."""
    poorest_first = sorted(counts, key=counts.__getitem__)
    for poor in poorest_first:
        for queue in sorted(wanted, key=lambda queue: (-counts[wanted[queue]], -queue)):
            rich = wanted[queue]
            if counts[rich] - counts[poor] < 2:
                break
            if _may_have(members[poor], queue):
                wanted[queue] = poor
                counts[rich] -= 1
                counts[poor] += 1
                return True
    return False
