"""verify of a log in page cache, on one core, against the checksum of the same bytes alone."""

import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from measure import Figure, Result, best_of, scaled
from store import our_store

from rocketlake.model.message import Message
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions

ROUNDS = 5
BYTES = 192 << 20
TOPICS = 4
BATCH = 100
OVERHEAD = 150  # a little more than a record has beside its body


def log() -> Iterator[Result]:
    yield from _figures("verify.log", frozenset({"log"}), 0.6)


def store() -> Iterator[Result]:
    """With queues and index: no aim but to be known."""
    yield from _figures("verify.all", frozenset({"log", "queues", "index", "tables"}), None)


def _figures(name: str, what: frozenset[str], wanted: float | None) -> Iterator[Result]:
    for size, text in ((100, "100b"), (1024, "1k")):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            _write(folder, our_store.body_of(size))
            (path,) = (folder / "commitlog").iterdir()
            data = path.read_bytes()[: Verifier(folder).run().bytes]
            verify, crc = best_of(ROUNDS, _verify(folder, what), partial(zlib.crc32, data))
        detail = f"{len(data) / verify / 1e9:.2f} GB/s"
        yield Figure(f"{name}_{text}", crc / verify, wanted, "x zlib.crc32", detail=detail)


def _verify(folder: Path, what: frozenset[str]) -> Callable[[], None]:
    def run() -> None:
        summary = Verifier(folder, VerifyOptions(what=what, jobs=1)).run()
        assert summary.is_sound, summary.kinds

    return run


def _write(folder: Path, body: bytes) -> None:
    """Fill a store with messages of a few topics and queues, each with a key."""
    size = scaled(BYTES, least=1 << 20)
    with our_store.opened(folder, file_size=size) as store:
        for topic in range(TOPICS):
            store.create_topic(f"Topic{topic}", queues=4)
        for number in range(0, size // (len(body) + OVERHEAD) - BATCH, BATCH):
            messages = [
                Message(
                    topic=f"Topic{number // BATCH % TOPICS}",
                    body=body,
                    tags="TagA",
                    keys=[f"7F00000100002A9F{number + i:016X}"],
                )
                for i in range(BATCH)
            ]
            store.put_batch(messages, queue_id=number // BATCH // TOPICS % 4)


WORKLOADS = {"verify.log": log, "verify.all": store}
