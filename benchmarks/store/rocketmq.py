"""RocketMQ's own store 5.3.3, run by the driver of the interop tests."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "tests" / "interop" / "reference"
VERSION = "5.3.3"
TOPIC = "BenchTopic"

Line = dict[str, Any]
"""One JSON object of the driver's output."""


@cache
def lacking() -> str:
    """Why RocketMQ cannot be run here, or nothing."""
    java = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "java.py")], capture_output=True, check=False
    )
    needs = {"Java 17": java.returncode == 0, "Maven": shutil.which("mvn") is not None}
    if missing := " and ".join(name for name, is_here in needs.items() if not is_here):
        return f"RocketMQ needs {missing}"
    ended = subprocess.run(
        [str(REFERENCE / "fetch"), VERSION], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        return f"RocketMQ's packages cannot be had: {ended.stderr.strip().splitlines()[-1]}"
    return ""


def put(store: Path, *, count: int, size: int, file_size: int, **more: object) -> Line:
    """Put messages after a warm-up; `more` are the driver's options: threads, batch, flush."""
    arguments = {"count": count, "size": size, "file-size": file_size, "flush": "ASYNC", **more}
    (line,) = _run("bench-put", store, arguments)
    return line


def get(store: Path, *, queue: int, batch: int, file_size: int, passes: int = 3) -> Line:
    """Read a queue several times and decode every message; return the last, warm pass."""
    arguments = {"topic": TOPIC, "queue": queue, "batch": batch, "passes": passes}
    return _run("bench-get", store, {**arguments, "file-size": file_size})[-1]


def wait(store: Path, *, count: int, rate: int, **more: object) -> Line:
    """Measure from each put to its arrival, `rate` a second; 0: one after the other."""
    arguments = {"count": count, "rate": rate}
    more = {name.replace("_", "-"): value for name, value in more.items()}
    (line,) = _run("bench-wait", store, {**arguments, **more})
    return line


def recover(store: Path, *, file_size: int) -> Line:
    """Start on a store in place and stop; return the times it took and the bounds it found."""
    options = json.dumps({"mappedFileSizeCommitLog": file_size})
    (line,) = _run("recover", store, {"options": options})
    return line


def _run(command: str, store: Path, arguments: dict[str, object]) -> list[Line]:
    flags = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
    ended = subprocess.run(
        [str(REFERENCE / "store"), VERSION, command, str(store), *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"RocketMQ's {command} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return [json.loads(line) for line in ended.stdout.splitlines()]
