"""Commands of a console block, run for real, and what a page shows of their output.

A plain `rocketlake` command runs in this process, through its entry point, so that commands on
Spark share one session. Everything else goes to a shell, in which `rocketlake` and `python` are
those of this environment.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketlake.cli import main

_SHELL: Final = re.compile(r"[|<>;&`]|\$\(|\$\{")
_DEADLINE_S: Final = 240


class Command(NamedTuple):
    """A command, its line below the fence, and what the page shows of its output."""

    line: int
    text: str
    shown: str


class Done(NamedTuple):
    """What a command left: exit code and all it printed."""

    code: int
    printed: str


def commands_of(code: str) -> list[Command]:
    """The commands of a block, with the output that follows each.

    Raises:
        ValueError: the first line is no command.
    """
    found: list[Command] = []
    lines = list(enumerate(code.splitlines(), 1))
    while lines:
        number, line = lines.pop(0)
        if not line.startswith("$ "):
            raise ValueError(f"{line!r} does not begin with '$ '")
        while line.endswith("\\") and lines:
            line = line[:-1] + lines.pop(0)[1].lstrip()
        shown = []
        while lines and not lines[0][1].startswith("$ "):
            shown.append(lines.pop(0)[1])
        found.append(Command(number, line.removeprefix("$ "), "\n".join(shown)))
    return found


def run(text: str) -> Done:
    """Run a command to its end."""
    if not _SHELL.search(_without_quoted(text)):
        words = shlex.split(text, comments=True)
        if words[0] == "rocketlake":
            return _run_here(words)
    done = subprocess.run(
        text,
        check=False,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(),
        timeout=_DEADLINE_S,
    )
    return Done(done.returncode, done.stdout)


def run_interrupted(text: str) -> Done:
    """Run a command that has no end: Ctrl-C comes when it has printed something."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {text}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(),
    )
    with process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=_DEADLINE_S)
    return Done(process.returncode, first + rest)


def _environment() -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }


def _without_quoted(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", "", text).partition(" #")[0]


def _run_here(words: list[str]) -> Done:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with _as_process(words), contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            main.run()
            code = 0
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 0
    stream.seek(0)
    return Done(code, stream.read())


@contextlib.contextmanager
def _as_process(words: list[str]) -> Iterator[None]:
    """Let a command find its arguments, and take back what it changes of the process."""
    argv = sys.argv
    before = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGINT)}
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = argv
        for number, handler in before.items():
            signal.signal(number, handler)
