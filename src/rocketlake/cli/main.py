"""Argument parsing and exit codes.

Exit codes: 0 success, 1 the store has a problem, 2 the command failed or was used wrongly. `grep`
has those of grep: 0 a match, 1 no match, 2 an error or skipped damage.
A command is imported when it is called: `--help` must not wait for numpy.
"""

import io
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rocketlake.errors import RocketLakeError

# name -> (home, one line for --help)
COMMANDS = {
    "info": ("rocketlake.cli.info:info", "Show what a store directory holds."),
    "dump": ("rocketlake.cli.dump:dump", "Print the messages of a store."),
    "tail": ("rocketlake.cli.tail:tail", "Follow a store as it grows."),
    "verify": ("rocketlake.cli.verify:verify", "Check every record, queue unit and index entry."),
    "repair": (
        "rocketlake.cli.repair:repair",
        "Repair what verify finds, where the log allows it.",
    ),
    "grep": ("rocketlake.cli.grep:grep", "Find messages by a pattern."),
    "export": ("rocketlake.cli.export:export", "Write messages to Parquet, JSON lines or CSV."),
    "backup": (
        "rocketlake.cli.backup:backup",
        "Copy a store, in use or not; later runs copy what is new.",
    ),
    "salvage": (
        "rocketlake.cli.salvage:salvage",
        "List and restore records that a start cut off.",
    ),
    "completion": ("rocketlake.cli.completion:completion", "Print or install shell completion."),
    "profile": (
        "rocketlake.cli.profile:profile",
        "Report rates, sizes, latency, skew and lag over time as an HTML page.",
    ),
    "archive": (
        "rocketlake.cli.archive:archive",
        "Archive topics as Parquet, each message once; later runs add what is new.",
    ),
    "archive-drop": (
        "rocketlake.cli.archive_upkeep:archive_drop",
        "Drop whole days from an archive.",
    ),
    "archive-compact": (
        "rocketlake.cli.archive_upkeep:archive_compact",
        "Merge the small files of an archive.",
    ),
    "replay": ("rocketlake.cli.replay:replay", "Put messages again, dead letters included."),
    "compact": ("rocketlake.cli.compact:compact", "Keep the newest message of each key."),
    "rebuild": ("rocketlake.cli.rebuild:rebuild", "Rebuild queues and index from the log."),
    "dispatch": (
        "rocketlake.cli.dispatch:dispatch",
        "Dispatch records of the log to queues and index.",
    ),
    "pipeline": (
        "rocketlake.cli.pipeline:pipeline",
        "Create and run a declarative pipeline over a store.",
    ),
}
_ON_SPARK = {
    "profile",
    "archive",
    "archive-drop",
    "archive-compact",
    "replay",
    "compact",
    "rebuild",
    "dispatch",
    "pipeline",
}


class LazyGroup(click.Group):
    """A group that imports only the command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        del ctx
        for title, is_on_spark in (("Commands", False), ("Commands on Spark", True)):
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, help_)
                        for name, (_, help_) in COMMANDS.items()
                        if (name in _ON_SPARK) == is_on_spark
                    ]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing any."""
        found = [
            CompletionItem(name, help=help_)
            for name, (_, help_) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def _version_text() -> str:
    from rocketlake import KERNEL, __version__  # noqa: PLC0415 - only when asked

    text = f"rocketlake {__version__} ({KERNEL} kernel)"
    if KERNEL == "pure":
        text += ": slow but complete; install with a C compiler for the native one"
    return text


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and not ctx.resilient_parsing:
        click.echo(_version_text())
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the kernel in use.",
)
def main() -> None:
    """Read, query and check message stores of Apache RocketMQ, without a broker.

    A store is read in place, whether in use or not. Only repair, salvage --replay, replay, rebuild
    and dispatch write to it.
    """


_SIGPIPE_CODE = 128 + 13  # as a shell shows the end of a command by that signal


def run() -> None:
    """Run the command line and exit: the entry point."""
    # Why: a pipe that its reader closes early (`| head`) is no error.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        # A directory's name need not be valid text; it is printed escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = main.main(prog_name="rocketlake", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except click.Abort:
        code = 130
    except RocketLakeError as error:
        click.echo(f"rocketlake: {error}", err=True)
        code = 2
    except BrokenPipeError:
        # A command beside Spark, whose output went into a pipe that was closed early.
        # Discard what the interpreter writes at exit.
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        code = _SIGPIPE_CODE
    except OSError as error:
        click.echo(f"rocketlake: {_os_text(error)}", err=True)
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _os_text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
