"""Partitions hold every record exactly once, wherever they are cut."""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rocketlake.format.record import StoredMessage
from rocketlake.model import flags
from rocketlake.store.offline import OfflineStore
from support.spark_reading import read_table
from support.store_builder import StoreBuilder

TOPICS = ("T", "U", "V")

records = st.tuples(
    st.just("record"),
    st.sampled_from(TOPICS),
    st.integers(0, 2),
    st.integers(0, 700),
    st.sampled_from((None, "a", "b")),
    st.sampled_from((0, flags.TransactionType.PREPARED, flags.TransactionType.COMMIT)),
    st.booleans(),
)
batches = st.tuples(st.just("batch"), st.integers(1, 5))
rolls = st.tuples(st.just("roll"))
steps = st.lists(st.one_of(records, records, records, batches, rolls), min_size=1, max_size=60)
cuts = st.fixed_dictionaries(
    {
        "minPartitions": st.integers(1, 12),
        "maxPartitionBytes": st.sampled_from((1024, 4096, 1 << 20)),
    }
)


def build(
    root: Path, steps_: list[tuple], dispatched: int, *, is_clean: bool, expired: int
) -> StoreBuilder:
    """Write a store; records from a number on are in the log only."""
    builder = StoreBuilder(root, log_file_size=4096, queue_file_units=7)
    for number, step in enumerate(steps_):
        in_queue = number < dispatched
        if step[0] == "record":
            _, topic, queue_id, size, tags, sys_flag, is_light = step
            light = ("%LMQ%x",) if is_light else ()
            builder.record(
                topic,
                queue_id,
                b"x" * size,
                tags=tags,
                keys=[f"k{number % 5}"],
                sys_flag=int(sys_flag),
                light=light,
                dispatched=in_queue,
            )
        elif step[0] == "batch":
            builder.inner_batch(step[1], dispatched=in_queue)
        else:
            builder.roll()
    if not is_clean:
        builder.unclean().checkpoint(0, 0, 0)
    builder.write()
    builder.expire(expired)
    return builder


def of_queues(
    root: Path,
    topic: str | None = None,
    wants: Callable[[StoredMessage], bool] = lambda _: True,
) -> Counter:
    with OfflineStore(root) as store:
        return Counter(
            (message.topic, message.queue_id, int(place["queue_offset"]), message.physical_offset)
            for key in store.queues
            if topic in (None, key.topic)
            for batch in store.messages(key)
            for place, message in zip(batch.places, batch.columns.messages(), strict=True)
            if wants(message)
        )


def of_log(root: Path) -> Counter:
    with OfflineStore(root) as store:
        return Counter(
            (message.topic, message.queue_id, message.queue_offset, message.physical_offset)
            for chunk in store.walk()
            for message in chunk.columns.messages()
        )


def read(root: Path, **options: object) -> Counter:
    names = ("topic", "queue_id", "queue_offset", "physical_offset")
    table = read_table(root, names, onDamage="skip", **options)
    return Counter(zip(*(table.column(name).to_pylist() for name in names), strict=True))


@given(steps, st.integers(0, 60), st.booleans(), st.integers(0, 1), cuts)
def test_every_record_is_in_one_partition(steps_, dispatched, is_clean, expired, cut) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "store"
        build(root, steps_, dispatched, is_clean=is_clean, expired=expired)
        assert read(root, topicPattern=".*", **cut) == of_queues(root)
        assert read(root, topicPattern="T|%LMQ%x", **cut) == (
            of_queues(root, "T") + of_queues(root, "%LMQ%x")
        )
        assert read(root, **cut) == of_log(root)


@given(steps, st.integers(0, 60), st.booleans(), cuts)
def test_filters_leave_what_they_must(steps_, dispatched, is_clean, cut) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "store"
        build(root, steps_, dispatched, is_clean=is_clean, expired=0)
        tagged = of_queues(root, wants=lambda message: message.tags == "a")
        assert read(root, topicPattern=".*", tags="a", **cut) == tagged
        keyed = of_queues(root, wants=lambda message: "k1" in message.keys)
        assert read(root, topicPattern=".*", key="k1", **cut) == keyed


@given(
    st.lists(records, min_size=20, max_size=60),
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 120)), min_size=1, max_size=4),
    cuts,
)
def test_cuts_do_not_change_what_is_read_of_a_damaged_log(steps_, flips, cut) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "store"
        builder = build(root, steps_, 60, is_clean=True, expired=0)
        for number, byte in flips:
            record = builder.placed[number % len(builder.placed)]
            builder.flip(record.physical_offset + byte % record.size)
        builder.write()
        whole = read(root)
        assert read(root, **cut) == whole
        assert not of_log(root) - whole
        assert max(whole.values(), default=1) == 1
