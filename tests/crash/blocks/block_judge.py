"""Opens the store of an image, and holds it against what was promised before the cut."""

import contextlib
import hashlib
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

from block_promises import (
    BUNDLES,
    GROUP,
    PASSING,
    TOPICS,
    Place,
    Promises,
    body_of,
    is_late,
    name_of,
)

from rocketlake.clock import SystemClock
from rocketlake.embedded.open_store import OpenSettings, open_store, open_writable
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import names as paths
from rocketlake.model.message import Message
from rocketlake.store.api import GetStatus
from rocketlake.store.options import StoreOptions
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support import forks

FAMILIES = (paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.BATCH_CONSUME_QUEUE)
NEW = 3
DELIVERS_S = 20.0
_PAGE = 200
_KEYS_ASKED = 10


def judge(root: Path, promises: Promises, options: dict[str, Any]) -> None:
    """Recover the store, again, use it, and close it; each in a process of its own.

    Raises:
        ExceptionGroup: Says which promises are broken.
    """
    broken: list[Exception] = []
    digests: list[list[str]] = []
    for step in (
        lambda: digests.append(_ended(forks.run(lambda tell: tell(_recover(root, options))))),
        lambda: _check_sound(root, "recovered"),
        lambda: digests.append(_ended(forks.run(lambda tell: tell(_recover(root, options))))),
        lambda: _check_same(digests),
        lambda: _ended(forks.run(lambda _: _Judge(root, promises, options).run())),
        lambda: _check_sound(root, "closed"),
    ):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - all of them are told
            broken.append(error)
    if broken:
        raise ExceptionGroup("promises", broken)


def _ended(ended: forks.Ended) -> list[str]:
    assert ended.signal == 0, f"a process with the store got signal {ended.signal}"
    return ended.lines


def _check_same(digests: list[list[str]]) -> None:
    assert len(digests) == 2, "it could not be recovered twice"
    assert digests[0] == digests[1], "recovered twice, log or queues are other than after once"


def _recover(root: Path, options: dict[str, Any]) -> str:
    """Open the store, deliver nothing, and leave it open; return a digest of log and queues."""
    logging.disable(logging.CRITICAL)
    opening = OpenSettings(ops=PosixFileOps(), clock=SystemClock(), delivers=False)
    open_writable(root, StoreOptions.choose(None, **options, file_reserved_time=72), opening)
    digest = hashlib.blake2b(digest_size=16)
    for family in FAMILIES:
        for path in sorted((root / family).rglob("*")):
            content = path.read_bytes().rstrip(b"\0") if path.is_file() else b""
            if content:  # files made ahead are empty
                digest.update(f"{path} {len(content)}".encode() + content)
    return digest.hexdigest()


def _check_sound(root: Path, when: str) -> None:
    verifier = Verifier(root, VerifyOptions(jobs=1))
    summary = verifier.run()
    faults = [
        f"{str(fault.path).removeprefix(f'{root}/')} at {fault.position}: {fault.reason}"
        for fault in verifier.ledger.faults
    ]
    assert summary.is_sound, f"verify of the {when} store: " + "; ".join(faults[:3])


