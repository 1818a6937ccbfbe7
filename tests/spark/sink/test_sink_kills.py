"""A commit that is killed anywhere, and tried again: every row is in the store exactly once.

ROCKETLAKE_CRASH_SEED=11 .venv/bin/python -m pytest tests/spark/sink -k kills    other moments
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import rocketlake
from rocketlake import Message, failpoint
from rocketlake.files.ops import PosixFileOps
from rocketlake.spark.sink import finish
from rocketlake.spark.sink.marks import MarkFiles
from rocketlake.store.offline import OfflineStore
from support import forks
from support.sink_kit import Sink, assert_sound, bodies, leftovers, numbered, stream

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("ROCKETLAKE_CRASH_SEED", "5"))
CONF = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "diskRatioEnable": False,
}
ROWS = 360
KEY = stream(1)


class Moment(Struct, frozen=True):
    """A failpoint, and how often it is passed before the process is killed."""

    point: str
    passes: int = 0

    def __str__(self) -> str:
        return f"{self.point}-{self.passes}"


MOMENTS = [
    *(Moment(p) for p in ("abort.after", "intent.before", "intent.after", "table.after")),
    *(Moment(f"piece.{when}", n) for when in ("before", "after") for n in (0, 1, 7, 40)),
    *(Moment(f"roll.{when}", n) for when in ("before", "after") for n in (0, 2)),
    *(Moment(f"create.{when}", 1) for when in ("before", "after")),
    *(Moment("flush.before", n) for n in (0, 3)),
    *(Moment("flush.after", n) for n in (0, 5)),
    *(Moment(p) for p in ("done.before", "done.after", "sweep.before", "sweep.after")),
    *(Moment(p) for p in ("checkpoint.after", "unabort.before")),
]


def rows_of(tags: str) -> list[list[dict[str, Any]]]:
    """Return three partitions, with delayed rows among the others."""
    rows = numbered(0, ROWS, tags=tags)
    for number in range(0, ROWS, 9):
        rows[number] |= {"delay_level": 18, "keys": [f"k{number}"]}
    for number in range(5, ROWS, 50):
        rows[number] |= {"ordering_key": "o", "body": rows[number]["body"]}
    rows[100] |= {"topic": "fresh"}
    return [rows[:100], rows[100:101], rows[101:]]


def make_sink(tmp_path: Path) -> Sink:
    """Return a sink whose store has a batch, and messages of somebody else."""
    sink = Sink(tmp_path / "s", options=json.dumps(CONF))
    sink.write(stream(0), numbered(1000, 1030), numbered(1030, 1040))
    with rocketlake.open_store(tmp_path / "s", CONF) as store:
        store.put(Message(topic="orders", body=b"foreign 0"))
    return sink


def kill_commit(sink: Sink, files: list[Any], moment: Moment) -> bool:
    """Commit in a fork that dies at a moment; tell whether it did."""

    def work(_: forks.Tell) -> None:
        failpoint.switch_on(moment.point, failpoint.kill, passes=moment.passes)
        sink.committer.commit(KEY, files)

    return forks.run(work).is_killed


def found_rows(path: Path) -> list[tuple[bytes, str | None]]:
    """Return body and tag of the batch's rows, delayed ones too, in the order of the log."""
    with OfflineStore(path) as store:
        messages = [
            message
            for key in store.queues
            if key.topic != "other"
            for batch in store.messages(key)
            for message in batch.columns.messages()
            if len(message.body) == 6 and message.body < b"%06d" % ROWS
        ]
    messages.sort(key=lambda message: message.physical_offset)
    return [(message.body, message.properties.get("TAGS")) for message in messages]


def places_of(store: OfflineStore, key: Any) -> list[int]:
    """Return where the messages of a queue lie in the log."""
    return [
        message.physical_offset
        for batch in store.messages(key)
        for message in batch.columns.messages()
    ]


def has_intent(path: Path) -> bool:
    return bool(MarkFiles(PosixFileOps(), path).pending())


def check(path: Path, tags: str) -> None:
    """Every row of the batch once, all of one try, and the store sound."""
    found = found_rows(path)
    assert Counter(body for body, _ in found) == Counter(b"%06d" % n for n in range(ROWS))
    assert {tag for _, tag in found} == {tags}
    others = [body for body in bodies(path) if body >= b"001000"]
    assert len(others) >= 41
    assert not has_intent(path)
    assert_sound(path)


def sink_finish(path: Path) -> int:
    return finish(str(path), options=json.dumps(CONF))


def nothing(_: Path) -> None:
    """Nobody else comes by."""


