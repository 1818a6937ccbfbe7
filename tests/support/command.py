"""The command line, run in this process or as a user runs it.

    ran = run("info", str(store), "--json")
    ran.code, ran.json, ran.err

`run` goes through the entry point, so exit codes and messages are those of a shell.
"""

import contextlib
import gc
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

from rocketlake.cli import main as entry

COMMAND = (sys.executable, "-m", "rocketlake")
TIMEOUT_S = 60


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object of stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON objects of stdout, one a line."""
        # Why: other characters that end a line for Python may stand inside a JSON text.
        return [json.loads(line) for line in self.out.split("\n") if line]

    @property
    def problems(self) -> list[str]:
        """The lines of stderr."""
        return self.err.splitlines()


def run(*arguments: object) -> Ran:
    """Run the command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = signal.getsignal(signal.SIGPIPE)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "argv", ["rocketlake", *map(str, arguments)]),
        ):
            code = _exit_code()
    finally:
        signal.signal(signal.SIGPIPE, before)
        gc.enable()  # `dump` does without
    return Ran(code, _text(out), _text(err))


def _exit_code() -> int:
    try:
        entry.run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    raise AssertionError("the entry point returned instead of exiting")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def run_process(
    *arguments: object, env: Mapping[str, str] | None = None, options: tuple[str, ...] = ()
) -> Ran:
    """Run the command in a process of its own; `options` are the interpreter's."""
    ended = subprocess.run(
        [sys.executable, *options, "-m", "rocketlake", *map(str, arguments)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    texts = (stream.decode(errors="replace") for stream in (ended.stdout, ended.stderr))
    return Ran(ended.returncode, *texts)
