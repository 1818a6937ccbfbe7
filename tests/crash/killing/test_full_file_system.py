"""A real small file system that fills up: puts are refused with a reason, and nothing is lost."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.embedded.store import Store
from rocketlake.store.api import PutReceipt
from support import forks

pytestmark = pytest.mark.crash

SIZE = 9 << 20
BALLAST = 4_800_000  # room for the next files of the log, which are made ahead, and for queues
HEALS_S = 30.0
MANY = 20_000


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, or a skip that says why there is none."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    if request.param == "tmpfs":
        commands = [["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(place)]]
    else:
        image = tmp_path / "image"
        image.touch()
        os.truncate(image, SIZE)
        commands = [
            ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)],
            ["mount", "-o", "loop", str(image), str(place)],
        ]
    for command in commands:
        if shutil.which(command[0]) is None:
            pytest.skip(f"there is no {command[0]}")
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.skip(f"this machine does not mount: {ended.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("file_size", [64 << 10, 1 << 20], ids=["small-files", "large-files"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH", "write-buffers"])
def test_full_file_system_refuses_heals_and_loses_nothing(
    small_disk: Path, flush: str, file_size: int
):
    """In a process of its own: a page without space would end it with SIGBUS."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    options = {
        "flush_disk_type": "ASYNC_FLUSH" if flush == "write-buffers" else flush,
        "transient_store_pool_enable": flush == "write-buffers",
        "transient_store_pool_size": 2,
        "mapped_file_size_commit_log": file_size,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "timer_wheel_enable": False,
        "disk_free_refuse_bytes": 0,  # or puts would be refused long before the disk is full
    }
    root = small_disk / "store"

    def fill(tell: forks.Tell) -> None:
        store = rocketlake.open_store(root, raise_on_failure=False, **options)
        acked = put_until_refused(store, root)
        tell(f"full after {acked}")
        acked = put_until_refused_for_good(store, acked)
        # Queues and index may lack space too: what they hold can be read.
        check_read(store, store.max_offset("T", 0))
        assert 0 < store.max_offset("T", 0) <= acked
        ballast.unlink()
        acked = put_when_healed(store, acked)
        tell(f"healed at {acked}")
        wait_for_dispatch(store, acked)
        check(store, acked)
        store.close()
        assert not (root / "abort").exists()
        with rocketlake.open_store(root, disk_free_refuse_bytes=0) as again:
            check(again, acked)
            assert put(again, acked).is_ok
            check(again, acked + 1)
            assert [m.queue_offset for m in again.query("T", f"k{acked}")] == [acked]

    ended = forks.run(fill)
    assert ended.signal == 0
    assert len(ended.lines) == 2


def put(store: Store, number: int) -> PutReceipt:
    body = f"{number}:".encode() + bytes(2000)
    return store.put(Message(topic="T", body=body, keys=[f"k{number}"]), queue_id=0)


def put_until_refused(store: Store, root: Path) -> int:
    for number in range(MANY):
        receipt = put(store, number)
        if not receipt.is_ok:
            assert str(root) in receipt.reason, receipt
            assert "bytes" in receipt.reason, receipt
            assert number > 300
            return number
    raise AssertionError("the disk is never full")


def put_until_refused_for_good(store: Store, number: int) -> int:
    """Dispatch may find space for its units later, and lets a few more puts in then."""
    refused = 0
    while refused < 50:
        is_ok = put(store, number).is_ok
        number, refused = number + is_ok, 0 if is_ok else refused + 1
        assert number < MANY
    return number


def put_when_healed(store: Store, number: int) -> int:
    """Puts are taken again by themselves; it may take a look at the disk."""
    deadline_s = time.monotonic() + HEALS_S
    while not (receipt := put(store, number)).is_ok:
        assert time.monotonic() < deadline_s, receipt
        os.sched_yield()
    for more in range(number + 1, number + 200):
        assert put(store, more).is_ok
    return number + 200


def wait_for_dispatch(store: Store, count: int) -> None:
    """What the disk had no space for comes later: dispatch tries again each second."""
    deadline_s = time.monotonic() + HEALS_S
    while store.max_offset("T", 0) < count:
        assert time.monotonic() < deadline_s, store.max_offset("T", 0)
        os.sched_yield()


def check(store: Store, count: int) -> None:
    """Every acknowledged message is there, in order, and found by its key."""
    assert store.max_offset("T", 0) == count
    check_read(store, count)


def check_read(store: Store, count: int) -> None:
    """So many messages can be read; dispatch may bring more at any time."""
    offset = 0
    while offset < count:
        result = store.get("T", 0, offset, 500)
        assert not result.corrupt
        for number, message in enumerate(result.messages, offset):
            assert message.body.startswith(f"{number}:".encode())
        assert result.messages
        offset = result.next_offset
    for number in (0, count // 2):
        (found,) = store.query("T", f"k{number}")
        assert found.queue_offset == number
