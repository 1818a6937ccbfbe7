"""The counter of a block log, as another process reads it."""

from pathlib import Path
from threading import Event, Thread

from block_log import BlockCounter, BlockLogWriter, read_block_log

from support import forks

ENTRIES = 50_000


def test_counter_never_falls_while_it_is_read(tmp_path: Path):
    """An entry that is stamped with a number that was never there is promised too early."""
    writer = BlockLogWriter(tmp_path)
    counter = BlockCounter(tmp_path)
    is_done = Event()
    fallen: list[tuple[int, int]] = []

    def watch() -> None:
        former = 0
        while not is_done.is_set():
            now = counter.now()
            if now < former:
                fallen.append((former, now))
            former = now

    watcher = Thread(target=watch)
    watcher.start()
    try:
        # A process of its own: within one, the interpreter lock would hide a count half written.
        forks.run(lambda _: [writer.flush() for _ in range(ENTRIES)])
    finally:
        is_done.set()
        watcher.join()
        writer.close()
    assert not fallen
    assert counter.now() == len(read_block_log(tmp_path)) == ENTRIES
