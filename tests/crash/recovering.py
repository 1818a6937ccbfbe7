"""Opens what a crash has left, and looks whether it is a store: the invariants of recovery."""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from crash_model import Progress, Sent, check_survivors
from engine_run import KEYS
from msgspec import Struct
from platter import Effect, Image
from sim_disk import SimDisk
from sim_store import EXACT, ROOT, SIZES, open_on

from rocketlake.format import names
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus
from rocketlake.store.message_store import MessageStore
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.options import ReadOptions
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support.engine import request
from support.manual_clock import ManualClock

ALL = 1 << 30
MEMORY = Path("/dev/shm")  # thousands of stores are written out and thrown away
LATER_MS = 1_700_000_000_000 + 24 * 3_600_000
FAMILIES = (names.COMMIT_LOG, names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE)


class Outcome(Struct, frozen=True):
    """What a start made of an image."""

    image: Image
    found: list[Sent]
    """The messages in the order of the log."""
    journal: list[Effect]
    """What the start did to the disk."""


class Recoverer:
    """Recovers images of one kind of store; each image once, however often it comes."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._known: dict[bytes, Outcome] = {}

    def check(self, image: Image, sent: list[Sent], progress: Progress) -> Outcome:
        """Recover an image, and see that the store is sound and has what it must have."""
        digest = _digest(image)
        outcome = self._known.get(digest)
        if outcome is None:
            outcome = self._known[digest] = self._recover(image)
        check_survivors(outcome.found, sent, progress, is_exact=self._mode in EXACT)
        return outcome

    @property
    def count(self) -> int:
        """How many images were different from all before them."""
        return len(self._known)

    def _recover(self, image: Image) -> Outcome:
        clock = ManualClock(LATER_MS)
        disk = SimDisk(image, now_ms=clock.now_ms)
        store = open_on(disk, clock, self._mode)
        disk.look()
        started = disk.kept()
        effects = list(disk.journal)
        found = read_all(store)
        check_keys(store, found)
        self._check_again(started, found)
        self._check_new_messages(store, found)
        store.close()
        assert not disk.touched_holes, f"written without space: {disk.touched_holes[:3]}"
        check_verified(disk)
        return Outcome(image, found, effects)

    def _check_again(self, started: Image, found: list[Sent]) -> None:
        """Recovering twice equals recovering once."""
        clock = ManualClock(LATER_MS + 1000)
        disk = SimDisk(started, now_ms=clock.now_ms)
        with open_on(disk, clock, self._mode) as store:
            once, twice = family_bytes(started), family_bytes(disk.kept())
            assert once.keys() == twice.keys()
            different = [path for path in once if once[path] != twice[path]]
            assert not different, f"recovered twice, other bytes are in {different}"
            assert read_all(store) == found

    def _check_new_messages(self, store: MessageStore, found: list[Sent]) -> None:
        """The store takes and returns new messages, and numbers them without gap or repeat."""
        ends: dict[QueueKey, int] = {}
        for one in found:
            ends[one.key] = max(ends.get(one.key, 0), one.queue_offset + 1)
        new = []
        for key in sorted({*ends, QueueKey("T", 0), QueueKey("New", 3)}):
            receipt = store.put(request(key.topic, key.queue_id, b"new " * 40, keys=["new"]))
            assert receipt.is_ok, receipt
            assert receipt.queue_offset == ends.get(key, 0), key
            new.append(Sent(key, receipt.queue_offset, b"new " * 40, ("new",)))
        assert read_all(store) == [*found, *new]
        check_keys(store, [*found, *new])


def read_all(store: MessageStore) -> list[Sent]:
    """Read every queue from begin to end; return the messages in the order of the log."""
    store.catch_up()
    found: dict[int, Sent] = {}
    for key in dict(store.queues.items()):
        low, high = store.queue_bounds(key)
        assert low == 0, f"{key} begins at {low}"
        offset = low
        while offset < high:
            result = store.get(
                GetRequest(topic=key.topic, queue_id=key.queue_id, offset=offset, max_messages=32)
            )
            assert result.status is GetStatus.FOUND, f"{key} at {offset}: {result.status}"
            for number, message in enumerate(result.messages, offset):
                assert (message.topic, message.queue_id) == (key.topic, key.queue_id)
                assert message.queue_offset == number, f"{key} at {number}: {message.queue_offset}"
                assert message.physical_offset not in found, f"{key} at {number}: twice"
                found[message.physical_offset] = Sent(
                    key, number, message.body, tuple(message.keys), message.tags
                )
            offset = result.next_offset
        assert offset == high, f"{key} ends at {offset}, not at {high}"
    return [found[place] for place in sorted(found)]


def check_keys(store: MessageStore, found: list[Sent]) -> None:
    """The index leads to the messages that have a key, and to no others."""
    for topic in sorted({one.key.topic for one in found}):
        for key in (*KEYS, "new"):
            wanted = [one.body for one in found if one.key.topic == topic and key in one.keys]
            result = store.query(KeyQuery(topic=topic, key=key, limit=ALL))
            assert [message.body for message in result.messages] == wanted, f"key {key} of {topic}"


def check_verified(disk: SimDisk) -> None:
    """`verify` finds nothing wrong with a store that was recovered."""
    options = ReadOptions(max_hash_slot_num=SIZES["max_hash_slot_num"])
    with TemporaryDirectory(dir=MEMORY if MEMORY.exists() else None) as path:
        root = Path(path)
        write_out(disk, root)
        if not (root / names.COMMIT_LOG).exists():
            return  # nothing was ever put
        with OfflineStore(root, options=options) as view:
            verifier = Verifier(view, VerifyOptions(jobs=1, is_locked=True))
            verifier.run()
    faults = verifier.ledger.faults
    found = [f"{fault.path} at {fault.position}: {fault.reason}" for fault in faults]
    assert not found, "\n".join(found[:5])


def write_out(disk: SimDisk, root: Path) -> None:
    """Make real files of a simulated store."""
    for path, data in disk.kept().contents().items():
        if path.is_relative_to(ROOT):
            target = root / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def family_bytes(image: Image) -> dict[Path, bytes]:
    """The files of log and queues."""
    return {
        path: data
        for path, data in image.contents().items()
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FAMILIES
    }


def _digest(image: Image) -> bytes:
    digest = hashlib.blake2b()
    for path, number in sorted(image.names.items()):
        data = b"" if number is None else image.files[number]
        digest.update(f"{path} {number is None} {len(data)}\n".encode())
        digest.update(data)
    return digest.digest()
