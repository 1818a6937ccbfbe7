"""Named crash points, off unless a test switches one on.

1. Points stand in pairs around each durable step: `<step>.before` and `<step>.after`.
2. All of a store are in `POINTS`, so that a test can go through every one; a new step is added
   there. The sink and jobs have tuples of their own.
3. What is off costs a look at one empty dictionary.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from msgspec import Struct

Action: TypeAlias = Callable[[], object]

STEPS: Final = (
    "create",  # a file of the log, a queue or the index comes into being
    "roll",  # a new last file is published
    "commit",  # private buffer -> page cache
    "flush",  # page cache -> disk
    "truncate",  # what lies behind the end is taken away
    "salvage",  # what a cut would take is saved
    "delete",  # a file is removed
    "checkpoint",  # the page of the last known good is written
    "table",  # a JSON table takes the place of the old one
    "backup",  # the old table becomes the copy
    "abort",  # the mark of a running store is set
    "unabort",  # and taken away
)
SINK_STEPS: Final = (
    "stage",  # the rows of a task are on the disk, and get their name
    "intent",  # a commit is going to append
    "piece",  # some of the rows are appended
    "done",  # all rows are in the store for good
    "sweep",  # staged rows are removed
)
"""Those of the Spark sink, which a store by itself does not come by."""

POINTS: Final = tuple(f"{step}.{when}" for step in STEPS for when in ("before", "after"))
"""What a store that runs can meet."""

ARCHIVE_STEPS: Final = (
    "archive_stage",  # executors write files no reader sees yet
    "archive_commit",  # the manifest names them: they belong to the archive
    "archive_move",  # a file gets its name
    "archive_settle",  # the manifest knows that all have their names
    "archive_table",  # rows go into a table of another format
)
ARCHIVE_POINTS: Final = tuple(
    f"{step}.{when}" for step in ARCHIVE_STEPS for when in ("before", "after")
)
ARCHIVE_UPKEEP_STEPS: Final = (
    "archive_retire",  # a file that was dropped or merged leaves its place
    "archive_purge",  # a retired file is deleted
)
"""What `archive-drop` and `archive-compact` come by beside the steps of a run."""
ARCHIVE_UPKEEP_POINTS: Final = tuple(
    f"{step}.{when}" for step in ARCHIVE_UPKEEP_STEPS for when in ("before", "after")
)
SINK_POINTS: Final = tuple(f"{step}.{when}" for step in SINK_STEPS for when in ("before", "after"))
_KNOWN: Final = frozenset((*POINTS, *SINK_POINTS, *ARCHIVE_POINTS, *ARCHIVE_UPKEEP_POINTS))


class _Trap(Struct):
    """What a point does, and how many hits it lets pass first."""

    action: Action
    passes: int


_traps: dict[str, _Trap] = {}
_guard = threading.Lock()


def hit(name: str) -> None:
    """Do what a test has switched on for this point; nothing otherwise."""
    if _traps:
        _spring(name)


def switch_on(name: str, action: Action, *, passes: int = 0) -> None:
    """Let a point do something once, after it was passed so many times.

    Raises:
        ValueError: there is no such point.
    """
    if name not in _KNOWN:
        raise ValueError(f"no failpoint is called {name!r}")
    with _guard:
        _traps[name] = _Trap(action, passes)


def switch_off(name: str | None = None) -> None:
    """Make one point, or all of them, do nothing again."""
    with _guard:
        if name is None:
            _traps.clear()
        else:
            _traps.pop(name, None)


@contextmanager
def switched_on(name: str, action: Action, *, passes: int = 0) -> Iterator[None]:
    """Switch a point on for the length of a block."""
    switch_on(name, action, passes=passes)
    try:
        yield
    finally:
        switch_off(name)


def kill() -> None:
    """End this process at once, as `kill -9` does: nothing is closed, flushed or told."""
    os.kill(os.getpid(), signal.SIGKILL)


def _spring(name: str) -> None:
    assert name in _KNOWN, f"no failpoint is called {name!r}"
    with _guard:
        trap = _traps.get(name)
        if trap is None:
            return
        if trap.passes > 0:
            trap.passes -= 1
            return
        del _traps[name]
    trap.action()
