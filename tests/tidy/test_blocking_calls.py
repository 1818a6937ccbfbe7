"""Locks are taken by `with`, waits are gates; what is neither is listed here, with its reason."""

from pathlib import Path

import pytest
from blocking_rules import blocking_calls

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("delay", "embedded", "files", "filters", "format", "metadata", "model", "store")
"""What the threads of callers run. Commands and Spark's workers have threads of their own."""

BELL = "the bell of a service: only the service's own thread waits for it"
ALLOWED = {
    ("files/background_service.py", "_Bell.__init__"): BELL,
    ("files/background_service.py", "_Bell.wait"): BELL,
    ("files/background_service.py", "_Bell.clear"): BELL,
    ("files/background_service.py", "BackgroundService._run"): BELL,
    ("files/background_service.py", "BackgroundService._run_guarded"): "the service's own thread",
    ("files/store_lock.py", "_Registry.before_fork"): "released by the hooks behind the fork",
    (
        "store/lifecycle.py",
        "Lifecycle._acquire",
    ): "the lock file; on a thread that runs no handlers",
    (
        "store/dispatch/external_files.py",
        "acquire_within",
    ): "the lock file; on a thread that runs no handlers",
    ("store/put/flush.py", "GroupCommit.flush_for"): "BlockedPut.wait, which is a gate",
    (
        "embedded/consumer/consumer.py",
        "Consumer._await_ready",
    ): "GroupAssignment.wait, which is a gate",
    ("embedded/aio.py", "AsyncConsumer._await_ready"): "an event of asyncio: no thread waits",
    ("embedded/aio.py", "_finish"): "a future of asyncio: no thread waits",
    (
        "store/put/future.py",
        "_Waits.make_condition",
    ): "of concurrent.futures; nothing here waits for it",
    (
        "store/put/future.py",
        "_Waits._tell_callers",
    ): "for a second at most, on the thread of callbacks",
}


def found():
    for package in PACKAGES:
        for path in sorted((ROOT / "src/rocketlake" / package).rglob("*.py")):
            name = path.relative_to(ROOT / "src/rocketlake").as_posix()
            for function, finding in blocking_calls(name, path.read_text()):
                yield (name, function), finding


def test_locks_are_taken_by_with_and_waits_are_gates():
    wrong = [str(finding) for place, finding in found() if place not in ALLOWED]
    assert not wrong, "\n".join(wrong)


def test_list_of_exceptions_has_no_more_than_there_are():
    assert not set(ALLOWED) - {place for place, _ in found()}


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("def f(lock):\n    lock.acquire()\n", ["f"]),
        ("class A:\n    def f(self):\n        self._lock.acquire(timeout=1)\n", ["A.f"]),
        ("def f(event):\n    event.wait(1)\n", ["f"]),
        ("def f():\n    return threading.Condition()\n", ["f"]),
        ("def f():\n    return Semaphore(2)\n", ["f"]),
        ("class A(threading.Condition):\n    pass\n", ["A"]),
        ("def f(lock):\n    with lock:\n        pass\n", []),
        ("def f(self):\n    self.gate.acquire()\n", []),
        ("def f(gate):\n    gate.acquire(timeout=1)\n", []),
        ("def f(gate):\n    gate.wait()\n", ["f"]),
        ("def f(lock):\n    return lock.locked()\n", []),
    ],
)
def test_rule_finds_what_may_block(text, functions):
    assert [function for function, _ in blocking_calls("a.py", text)] == functions
