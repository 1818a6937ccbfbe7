"""Each golden store, unpacked once a session and opened as a user would open it."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from rocketlake.format.record import StoredMessage
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.owed_units import Places
from rocketlake.store.offline import OfflineStore
from support.golden import Golden, GoldenStores, case_names


class Opened:
    """A golden store and our view of it, without any options."""

    def __init__(self, golden: Golden) -> None:
        self.case = golden.case
        self.root = golden.root
        self.golden = golden
        self.view = OfflineStore(golden.root)

    @cached_property
    def messages(self) -> list[tuple[QueueKey, Places, StoredMessage]]:
        """Every message of every queue, with its unit."""
        return [
            (key, place, message)
            for key in self.view.queues
            for batch in self.view.messages(key)
            for place, message in zip(batch.places, batch.columns.messages(), strict=True)
        ]

    @cached_property
    def records(self) -> list[StoredMessage]:
        """Every record of the log."""
        return [message for chunk in self.view.walk() for message in chunk.columns.messages()]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> GoldenStores:
    return GoldenStores(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def views(stores: GoldenStores) -> Iterator[dict[str, Opened]]:
    found: dict[str, Opened] = {}
    yield found
    for opened in found.values():
        opened.view.close()


@pytest.fixture
def open_case(stores: GoldenStores, views: dict[str, Opened]):
    def open_(name: str) -> Opened:
        if name not in views:
            views[name] = Opened(stores.get(name))
        return views[name]

    return open_


@pytest.fixture(params=case_names())
def opened(request: pytest.FixtureRequest, open_case) -> Opened:
    return open_case(request.param)


@pytest.fixture(params=case_names())
def golden(request: pytest.FixtureRequest, stores: GoldenStores) -> Golden:
    return stores.get(request.param)


@pytest.fixture
def index_files(opened: Opened) -> list[Path]:
    return opened.golden.files("index")
