"""Crash points: off, on, on after some hits, and the end of a process."""

import signal
import subprocess
import sys

import pytest

from rocketlake import failpoint


@pytest.fixture(autouse=True)
def _all_off():
    yield
    failpoint.switch_off()


def test_point_that_is_off_does_nothing():
    failpoint.hit("flush.before")
    failpoint.hit("no such point is looked at while all are off")


def test_points_stand_in_pairs():
    assert "flush.before" in failpoint.POINTS
    assert "flush.after" in failpoint.POINTS
    assert len(failpoint.POINTS) == 2 * len(failpoint.STEPS) == len(set(failpoint.POINTS))


def test_point_acts_once():
    hits = []
    failpoint.switch_on("flush.before", lambda: hits.append(1))
    failpoint.hit("flush.after")
    assert hits == []
    failpoint.hit("flush.before")
    failpoint.hit("flush.before")
    assert hits == [1]


def test_point_acts_after_some_passes():
    hits = []
    failpoint.switch_on("roll.after", lambda: hits.append(1), passes=2)
    failpoint.hit("roll.after")
    failpoint.hit("roll.after")
    assert hits == []
    failpoint.hit("roll.after")
    assert hits == [1]


def test_point_is_off_behind_its_block():
    hits = []
    with failpoint.switched_on("delete.before", lambda: hits.append(1)):
        pass
    failpoint.hit("delete.before")
    assert hits == []


def test_one_point_is_switched_off_alone():
    hits = []
    failpoint.switch_on("delete.before", lambda: hits.append("delete"))
    failpoint.switch_on("flush.before", lambda: hits.append("flush"))
    failpoint.switch_off("delete.before")
    failpoint.hit("delete.before")
    failpoint.hit("flush.before")
    assert hits == ["flush"]


def test_unknown_point_is_refused():
    with pytest.raises(ValueError, match="no failpoint is called 'flash'"):
        failpoint.switch_on("flash", failpoint.kill)


def test_unknown_point_in_the_code_is_found_by_any_test_that_switches_one_on():
    failpoint.switch_on("flush.before", failpoint.kill)
    with pytest.raises(AssertionError, match="flash"):
        failpoint.hit("flash")


def test_kill_ends_the_process_without_a_word():
    code = (
        "import atexit; from rocketlake import failpoint\n"
        "atexit.register(print, 'told')\n"
        "failpoint.switch_on('flush.before', failpoint.kill)\n"
        "failpoint.hit('flush.before'); print('went on')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert ran.stdout == b""
