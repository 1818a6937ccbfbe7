"""A store whose services have no threads: a test says who runs, and when.

with by_hand() as hands:
    store = open_engine(...)
    hands.run("rocketlake-dispatch")
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocketlake.files.background_service import BackgroundService
from rocketlake.files.preallocator import Preallocator
from rocketlake.store.put.flush import GroupCommit


class Hands:
    """The services that would have been started since the last store was opened, by name."""

    def __init__(self) -> None:
        self._services: dict[str, BackgroundService] = {}

    def take(self, service: BackgroundService) -> None:
        """Have a service; one of the same name, of a store before, is forgotten."""
        self._services[service.name] = service

    def run(self, name: str) -> None:
        """Let a service do what it has to do."""
        self._services[name].run_once()

    def pause_s(self, name: str) -> float | None:
        """Return how long the thread of a service would wait now; None is for ever."""
        return self._services[name].pause_s()

    @property
    def names(self) -> list[str]:
        """What can be run."""
        return list(self._services)


@contextmanager
def by_hand() -> Iterator[Hands]:
    """Start no threads within this block.

    Whoever waits for a file, or for a flush that others make, does the work in its own thread.
    """
    hands = Hands()

    def keep(service: BackgroundService) -> None:
        hands.take(service)

    def work(service: BackgroundService) -> None:
        service.run_once()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundService, "start", keep)
        for kind in (Preallocator, GroupCommit):
            patch.setattr(kind, "wakeup", work)
        yield hands