def others_write(path: Path) -> None:
    """Another program opens the store, which recovers it, and puts messages, some alike."""
    with rocketlake.open_store(path, CONF) as store:
        for body in (b"foreign 1", b"foreign 2"):
            store.put(Message(topic="orders", body=body, tags="first"))
        store.put(Message(topic="other", body=b"000003", tags="first"), 0)


BETWEEN = (nothing, others_write)
CASES = [
    pytest.param(moment, between, id=f"{moment}-{between.__name__}")
    for number, moment in enumerate(MOMENTS)
    for between in (BETWEEN[number % 2 :][:1])
]


@pytest.mark.parametrize(("moment", "between"), CASES)
def test_killed_commit_is_finished_by_its_replay(
    tmp_path: Path, moment: Moment, between: Callable[[Path], None]
) -> None:
    sink, path = make_sink(tmp_path), tmp_path / "s"
    first = sink.stage(KEY, *rows_of("first"))
    sink.stage(KEY, rows_of("first")[0])  # a speculative attempt, which is not committed
    assert kill_commit(sink, first, moment)
    is_begun = has_intent(path) or sink.committer._is_done(KEY)
    between(path)
    parts = rows_of("second")
    second = sink.stage(KEY, parts[2][::-1], parts[0], parts[1])
    sink.committer.commit(KEY, second)
    check(path, "first" if is_begun else "second")
    assert leftovers(path) == []


def test_commit_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    sink, path = make_sink(tmp_path), tmp_path / "s"
    first = sink.stage(KEY, *rows_of("first"))
    killed = 0
    for _ in range(12):
        moment = Moment(rng.choice(("piece.before", "piece.after")), rng.randrange(4, 9))
        if not kill_commit(sink, first, moment):
            break
        killed += 1
        with rocketlake.open_store(path, CONF) as store:
            store.put(Message(topic="orders", body=b"foreign %d" % killed))
    assert killed >= 3
    sink.committer.commit(KEY, sink.stage(KEY, *rows_of("second")))
    check(path, "first")


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_torn_end_is_appended_again(tmp_path: Path, seed: int) -> None:
    """The machine lost power: what was not flushed is there in part."""
    rng = random.Random(seed)
    sink, path = make_sink(tmp_path), tmp_path / "s"
    first = sink.stage(KEY, *rows_of("first"))
    assert kill_commit(sink, first, Moment("piece.after", rng.randrange(1, 40)))
    (mark,) = MarkFiles(PosixFileOps(), path).pending()
    assert mark.intent is not None
    begin = mark.intent.points[0].offset
    with OfflineStore(path) as store:
        units = [place for key in store.queues for place in places_of(store, key)]
    cut = rng.randrange(begin, max(units))
    for file in sorted((path / "commitlog").iterdir()):
        base, size = int(file.name), file.stat().st_size
        if base + size > cut:
            with file.open("r+b") as data:
                data.seek(max(cut - base, 0))
                data.write(bytes(size - max(cut - base, 0)))
    if rng.random() < 0.5:
        others_write(path)
    sink.committer.commit(KEY, sink.stage(KEY, *rows_of("second")))
    check(path, "first")


def test_next_commit_of_another_query_finishes_a_killed_one(tmp_path: Path) -> None:
    sink, path = make_sink(tmp_path), tmp_path / "s"
    first = sink.stage(KEY, *rows_of("first"))
    assert kill_commit(sink, first, Moment("piece.after", 20))
    sink.write(stream(7, "another"), numbered(2000, 2010))
    assert Counter(body for body, _ in found_rows(path)) == Counter(
        b"%06d" % n for n in range(ROWS)
    )
    sink.committer.commit(KEY, sink.stage(KEY, *rows_of("second")))
    check(path, "first")


def test_abort_after_a_killed_commit_keeps_what_is_intended(tmp_path: Path) -> None:
    sink, path = make_sink(tmp_path), tmp_path / "s"
    first = sink.stage(KEY, *rows_of("first"))
    other = sink.stage(KEY, numbered(0, 5))
    assert kill_commit(sink, first, Moment("piece.after", 20))
    sink.committer.abort([*first, *other])
    assert len([name for name in leftovers(path) if name.endswith(".rows")]) == len(first)
    assert sink_finish(path) == 1
    check(path, "first")
    assert leftovers(path) == []


def test_abort_before_an_intent_removes_everything(tmp_path: Path) -> None:
    sink, path = make_sink(tmp_path), tmp_path / "s"
    first = sink.stage(KEY, *rows_of("first"))
    assert kill_commit(sink, first, Moment("intent.before"))
    sink.committer.abort(first)
    assert leftovers(path) == []
    assert found_rows(path) == []
