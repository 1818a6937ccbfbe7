"""How tests talk to the driver of their cluster: a line of JSON each way."""

import json
import subprocess
from pathlib import Path
from typing import Any


class Cluster:
    """Talks to the driver."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, hidden: Path) -> None:
        self._process = process
        self.folder = folder
        self.hidden = hidden

    def call(self, **step: Any) -> Any:
        """Take a step; what comes back may be an `error` in words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(step) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the driver has ended"
        return json.loads(line)

    def answer(self, **step: Any) -> Any:
        """Take a step that works."""
        said = self.call(**step)
        assert "answer" in said, said.get("whole", said)
        return said["answer"]


def end(process: subprocess.Popen[str]) -> None:
    """Let the driver stop its cluster, and make sure of it."""
    with process:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
