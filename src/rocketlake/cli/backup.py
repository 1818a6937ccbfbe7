"""`rocketlake backup`: a consistent copy of a store, in use or not."""

import shlex
from pathlib import Path

import click

from rocketlake.cli.screen import Bars
from rocketlake.cli.store_arguments import Reporter, StoreArguments, note, takes_store
from rocketlake.errors import FileSizeError
from rocketlake.format import names
from rocketlake.model.size_text import size_text
from rocketlake.upkeep.backup.copier import Backup, BackupReport, Listener


@click.command()
@takes_store
@click.argument("directory", metavar="DIR")
@click.option("--prune", is_flag=True, help="Remove files from DIR that have expired in STORE.")
@click.option(
    "--verify", is_flag=True, help="Read DIR again afterwards and check checksums and records."
)
def backup(*, store: StoreArguments, directory: str, prune: bool, verify: bool) -> int:
    """Copy STORE to DIR; RocketMQ and RocketLake open the copy as a store.

    A broker may keep writing: the copy holds every message that STORE held when the backup began.
    If a bad record would make a start cut off good records, the copy keeps all bytes, and a note
    says what would be cut. Later runs copy only what is new. Files that have expired in STORE stay
    in DIR unless --prune is given. backup.json lists the files and their checksums. Copied records
    are checked.

    \b
    rocketlake backup /data/store /backup/store
    rocketlake backup /data/store /backup/store --prune --verify
    rocketlake dump /backup/store --topic orders

    Exit code 1: the copy is complete but has damage. 2: it could not be made; DIR still holds what
    it held before, and the next run continues.
    """  # noqa: D301 - click wants the character itself
    reporter = Reporter()
    with Bars() as bars:
        listener = Listener(note, reporter, bars.begin)
        opened = lambda: store.open(reporter)  # noqa: E731 - its options are known here only
        report = Backup(store.path, opened, Path(directory), listener).run(
            prune=prune, verify=verify
        )
    tell(report, directory)
    return reporter.finish()


def tell(report: BackupReport, directory: str, *, can_prune: bool = True) -> None:
    """Print what a backup or a copy did."""
    copied = size_text(report.copied_bytes)
    what = "copied" if report.is_first else "new bytes copied"
    log = f"log from {report.log_begin} to {report.log_end}"
    click.echo(f"{directory}: {copied} {what}, {report.files} files, {log}")
    if report.cut_off is not None:
        note(
            f"{report.cut_off}. They are in the copy. A start of the store, or of the copy, cuts"
            " the log there; RocketLake saves them under salvage first, RocketMQ does not."
            f" Next: rocketlake salvage {shlex.quote(directory)}"
        )
    if report.refused is not None:
        note(_refused_text(report.refused, directory))
    if report.pruned:
        click.echo(f"{report.pruned} files removed that have expired in the source")
    if report.kept:
        way_out = "; --prune removes them" if can_prune else ""
        note(f"{report.kept} files that the source does not have any more stay{way_out}")


def _refused_text(refused: FileSizeError, directory: str) -> str:
    text = (
        f"{refused.path} was cut short to {refused.size} bytes. The copy has all bytes as they are;"
        " a start of the store, or of the copy, refuses the file. Next: "
    )
    if names.COMMIT_LOG in Path(refused.path).parts:
        log = shlex.quote(f"{directory}/{names.COMMIT_LOG}")
        return (
            f"{text}rocketlake salvage NEW --from {log} --replay puts every good record into a new"
            " store NEW"
        )
    place = shlex.quote(directory)
    return f"{text}remove it from the copy; rocketlake repair {place} makes it again"
