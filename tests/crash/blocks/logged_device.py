"""A file system on a block device whose writes are logged.

    with LoggedDevice(place, "ext4") as device:
        (device.root / "file").write_bytes(b"...")
    entries = read_block_log(place)

    file system on a loop device on a file of a FUSE file system, which logs

Every mount is in a namespace of this process (`own_mounts`) and every loop device detaches with its
mount: when the processes are gone, so is all of it.
"""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from block_log import BlockCounter

_HERE = Path(__file__).resolve().parent
_STARTS_S = 20.0
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18

SIZES = {"ext4": 160 << 20, "xfs": 320 << 20}
_MAKE = {
    # Small journals, so that they go round; no writes of the kernel's own afterwards.
    "ext4": "mkfs.ext4 -q -F -b 4096 -m 0 -J size=4"
    " -E lazy_itable_init=0,lazy_journal_init=0,nodiscard",
    "xfs": "mkfs.xfs -q -f -K",
}
_OPTIONS = {"ext4": "loop", "xfs": "loop,nouuid"}
_CHECK = {"ext4": "e2fsck -f -y"}
_PACKAGES = {"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "fusermount3": "fuse3"}


def lacking(kind: str) -> str:
    """Say what this machine lacks for a logged device of this kind; empty if nothing."""
    if os.geteuid() != 0:
        return "root, who can mount"
    for path in ("/dev/fuse", "/dev/loop-control"):
        if not Path(path).exists():
            return path
    commands = (f"mkfs.{kind}", "mount", "umount", "fusermount3")
    for command in commands:
        if shutil.which(command) is None:
            return f"{command} (Debian: {_PACKAGES.get(command, 'mount')})"
    if importlib.util.find_spec("mfusepy") is None:
        return "the Python package mfusepy"
    known = Path("/proc/filesystems").read_text(encoding="utf-8").split()
    loaded = kind in known or subprocess.run(["modprobe", kind], check=False).returncode == 0
    return "" if loaded else f"{kind} in the kernel"


def own_mounts() -> None:
    """Give this process and its children mounts of their own, which end with them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        code = ctypes.get_errno()
        raise OSError(code, f"no mount namespace: {os.strerror(code)}")


def run(*command: str | Path) -> None:
    """Run a command that must work."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {ended.stderr.strip() or ended.returncode}")


def unmount(place: Path) -> None:
    """Unmount; what is still in use goes when its last user does."""
    if subprocess.run(["umount", place], capture_output=True, check=False).returncode:
        run("umount", "--lazy", place)


def make_file_system(kind: str, path: Path) -> None:
    """Make an image file with an empty file system."""
    with path.open("wb") as file:
        file.truncate(SIZES[kind])
    run(*_MAKE[kind].split(), path)


class Mounted:
    """An image file, mounted as a start of the machine would: the journal is replayed."""

    def __init__(self, kind: str, image: Path, place: Path) -> None:
        self._kind, self._image, self.root = kind, image, place

    def __enter__(self) -> Path:
        self.root.mkdir(exist_ok=True)
        command = ("mount", "-t", self._kind, "-o", _OPTIONS[self._kind], self._image, self.root)
        try:
            run(*command)
        except OSError:
            # Why: the superblock of ext4 has two sectors, and a tear between them breaks its
            # checksum. The check at the start of a machine takes the copy.
            check = _CHECK.get(self._kind)
            if check is None:
                raise
            subprocess.run([*check.split(), self._image], capture_output=True, check=False)
            run(*command)
        return self.root

    def __exit__(self, *_: object) -> None:
        unmount(self.root)


class LoggedDevice:
    """A mounted file system; its block writes go to the log in `place`."""

    def __init__(self, place: Path, kind: str) -> None:
        self._place = place
        self._kind = kind
        self._stack = ExitStack()
        self.base = place / "base.image"
        """The device as it was before the first mount."""
        self.root = place / "mounted"
        self._fuse = place / "fuse"

    def __enter__(self) -> Self:
        self._place.mkdir(parents=True, exist_ok=True)
        self._fuse.mkdir()
        make_file_system(self._kind, self.base)
        with self._stack as stack:
            self._serve(stack)
            stack.enter_context(Mounted(self._kind, self._fuse / "disk", self.root))
            self.counter = BlockCounter(self._place)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _serve(self, stack: ExitStack) -> None:
        # A process group of its own: it must not end before the file system above it.
        server = subprocess.Popen(
            [sys.executable, _HERE / "logged_file.py", self.base, self._place, self._fuse],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        stack.callback(_end, server)
        deadline_s = time.monotonic() + _STARTS_S
        while not self._fuse.is_mount():
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise OSError(f"the FUSE file system did not start: {server.poll()}")
            os.sched_yield()
        stack.callback(unmount, self._fuse)


def _end(server: "subprocess.Popen[bytes]") -> None:
    try:
        server.wait(_STARTS_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
