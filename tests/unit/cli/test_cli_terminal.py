"""What a person sees: progress bars never take away what was printed."""

import os
import pty
import subprocess

import pytest

from support import command
from support.store_builder import StoreBuilder

BAR = "━"
ERASED = "\x1b[2K"


def on_terminal(*arguments):
    """Run a command whose stdout and stderr are one terminal; return all that was shown."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*command.COMMAND, *map(str, arguments)], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = bytearray()
    try:
        while piece := os.read(ours, 1 << 16):
            shown += piece
    except OSError:  # Linux: the other side was closed
        pass
    finally:
        os.close(ours)
        process.wait(command.TIMEOUT_S)
    return shown.decode(errors="replace")


@pytest.mark.parametrize(
    "arguments",
    [
        ("dump",),
        ("dump", "--key", "k7"),
        ("dump", "--json", "--body", "text"),
        ("grep", "last"),
        ("grep", "last", "--topic", "T"),
        ("grep", "last", "-c"),
        ("export", "-", "--body", "text"),
    ],
)
def test_no_bar_is_drawn_over_results(tmp_path, arguments):
    builder = StoreBuilder(tmp_path / "store", log_file_size=4000)
    for number in range(8):
        builder.record("T", 0, b"last" if number == 7 else b"%d" % number, keys=[f"k{number}"])
    name, *rest = arguments
    shown = on_terminal(name, builder.write(), *rest)
    assert BAR in shown
    left = shown.rpartition(ERASED)[2]
    assert BAR not in left
    assert "last" in left or left.strip().endswith("1")
