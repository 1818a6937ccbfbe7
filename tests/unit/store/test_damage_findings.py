"""Findings: each place once, the list bounded, the count not."""

import pytest

from rocketlake.format.record import StopReason
from rocketlake.store.disk.damage import Damage, Finding, reason_text


def test_each_place_is_told_once():
    seen = []
    damage = Damage(seen.append)
    damage.report("a", 1, "bad")
    damage.report("a", 1, "worse")
    damage.report("a", 2, "bad")
    damage.report("b", 1, "bad")
    assert seen == damage.findings
    assert [(f.path, f.position, f.reason) for f in seen] == [
        ("a", 1, "bad"),
        ("a", 2, "bad"),
        ("b", 1, "bad"),
    ]
    assert damage.count == 3


def test_list_is_bounded_and_the_count_is_not():
    damage = Damage(kept=3)
    for position in range(10):
        damage.report("a", position, "bad")
    assert len(damage.findings) == 3
    assert damage.count == 10


def test_finding_reads_as_one_line():
    assert str(Finding("log", 17, "bad")) == "log at 17: bad"


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason])
def test_every_reason_has_words(reason):
    assert reason_text(reason) != "unreadable"
