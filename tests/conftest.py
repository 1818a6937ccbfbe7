"""Names the kernel in use and makes sure it is the one asked for; skips interop without Java.

Also says how several processes share the tests.

ROCKETLAKE_KERNEL=native|pure says which kernel the tests are to run on.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

import rocketlake
from rocketlake.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
SPARK = "tests/spark/"
"""These share a session. Two at a time would be in each other's way: Spark waits only so long."""
LONG = (SPARK, "tests/golden/test_golden_kernels.py", "tests/interop/", "tests/crash/")
"""Where the tests are of which one may take half a minute."""


def pytest_configure() -> None:
    wanted = os.environ.get("ROCKETLAKE_KERNEL", "auto")
    kernel = kernel_in_use()
    if wanted not in {"auto", kernel}:
        raise pytest.UsageError(f"ROCKETLAKE_KERNEL={wanted}, but the kernel in use is {kernel}")


def pytest_report_header() -> str:
    return f"kernel: {kernel_in_use()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was tried, so that a run on one version is not taken for a run on all."""
    python = ".".join(map(str, sys.version_info[:3]))
    terminalreporter.write_line(
        f"tried: Python {python}, {kernel_in_use()} kernel, {pyspark_in_use()};"
        " the other kernel: make test-kernels; other versions: make test-versions"
    )


def pyspark_in_use() -> str:
    try:
        return f"PySpark {version('pyspark')}"
    except PackageNotFoundError:
        return "no PySpark"


def kernel_in_use() -> str:
    try:
        return getattr(rocketlake, "KERNEL", "unknown")
    except ConfigError as error:  # a wish that is unknown or cannot be met
        raise pytest.UsageError(str(error)) from error


# --- several processes --------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let processes take whole files, and one of them all of Spark's."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - not in one process

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several: what is long is begun first
        items.sort(key=lambda item: not item.path.relative_to(ROOT).as_posix().startswith(LONG))


# --- interop ------------------------------------------------------------------------------------


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
