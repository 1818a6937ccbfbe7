"""The main job, under ./data: a store of our own, and one that comes with the project.

Our own is written, read, consumed. The other was written by RocketMQ itself: it is shown, read by
queue, by key and by time, and every byte of it is written anew from the decoded values. Then our
own goes through the pipeline on Spark: streamed, archived, queried, profiled.
"""

import shutil
import sys
import tarfile
from pathlib import Path

from demo_spark import run_pipeline
from demo_writing import write_and_consume
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from rocketlake import KERNEL, OfflineStore, __version__
from rocketlake.cli import screen
from rocketlake.cli.info import print_survey
from rocketlake.cli.lines import BodyForm
from rocketlake.cli.message_search import Selection, Selector
from rocketlake.cli.rows import RowPrinter
from rocketlake.cli.survey import survey
from rocketlake.errors import ConfigError
from rocketlake.model.queues import QueueKey
from rocketlake.model.time_text import time_text
from rocketlake.spark.session import check_java
from rocketlake.store.exit_hook import closing_on_sigterm
from rocketlake.store.offline.proof import Account, prove, total_bytes
from rocketlake.store.offline.times import Boundary

ROOT = Path(__file__).resolve().parent.parent
CASE = "v5-roll"
DATA = ROOT / "data" / "demo"
TOPIC, QUEUE, KEY = "RollTopic", 0, "key-118"


def main() -> int:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(f"[bold]RocketLake {__version__}[/bold], {KERNEL} kernel")
    own = DATA / "own"
    with closing_on_sigterm():
        write_and_consume(console, step, own)
    path = unpack()
    with OfflineStore(path) as store:
        step(console, "A store that RocketMQ wrote", f"rocketlake info {relative(path)}")
        print_survey(survey(store), with_queues=True)
        step(console, "By queue", f"rocketlake dump … --topic {TOPIC} --queue {QUEUE}")
        show(store, Selection(topics=(TOPIC,), queue=QUEUE), 5)
        step(console, "By key, through the index", f"rocketlake dump … --topic {TOPIC} --key {KEY}")
        show(store, Selection(topics=(TOPIC,), key=KEY), 5)
        by_time(console, store)
        step(console, "Every byte, written anew from the decoded values", "")
        accounts = proof(console, store)
    print_accounts(console, accounts)
    if any(account.unexplained for account in accounts):
        console.print("[red]some bytes are not understood[/red]")
        return 1
    console.print("\nAll bytes are understood.")
    report = pipeline(console, own)
    step(console, "Look around yourself", "")
    if report is not None:
        console.print(f"  the report of the store: file://{report}")
    console.print(f"  .venv/bin/rocketlake info {relative(own)}")
    console.print(f"  .venv/bin/rocketlake dump {relative(own)} --topic payments --key o-1000")
    console.print(f"  .venv/bin/rocketlake dump {relative(path)} --json | head")
    return 0


def pipeline(console: Console, own: Path) -> Path | None:
    """Run the pipeline on Spark; without Java, say so and go on."""
    try:
        check_java()
    except ConfigError as error:
        step(console, "Spark", "")
        console.print(f"skipped: {error}")
        return None
    return run_pipeline(console, step, own, DATA)


def unpack() -> Path:
    """Put the golden store under ./data, fresh."""
    shutil.rmtree(DATA / "store", ignore_errors=True)
    DATA.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ROOT / "tests" / "golden" / "data" / CASE / "store.tar.gz") as archive:
        archive.extractall(DATA, filter="data")
    return DATA / "store"


def relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def step(console: Console, title: str, command: str) -> None:
    console.print()
    console.rule(f"[bold]{title}[/bold]", align="left", characters="─")
    if command:
        console.print(f"[dim]$ {command}[/dim]")


def show(store: OfflineStore, selection: Selection, count: int) -> None:
    """Print the first few messages of a selection, as `rocketlake dump` does."""
    selector = Selector(store, selection)
    printer = RowPrinter(BodyForm.NONE)
    left = count
    for found in selector.by_key() if selection.key else selector.by_queue():
        part = found.first(left)
        printer.write(part)
        left -= len(part.columns)
        if left <= 0:
            break
    printer.finish()


def by_time(console: Console, store: OfflineStore) -> None:
    key = QueueKey(TOPIC, QUEUE)
    first, last = store.time_bounds(key)
    assert first is not None, "the golden queue has messages"
    assert last is not None, "the golden queue has messages"
    middle = (first + last) // 2
    lower = store.offset_by_time(key, middle)
    upper = store.offset_by_time(key, middle, Boundary.UPPER)
    command = f"rocketlake dump … --topic {TOPIC} --queue {QUEUE} --from-time {middle}"
    step(console, "By time", command)
    console.print(
        f"at {time_text(middle)}: message {lower} of {key} is the first not before it, "
        f"message {upper} the last not after it"
    )
    show(store, Selection(topics=(TOPIC,), queue=QUEUE, from_time=middle), 3)


def proof(console: Console, store: OfflineStore) -> list[Account]:
    columns = (TextColumn("proving"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("proving", total=total_bytes(store))
        accounts = list(prove(store, lambda amount: bar.advance(task, amount)))
        bar.update(task, completed=total_bytes(store))
    return accounts


def print_accounts(console: Console, accounts: list[Account]) -> None:
    table = screen.table(
        "", "family", "#records, units, entries", "#same bytes", "#filler", "#not understood"
    )
    for account in accounts:
        table.add_row(
            account.family,
            f"{account.items:,}",
            f"{account.same:,}",
            f"{account.filler:,}",
            f"{account.unexplained:,}",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
