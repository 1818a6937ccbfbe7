"""Signals that end a program with an open store, in processes of their own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlake

TERMINATED = 128 + signal.SIGTERM
TIMEOUT_S = 60

PRELUDE = """
import os, signal, sys, threading, time
import rocketlake
from rocketlake import Message

path = sys.argv[1]

def say(text):
    os.write(1, text.encode() + b"\\n")

def put(store, worker):
    for number in range(10**9):
        store.put(Message(topic="T", body=b"%d" % number), queue_id=worker)
        say(f"{worker} {number}")
"""

IN_THE_MAIN_THREAD = """
with rocketlake.closing_on_sigterm():
    put(rocketlake.open_store(path), 0)
"""

IN_THREADS = """
def work(store, worker):
    try:
        put(store, worker)
    except rocketlake.StoreClosedError:
        say(f"closed {worker}")

@rocketlake.closing_on_sigterm()
def main():
    store = rocketlake.open_store(path)
    threads = [threading.Thread(target=work, args=(store, n)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        store.close()
        for thread in threads:
            thread.join()

main()
"""

WITH_AN_OLD_HANDLER = """
signal.signal(signal.SIGTERM, lambda *_: say("not called"))
with rocketlake.closing_on_sigterm():
    put(rocketlake.open_store(path), 0)
"""

WITH_ITS_OWN_HANDLER = """
with rocketlake.closing_on_sigterm():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    put(rocketlake.open_store(path), 0)
"""


class Program:
    """A program that puts and tells of every message that was acknowledged."""

    def __init__(self, script: str, path: Path) -> None:
        self._errors = path.with_name(path.name + ".err")
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PRELUDE + script, str(path)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._lines: list[str] = []

    def wait_for(self, count: int) -> None:
        while len(self._lines) < count:
            line = self.process.stdout.readline()
            assert line, self._errors.read_text()
            self._lines.append(line.strip())

    def end(self) -> tuple[int, list[str], str]:
        self._lines += self.process.stdout.read().splitlines()
        return self.process.wait(TIMEOUT_S), self._lines, self._errors.read_text()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def run(path):
    programs = []

    def run(script: str) -> Program:
        programs.append(Program(script, path))
        return programs[-1]

    yield run
    for program in programs:
        program.process.kill()
        program.process.wait()
        program.process.stdout.close()


def check_clean(path: Path, lines: list[str]) -> None:
    """The store was closed, and has every message that was acknowledged."""
    assert not (path / "abort").exists()
    acknowledged = [line.split() for line in lines if line[0].isdigit()]
    with rocketlake.open_store(path) as store:
        assert store.recovery.is_clean
        for worker in {worker for worker, _ in acknowledged}:
            count = sum(1 for one, _ in acknowledged if one == worker)
            # The put that the signal met may be there, too.
            assert count <= store.max_offset("T", int(worker)) <= count + 1


@pytest.mark.parametrize(
    "script",
    [IN_THE_MAIN_THREAD, IN_THREADS, WITH_AN_OLD_HANDLER],
    ids=["main-thread", "threads", "old-handler"],
)
@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_during_puts_closes_the_store(run, path, script, signals):
    program = run(script)
    program.wait_for(200)
    for _ in range(signals):
        program.process.terminate()
    code, lines, err = program.end()
    assert (code, err) == (TERMINATED, "")
    assert "not called" not in lines
    check_clean(path, lines)


def test_sigterm_in_a_program_with_its_own_handler_is_that_programs(run, path):
    program = run(WITH_ITS_OWN_HANDLER)
    program.wait_for(200)
    program.process.terminate()
    code, lines, err = program.end()
    assert (code, err) == (7, "")
    check_clean(path, lines)


def test_sigterm_without_the_helper_leaves_a_store_that_recovers(run, path):
    program = run("put(rocketlake.open_store(path), 0)")
    program.wait_for(200)
    program.process.terminate()
    code, lines, _ = program.end()
    assert code == -signal.SIGTERM
    assert (path / "abort").exists()
    with rocketlake.open_store(path) as store:
        assert store.max_offset("T", 0) >= len(lines)


def test_writer_whose_file_is_cut_short_is_ended_and_the_rest_survives(run, path):
    """The page on durability says so: a mapped page that is gone is SIGBUS."""
    script = """
store = rocketlake.open_store(path, mapped_file_size_commit_log=4 << 20)
for number in range(100):
    store.put(Message(topic="T", body=b"%d" % number), queue_id=0)
store.flush()
say("flushed")
os.truncate(f"{path}/commitlog/{0:020}", 64 << 10)
put(store, 0)
"""
    program = run(script)
    code, _, err = program.end()
    assert code == -signal.SIGBUS, err
    with rocketlake.open_store(path, read_only=True) as store:
        bodies = [m.body for m in store.get("T", 0, 0, max_messages=100).messages]
        assert bodies == [b"%d" % number for number in range(100)]
