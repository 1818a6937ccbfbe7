"""What the operating system must provide, and its package manager's name for it.

Packages are installed when this process may (as root, or by sudo without a password); otherwise the
caller shows the line to type. Standard library only: it runs before anything is installed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Need(StrEnum):
    """Something a package manager can provide."""

    VENV = "venv"
    HEADERS = "headers"
    COMPILER = "compiler"
    JAVA = "java"
    JAVA_17 = "java-17"  # where the system's own choice is an older one
    FUSE = "fuse"
    EXT4 = "ext4"
    XFS = "xfs"


class Manager(NamedTuple):
    """One package manager; {version} in a package name stands for Python's, as in 3.12."""

    command: str
    refresh: tuple[str, ...]
    install: tuple[str, ...]
    packages: dict[Need, str]
    options: tuple[str, ...] = ()
    as_root: bool = True


MANAGERS = (
    Manager(
        "apt-get",
        refresh=("apt-get", "update"),
        install=("apt-get", "install", "-y"),
        packages={
            Need.VENV: "python{version}-venv",
            Need.HEADERS: "python{version}-dev",
            Need.COMPILER: "build-essential",
            Need.JAVA: "default-jre-headless",
            Need.JAVA_17: "openjdk-17-jre-headless",
            Need.FUSE: "fuse3",
            Need.EXT4: "e2fsprogs",
            Need.XFS: "xfsprogs",
        },
        # Another installation may be running, as it is on a machine that has just started.
        options=("--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"),
    ),
    Manager(
        "dnf",
        refresh=(),
        install=("dnf", "install", "-y"),
        packages={
            Need.VENV: "python3-pip",
            Need.HEADERS: "python3-devel",
            Need.COMPILER: "gcc",
            Need.JAVA: "java-latest-openjdk-headless",
            Need.FUSE: "fuse3",
            Need.EXT4: "e2fsprogs",
            Need.XFS: "xfsprogs",
        },
    ),
    Manager(
        "apk",
        refresh=(),
        install=("apk", "add"),
        packages={
            Need.VENV: "py3-pip",
            Need.HEADERS: "python3-dev",
            Need.COMPILER: "build-base",
            Need.JAVA: "openjdk17-jre-headless",
            Need.FUSE: "fuse3",
            Need.EXT4: "e2fsprogs",
            Need.XFS: "xfsprogs",
        },
    ),
    Manager(
        "brew",
        refresh=(),
        install=("brew", "install"),
        # Its Pythons are whole, and the compiler of that system comes from elsewhere.
        packages={Need.JAVA: "openjdk@17"},
        as_root=False,
    ),
)


def find_manager() -> Manager | None:
    """The package manager of this machine, if it is one we know."""
    return next((manager for manager in MANAGERS if shutil.which(manager.command)), None)


def package_names(manager: Manager, needs: Iterable[Need], *, python_version: str) -> list[str]:
    """Packages that meet those needs for which there is one, in order."""
    known = (manager.packages[need] for need in needs if need in manager.packages)
    return [name.format(version=python_version) for name in known]


def line_to_type(manager: Manager, packages: list[str]) -> str:
    """The command a person types to install the packages."""
    sudo = ["sudo"] if manager.as_root and not _is_root() else []
    commands = [manager.refresh] if manager.refresh else []
    commands.append((*manager.install, *packages))
    return " && ".join(" ".join([*sudo, *command]) for command in commands)


def install(manager: Manager, packages: list[str]) -> bool:
    """Install the packages if this process may; the answer says whether that worked."""
    prefix = _privilege(manager)
    if prefix is None:
        return False
    print(f"installing {' '.join(packages)} with {manager.command}", flush=True)
    if manager.refresh:
        # An old package list may still do, so only the installation decides.
        _run([*prefix, *manager.refresh])
    done = _run([*prefix, *manager.install, *manager.options, *packages])
    if done.returncode:
        print(done.stdout, end="")
        print(f"{manager.command} could not install {' '.join(packages)}", flush=True)
    return done.returncode == 0


def _privilege(manager: Manager) -> list[str] | None:
    """What goes before an installing command; None if this process may not install."""
    if not manager.as_root or _is_root():
        return []
    if shutil.which("sudo") and _run(["sudo", "-n", "true"]).returncode == 0:
        # Why: sudo drops the environment, and a package that asks questions would wait for ever.
        return ["sudo", "-n", "DEBIAN_FRONTEND=noninteractive"]
    return None


def _is_root() -> bool:
    return os.geteuid() == 0


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
