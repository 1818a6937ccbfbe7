"""A program that ends without closing its stores: each way to end, as a process of its own."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from rocketlake.store import exit_hook

TIMEOUT_S = 60

# A store as far as the hook knows one: it has the mark of a running store, and closes.
PRELUDE = """
import os, signal, sys, threading
from pathlib import Path
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import AbortMark
from rocketlake.store import exit_hook

class Store:
    def __init__(self, name):
        self.name = name
        self.forked = False
        root = Path(sys.argv[1]) / name
        root.mkdir(exist_ok=True)
        self.mark = AbortMark(PosixFileOps(), root)
        self.mark.set()
        exit_hook.register(self)
        self.forget = exit_hook.on_fork(self.was_forked)

    def was_forked(self):
        self.forked = True

    def close(self):
        self.mark.remove()
        exit_hook.unregister(self)
        self.forget()
        say("closed", self.name)

def say(*words):
    print(*words, flush=True)
"""


class Program:
    """A running script; `root` is where its stores lie."""

    def __init__(self, root, script):
        command = [sys.executable, "-c", PRELUDE + script, str(root)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def expect(self, *words):
        """Read one line."""
        assert self.process.stdout.readline().decode().split() == list(words)

    def end(self):
        """Wait for the end; return code, the rest of stdout in lines, and stderr."""
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out.decode().splitlines(), err.decode()


@pytest.fixture
def run(tmp_path):
    programs = []

    def run(script):
        programs.append(Program(tmp_path, script))
        return programs[-1]

    yield run
    for program in programs:
        program.process.kill()
        program.process.communicate()


def is_marked(tmp_path, name="a"):
    return (tmp_path / name / "abort").exists()


# --- ways to end ---------------------------------------------------------------------------------


def test_normal_end_closes(run, tmp_path):
    code, out, err = run("store = Store('a')").end()
    assert (code, out, err) == (0, ["closed a"], "")
    assert not is_marked(tmp_path)


def test_store_that_the_program_no_longer_holds_is_closed(run, tmp_path):
    assert run("def work(): Store('a')\nwork()").end()[:2] == (0, ["closed a"])
    assert not is_marked(tmp_path)


def test_unhandled_exception_closes(run, tmp_path):
    code, out, err = run("store = Store('a')\nraise ValueError('oh')").end()
    assert (code, out) == (1, ["closed a"])
    assert "ValueError: oh" in err
    assert not is_marked(tmp_path)


def test_ctrl_c_closes(run, tmp_path):
    program = run("store = Store('a')\nsay('ready')\nsys.stdin.read()")
    program.expect("ready")
    program.process.send_signal(signal.SIGINT)
    code, out, err = program.end()
    assert code == -signal.SIGINT
    assert out == ["closed a"]
    assert "KeyboardInterrupt" in err
    assert not is_marked(tmp_path)


def test_exit_closes_and_keeps_its_code(run, tmp_path):
    assert run("store = Store('a')\nsys.exit(7)").end()[:2] == (7, ["closed a"])
    assert not is_marked(tmp_path)


def test_end_by_the_system_leaves_the_mark(run, tmp_path):
    assert run("store = Store('a')\nos._exit(3)").end()[:2] == (3, [])
    assert is_marked(tmp_path)


def test_daemon_threads_do_not_hold_the_end_up(run, tmp_path):
    script = """
store = Store('a')
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
    assert run(script).end()[:2] == (0, ["closed a"])
    assert not is_marked(tmp_path)


def test_newest_store_is_closed_first(run):
    assert run("a = Store('a'); b = Store('b'); c = Store('c')").end()[1] == [
        "closed c",
        "closed b",
        "closed a",
    ]


def test_closed_store_is_not_closed_again(run):
    assert run("a = Store('a'); b = Store('b'); b.close()").end()[1] == ["closed b", "closed a"]


def test_failing_close_is_logged_and_the_others_are_closed(run, tmp_path):
    script = """
import logging; logging.basicConfig()
a = Store('a'); b = Store('b')
def fail(): raise OSError("the disk is gone")
b.close = fail
"""
    code, out, err = run(script).end()
    assert (code, out) == (0, ["closed a"])
    assert "the disk is gone" in err
    assert is_marked(tmp_path, "b")
    assert not is_marked(tmp_path, "a")


