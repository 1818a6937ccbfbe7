"""Records that dispatch has not brought to the queues are shown as if it had."""

import random

import pytest

from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.flags import TransactionType
from rocketlake.model.hashes import tags_code
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import ReadOptions
from rocketlake.store.recovery.undispatched import UndispatchedUnits
from support.reading import bodies, bounds, offsets
from support.store_builder import BEGIN_MS, StoreBuilder

T = QueueKey("T", 0)


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=1000)


def code_of(store, key, number):
    queue = store.queues[key]
    return int(queue.units(queue.index_of(number), 1)["tags_code"][0])


def test_tail_that_no_queue_holds_is_shown(builder):
    builder.records(4).records(3, dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"0", b"1", b"2", b"3", b"0", b"1", b"2"]
        assert bounds(store) == {"T/0": (0, 7)}
        assert len(store.queues[T].owed) == 3
        assert store.damage.count == 0


def test_tail_of_a_clean_store_is_shown_too(builder):
    """5.3.2 and later dispatch what lies behind the queues, also after a clean stop."""
    builder.records(4).records(3, dispatched=False)
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"T/0": (0, 7)}


def test_ranges_cross_from_the_files_to_what_is_owed(builder):
    builder.records(4).records(3, dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert offsets(store, begin=3, end=6) == [3, 4, 5]
        assert offsets(store, begin=5) == [5, 6]
        assert offsets(store, begin=7) == []
        assert offsets(store, end=4) == [0, 1, 2, 3]


def test_tags_codes_of_owed_units_are_those_of_dispatch(builder):
    builder.record(tags="A").record(tags="B", dispatched=False).record(dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert [code_of(store, T, number) for number in range(3)] == [
            tags_code("A"),
            tags_code("B"),
            0,
        ]


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1_000), ("3", 10_000), ("18", 7_200_000), ("99", 7_200_000)]
)
def test_delayed_message_is_owed_with_its_due_time(builder, level, delay_ms):
    builder.record(
        "SCHEDULE_TOPIC_XXXX",
        2,
        tags="A",
        properties={"DELAY": level, "REAL_TOPIC": "T"},
        stored=BEGIN_MS,
        dispatched=False,
    ).unclean()
    with OfflineStore(builder.write()) as store:
        assert code_of(store, QueueKey("SCHEDULE_TOPIC_XXXX", 2), 0) == BEGIN_MS + delay_ms


def test_delay_levels_may_be_given(builder):
    builder.record(
        *("SCHEDULE_TOPIC_XXXX", 1), properties={"DELAY": "2"}, stored=BEGIN_MS, dispatched=False
    )
    options = ReadOptions(message_delay_level="1s 2d")
    with OfflineStore(builder.unclean().write(), options=options) as store:
        key = QueueKey("SCHEDULE_TOPIC_XXXX", 1)
        assert code_of(store, key, 0) == BEGIN_MS + 2 * 86_400_000


