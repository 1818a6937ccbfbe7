"""Config tables of a killed process: the old one or the new one, never none, and never silently.

ROCKETLAKE_CRASH_SEED=11 .venv/bin/python -m pytest tests/crash -k killed_tables    other moments
"""

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import rocketlake
from rocketlake import failpoint
from rocketlake.clock import SystemClock
from rocketlake.files.json_file import load_table
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.book import Book, TableLocation
from rocketlake.metadata.filters import FilterBook
from rocketlake.metadata.groups import GroupBook, SubscriptionGroup
from rocketlake.metadata.offsets import DelayOffsets, OffsetBook
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.topics import TopicConfig
from support import forks

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("ROCKETLAKE_CRASH_SEED", "5"))
POINTS = [point for point in failpoint.POINTS if point.startswith(("table.", "backup."))]
ROUNDS = 5
TOPICS = 40  # a table of some pages


class Kind(Struct, frozen=True):
    """A table, how it gets its next state, and which state it is in."""

    load: Callable[[TableLocation], Any]
    change: Callable[[Any, int], object]
    state: Callable[[Any], int]


def change_topics(book: TopicBook, number: int) -> None:
    for topic in range(TOPICS):
        book.update(TopicConfig(name=f"topic-{topic}", read_queue_count=number))


def topic_state(book: TopicBook) -> int:
    """All entries are of one state."""
    (state,) = {config.read_queue_count for config in book.topics()} or {0}
    return state


def change_offsets(book: OffsetBook, number: int) -> None:
    for queue in range(TOPICS):
        book.commit("T", "g", queue, number)


def offset_state(book: OffsetBook) -> int:
    (state,) = {*book.offsets("T", "g").values()} or {0}
    return state


def group_state(book: GroupBook) -> int:
    group = book.get("g")
    return 0 if group is None else group.retry_max_times


def filter_state(book: FilterBook) -> int:
    found = book.get("T", "g")
    return 0 if found is None else found.client_version


KINDS = {
    "topics.json": Kind(TopicBook.load, change_topics, topic_state),
    "consumerOffset.json": Kind(OffsetBook.load, change_offsets, offset_state),
    "delayOffset.json": Kind(
        DelayOffsets.load, lambda book, number: book.set(3, number), lambda book: book.get(3)
    ),
    "subscriptionGroup.json": Kind(
        GroupBook.load,
        lambda book, number: book.update(SubscriptionGroup(name="g", retry_max_times=number)),
        group_state,
    ),
    "consumerFilter.json": Kind(
        FilterBook.load,
        lambda book, number: book.register("T", "g", f"a = {number}", number),
        filter_state,
    ),
}


def place(root: Path) -> TableLocation:
    return TableLocation(PosixFileOps(), SystemClock(), root / "config")


def load(kind: Kind, root: Path) -> Book:
    return kind.load(place(root))


def write_for_ever(kind: Kind, root: Path, tell: forks.Tell) -> None:
    book = load(kind, root)
    number = kind.state(book)
    while True:
        number += 1
        kind.change(book, number)
        assert book.persist()
        tell(str(number))


def check(kind: Kind, root: Path, name: str, told: int) -> int:
    """Return the state in which the table is: the last one told, or the one under way."""
    loaded = load_table(root / "config" / name)
    if told:
        assert (loaded.source, loaded.problem) == ("file", None)
    state = kind.state(load(kind, root))
    assert state in {told, told + 1}
    return state


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_killed_tables_at_each_point_are_old_or_new(tmp_path: Path, name: str, point: str):
    kind, told = KINDS[name], 0
    for passes in (0, 2):

        def work(tell: forks.Tell, passes: int = passes) -> None:
            failpoint.switch_on(point, failpoint.kill, passes=passes)
            write_for_ever(kind, tmp_path, tell)

        ended = forks.run(work)
        assert ended.is_killed
        told = check(kind, tmp_path, name, int(ended.lines[-1]) if ended.lines else told)


@pytest.mark.parametrize("name", KINDS)
def test_killed_tables_at_any_moment_are_old_or_new(tmp_path: Path, name: str):
    kind, told, rng = KINDS[name], 0, random.Random(f"{SEED}/{name}")
    moments = [rng.randint(1, 20) for _ in range(ROUNDS)]
    for moment in moments:
        ended = forks.run(lambda tell: write_for_ever(kind, tmp_path, tell), kill_after=moment)
        assert ended.is_killed
        told = check(kind, tmp_path, name, int(ended.lines[-1]))
    assert told >= sum(moments)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("damage", ["empty", "torn", "gone"])
def test_copy_of_a_table_is_used_with_a_warning(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
):
    kind = KINDS[name]
    book = load(kind, tmp_path)
    for number in (1, 2):
        kind.change(book, number)
        book.persist()
    path = tmp_path / "config" / name
    reason = break_table(path, damage)
    with caplog.at_level(logging.WARNING):
        assert kind.state(load(kind, tmp_path)) == 1
    (record,) = caplog.records
    assert f"table read from backup path={path} problem={name}" in record.getMessage()
    assert reason in record.getMessage()


def break_table(path: Path, damage: str) -> str:
    """Return the word that the reason must have."""
    if damage == "gone":
        path.unlink()
        return "is missing"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "torn" else b"")
    return "empty" if damage == "empty" else path.name


def test_store_opens_on_copies_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Progress is that of the copy: one version old, never ahead."""
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        for number in range(3):
            store.put(rocketlake.Message(topic="T", body=str(number).encode()), queue_id=0)
        consumer = store.consumer("g", "T", timeout=0)
        for _ in range(2):
            assert next(consumer)
            consumer.commit()
            store.flush()
    for name in ("consumerOffset.json", "topics.json"):
        (root / "config" / name).write_bytes(b"")
    # A table that was written once has no copy.
    assert not (root / "config" / "topics.json.bak").exists()
    (root / "config" / "topics.json").unlink()
    with caplog.at_level(logging.WARNING), rocketlake.open_store(root) as store:
        assert any("consumerOffset.json" in record.getMessage() for record in caplog.records)
        assert [m.body for m in store.consumer("g", "T", timeout=0)] == [b"1", b"2"]
        assert store.put(rocketlake.Message(topic="T", body=b"3"), queue_id=0).queue_offset == 3
