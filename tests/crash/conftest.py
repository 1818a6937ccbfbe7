"""Seeds of the crash laboratory: one for everything that is left to chance, told on failure.

python -m pytest tests/crash --crash-seed=17     plays what was played with this seed
CRASH_ROUNDS=500 python -m pytest tests/crash    plays so many scripts instead of a few
"""

import logging
import os
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-seed", type=int, default=None, help="play only this seed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "crash_seed" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--crash-seed")
        rounds = int(os.environ.get("CRASH_ROUNDS", "1"))
        metafunc.parametrize("crash_seed", range(rounds) if chosen is None else [chosen])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "crash" in item.path.parts:
            item.add_marker(pytest.mark.crash)


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Log nothing: thousands of recoveries would bury what failed."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
