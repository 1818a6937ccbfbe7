"""Logs larger than a window: records across its edge, larger than it, more than fit into it."""

import numpy as np
import pytest

from rocketlake.format.record import Check
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk import log as log_module
from rocketlake.store.offline import KeyQuery, OfflineStore, Stop
from support.reading import bodies, findings, offsets, walked
from support.store_builder import StoreBuilder

MIB = 1 << 20
WINDOW = log_module.WINDOW


@pytest.fixture
def small_window(monkeypatch):
    """Windows of 1000 bytes, so that every edge can be tried."""
    monkeypatch.setattr(log_module, "WINDOW", 1000)


def test_window_is_what_these_tests_think():
    assert WINDOW == 4 * MIB


def test_record_larger_than_a_window(tmp_path):
    sizes = (100, 5 * MIB, 100, 9 * MIB, 100)
    builder = StoreBuilder(tmp_path, log_file_size=16 * MIB)
    for size in sizes:
        builder.record(body=b"x" * size)
    with OfflineStore(builder.write()) as store:
        assert walked(store) == [place.physical_offset for place in builder.placed]
        assert [len(body) for body in bodies(store)] == list(sizes)
        assert store.max_offset == builder.end
        assert store.damage.count == 0


def test_large_record_with_a_bad_checksum_is_stepped_over(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=6 * MIB)
    for size in (100, 5 * MIB, 100, 5 * MIB):
        builder.record(body=b"x" * size)
    with OfflineStore(builder.flip_body(1).write()) as store:
        assert walked(store) == [builder.placed[n].physical_offset for n in (0, 2, 3)]
        assert [len(body) for body in bodies(store)] == [100, 100, 5 * MIB]


@pytest.mark.parametrize("size", range(0, 120, 7))
def test_record_across_the_edge_of_a_window(tmp_path, small_window, size):
    """One record is shifted byte by byte over the edge."""
    builder = StoreBuilder(tmp_path, log_file_size=4000)
    builder.record(body=b"x" * (800 + size)).records(20).record(body=b"y" * 1500).records(3)
    with OfflineStore(builder.write()) as store:
        assert walked(store) == [place.physical_offset for place in builder.placed]
        assert store.max_offset == builder.end
        assert len(bodies(store)) == 25
        assert store.damage.count == 0


def test_damage_at_every_place_of_a_window(tmp_path, small_window):
    """Each record in turn has a bad checksum; the others are found all the same."""
    made = StoreBuilder(tmp_path, log_file_size=4000)
    for number in range(60):
        made.record(body=b"%02d" % number)
    last_file = next(n for n, p in enumerate(made.placed) if p.physical_offset >= 4000)
    for number in range(0, last_file, 3):
        root = made.flip_body(number).write()
        made.flip_body(number)
        with OfflineStore(root) as store:
            wanted = [p.physical_offset for n, p in enumerate(made.placed) if n != number]
            assert walked(store) == wanted
            assert [place for _, place, _ in findings(store)] == [
                made.placed[number].physical_offset
            ]


def test_torn_record_at_the_edge_of_a_window(tmp_path, small_window):
    builder = StoreBuilder(tmp_path, log_file_size=4000)
    for keep in (1, 4, 7, 8, 50, 90):
        made = StoreBuilder(tmp_path / str(keep), log_file_size=4000).records(10)
        made.record(body=b"x" * (1000 - made.end - 91 - keep)).unclean()
        made.torn_record(keep, body=b"z" * 500)
        with OfflineStore(made.write()) as store:
            assert (keep, store.max_offset) == (keep, made.end)
            assert store.damage.count == 0
    assert not builder.placed


def test_more_records_than_rows_in_a_window(tmp_path):
    """17,000 records of 92 bytes lie in one window; a scan makes 16,384 rows at a time."""
    builder = StoreBuilder(tmp_path, log_file_size=4 * MIB, queue_file_units=20_000)
    for _ in range(17_000):
        builder.record(body=b"")
    assert builder.placed[0].size == 92
    with OfflineStore(builder.lose_index().write()) as store:
        chunks = [len(chunk.columns) for chunk in store.walk()]
        assert sum(chunks) == 17_000
        assert max(chunks) <= 16_384
        assert offsets(store) == list(range(17_000))
        assert store.find(KeyQuery(topic="T", key="none")) == []


def test_records_apart_are_gathered_in_several_reads(tmp_path, small_window):
    """Units point backwards, far apart, into other files and twice to the same record."""
    builder = StoreBuilder(tmp_path, log_file_size=4000).records(100)
    with OfflineStore(builder.write()) as store:
        numbers = [99, 0, 50, 50, 51, 10, 98, 3, 1, 2]
        places = [builder.placed[n] for n in numbers]
        columns, reasons = store.log.gather(
            np.array([place.physical_offset for place in places]),
            np.array([place.size for place in places]),
            checks=Check.BODY_CRC | Check.OFFSET,
        )
        assert not reasons.any()
        found = [message.physical_offset for message in columns.messages()]
        assert found == [place.physical_offset for place in places]


def test_nothing_is_gathered_from_nothing(tmp_path):
    with OfflineStore(StoreBuilder(tmp_path).records(1).write()) as store:
        none = np.empty(0, np.int64)
        columns, reasons = store.log.gather(none, none, checks=0)
        assert len(columns) == len(reasons) == 0


def test_walk_between_two_offsets(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30)
    with OfflineStore(builder.write()) as store:
        begin, end = builder.placed[5].physical_offset, builder.placed[25].physical_offset
        found = []
        for chunk in store.walk(begin, end):
            found += chunk.columns["queue_offset"].tolist()
        assert found == list(range(5, 25))


def test_walk_from_behind_the_end_is_empty(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(5)
    with OfflineStore(builder.write()) as store:
        assert list(store.walk(builder.end)) == []
        assert list(store.walk(1 << 40)) == []
        assert [step for step in store.log.walk(1 << 40) if not isinstance(step, Stop)] == []


def test_message_at_an_offset(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(15)
    with OfflineStore(builder.write()) as store:
        message = store.message_at(builder.placed[12].physical_offset)
        assert message is not None
        assert (message.topic, message.queue_offset) == ("T", 12)
        for offset in (1, -1, builder.end, 1 << 40, -(1 << 63)):
            assert store.message_at(offset) is None
        assert QueueKey("T", 0) in store.queues


@pytest.mark.parametrize("size", [-1, 0, 7, (1 << 31) - 1, 1 << 20])
def test_claimed_sizes_do_not_bring_memory_down(tmp_path, size):
    """A record that claims 2 GiB in a file of 1000 bytes."""
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30)
    builder.overwrite(builder.placed[3].physical_offset, size.to_bytes(4, "big", signed=True))
    with OfflineStore(builder.write()) as store:
        assert store.message_at(builder.placed[3].physical_offset) is None
        assert offsets(store) == [n for n in range(30) if n != 3]
