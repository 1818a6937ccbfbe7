"""With onDamage=skip every message whose record and unit are intact is read, exactly once."""

import pickle
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from rocketlake.spark.jobs.archive.plan import ArchiveSettings, plan_archive
from rocketlake.spark.jobs.archive.run import carry_out
from rocketlake.spark.jobs.archive.tasks import write_task
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.schema import MESSAGE_SCHEMA
from rocketlake.spark.stream.stream_reader import make_stream_reader
from support.damaged_store import DamagedStore, Wound
from support.spark_reading import read_table

COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "body")
PLACE = "physical_offset"

wounds = st.builds(
    Wound,
    family=st.sampled_from(("log", "log", "log", "queue")),
    at=st.floats(0, 1),
    size=st.sampled_from((1, 4, 20, 300, 1500)),
    kind=st.sampled_from(("random", "zeros", "ones")),
    seed=st.integers(0, 1 << 16),
)


def damaged(place: str, count: int, wounds_: list[Wound], *, is_clean: bool) -> DamagedStore:
    """Write a store, then damage it."""
    store = DamagedStore(Path(place) / "s", count, is_clean=is_clean)
    for wound in wounds_:
        store.hurt(wound)
    return store


def by_batch(root: Path, **options: object) -> Counter:
    table = read_table(root, COLUMNS, onDamage="skip", **options)
    return Counter(table.column(PLACE).to_pylist())


def by_stream(root: Path, **options: str) -> Counter:
    """Read with a stream of small batches, until there is no more."""
    given_ = {"path": str(root), "onDamage": "skip", **options}
    assert SourceOptions.parse(given_).schema == MESSAGE_SCHEMA
    reader = make_stream_reader(given_, MESSAGE_SCHEMA)
    found: Counter = Counter()
    at = reader.initialOffset()
    for _ in range(1000):
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        if end == at:
            return found
        for part in reader.partitions(at, end):
            for batch in reader.read(pickle.loads(pickle.dumps(part))):
                found.update(batch[PLACE].to_pylist())
        at = end
    raise AssertionError("the stream does not come to its end")


def by_archive(root: Path, target: Path) -> Counter:
    settings = ArchiveSettings(source_options={"onDamage": "skip"})

    def stage(writing, tasks):
        return [file for task in tasks for file in write_task(task, writing)]

    carry_out(plan_archive(root, target, settings), stage, "2026-01-01T00:00:00+00:00")
    files = target.rglob("*.parquet")
    return Counter(
        place for file in files for place in pq.ParquetFile(file).read([PLACE])[PLACE].to_pylist()
    )


def check(found: Counter, wanted: set[int], how: str) -> None:
    assert {offset: found[offset] for offset in wanted if found[offset] != 1} == {}, how


@given(
    st.integers(20, 120),
    st.booleans(),
    st.lists(wounds, min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_what_is_intact_is_read_once(count, is_clean, wounds_, parts) -> None:
    with tempfile.TemporaryDirectory() as place:
        store = damaged(place, count, wounds_, is_clean=is_clean)
        queued = by_batch(store.root, minPartitions=parts, topicPattern=".*")
        check(queued, store.whole, "queues")
        check(by_batch(store.root, minPartitions=parts), store.whole_records, "log")


@given(
    st.integers(20, 60),
    st.booleans(),
    st.lists(wounds, min_size=1, max_size=3),
    st.integers(5, 40),
)
def test_stream_and_archive_read_the_same(count, is_clean, wounds_, rows) -> None:
    with tempfile.TemporaryDirectory() as place:
        store = damaged(place, count, wounds_, is_clean=is_clean)
        limit = {"maxOffsetsPerTrigger": str(rows)}
        check(by_stream(store.root, topicPattern=".*", **limit), store.whole, "stream")
        check(by_stream(store.root, **limit), store.whole_records, "stream of the log")
        check(by_archive(store.root, Path(place) / "a"), store.whole, "archive")
