"""`rocketlake repair`: mend what verify finds."""

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
    help="Mend only the queues, or only the index.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--jobs", type=click.IntRange(1), help="Threads that verify; one for each core.")
def repair(*, store: StoreArguments, what: str, dry_run: bool, yes: bool, jobs: int | None) -> int:
    """Verify STORE, mend what can be mended, and verify it again.

    Queues and the index are built anew from the log, tables restored from their copies, and bytes
    behind the log's end removed. Nobody may have the store open. A copy of what is replaced stays
    in STORE/repair. Exit code 0 says that the store is sound, 1 that something is still wrong, 2
    that nothing could be done.
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
            note(f"a repair that was interrupted is finished: {path}")
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
    click.echo(f"what was replaced is kept in {kept}")
    with screen.progress("verifying again", size) as advance:
        summary, _ = repairer.verify(advance)
    print_findings(out, repairer.faults, summary, limit=20)
    print_summary(out, summary)
    return 0 if summary.is_sound else 1


def print_plan(plan: Plan, root: Path) -> None:
    """Say what will be done, what cannot be, and which command comes next."""
    for text in plan.texts():
        click.echo(f"repair: {screen.printable(text)}")
    for fault in plan.hopeless:
        click.echo(f"cannot be repaired: {screen.printable(str(fault))}")
    if plan.hopeless:
        for text in plan.next_commands(root):
            click.echo(f"next: {screen.printable(text)}")


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        note("nothing was done: nobody is there to ask; say --yes to have it done")
        return False
    if click.confirm("repair the store so?"):
        return True
    note("nothing was done")
    return False
