"""RocketMQ's own message store, run by the driver in reference/.

fetch()                                  brings the packages, once
store = ReferenceStore("5.3.3")
store.write(spec, directory)             one line per put
store.dump([directory], spec, queries)   what RocketMQ reads from copies
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

REFERENCE = Path(__file__).resolve().parent / "reference"
VERSIONS = ("5.5.0", "5.3.3", "4.9.7", "4.6.0")

_PACKAGES_MISSING = 3
_FETCH_S = 600
_RUN_S = 120
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a JVM that lives a second

Line = dict[str, Any]
"""One JSON object of the driver's output."""


class ReferenceFailedError(Exception):
    """The driver ended with an error."""


class Answer(Struct):
    """What RocketMQ reads from one store; `loads` is False if it refuses to start on it."""

    store: Path
    loads: bool
    error: str = ""
    messages: list[Line] = field(default_factory=list)
    missing: list[Line] = field(default_factory=list)
    queues: list[Line] = field(default_factory=list)
    keys: list[Line] = field(default_factory=list)
    times: list[Line] = field(default_factory=list)
    log: tuple[int, int] = (0, 0)

    def add(self, line: Line) -> None:
        """Take a line that belongs to this store."""
        match line["line"]:
            case "message":
                self.messages.append(line)
            case "missing":
                self.missing.append(line)
            case "queue":
                self.queues.append(line)
            case "key":
                self.keys.append(line)
            case "time":
                self.times.append(line)
            case "log":
                self.log = (line["minOffset"], line["maxOffset"])
            case other:
                raise ReferenceFailedError(f"a line nobody knows: {other}")


@cache
def fetch() -> str:
    """Bring the packages of all versions; return why that is impossible, or nothing.

    Raises:
        ReferenceFailedError: the driver does not compile.
    """
    ended = subprocess.run(
        [str(REFERENCE / "fetch"), *VERSIONS],
        capture_output=True,
        text=True,
        timeout=_FETCH_S,
        check=False,
    )
    if ended.returncode == _PACKAGES_MISSING:
        return ended.stderr.strip().removeprefix("fetch: ") or "no reason was given"
    if ended.returncode:
        raise ReferenceFailedError(f"fetch ended with {ended.returncode}:\n{_end_of(ended.stderr)}")
    return ""


class ReferenceStore:
    """The store of one release."""

    def __init__(self, version: str) -> None:
        self.version = version

    def write(self, spec: Path, store: Path) -> list[Line]:
        """Make a store; return one line per put."""
        return list(self._run("write", spec, store))

    def append(self, spec: Path, store: Path) -> list[Line]:
        """Put into a store that exists; the first line says how it was recovered."""
        return list(self._run("append", spec, store))

    def recover(self, store: Path, spec: Path) -> Line:
        """Start on a store in place and stop; return its bounds."""
        (line,) = self._run("recover", store, "--spec", spec)
        return line

    def recover_all(self, stores: Sequence[Path], spec: Path) -> dict[Path, Line]:
        """Start on stores in place and stop, one after the other; return their bounds.

        A store that is refused has `load` false and an `error`.
        """
        assert len(stores) > 1, "one that is refused would end the others"
        lines = self._run("recover", *stores, "--spec", spec)
        return {Path(line["store"]): line for line in lines}

    @contextmanager
    def holding(self, store: Path, **options: object) -> Iterator[Line]:
        """Have the store open in RocketMQ for the length of the block, or learn why it is not."""
        command = self._command("hold", store, "--options", json.dumps(options))
        more = {"STORE_JAVA_OPTS": _QUICK}
        process = _start(command, more, stdin=subprocess.PIPE)
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
            process.communicate(timeout=_RUN_S)
        finally:
            kill(process)

    def dump(
        self, stores: Sequence[Path], spec: Path, queries: Path | None = None
    ) -> dict[Path, Answer]:
        """Read copies of stores that were written with the options of a spec."""
        asked = ("--queries", queries) if queries else ()
        answers: dict[Path, Answer] = {}
        answer = None
        for line in self._run("dump", *stores, "--spec", spec, *asked):
            if line["line"] == "store":
                answer = Answer(Path(line["store"]), line["load"], line.get("error", ""))
                answers[answer.store] = answer
            elif answer is not None:
                answer.add(line)
        return answers

    def bench_put(self, store: Path, *arguments: object) -> subprocess.Popen[str]:
        """Begin to write many messages; the caller waits, or kills the process' group."""
        return _start(self._command("bench-put", store, *arguments), {})

    def _run(self, *arguments: object) -> Iterator[Line]:
        command = self._command(*arguments)
        process = _start(command, {"STORE_JAVA_OPTS": _QUICK})
        try:
            out, err = process.communicate(timeout=_RUN_S)
        except subprocess.TimeoutExpired as error:
            kill(process)
            raise ReferenceFailedError(f"{' '.join(command)}: no end in {_RUN_S} s") from error
        if process.returncode:
            text = f"{' '.join(command)} ended with {process.returncode}:\n{_end_of(err)}"
            raise ReferenceFailedError(text)
        return (json.loads(line) for line in out.splitlines())

    def _command(self, *arguments: object) -> list[str]:
        return [str(REFERENCE / "store"), self.version, *map(str, arguments)]


def kill(process: subprocess.Popen[str]) -> None:
    """End a process that `bench_put` began, and what it began itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _start(
    command: list[str], more: Mapping[str, str], stdin: int | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
        start_new_session=True,
    )


def _end_of(text: str, lines: int = 20) -> str:
    return "\n".join(text.splitlines()[-lines:])
