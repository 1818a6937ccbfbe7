"""What all commands that open a store share: arguments, damage reports, exit codes."""

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from rocketlake.cli.screen import progress
from rocketlake.files.local_path import local_path
from rocketlake.store.disk.log_dirs import readable_dirs
from rocketlake.store.offline import Finding, OfflineStore
from rocketlake.store.options import ReadOptions, StoreOptions

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN_MAX = 20


class StoreArguments:
    """The location and options of a store, as given on the command line."""

    def __init__(self, path: str, commitlog: str | None, options: str | None) -> None:
        self.path = local_path(path)
        self._commitlog = commitlog
        self._options = options

    def open(self, on_damage: Callable[[Finding], None] | None = None) -> OfflineStore:
        """Open the store for reading.

        Raises:
            StoreNotFoundError: it cannot be read.
            ConfigError: options are wrong or contradict the files.
        """
        options = ReadOptions.of(StoreOptions.choose(self._options))
        named = self._commitlog or options.store_path_commit_log
        dirs = readable_dirs(named, options.read_only_commit_log_store_paths, self.path)
        return OfflineStore(self.path, log_dirs=dirs, options=options, on_damage=on_damage)

    @property
    def conf(self) -> str | None:
        """The options, as `open_store` takes them."""
        return self._options

    @property
    def keywords(self) -> dict[str, object]:
        """Keyword arguments of `open_store`, which override these options."""
        return {"store_path_commit_log": self._commitlog} if self._commitlog else {}


commitlog_option = click.option(
    "--commitlog",
    metavar="DIR[,DIR…]",
    help="Directories of the commit log (default: STORE/commitlog).",
)
options_option = click.option(
    "--options",
    "options_",
    metavar="FILE|JSON",
    help="The broker.conf the store was written with, or its keys as a JSON object.",
)


def takes_store(command: F) -> F:
    """Add the argument STORE and its two options to a command."""

    @click.argument("store", metavar="STORE")
    @commitlog_option
    @options_option
    @functools.wraps(command)
    def wrapped(
        *, store: str, commitlog: str | None, options_: str | None, **rest: object
    ) -> object:
        logging.basicConfig(level=logging.ERROR, format="rocketlake: %(message)s")
        return command(store=StoreArguments(store, commitlog, options_), **rest)

    return wrapped  # type: ignore[return-value]  # click's decorators keep the call's shape


class Reporter:
    """Prints damage on stderr as it is found, up to a limit."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, finding: Finding) -> None:
        """Print one finding."""
        self.count += 1
        if self.count <= _SHOWN_MAX:
            click.echo(f"damage: {finding}", err=True)

    def finish(self) -> int:
        """Print how many findings were not shown; return the exit code."""
        if self.count > _SHOWN_MAX:
            click.echo(f"damage: {self.count - _SHOWN_MAX} more findings not shown", err=True)
        return 1 if self.count else 0


@contextmanager
def opened(arguments: StoreArguments) -> Iterator[tuple[OfflineStore, Reporter]]:
    """Open a store and report its damage."""
    reporter = Reporter()
    with arguments.open(reporter) as store:
        with progress("looking for the end of the log", store.bytes_to_walk()) as advance:
            store.on_progress = advance
            _ = store.max_offset
        store.on_progress = None
        yield store, reporter
        if store.log.expired_to >= 0:
            note(f"records before offset {store.log.expired_to} expired while they were read")


def note(text: str) -> None:
    """Print a note on stderr."""
    click.echo(f"note: {text}", err=True)


def stdout_is_terminal() -> bool:
    """Tell whether stdout is a terminal."""
    return sys.stdout.isatty()
