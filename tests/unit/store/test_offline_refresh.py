"""A view that is brought up to date while another process writes."""

import shutil

import pytest

from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.offline import view as view_module
from support.store_builder import StoreBuilder

QUEUE = QueueKey("T", 0)


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=1000)


def opened(builder: StoreBuilder) -> OfflineStore:
    return OfflineStore(builder.write())


def bodies(store: OfflineStore, key: QueueKey = QUEUE) -> list[str]:
    return [
        message.body.decode()
        for batch in store.messages(key)
        for message in batch.columns.messages()
    ]


@pytest.mark.parametrize("dispatched", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_refresh_shows_what_was_written_since(builder, dispatched, is_clean):
    builder.records(3)
    if not is_clean:
        builder.unclean()
    with opened(builder) as store:
        assert bodies(store) == ["0", "1", "2"]
        assert not store.refresh()
        builder.records(2, dispatched=dispatched).write()
        assert store.refresh()
        assert bodies(store) == ["0", "1", "2", "0", "1"]
        assert store.max_offset == builder.end
        assert store.queues[QUEUE].max_offset == 5
        assert not store.refresh()


def test_refresh_over_many_files_and_many_times(builder):
    builder.records(3).unclean()
    with opened(builder) as store:
        assert len(bodies(store)) == 3
        for count in range(4, 60):
            builder.record(body=b"x" * (count % 50)).write()
            assert store.refresh()
            assert len(bodies(store)) == count
        assert store.max_offset == builder.end
        assert len(store.log.files) > 5


def test_refresh_that_walked_far_reads_the_queues_anew(builder, monkeypatch):
    monkeypatch.setattr(view_module, "_WALKED_MAX", 4)
    monkeypatch.setattr(view_module, "_WALKED_PER_QUEUE", 0)
    builder.records(3).unclean()
    with opened(builder) as store:
        assert len(bodies(store)) == 3
        for count in range(4, 20):
            builder.record().write()
            store.refresh()
            assert len(bodies(store)) == count
        assert len(store.queues[QUEUE].owed) < 10


def test_refresh_finds_new_queues_and_keys(builder):
    builder.records(3).unclean()
    with opened(builder) as store:
        assert list(store.queues) == [QUEUE]
        assert store.find(KeyQuery(topic="A", key="k")) == []
        builder.record("A", 2, b"new", keys=["k"]).write()
        store.refresh()
        assert list(store.queues) == [QueueKey("A", 2), QUEUE]
        assert [m.body for m in store.find(KeyQuery(topic="A", key="k"))] == [b"new"]
        assert store.message_at(builder.placed[-1].physical_offset).body == b"new"


def test_refresh_before_anything_was_looked_at(builder):
    builder.records(3)
    with opened(builder) as store:
        builder.records(1).write()
        store.refresh()
        assert len(bodies(store)) == 4


def test_refresh_record_that_is_being_written_is_waited_for(builder):
    builder.records(3).unclean()
    with opened(builder) as store:
        assert len(bodies(store)) == 3
        builder.torn_record(40, body=b"3").write()
        assert not store.refresh()
        assert len(bodies(store)) == 3
        builder.record(body=b"3").write()
        assert store.refresh()
        assert bodies(store)[-1] == "3"
        assert store.damage.count == 0


def test_refresh_files_that_expired_move_the_begin(builder):
    builder.records(30).unclean()
    with opened(builder) as store:
        assert store.queues[QUEUE].min_offset == 0
        first = store.log.files[0]
        held = sum(place.end <= first.size for place in builder.placed)
        first.path.unlink()
        store.refresh()
        assert store.queues[QUEUE].min_offset == held
        assert store.min_offset == first.size


def test_refresh_store_that_was_started_is_looked_at_anew(builder):
    builder.records(3)
    with opened(builder) as store:
        assert store.traits.is_clean
        assert len(bodies(store)) == 3
        builder.unclean().records(1, dispatched=False).write()
        assert store.refresh()
        assert not store.traits.is_clean
        assert len(bodies(store)) == 4


def test_refresh_topic_that_was_deleted_is_gone(builder):
    builder.record("A", 0, b"a").record("T", 0, b"t")
    with opened(builder) as store:
        assert set(store.queues) == {QueueKey("A", 0), QUEUE}
        shutil.rmtree(builder.root / "consumequeue" / "A")
        assert store.refresh()
        assert set(store.queues) == {QUEUE}


def test_refresh_log_that_was_made_anew_is_looked_at_anew(builder, tmp_path):
    builder.records(30)
    with opened(builder) as store:
        assert len(bodies(store)) == 30
        shutil.rmtree(builder.root / "commitlog")
        shutil.rmtree(builder.root / "consumequeue")
        StoreBuilder(tmp_path / "store", log_file_size=1000).records(1).write()
        store.refresh()
        assert bodies(store) == ["0"]


def test_refresh_tells_which_queues_it_changed(builder):
    builder.record("T", 0).record("T", 1).record("U", 0)
    with opened(builder) as store:
        assert len(store.queues) == 3
        builder.record("T", 1).record("V", 0).write()
        assert store.refresh()
        assert store.changed == {QueueKey("T", 1), QueueKey("V", 0)}
        assert store.queues[QueueKey("T", 1)].max_offset == 2
        assert not store.refresh()
        assert store.changed == frozenset()
        builder.unclean().write()
        store.refresh()
        assert store.changed is None, "all queues are looked at"


def test_offset_at_a_place_of_the_log(builder):
    for number in range(30):
        builder.record("T", number % 3, dispatched=number < 20)
    builder.unclean()
    with opened(builder) as store:
        for placed in builder.placed:
            for queue_id in range(3):
                before = [
                    other
                    for other in builder.placed
                    if other.queue_id == queue_id and other.physical_offset < placed.physical_offset
                ]
                queue = store.queues[QueueKey("T", queue_id)]
                assert queue.offset_at(placed.physical_offset) == len(before)
        assert store.queues[QueueKey("T", 0)].offset_at(builder.end) == 10
