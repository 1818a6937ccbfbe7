"""Names the kernel in use and makes sure it is the one asked for; skips interop without Java.

Also says which files several processes begin with.

ROCKETLAKE_KERNEL=native|pure says which kernel the tests are to run on.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import rocketlake
from rocketlake.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
LONG = (
    *("tests/spark/", "tests/golden/test_golden_kernels.py"),
    *("tests/interop/", "tests/crash/", "tests/tidy/"),
)
"""Where the tests are of which one may take half a minute."""


def pytest_configure() -> None:
    wanted = os.environ.get("ROCKETLAKE_KERNEL", "auto")
    kernel = kernel_in_use()
    if wanted not in {"auto", kernel}:
        raise pytest.UsageError(f"ROCKETLAKE_KERNEL={wanted}, but the kernel in use is {kernel}")


def pytest_report_header() -> str:
    return f"kernel: {kernel_in_use()}"


def kernel_in_use() -> str:
    try:
        return getattr(rocketlake, "KERNEL", "unknown")
    except ConfigError as error:  # a wish that is unknown or cannot be met
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, have the long files begun first."""
    if getattr(config.option, "dist", "no") != "no":
        items.sort(key=lambda item: not item.path.relative_to(ROOT).as_posix().startswith(LONG))


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Skipped from here, they share one line of the summary.
    if item.get_closest_marker("interop") and (lacking := missing_for_interop()):
        pytest.skip(f"interop needs {lacking}")


@cache
def missing_for_interop() -> str:
    java = [sys.executable, str(ROOT / "tools" / "java.py")]
    has_java = subprocess.run(java, capture_output=True, check=False).returncode == 0
    has_maven = shutil.which("mvn") is not None
    needs = {"Java 17 or newer": has_java, "Maven": has_maven}
    return " and ".join(name for name, is_here in needs.items() if not is_here)
