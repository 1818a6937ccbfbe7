"""A piece of work in a fork of the test, which may be killed: what it told before its end."""

import os
import select
import signal
import traceback
from collections.abc import Callable

from msgspec import Struct

QUIET_S = 60.0

Tell = Callable[[str], None]


class Ended(Struct, frozen=True):
    """What a fork told, line by line, and the signal that ended it; 0 if it came to its end."""

    lines: list[str]
    signal: int

    @property
    def is_killed(self) -> bool:
        return self.signal == signal.SIGKILL


def run(work: Callable[[Tell], object], *, kill_after: int | None = None) -> Ended:
    """Run in a fork; kill it when it has told so many lines.

    Raises:
        AssertionError: it raised, or told nothing for a long time.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 0
        try:
            work(lambda text: _write(writing, text))
        except BaseException:  # noqa: BLE001 - all of it is told
            _write(writing, "raised: " + traceback.format_exc().replace("\n", " | "))
            code = 1
        os._exit(code)
    os.close(writing)
    try:
        lines = _read(child, reading, kill_after)
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    raised = [line for line in lines if line.startswith("raised: ")]
    assert not raised, raised[0].replace(" | ", "\n")
    return Ended(lines, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _write(pipe: int, text: str) -> None:
    os.write(pipe, text.encode() + b"\n")


def _read(child: int, pipe: int, kill_after: int | None) -> list[str]:
    data = b""
    poll = select.poll()
    poll.register(pipe)
    is_killed = False
    while True:
        if not poll.poll(QUIET_S * 1000):
            os.kill(child, signal.SIGKILL)
            raise AssertionError(f"the fork told nothing for {QUIET_S} s")
        more = os.read(pipe, 1 << 16)
        if not more:
            return data.decode().split("\n")[:-1]
        data += more
        if not is_killed and kill_after is not None and data.count(b"\n") >= kill_after:
            is_killed = True
            os.kill(child, signal.SIGKILL)
