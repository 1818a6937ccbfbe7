"""RocketMQ's packages, or a skip that says why they are not here."""

import pytest
import reference_store


@pytest.fixture(scope="session")
def reference() -> None:
    """RocketMQ's store can be run; a driver that does not compile is an error, not a skip."""
    if lacking := reference_store.fetch():
        pytest.skip(f"RocketMQ's packages cannot be had: {lacking}")
