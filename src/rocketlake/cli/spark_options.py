"""What all commands on Spark share: options, the session, errors about missing packages."""

import functools
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketlake.cli.parameters import pairs
from rocketlake.errors import ConfigError, RocketLakeError

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.session import Session

F = TypeVar("F", bound=Callable[..., Any])


class SparkArguments:
    """Which Spark, as given on the command line."""

    def __init__(
        self,
        master: str,
        conf: tuple[str, ...] = (),
        *,
        py_files: str | None = None,
        archives: str | None = None,
        is_debug: bool = False,
    ) -> None:
        self.master = master
        self.conf = pairs("--conf", conf)
        if py_files:
            self.conf["spark.submit.pyFiles"] = py_files
        if archives:
            self.conf["spark.archives"] = archives
        self.is_debug = is_debug

    @contextmanager
    def session(self, name: str) -> Iterator["Session"]:
        """Open a session for the block; errors of Spark become ours.

        Raises:
            ConfigError: Spark, or a Java for it, is missing.
            RocketLakeError: what went wrong in the block.
        """
        with needs_spark():
            from rocketlake.spark.session import (  # noqa: PLC0415 - an extra
                check_packages,
                command_session,
            )

            check_packages()
        if hasattr(signal, "SIGPIPE"):
            # Why: Java may close its side of a connection at any moment, as after Ctrl-C. With the
            # signal, which ends other commands in a pipe, that would end this one.
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            with command_session(
                self.master, name=name, conf=self.conf, is_debug=self.is_debug
            ) as session:
                yield session
        except RocketLakeError:
            if self.is_debug:
                traceback.print_exc()
            raise


@contextmanager
def needs_spark(extra: str = "spark") -> Iterator[None]:
    """Say what to install if an import in the block fails.

    Raises:
        ConfigError: a package of the extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "rocketlake":
            raise
        raise ConfigError(
            f"this command runs on Spark, and the package {package} is missing;"
            f" pip install 'rocketlake[{extra}]'"
        ) from error


def load(module: str, extra: str = "spark") -> Any:  # noqa: ANN401 - a module
    """Import a module that needs an extra.

    Raises:
        ConfigError: a package of the extra is missing.
    """
    with needs_spark(extra):
        return import_module(module)


def takes_spark(command: F) -> F:
    """Add the Spark options to a command."""
    return _takes_spark(
        command,
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://…",
        ),
    )


def may_take_spark(command: F) -> F:
    """Add the Spark options to a command that runs without Spark if no master is given (None)."""
    return _takes_spark(
        command,
        click.option(
            "--master",
            help="Run on Spark (local[N], spark://HOST:PORT, yarn, k8s://…) instead of in threads.",
        ),
    )


def _takes_spark(command: F, master_option: Callable[[Callable[..., Any]], Any]) -> F:
    @master_option
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting.")
    @click.option(
        "--py-files",
        metavar="FILES",
        help="Python code for the executors: .zip or .py files, comma-separated.",
    )
    @click.option(
        "--archives",
        metavar="FILES",
        help="Archives that executors unpack, such as env.tar.gz#environment.",
    )
    @click.option("--debug", is_flag=True, help="Show all output of Spark and full stack traces.")
    @functools.wraps(command)
    def wrapped(
        *,
        master: str | None,
        conf: tuple[str, ...],
        py_files: str | None,
        archives: str | None,
        debug: bool,
        **rest: object,
    ) -> object:
        given = {"--conf": conf, "--py-files": py_files, "--archives": archives}
        if master is None:
            for name, value in given.items():
                if value:
                    raise click.UsageError(f"{name} is for Spark: give --master too")
            return command(spark=None, **rest)
        spark = SparkArguments(master, conf, py_files=py_files, archives=archives, is_debug=debug)
        return command(spark=spark, **rest)

    return wrapped  # type: ignore[no-any-return]  # click's decorators keep the call's shape