@pytest.mark.parametrize("level", ["", "x", "-1", "0"])
def test_delay_level_that_is_none_leaves_the_tag(builder, level):
    properties = {"DELAY": level}
    builder.record("SCHEDULE_TOPIC_XXXX", 0, tags="A", properties=properties, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert code_of(store, QueueKey("SCHEDULE_TOPIC_XXXX", 0), 0) == tags_code("A")


def test_prepared_and_rolled_back_records_enter_no_queue(builder):
    builder.record(body=b"plain")
    for kind in (TransactionType.PREPARED, TransactionType.ROLLBACK, TransactionType.COMMIT):
        builder.record(body=kind.name.encode(), sys_flag=kind, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert bodies(store) == [b"plain", b"COMMIT"]


@pytest.mark.parametrize("kind", [TransactionType.PREPARED, TransactionType.ROLLBACK])
def test_record_of_no_queue_makes_none(builder, kind):
    builder.record(body=b"no", sys_flag=kind, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert store.queues == {}
    builder.record(body=b"yes", dispatched=False)
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"yes"]


def test_delay_level_of_another_topic_leaves_the_tag(builder):
    """A delivered message keeps the property that once delayed it."""
    builder.record(tags="A", properties={"DELAY": "3"}, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert code_of(store, T, 0) == tags_code("A")


def test_light_queues_are_owed_their_units(builder):
    builder.record(body=b"0", light=["%LMQ%a", "%LMQ%b"])
    builder.record(body=b"1", light=["%LMQ%b"], dispatched=False)
    builder.record(body=b"2", light=["%LMQ%b", "%LMQ%c"], dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {
            "%LMQ%a/0": (0, 1),
            "%LMQ%b/0": (0, 3),
            "%LMQ%c/0": (0, 1),
            "T/0": (0, 3),
        }
        assert bodies(store, "%LMQ%b") == [b"0", b"1", b"2"]
        assert offsets(store, "%LMQ%b") == [0, 1, 2]
        assert bodies(store, "%LMQ%c") == [b"2"]


def test_lost_light_queue_is_owed_all_its_units(builder):
    builder.record(body=b"0", light=["%LMQ%a"]).record(body=b"1", light=["%LMQ%a"])
    builder.lose_queue("%LMQ%a", 0).checkpoint(0, 0, 0).unclean()
    with OfflineStore(builder.write()) as store:
        assert bodies(store, "%LMQ%a") == [b"0", b"1"]
        assert bodies(store) == [b"0", b"1"]


@pytest.mark.parametrize("numbers", ["", "x", "0,1", "-5"])
def test_light_queue_offsets_that_are_none_do_no_harm(builder, numbers):
    builder.record(
        body=b"0",
        properties={"INNER_MULTI_DISPATCH": "%LMQ%a,,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": numbers},
        dispatched=False,
    )
    with OfflineStore(builder.unclean().write()) as store:
        assert bodies(store) == [b"0"]
        for key in store.queues:
            assert len(bodies(store, key.topic, key.queue_id)) <= 1


def test_batch_queue_is_owed_its_units(builder):
    builder.inner_batch(3).inner_batch(2)
    builder.inner_batch(4, dispatched=False).inner_batch(1, dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"B/0": (0, 10)}
        assert offsets(store, "B") == [0, 3, 5, 9]
        assert offsets(store, "B", begin=4, end=9) == [3, 5]
        (batch,) = store.messages(QueueKey("B", 0), 5)
        assert batch.places["batch_size"].tolist() == [4, 1]


@pytest.mark.parametrize("counts", [(3, 2), (1, 3), (1,)])
def test_batch_queue_without_files_is_made_from_the_log(builder, counts):
    for count in counts:
        builder.inner_batch(count, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        queue = store.queues[QueueKey("B", 0)]
        assert queue.kind.is_batch
        assert (queue.min_offset, queue.max_offset) == (0, sum(counts))
        assert offsets(store, "B") == [sum(counts[:i]) for i in range(len(counts))]


def test_lost_queue_is_made_from_the_log(builder):
    builder.records(20).record("T", 1).lose_queue("T", 0).checkpoint(0, 0, 0).unclean()
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"T/0": (0, 20), "T/1": (0, 1)}
        assert len(bodies(store)) == 20


def test_lost_queue_begins_where_the_walk_starts(builder):
    """As a start would leave it: records before the file it starts at are not dispatched again."""
    builder.records(35).record("T", 1).lose_queue("T", 0).unclean()
    assert builder.placed[30].physical_offset == 3000
    late = BEGIN_MS + 100_000
    with OfflineStore(builder.checkpoint(late, late, late).write()) as store:
        assert store.tail.started_at == 3000
        assert bounds(store)["T/0"] == (30, 35)
        assert offsets(store) == list(range(30, 35))


def test_gap_before_the_walk_is_filled_by_an_earlier_one(builder):
    """The queue's last flushed unit is far behind the file where the walk starts."""
    builder.records(35).lose_units("T", 0, 5).record("T", 1).unclean()
    late = BEGIN_MS + 100_000
    with OfflineStore(builder.checkpoint(late, late, late).write()) as store:
        assert store.tail.started_at == 3000
        assert bounds(store) == {"T/0": (0, 35), "T/1": (0, 1)}
        assert offsets(store) == list(range(35))
        assert len(store.queues[T].owed) == 30


def test_units_behind_the_end_of_the_log_are_cut(builder):
    builder.records(5)
    end = builder.end
    for number in (5, 6):
        builder.unit("T", 0, number, QueueUnit(end + (number - 5) * 93, 93, 0))
    with OfflineStore(builder.unclean().write()) as store:
        assert bounds(store) == {"T/0": (0, 5)}
        assert len(bodies(store)) == 5
        assert store.damage.count == 0


def test_unit_of_a_record_cut_in_half_is_cut(builder):
    builder.records(5).unclean().flip_body(4)
    with OfflineStore(builder.write()) as store:
        assert store.max_offset == builder.placed[4].physical_offset
        assert bounds(store) == {"T/0": (0, 4)}


def test_queue_whose_every_unit_lies_behind_the_end_is_empty(builder):
    builder.records(3).record("Late", 0).record("Late", 0).unclean()
    builder.flip_body(3)
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"Late/0": (0, 0), "T/0": (0, 3)}
        assert bodies(store, "Late") == []


def test_cut_over_several_queue_files(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=8000, queue_file_units=4).records(18)
    with OfflineStore(builder.flip_body(6).unclean().write()) as store:
        assert bounds(store) == {"T/0": (0, 6)}
        assert offsets(store) == [0, 1, 2, 3, 4, 5]


def test_records_that_repeat_a_queue_offset_are_shown_once(builder):
    """A unit is there already for the offset: dispatch takes the record for a repeat."""
    builder.records(3).record(body=b"again", queue_offset=1, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert bodies(store) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("number", [-1, -(1 << 63)])
def test_negative_queue_offset_in_a_record_does_no_harm(builder, number):
    builder.record("New", 0, queue_offset=number, dispatched=False).records(2, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert bodies(store) == [b"0", b"1"]
        assert bodies(store, "New") == []


@pytest.mark.parametrize("queue_id", [-1, -(1 << 31)])
def test_negative_queue_number_in_a_record_does_no_harm(builder, queue_id):
    builder.record("T", queue_id, dispatched=False).records(2, dispatched=False)
    with OfflineStore(builder.unclean().write()) as store:
        assert bodies(store) == [b"0", b"1"]


def test_queue_numbers_up_to_the_largest_are_kept(builder):
    builder.record("T", (1 << 31) - 1, dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"T/2147483647": (0, 1)}


def test_units_owed_in_columns_are_those_owed_one_by_one(tmp_path, monkeypatch):
    chance = random.Random(14)
    for number in range(25):
        builder = StoreBuilder(tmp_path / str(number), log_file_size=6000)
        is_plain = number % 2 == 0  # else a few records have something beside a unit
        for _ in range(chance.randint(20, 120)):
            topic, queue_id = chance.choice("TU"), chance.randrange(4)
            dispatched = chance.random() < 0.4
            kind = chance.random()
            if is_plain or kind < 0.8:
                tags = chance.choice((None, "A", "B"))
                builder.record(topic, queue_id, tags=tags, dispatched=dispatched)
            elif kind < 0.85:
                builder.record(
                    topic, queue_id, sys_flag=TransactionType.PREPARED, dispatched=dispatched
                )
            elif kind < 0.9:
                builder.record(topic, queue_id, light=["%LMQ%x"], dispatched=dispatched)
            elif kind < 0.95:
                builder.inner_batch(3, dispatched=dispatched)
            else:
                jump = chance.choice((3, 50, 1 << 60))
                builder.record(topic, queue_id, queue_offset=jump, dispatched=False)
        root = builder.unclean().write()
        fast = owed_places(root)
        with monkeypatch.context() as patch:
            patch.setattr(UndispatchedUnits, "_add_following", lambda *_: False)
            assert owed_places(root) == fast
        assert any(fast.values())


def owed_places(root):
    with OfflineStore(root) as store:
        return {key: queue.owed.places().tolist() for key, queue in store.queues.items()}
