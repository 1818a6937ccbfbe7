"""A store after a kill, compared with what its processes had promised."""

import random
from collections import Counter

from ledger import GROUP, TOPICS, Inspected, Ledger, Place, body_of, keys_of, name_of

from rocketlake.embedded.store import Store
from rocketlake.store.api import GetStatus

_PAGE = 200
_KEYS_ASKED = 12


class BrokenPromiseError(Exception):
    """The store does not have what it must have, or has what it must not."""


def inspect(store: Store, ledger: Ledger, *, may_lose: bool, rng: random.Random) -> Inspected:
    """Compare; return what was found beyond the ledger and what is lost.

    With `may_lose`, messages behind what was committed may be gone: write buffers end with their
    process.

    Raises:
        BrokenPromiseError: Says which promise.
    """
    found = _read_all(store)
    _check_progress(store, ledger)
    lost = _find_lost(store, ledger, found)
    _check_lost(ledger, lost, may_lose=may_lose)
    extra = _check_extra(ledger, found)
    _check_keys(store, found, rng)
    return Inspected(
        places=[(*place, name) for place, name in extra.items()],
        lost=sorted(lost),
        lost_bytes=sum(len(body_of(name)) for name in lost),
        split_batches=_count_split(ledger, {*extra.values()}),
    )


def _read_all(store: Store) -> dict[Place, str]:
    """Read every queue: offsets without a gap, bytes as they were put."""
    found: dict[Place, str] = {}
    for topic in store.topics():
        if topic.name in TOPICS or topic.name.startswith("new-"):
            for queue_id in range(topic.read_queue_count):
                _read_queue(store, topic.name, queue_id, found)
    return found


def _read_queue(store: Store, topic: str, queue_id: int, found: dict[Place, str]) -> None:
    begin, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    _expect(begin == 0, f"queue {queue_id} of {topic} begins at {begin}")
    offset = 0
    while offset < end:
        result = store.get(topic, queue_id, offset, _PAGE)
        where = f"{topic}/{queue_id} at {offset} of {end}"
        _expect(result.status is GetStatus.FOUND, f"{where}: {result.status}")
        _expect(not result.corrupt, f"{where}: {result.corrupt}")
        for number, message in enumerate(result.messages, offset):
            _expect(message.queue_offset == number, f"{where}: {number} is missing")
            name = name_of(message.body)
            _expect(message.body == body_of(name), f"{where}: the body of {name} is another")
            is_whole = (message.keys, message.tags) == (keys_of(name), "t")
            _expect(is_whole, f"{where}: {name} has {message.keys}, {message.tags}")
            found[topic, queue_id, number] = name
        offset = result.next_offset


def _find_lost(store: Store, ledger: Ledger, found: dict[Place, str]) -> set[str]:
    lost = {name for place, name in ledger.places.items() if found.get(place) != name}
    delivered = {*found.values()}
    for name, topic in ledger.waiting.items():
        if topic and name not in delivered and name not in lost:
            record = store._engine.message_at(ledger.offsets[name])
            if record is None or name_of(record.body) != name:
                lost.add(name)
    return lost


def _check_lost(ledger: Ledger, lost: set[str], *, may_lose: bool) -> None:
    for name in sorted(lost):
        offset = ledger.offsets.get(name, -1)
        if not may_lose or offset < ledger.committed:
            places = [place for place, known in ledger.places.items() if known == name]
            committed = f", committed up to {ledger.committed}" if may_lose else ""
            raise BrokenPromiseError(
                f"{len(lost)} acknowledged messages are lost: {name} of {places or 'a delay'},"
                f" at {offset} of the log{committed}"
            )
    kept = [offset for name, offset in ledger.offsets.items() if name not in lost]
    first = min((ledger.offsets[name] for name in lost), default=None)
    if first is not None and kept and max(kept) > first:
        raise BrokenPromiseError(f"a hole: {first} is lost, {max(kept)} is not")


def _check_extra(ledger: Ledger, found: dict[Place, str]) -> dict[Place, str]:
    """Return what is there without having been acknowledged; it must have been under way."""
    counts = Counter(found.values())
    twice = [name for name, n in counts.items() if n > 1 and name not in ledger.waiting]
    _expect(not twice, f"stored twice: {twice[:3]}")
    extra = {place: name for place, name in found.items() if ledger.places.get(place) != name}
    for place, name in extra.items():
        known = name in ledger.flying or name in ledger.waiting
        _expect(known, f"{name} at {place} was neither acknowledged nor under way")
    return extra


def _check_keys(store: Store, found: dict[Place, str], rng: random.Random) -> None:
    last = [*found.items()][-3:]
    asked = rng.sample([*found.items()], min(_KEYS_ASKED, len(found)))
    for (topic, queue_id, offset), name in [*asked, *last]:
        messages = store.query(topic, f"k-{name}")
        places = [(one.queue_id, one.queue_offset) for one in messages]
        _expect(
            (queue_id, offset) in places, f"key k-{name} finds {places}, not {queue_id, offset}"
        )


def _check_progress(store: Store, ledger: Ledger) -> None:
    progress = {(one.topic, one.queue_id): one for one in store.progress(GROUP)}
    for queue in ledger.saved.keys() | progress.keys():
        one = progress.get(queue)
        offset = -1 if one is None or one.offset is None else one.offset
        wanted = ledger.saved.get(queue, -1)
        _expect(offset >= wanted, f"progress in {queue} is {offset}, but {wanted} was written")
        processed = ledger.processed.get(queue, -1) + 1
        _expect(offset <= processed, f"progress in {queue} is {offset}, processed {processed}")
        is_inside = one is None or offset <= one.max_offset
        _expect(is_inside, f"progress in {queue} is {offset}, behind its end")


def _count_split(ledger: Ledger, extra: set[str]) -> int:
    """Count batches under way of which a part is there."""
    return sum(0 < len(extra.intersection(names)) < len(names) for names in ledger.batches.values())


def _expect(is_kept: bool, text: str) -> None:
    if not is_kept:
        raise BrokenPromiseError(text)
