"""Which queue units records make: plain, batch and light queues, due times, deleted topics."""

import numpy as np
import pytest

from rocketlake.format.record import Check, RecordColumns, scan
from rocketlake.model.flags import TransactionType
from rocketlake.model.hashes import tags_code
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.deleted_topics import DeletedTopics
from rocketlake.store.dispatch.placement import PlacementRules, Records, place
from support.store_builder import BEGIN_MS, StoreBuilder

RULES = PlacementRules(delays_ms=[1_000, 5_000])


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=200_000)


def columns_of(builder):
    (path,) = [path for path in (builder.write() / "commitlog").iterdir() if path.is_file()]
    return scan(path.read_bytes(), base_offset=0, checks=Check.OFFSET).columns


def placed(builder, rules=RULES, deleted=None):
    """Return queue -> (physical offset, queue offset, tags code) of each unit."""
    placement = place(Records(columns_of(builder)), rules, deleted or DeletedTopics())
    return {
        str(block.key): list(
            zip(
                block.units()["physical_offset"].tolist(),
                block.offsets.tolist(),
                block.units()["tags_code"].tolist(),
                strict=True,
            )
        )
        for block in placement.blocks()
    }


def test_units_of_a_queue_come_together_in_the_order_of_the_log(builder):
    for number in range(6):
        builder.record("AB"[number % 2], number % 3, tags="t")
    offsets = [one.physical_offset for one in builder.placed]
    found = placed(builder)
    assert {key: [unit[0] for unit in units] for key, units in found.items()} == {
        f"{'AB'[number % 2]}/{number % 3}": [offsets[number]] for number in range(6)
    }
    assert {unit[2] for units in found.values() for unit in units} == {tags_code("t")}


@pytest.mark.parametrize("kind", [TransactionType.PREPARED, TransactionType.ROLLBACK])
def test_record_of_an_open_transaction_has_no_unit(builder, kind):
    builder.record(sys_flag=kind).record(sys_flag=TransactionType.COMMIT)
    assert [unit[0] for unit in placed(builder)["T/0"]] == [builder.placed[1].physical_offset]


def test_unit_of_the_schedule_topic_has_the_due_time(builder):
    builder.record(SCHEDULE_TOPIC, 1, properties={"DELAY": "2"}, tags="t", stored=BEGIN_MS)
    builder.record(SCHEDULE_TOPIC, 1, tags="t")
    due, plain = (unit[2] for unit in placed(builder)[f"{SCHEDULE_TOPIC}/1"])
    assert (due, plain) == (BEGIN_MS + 5_000, tags_code("t"))


def test_light_queues_have_a_unit_each(builder):
    builder.record("T", 3, light=["%LMQ%a", "%LMQ%b"])
    assert sorted(placed(builder)) == ["%LMQ%a/0", "%LMQ%b/0", "T/3"]
    rules = PlacementRules(has_light_queues=False)
    assert sorted(placed(builder, rules)) == ["T/3"]


def test_record_of_before_the_deletion_of_its_topic_has_no_unit(builder):
    builder.records(4)
    end = builder.placed[2].physical_offset
    found = placed(builder, deleted=DeletedTopics.of({"T": end}))
    assert [unit[0] for unit in found["T/0"]] == [one.physical_offset for one in builder.placed[2:]]


def test_batch_stands_for_all_its_numbers_in_a_batch_queue(builder):
    builder.inner_batch(3).inner_batch(2)
    (block,) = place(Records(columns_of(builder)), RULES).blocks()
    assert block.has_batches
    assert [column.tolist() for column in block.batch_numbers()] == [[0, 3], [3, 2]]
    assert block.following() == 5


def test_sorting_by_counting_gives_what_sorting_gives(builder):
    """Many records are sorted by 16-bit numbers, few of them or large queue ids by wide ones."""
    chance = np.random.default_rng(3)
    for number in chance.integers(0, 40, 400).tolist():
        builder.record("ABCD"[number % 4], number // 4)
    columns = columns_of(builder)
    counted = place(Records(columns), RULES).by_queue()
    rows = columns.rows.copy()
    rows["queue_id"][rows["queue_id"] == 9] = 1 << 30
    wide = place(Records(RecordColumns(columns.buffer, rows)), RULES).by_queue()
    for found in (counted, wide):
        keys = [key for key, *_ in found.ranges()]
        assert len(keys) == len(set(keys)) == 40
        for key, start, stop, first, begin, _ in found.ranges():
            own = found.rows[start:stop]
            assert (np.diff(own) > 0).all()
            assert {Records(columns).topics[code] for code in Records(columns).codes[own]} == {
                key.topic
            }
            assert first == found.offsets[start]
            assert begin == columns["physical_offset"][own[0]]
        assert found.are_consecutive


def test_damaged_number_breaks_only_its_own_queue(builder):
    builder.record("A").record("B").record("A", queue_offset=7).record("B")
    found = place(Records(columns_of(builder)), RULES).by_queue()
    assert not found.are_consecutive
    straight = {key: found.is_consecutive(start, stop) for key, start, stop, *_ in found.ranges()}
    assert straight == {QueueKey("A", 0): False, QueueKey("B", 0): True}
