"""Our store, given RocketMQ's input, clock and options, writes RocketMQ's bytes.

Only the filler behind the 8 bytes of a blank record is left out; index files are compared in
their order, since their names are times of the run.
"""

import pytest
from golden_play import Played, is_delivery, play

from support.golden import case_names
from support.spec_player import steps_of
from support.store_bytes import differences

UNPLAYED: dict[str, str] = {}
"""Cases that the store alone cannot write, and why."""

_TIMED = "the store puts the time of a message behind its properties, and delivers it later"
_BROKER = "half, op and committed messages are made by the broker"
AS_THEY_ARE = {
    "v4-transaction": _BROKER,
    "v5-transaction": _BROKER,
    "v55-transaction": _BROKER,
    "v5-timer": _TIMED,
    "v55-timer": _TIMED,
}
"""Cases with records that are put as they are, not made from the spec, and why."""


@pytest.fixture(scope="module")
def played_cases() -> dict[str, Played]:
    return {}


@pytest.fixture(params=[name for name in case_names() if name not in UNPLAYED])
def played(request, stores, played_cases, tmp_path_factory) -> Played:
    name = request.param
    if name not in played_cases:
        played_cases[name] = play(stores.get(name), tmp_path_factory.mktemp(name))
    return played_cases[name]


def test_every_put_gets_the_same_answer(played):
    for step, receipt in zip(played.steps, played.receipts, strict=True):
        wanted = step.wanted
        if not wanted:
            continue
        assert (wanted["put"], receipt.status) == (wanted["put"], wanted["status"])
        if receipt.status == "PUT_OK":
            found = (receipt.physical_offset, receipt.size, receipt.queue_offset, receipt.count)
            names = ("wroteOffset", "wroteBytes", "logicsOffset", "msgNum")
            assert found == tuple(wanted[name] for name in names)
            assert (receipt.msg_id, receipt.store_timestamp) == (wanted["msgId"], step.at)


def test_log_has_the_same_bytes(played):
    assert_same(played, "log")


def test_queues_have_the_same_bytes(played):
    assert_same(played, "queue")


def test_index_has_the_same_bytes(played):
    assert_same(played, "index")


def assert_same(played: Played, family: str) -> None:
    """Compare one family of files."""
    sides = (
        {name: data for name, data in files.items() if family_of(name) == family}
        for files in (played.ours, played.theirs)
    )
    found = differences(*sides)
    assert not found, "\n".join(found)


def family_of(name: str) -> str:
    if name.startswith("index "):
        return "index"
    return "queue" if "consumequeue" in name.split("/", maxsplit=1)[0] else "log"


def test_only_the_named_cases_are_left_out(played_cases, stores):
    assert set(UNPLAYED) < set(case_names())
    assert set(played_cases) in (set(), set(case_names()) - set(UNPLAYED))
    found = {
        name
        for name in case_names()
        if any(step.by_broker and not is_delivery(step) for step in steps_of(stores.get(name)))
    }
    assert found == set(AS_THEY_ARE)
