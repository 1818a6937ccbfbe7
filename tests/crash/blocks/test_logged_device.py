"""What a file system writes and flushes arrives in the block log, whole and in order."""

import contextlib
import os
from pathlib import Path

import pytest
from block_images import images, make_cut
from block_log import BlockCounter, Disk, Flush, Write, read_block_log
from logged_device import SIZES, LoggedDevice, Mounted, lacking, own_mounts

from support import forks

ROUNDS = 5


@pytest.fixture(params=["ext4", "xfs"])
def kind(request: pytest.FixtureRequest) -> str:
    if lack := lacking(request.param):
        pytest.skip(f"a logged block device with {request.param} needs {lack}")
    return request.param


def marker(number: int) -> bytes:
    return f"marker {number} ".encode() * 400


def write_synced(place: Path, kind: str, tell: forks.Tell) -> None:
    own_mounts()
    with LoggedDevice(place, kind) as device:
        for number in range(ROUNDS):
            # A name of its own: fsync commits the journal, fdatasync of an overwrite does not.
            with (device.root / f"file-{number}").open("wb", buffering=0) as file:
                before = device.counter.now()
                file.write(marker(number))
                os.fsync(file.fileno())  # noqa: TID251 - no store
                tell(f"{before} {device.counter.now()}")


def test_synced_bytes_are_in_the_log_before_the_flush_that_makes_them_durable(
    tmp_path: Path, kind: str
):
    ended = forks.run(lambda tell: write_synced(tmp_path / "device", kind, tell))
    entries = read_block_log(tmp_path / "device")
    assert len(ended.lines) == ROUNDS
    for number, line in enumerate(ended.lines):
        before, after = map(int, line.split())
        during = entries[before:after]
        (at,) = (
            position
            for position, entry in enumerate(during)
            if isinstance(entry, Write) and marker(number) in entry.data
        )
        # The journal's record of the file comes after the flush of its bytes, with one of its own.
        flushes = [p for p, entry in enumerate(during) if isinstance(entry, Flush)]
        assert flushes[-1] == len(during) - 1, "fsync returned before the device was flushed"
        assert at < flushes[-1]
        assert any(isinstance(entry, Write) for entry in during[at + 1 :]), "no journal"


def test_image_of_the_whole_log_is_the_device_and_a_cut_has_what_was_flushed(
    tmp_path: Path, kind: str
):
    place = tmp_path / "device"
    ended = forks.run(lambda tell: write_synced(place, kind, tell))
    entries = read_block_log(place)

    def look(tell: forks.Tell) -> None:
        own_mounts()
        cuts = [make_cut(entries, int(line.split()[1]), "none", 0) for line in ended.lines]
        for cut, disk in images(Disk.load(place / "base.image"), entries, sorted(cuts)):
            image = tmp_path / "image"
            disk.save(image, SIZES[kind])
            with Mounted(kind, image, tmp_path / "mounted") as root:
                names = sorted(path.name for path in root.glob("file-*"))
                for number, name in enumerate(names):
                    assert (root / name).read_bytes() == marker(number), f"{cut}: {name}"
                tell(str(len(names)))

    counts = [int(line) for line in forks.run(look).lines]
    assert counts == [*range(1, ROUNDS + 1)]


def test_everything_is_unmounted_and_detached_when_the_workload_raises(tmp_path: Path, kind: str):
    place = tmp_path / "device"

    def fail(tell: forks.Tell) -> None:
        own_mounts()
        with contextlib.suppress(ZeroDivisionError), LoggedDevice(place, kind) as device:
            assert device.root.is_mount()
            assert BlockCounter(place).now() > 0
            raise ZeroDivisionError
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
        tell(str(str(tmp_path) in mounts))

    assert forks.run(fail).lines == ["False"]
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [path for path in backing if str(tmp_path) in path]
