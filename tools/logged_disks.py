"""Provides the commands that the power-cut tests below a file system need: FUSE, ext4 and XFS.

Only root can mount, so nothing is installed for others: these tests are skipped for them anyway.
"""

import os
import shutil
from pathlib import Path

import system_packages
from system_packages import Need

COMMANDS = {Need.FUSE: "fusermount3", Need.EXT4: "mkfs.ext4", Need.XFS: "mkfs.xfs"}


def provide() -> list[Need]:
    """Install what is missing where the tests could use it; what is missing then."""
    manager = system_packages.find_manager()
    needs = missing()
    packages = manager and system_packages.package_names(manager, needs, python_version="")
    if manager and packages and can_mount():
        system_packages.install(manager, packages)
    return missing()


def can_mount() -> bool:
    """Whether this process may mount, and the machine has the devices for it."""
    devices = (Path("/dev/fuse"), Path("/dev/loop-control"))
    return os.geteuid() == 0 and all(device.exists() for device in devices)


def missing() -> list[Need]:
    """What there is no command for."""
    return [need for need, command in COMMANDS.items() if shutil.which(command) is None]