class _Judge:
    def __init__(self, root: Path, promises: Promises, options: dict[str, Any]) -> None:
        logging.disable(logging.CRITICAL)
        self._root = root
        self._promises = promises
        self._store = open_store(root, **options)

    def run(self) -> None:
        store, promises = self._store, self._promises
        found = self._read_all()
        for place, name in promises.places.items():
            assert found.get(place) == name, (
                f"{name} was acknowledged at {place}; there is {found.get(place)!r}"
            )
        self._check_progress()
        new = self._put_new()
        self._await_late()
        found = self._read_all()
        for place, name in {**promises.places, **new}.items():
            assert found.get(place) == name, f"{name} was put to {place}: {found.get(place)!r}"
        back = promises.gone.intersection(found.values())
        assert not back, f"messages of a deleted topic are back: {sorted(back)[:5]}"
        self._check_once(found)
        self._check_keys(found)
        self._check_group(found)
        store.close()
        assert not (self._root / "abort").exists()

    # --- reading ---------------------------------------------------------------------------------

    def _read_all(self) -> dict[Place, str]:
        found: dict[Place, str] = {}
        names = {topic.name: topic.read_queue_count for topic in self._store.topics()}
        lost = {place[0] for place in self._promises.places} - names.keys()
        assert not lost, f"topics are gone, their messages were acknowledged: {lost}"
        for topic in (*TOPICS, PASSING):
            for queue_id in range(names.get(topic, 0)):
                self._read_queue(topic, queue_id, found)
        if BUNDLES in names:
            self._read_bundles(found)
        return found

    def _read_queue(self, topic: str, queue_id: int, found: dict[Place, str]) -> None:
        store = self._store
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            result = store.get(topic, queue_id, offset, _PAGE)
            where = f"{topic}/{queue_id} at {offset} of {end}"
            assert result.status is GetStatus.FOUND, f"{where}: {result.status}"
            assert not result.corrupt, f"{where}: {result.corrupt}"
            for number, message in enumerate(result.messages, offset):
                assert message.queue_offset == number, f"{where}: {number} is not there"
                self._note((topic, queue_id, number), message.body, found)
            offset = result.next_offset

    def _read_bundles(self, found: dict[Place, str]) -> None:
        """Message by message, as consumers do."""
        with self._store.consumer(f"judge-{time.monotonic_ns()}", BUNDLES) as consumer:
            while messages := consumer.poll(_PAGE, timeout=0):
                for message in messages:
                    place = BUNDLES, message.queue_id, message.queue_offset
                    self._note(place, message.body, found)
            assert not consumer.corrupt, consumer.corrupt

    def _note(self, place: Place, body: bytes, found: dict[Place, str]) -> None:
        name = name_of(body)
        assert body == body_of(name), f"{place}: the body of {name!r} is another"
        known = self._promises.known.get(place, name)
        if place in self._promises.places:
            assert known == name, f"{name} is at {place}, where {known} was acknowledged"
        found[place] = name

    # --- checks ----------------------------------------------------------------------------------

    def _check_progress(self) -> None:
        progress = {(one.topic, one.queue_id): one for one in self._store.progress(GROUP)}
        for queue, saved in self._promises.saved.items():
            if queue[0] not in TOPICS:
                continue
            one = progress.get(queue)
            offset = -1 if one is None or one.offset is None else one.offset
            assert offset >= saved, f"progress in {queue} is {offset}; {saved} was flushed"

    def _put_new(self) -> dict[Place, str]:
        """The store takes messages, and gives none of them a queue offset that was given before."""
        placed: dict[Place, str] = {}
        queues = [(topic, queue) for topic, count in TOPICS.items() for queue in range(count)]
        for topic, queue_id in queues:
            self._make_topic(topic)
            for number in range(NEW):
                name = f"new-{topic}-{queue_id}-{number}"
                message = Message(topic=topic, body=body_of(name), keys=[f"k-{name}"])
                receipt = self._store.put(message, queue_id)
                assert receipt.status.name == "PUT_OK", receipt
                end = self._promises.ends.get((topic, queue_id), 0)
                assert receipt.queue_offset >= end, (
                    f"a new message of {topic}/{queue_id} got the queue offset"
                    f" {receipt.queue_offset}; messages up to {end} were acknowledged"
                )
                placed[topic, queue_id, receipt.queue_offset] = name
        return placed

    def _make_topic(self, topic: str) -> None:
        if self._store.topic(topic) is None:
            self._store.create_topic(topic, TOPICS[topic])

    def _await_late(self) -> None:
        """Delayed and timed messages are delivered at least once."""
        for topic in TOPICS:
            wanted = {name for name, where in self._promises.late.items() if where == topic}
            deadline_s = time.monotonic() + DELIVERS_S
            with self._store.consumer("judge-late", topic) as consumer:
                while wanted:
                    for message in consumer.poll(_PAGE, timeout=0.5):
                        wanted.discard(name_of(message.body))
                    assert time.monotonic() < deadline_s, f"never delivered: {sorted(wanted)[:5]}"

    def _check_once(self, found: dict[Place, str]) -> None:
        counts = Counter(found.values())
        twice = [name for name, count in counts.items() if count > 1 and not is_late(name)]
        assert not twice, f"stored twice: {twice[:5]}"

    def _check_keys(self, found: dict[Place, str]) -> None:
        """The newest messages, whose index entries a cut takes first, are found by their keys."""
        newest = [item for item in found.items() if item[0][0] in TOPICS][-_KEYS_ASKED:]
        for (topic, queue_id, offset), name in newest:
            places = [(m.queue_id, m.queue_offset) for m in self._store.query(topic, f"k-{name}")]
            assert (queue_id, offset) in places, f"key k-{name} finds {places}, not {offset}"

    def _check_group(self, found: dict[Place, str]) -> None:
        """The group gets every message that it had not processed before the cut."""
        got: dict[tuple[str, int], set[str]] = {}
        for topic in TOPICS:
            with contextlib.closing(self._store.consumer(GROUP, topic)) as consumer:
                while messages := consumer.poll(_PAGE, timeout=0):
                    for message in messages:
                        queue = topic, message.queue_id
                        got.setdefault(queue, set()).add(name_of(message.body))
        skipped = [
            (place, name)
            for place, name in found.items()
            if place[0] in TOPICS
            and name not in got.get(place[:2], ())
            and name not in self._promises.consumed.get(place[:2], ())
        ]
        assert not skipped, f"the group skips {len(skipped)} messages: {skipped[:5]}"
