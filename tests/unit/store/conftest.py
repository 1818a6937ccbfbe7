"""A primary and a replica, for the tests of both."""

import pytest
from store_bench import open_engine


@pytest.fixture
def primary(tmp_path):
    with open_engine(tmp_path / "primary") as store:
        yield store


@pytest.fixture
def replica(tmp_path):
    with open_engine(tmp_path / "replica", broker_role="SLAVE") as store:
        yield store
