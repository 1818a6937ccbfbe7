"""RocketMQ writes, and we read the same files: never a gap, damage or an exception."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import msgspec
import pytest
import reference_store
from reference_store import ReferenceStore

from rocketlake.store.offline import OfflineStore

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

COUNT = 300_000
WARM_UP = 100_000  # what the driver writes first, to a topic of its own
THREADS = 2  # each writes to a queue of its own
LOG_FILE_SIZE = 16 << 20
QUEUE_FILE_SIZE = 20 * 30_000
LIMIT_S = 120

Offsets = dict[tuple[str, int], list[int]]
"""The queue offsets of the messages of each queue, in the order in which they were read."""


class Row(msgspec.Struct, rename="camel"):
    """What is looked at in a line of `dump --json`."""

    topic: str
    queue_id: int
    queue_offset: int


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def writer(store: Path) -> Iterator[subprocess.Popen[str]]:
    options = {"mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE}
    process = ReferenceStore("5.5.0").bench_put(
        store,
        *("--count", COUNT, "--size", 200, "--threads", THREADS, "--flush", "ASYNC"),
        *("--file-size", LOG_FILE_SIZE, "--options", json.dumps(options)),
    )
    yield process
    reference_store.kill(process)


def test_a_store_is_read_while_rocketmq_writes_it(writer: subprocess.Popen[str], store: Path):
    readers = cycle((by_view, by_command))
    counts = [gap_free(next(readers)(store)) for _ in while_running(writer, store / "commitlog")]
    _, err = writer.communicate(timeout=LIMIT_S)
    assert writer.returncode == 0, err

    total = COUNT + WARM_UP
    assert counts == sorted(counts), "messages that were shown are gone"
    assert sum(0 < count < total for count in counts) >= 2, f"read too late or too early: {counts}"
    for read in (by_view, by_command):
        found = read(store)
        assert gap_free(found) == total
        assert {key: len(offsets) for key, offsets in found.items()} == {
            (topic, queue_id): count // THREADS
            for topic, count in (("BenchTopic", COUNT), ("WarmUp", WARM_UP))
            for queue_id in range(THREADS)
        }


def while_running(process: subprocess.Popen[str], place: Path) -> Iterator[None]:
    """Go on until a process ends, as soon as a directory is there."""
    end = time.monotonic() + LIMIT_S
    while process.poll() is None:
        assert time.monotonic() < end, "the writer does not come to an end"
        if place.exists():
            yield
        else:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)


def by_view(store: Path) -> Offsets:
    """Read with the view."""
    found: Offsets = {}
    with OfflineStore(store) as view:
        for key in view.queues:
            offsets = found.setdefault((key.topic, key.queue_id), [])
            for batch in view.messages(key):
                offsets += batch.columns["queue_offset"].tolist()
        damage = "; ".join(map(str, view.damage.findings))
        assert not damage, damage
    return found


def by_command(store: Path) -> Offsets:
    """Read with `rocketlake dump --json`."""
    command = [sys.executable, "-m", "rocketlake", "dump", str(store), "--json", "--body", "none"]
    ended = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    found: Offsets = {}
    decoder = msgspec.json.Decoder(Row)
    for row in decoder.decode_lines(ended.stdout):
        found.setdefault((row.topic, row.queue_id), []).append(row.queue_offset)
    return found


def gap_free(found: Offsets) -> int:
    """Return how many messages there are; each queue begins with 0 and has all up to its last."""
    for key, offsets in found.items():
        assert offsets == [*range(len(offsets))], f"{key} has a gap"
    return sum(map(len, found.values()))