# --- forks ---------------------------------------------------------------------------------------

FORK = """
def fork(work):
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_fork_closes_nothing(run, tmp_path):
    script = """
store = Store('a')
fork(lambda: say("child", store.forked))
say("parent", store.forked, store.mark.is_set)
"""
    code, out, err = run(FORK + script).end()
    assert (code, err) == (0, "")
    assert out == ["child True", "parent False True", "closed a"]


def test_fork_closes_what_it_opened_itself(run, tmp_path):
    script = """
store = Store('a')
fork(lambda: Store('b'))
say("parent", store.mark.is_set)
"""
    code, out, _ = run(FORK + script).end()
    assert (code, out) == (0, ["closed b", "parent True", "closed a"])
    assert not is_marked(tmp_path, "b")


def test_fork_while_another_thread_opens_a_store_works(run):
    """The lock of the registry is held when the process forks; the thread is not in the fork."""
    script = """
exit_hook._registry._guard.acquire()
fork(lambda: Store('b'))
exit_hook._registry._guard.release()
"""
    assert run(FORK + script).end()[:2] == (0, ["closed b"])


def test_listener_that_was_taken_away_is_not_called(run):
    script = """
store = Store('a')
store.forget(); store.forget()
fork(lambda: say("child", store.forked))
"""
    assert run(FORK + script).end()[1] == ["child False", "closed a"]


def test_failing_listener_does_not_keep_the_others_from_being_told(run):
    script = """
def fail(): raise OSError("oh")
exit_hook.on_fork(fail)
store = Store('a')
fork(lambda: say("child", store.forked))
"""
    assert run(FORK + script).end()[1] == ["child True", "closed a"]


# --- SIGTERM -------------------------------------------------------------------------------------


def test_sigterm_alone_leaves_the_mark(run, tmp_path):
    program = run("store = Store('a')\nsay('ready')\nsys.stdin.read()")
    program.expect("ready")
    program.process.terminate()
    assert program.end()[:2] == (-signal.SIGTERM, [])
    assert is_marked(tmp_path)


def test_sigterm_in_the_block_is_a_clean_end(run, tmp_path):
    script = """
with exit_hook.closing_on_sigterm():
    store = Store('a')
    say('ready')
    sys.stdin.read()
"""
    program = run(script)
    program.expect("ready")
    program.process.terminate()
    code, out, err = program.end()
    assert (code, out, err) == (exit_hook.TERMINATED, ["closed a"], "")
    assert not is_marked(tmp_path)


def test_second_sigterm_does_not_disturb_the_closing(run, tmp_path):
    script = """
class Slow(Store):
    def close(self):
        say('closing')
        sys.stdin.readline()
        super().close()

with exit_hook.closing_on_sigterm():
    store = Slow('a')
    say('ready')
    sys.stdin.readline()
"""
    program = run(script)
    program.expect("ready")
    program.process.terminate()
    program.expect("closing")
    program.process.terminate()
    assert program.end()[:2] == (exit_hook.TERMINATED, ["closed a"])
    assert not is_marked(tmp_path)


@pytest.fixture
def own_handler():
    """A handler of SIGTERM that is put back after the test."""

    def handler(number, frame):
        raise AssertionError("not called")

    before = signal.signal(signal.SIGTERM, handler)
    yield handler
    signal.signal(signal.SIGTERM, before)


def test_old_handler_is_back_behind_the_block(own_handler):
    with exit_hook.closing_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not own_handler
    assert signal.getsignal(signal.SIGTERM) is own_handler


def test_old_handler_is_back_after_the_signal(own_handler):
    def wait_for_signal():
        with exit_hook.closing_on_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal did not end the block")

    with pytest.raises(SystemExit) as ended:
        wait_for_signal()
    assert ended.value.code == exit_hook.TERMINATED
    assert signal.getsignal(signal.SIGTERM) is own_handler


def test_handler_that_the_block_put_in_place_stays(own_handler):
    def newer(number, frame):
        pass

    with exit_hook.closing_on_sigterm():
        signal.signal(signal.SIGTERM, newer)
    assert signal.getsignal(signal.SIGTERM) is newer


def test_other_threads_have_no_handler_to_change(own_handler):
    seen = []

    def work():
        with exit_hook.closing_on_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [own_handler]
