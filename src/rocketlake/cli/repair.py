"""`rocketlake repair`: repair what verify finds."""

import sys
from pathlib import Path

import click

from rocketlake.cli import screen
from rocketlake.cli.store_arguments import StoreArguments, note, takes_store
from rocketlake.cli.verify import print_findings, print_summary
from rocketlake.upkeep.repair.repairer import Plan, Repairer
from rocketlake.upkeep.verify.verifier import total_bytes


@click.command()
@takes_store
@click.option(
    "--what",
    type=click.Choice(["all", "queues", "index"]),
    default="all",
    help="Repair only the queues, or only the index.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Worker threads for verification (default: one per core).",
)
def repair(*, store: StoreArguments, what: str, dry_run: bool, yes: bool, jobs: int | None) -> int:
    """Verify STORE, repair what can be repaired, and verify it again.

    Queues and the index are rebuilt from the log, tables restored from their copies, and bytes
    beyond the end of the log removed. No process may have the store open. Replaced files are kept
    in STORE/repair. Exit code 0: the store is sound. 1: problems remain. 2: nothing could be done.
    """
    repairer = Repairer(store.open, store.path, what=what, jobs=jobs or 0)
    with store.open() as view:
        size = total_bytes(view)
    repairer.start()
    try:
        return _repair(repairer, size, dry_run=dry_run, yes=yes)
    finally:
        repairer.close()


def _repair(repairer: Repairer, size: int, *, dry_run: bool, yes: bool) -> int:
    if not dry_run:
        for path in repairer.finish_interrupted():
            note(f"finished an interrupted repair: {path}")
    out = screen.console()
    with screen.progress("verifying", size) as advance:
        summary, plan = repairer.verify(advance)
    print_findings(out, repairer.faults, summary, limit=20)
    if summary.is_sound:
        print_summary(out, summary)
        return 0
    print_plan(plan, repairer.root)
    if plan.is_empty or dry_run:
        return 1
    if not yes and not _is_agreed():
        return 2
    parts = bool(plan.queues) + bool(plan.index)
    with screen.progress("repairing", size * parts) as advance:
        kept = repairer.act(plan, advance)
    click.echo(f"replaced files are kept in {kept}")
    with screen.progress("verifying again", size) as advance:
        summary, _ = repairer.verify(advance)
    print_findings(out, repairer.faults, summary, limit=20)
    print_summary(out, summary)
    return 0 if summary.is_sound else 1


def print_plan(plan: Plan, root: Path) -> None:
    """Print what will be done, what cannot be, and the next command."""
    for text in plan.texts():
        click.echo(f"repair: {screen.printable(text)}")
    for fault in plan.hopeless:
        click.echo(f"cannot be repaired: {screen.printable(str(fault))}")
    if plan.hopeless:
        for text in plan.next_commands(root):
            click.echo(f"next: {screen.printable(text)}")


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        note("nothing was done: stdin is not a terminal; confirm with --yes")
        return False
    if click.confirm("repair the store so?"):
        return True
    note("nothing was done")
    return False
