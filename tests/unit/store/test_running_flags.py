"""Running flags: the reference's bits, and what each forbids."""

import threading

import pytest

from rocketlake.store.running_flags import RunningFlag, RunningFlags

# What RunningFlags of 5.3.3 answers with one bit set: readable, writeable, CQ-writeable.
ANSWERS = {
    1: (False, True, True),
    2: (True, False, False),
    4: (True, False, False),
    8: (True, False, False),
    16: (True, False, True),
    32: (True, False, True),
    64: (True, False, False),
}


def answers(flags: RunningFlags) -> tuple[bool, bool, bool]:
    return flags.is_readable, flags.is_writable, flags.is_queue_writable


@pytest.mark.parametrize("flag", list(RunningFlag))
def test_flag_forbids_what_it_does_in_the_reference(flag):
    flags = RunningFlags()
    assert answers(flags) == (True, True, True)
    assert flags.mark(flag)
    assert flags.bits == int(flag)
    assert answers(flags) == ANSWERS[flag]
    assert flags.clear(flag)
    assert answers(flags) == (True, True, True)


def test_bits_are_the_references():
    assert [int(flag) for flag in RunningFlag] == list(ANSWERS)


def test_mark_and_clear_tell_whether_they_changed_something():
    flags = RunningFlags()
    assert not flags.clear(RunningFlag.DISK_FULL)
    assert flags.mark(RunningFlag.DISK_FULL)
    assert not flags.mark(RunningFlag.DISK_FULL)
    assert flags.mark(RunningFlag.FENCED)
    assert flags.has(RunningFlag.FENCED)
    assert flags.clear(RunningFlag.DISK_FULL)
    assert not flags.has(RunningFlag.DISK_FULL)
    assert flags.has(RunningFlag.FENCED)


def test_text_names_the_reasons():
    flags = RunningFlags()
    assert str(flags) == "OK"
    flags.mark(RunningFlag.DISK_FULL)
    flags.mark(RunningFlag.NOT_READABLE)
    assert str(flags) == "NOT_READABLE|DISK_FULL"


def test_changes_by_many_threads_do_not_undo_each_other():
    flags = RunningFlags()

    def toggle(flag: RunningFlag) -> None:
        for _ in range(2000):
            flags.mark(flag)
            flags.clear(flag)
        flags.mark(flag)

    threads = [threading.Thread(target=toggle, args=(flag,)) for flag in RunningFlag]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert flags.bits == 127
