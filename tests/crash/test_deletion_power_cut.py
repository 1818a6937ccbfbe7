"""Log files are deleted and the power goes: every message that is left keeps its queue offset."""

import pytest
from by_hand import by_hand
from platter import Image, Platter
from power_cuts import chances, corners, some
from recovering import LATER_MS, check_verified
from sim_disk import EMPTY, SimDisk
from sim_store import open_on
from test_failing_disk import OneFault, flush_fault

from rocketlake.errors import FlushFailedError
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest
from support.engine import request
from support.manual_clock import ManualClock

QUEUES = (QueueKey("T", 0), QueueKey("T", 1), QueueKey("Other", 0))
COUNT = 120
MODES = ("sync", "async", "buffers")


def put(store, numbers):
    for number in numbers:
        key = QUEUES[number % 3]
        keys = [f"k{number}"]
        body = b"%d" % number + bytes(200)
        receipt = store.put(request(key.topic, key.queue_id, body, keys=keys))
        assert receipt.is_ok, receipt
        assert receipt.queue_offset == number // 3


def read(store) -> dict[tuple[QueueKey, int], int]:
    """Read all queues; return the numbers of the messages by their places."""
    found = {}
    for key in QUEUES:
        low, high = store.queue_bounds(key)
        offset = low
        while offset < high:
            asked = GetRequest(topic=key.topic, queue_id=key.queue_id, offset=offset)
            result = store.get(asked)
            assert result.messages, f"{key} at {offset}: {result.status}"
            for message in result.messages:
                assert message.queue_offset == offset, f"{key}: {message.queue_offset} is {offset}"
                found[key, offset] = int(message.body.rstrip(b"\0"))
                offset += 1
    return found


def check(image: Image, mode: str, *, all_of: int) -> None:
    """Of the messages the newest are there, each at its own place; the next one has the next."""
    clock = ManualClock(LATER_MS)
    disk = SimDisk(image, now_ms=clock.now_ms)
    with open_on(disk, clock, mode) as store:
        found = read(store)
        numbers = sorted(found.values())
        assert numbers == list(range(numbers[0], all_of)), "a message is lost"
        assert all(QUEUES[n % 3] == key and n // 3 == at for (key, at), n in found.items())
        put(store, range(all_of, all_of + 3))
        assert len(read(store)) == len(found) + 3
    check_verified(disk)


@pytest.mark.parametrize("mode", MODES)
def test_power_cut_at_every_moment_of_a_deletion(mode, crash_seed):
    """Units of queues were never flushed when the log that they were made from goes."""
    clock = ManualClock()
    disk = SimDisk(now_ms=clock.now_ms)
    with by_hand() as hands:
        store = open_on(disk, clock, mode)
        put(store, range(COUNT))
        store.flush()
        hands.run("rocketlake-dispatch")
        disk.look()
        begin = len(disk.journal)
        deleted = store.delete_expired(force=True)
        assert min(deleted.files, deleted.queue_files) > 2
        disk.look()
        journal = list(disk.journal)
        store.close()
        platter = Platter(EMPTY)
        for moment, effect in enumerate(journal):
            platter.apply(effect)
            if moment < begin:
                continue
            fates = {**corners(), **chances(f"{crash_seed} {moment}")}
            for name, fate in some(fates, moment, 1).items():
                try:
                    check(platter.crash(fate), mode, all_of=COUNT)
                except Exception as error:
                    error.add_note(f"--crash-seed={crash_seed}, behind {moment} effects, {name}")
                    raise


def test_nothing_is_deleted_when_units_cannot_be_flushed():
    """And not by the next round either: the system may have forgotten that it failed."""
    clock = ManualClock()
    fault = None

    def before(what, path):
        if fault is not None:
            fault(what, path)

    disk = SimDisk(now_ms=clock.now_ms, before=before)
    with by_hand() as hands:
        store = open_on(disk, clock, "sync")
        put(store, range(COUNT))
        hands.run("rocketlake-dispatch")
        fault = OneFault(frozenset({"sync"}), 0, flush_fault)
        for _ in range(2):
            with pytest.raises(FlushFailedError):
                store.delete_expired(force=True)
            assert store.log.min_offset == 0
        with pytest.raises(FlushFailedError):
            store.close()
        check(disk.kept(), "sync", all_of=COUNT)
