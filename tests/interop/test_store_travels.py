"""A store goes from release to release, with us between: every message stays in its place."""

from pathlib import Path

import our_writing
import pytest
from reference_store import ReferenceStore
from test_reference_opens_ours import Places, append, as_spec, by_queue, check_ours, places

from rocketlake.clock import SystemClock
from rocketlake.store.message_store import MessageStore
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support.engine import open_engine

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

ROUTE = ("5.5.0", "5.3.3", "4.9.7", "5.3.3", "5.5.0")
KINDS = "4.9.7"
"""All that is put is of kinds that each of the releases knows."""


def test_store_of_5_5_goes_to_each_release_and_back(tmp_path: Path):
    store, more = tmp_path / "store", tmp_path / "more.json"
    spec = as_spec(tmp_path / "spec.json", KINDS, [])
    held: Places = {}
    for generation, version in enumerate(ROUTE):
        release = ReferenceStore(version)
        if generation == 0:
            release.write(spec, store)
        else:
            read_by(release, store, spec, held)
        held.update(append(release, store, more, KINDS, held))
        assert_sound(store)
        with open_ours(store) as ours:
            check_ours(ours, held)
            wrote = places(our_writing.write(ours, KINDS, generation=generation))
            assert not held.keys() & wrote.keys()
            held.update(wrote)
            check_ours(ours, held)
        assert_sound(store)
    for version in dict.fromkeys(ROUTE):
        read_by(ReferenceStore(version), store, spec, held)


def open_ours(store: Path) -> MessageStore:
    """Open the store with nothing chosen but what its files do not tell."""
    chosen = {
        name: value.replace("{store}", str(store)) if isinstance(value, str) else value
        for name, value in our_writing.options(KINDS).items()
    }
    opened = open_engine(store, SystemClock(), source=chosen)
    our_writing.delay(opened)
    return opened


def read_by(release: ReferenceStore, store: Path, spec: Path, held: Places) -> None:
    answer = release.dump([store], spec)[store]
    assert answer.loads, answer.error
    assert not answer.missing
    by_queue(answer, held)


def assert_sound(store: Path) -> None:
    found: list[object] = []
    with OfflineStore(store) as view:
        Verifier(view, VerifyOptions(jobs=1)).run(found.append)
    assert found == []
