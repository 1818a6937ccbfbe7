"""The one table of SQL92 subscriptions of an open store: entered, written, and read by bits."""

import json
import threading
from functools import partial
from pathlib import Path

import pytest
from embedded_fakes import bodies

import rocketlake
from rocketlake import Message
from rocketlake.filters.message_filter import SqlMessageFilter
from rocketlake.metadata import filters
from rocketlake.model.queues import QueueKey
from support.manual_clock import ManualClock

TABLES = Path(__file__).parents[1] / "metadata" / "tables"
BITS = {"enable_calc_filter_bit_map": True, "enable_consume_queue_ext": True}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store"


@pytest.fixture
def evaluated(monkeypatch):
    """The messages whose properties were looked at, by their bodies."""
    found = []
    matches = SqlMessageFilter.matches

    def spy(self, message):
        found.append(message.body.decode())
        return matches(self, message)

    monkeypatch.setattr(SqlMessageFilter, "matches", spy)
    return found


def entry(path, topic="T", group="g"):
    return filters.load(path / "config").get(topic, group)


def put(store, *values, topic="T"):
    for value in values:
        body = str(value).encode()
        store.put(Message(topic=topic, body=body, properties={"a": str(value)}), queue_id=0)


def consume(store, sql, group="g") -> list[str]:
    with store.consumer(group, "T", sql=sql, timeout=0) as consumer:
        return bodies(list(consumer))


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def opened(path, clock):
    """Open the store with a clock that stands still."""
    return partial(rocketlake.open_store, path, clock=clock)


# --- the table ------------------------------------------------------------------------------------


def test_consumer_is_entered_and_the_table_is_written(path, opened):
    with opened() as store:
        put(store, 1)
        with store.consumer("g", "T", sql="a > 1", timeout=0):
            known = store._filters.book.get("T", "g")
            assert (known.expression, known.is_dead) == ("a > 1", False)
    written = entry(path)
    assert (written.expression, written.expression_type) == ("a > 1", "SQL92")
    assert (written.born_time, written.is_dead) == (known.born_time, True)


def test_table_is_the_one_of_the_reference(path, opened):
    """As RocketMQ 5.3.3 has written it for the same groups (tests/unit/metadata/tables/v5-ext)."""
    tables = TABLES / "v5-ext"
    with opened() as store:
        for found in filters.load(tables).topics["SqlTopic"].values():
            store.consumer(found.consumer_group, "SqlTopic", sql=found.expression, timeout=0)
        store.flush()
        store._filters.book.persist()
        ours = (path / "config" / filters.FILE_NAME).read_text()
    assert untimed(json.loads(ours)) == untimed(
        json.loads((tables / filters.FILE_NAME).read_text())
    )


def untimed(members):
    for topic in members["filterDataByTopic"].values():
        for each in topic["groupFilterData"].values():
            for name in ("bornTime", "clientVersion"):
                each[name] = 0
    return members


def test_filter_ends_with_the_last_consumer_of_its_group(opened, clock):
    with opened() as store:
        put(store, 1)
        book = store._filters.book
        first = store.consumer("g", "T", sql="a > 1", timeout=0)
        second = store.consumer("g", "T", sql="a > 1", timeout=0)
        other = store.consumer("other", "T", sql="a > 1", timeout=0)
        clock.advance_ms(5)
        first.close()
        assert not book.get("T", "g").is_dead
        second.close()
        assert book.get("T", "g").is_dead
        assert not book.get("T", "other").is_dead
        with store.consumer("other", "T", timeout=0):  # it takes all messages from now on
            assert book.get("T", "other").is_dead
        other.close()


def test_consumer_that_outlives_its_store_can_be_closed(opened):
    with opened() as store:
        put(store, 1)
        consumer = store.consumer("g", "T", sql="a > 1", timeout=0)
    consumer.close()


def test_wrong_expression_or_name_leaves_the_table_alone(path, opened):
    with opened() as store:
        for group, sql in (("g", "a >"), ("no such/group", "a > 1")):
            with pytest.raises(ValueError, match=r"SQL92|group"):
                store.consumer(group, "T", sql=sql)
        assert store._filters.book.all() == []
    assert not (path / "config" / filters.FILE_NAME).exists()


def test_store_whose_bits_a_job_sets_leaves_the_table_alone(path, opened):
    with opened(dispatch="external", **BITS) as store:
        put(store, 1, 5)
        assert consume(store, "a > 1") == ["5"]
    assert not (path / "config" / filters.FILE_NAME).exists()


# --- the bits -------------------------------------------------------------------------------------


def test_bits_rule_out_what_came_after_the_consumer(opened, clock, evaluated):
    with opened(**BITS) as store:
        put(store, 1, 7)
        with store.consumer("g", "T", sql="a > 5", timeout=0) as consumer:
            clock.advance_ms(5)
            put(store, 2, 8, 3)
            assert bodies(list(consumer)) == ["7", "8"]
    assert evaluated == ["1", "7", "8"]


def test_bits_of_an_earlier_life_are_used(opened, clock, evaluated):
    with opened(**BITS) as store:
        put(store, 0)
        consume(store, "a > 5")
        clock.advance_ms(5)
        put(store, 2, 8)
    evaluated.clear()
    with opened(**BITS) as store:
        put(store, 3, 9)
        assert consume(store, "a > 5") == ["8", "9"]
    assert evaluated == ["8", "9"]


def test_units_that_a_start_makes_have_bits_too(path, opened, clock):
    with opened(**BITS) as store:
        put(store, 0)
        consume(store, "a > 5")
        clock.advance_ms(5)
        put(store, 2, 8)
        store.flush()
    for family in ("consumequeue", "consumequeue_ext"):
        for file in sorted((path / family).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    with opened(**BITS) as store:
        found = store._engine.queues.find(QueueKey("T", 0))
        units = [found.ext_unit(int(code)) for code in found.units(0, 9)["tags_code"]]
        bloom = store._filters.book.bloom
        positions = bloom.bit_positions("g", "T")
        assert [bool(unit.bitmap) for unit in units] == [True] * 3
        assert [bloom.is_hit(positions, unit.bitmap) for unit in units] == [False, False, True]


def test_other_expression_of_the_same_group_loses_nothing(opened, clock):
    with opened(**BITS) as store:
        put(store, 0)
        with store.consumer("g", "T", sql="a < 5", timeout=0) as low:
            clock.advance_ms(5)
            store.consumer("g", "T", sql="a > 5", timeout=0).close()
            clock.advance_ms(5)
            put(store, 2, 8)
            store.get("T", 0, 0)  # bits are those of `a > 5` now
            assert bodies(list(low)) == ["0", "2"]


def test_bits_from_before_the_consumer_say_nothing(opened, clock, evaluated):
    with opened(**BITS) as store:
        put(store, 0)
        consume(store, "a > 9", group="other")  # the topic has bits from here on
        clock.advance_ms(5)
        put(store, 7)
        store.get("T", 0, 0)
        assert consume(store, "a > 5") == ["7"]
    assert evaluated[-2:] == ["0", "7"]


def test_store_that_kept_no_bits_for_a_while_loses_nothing(opened, clock):
    with opened(**BITS) as store:
        put(store, 0)
        consume(store, "a > 5")
        clock.advance_ms(5)
    with opened(enable_consume_queue_ext=True) as store:
        put(store, 8)
    with opened(**BITS) as store:
        assert consume(store, "a > 5") == ["8"]


def test_message_that_comes_with_the_consumer_is_never_lost(path):
    """Messages are put while consumers join, each with an expression of its own."""
    with rocketlake.open_store(path, **BITS) as store:
        end = threading.Event()

        def pour():
            value = 0
            while not end.is_set():
                put(store, value)
                value += 1

        thread = threading.Thread(target=pour)
        thread.start()
        consumers = [
            store.consumer(f"g{n}", "T", sql=f"a >= {n}", timeout=0, auto_commit=False)
            for n in range(20)
        ]
        end.set()
        thread.join()
        count = store.max_offset("T", 0)
        for n, consumer in enumerate(consumers):
            assert len(list(consumer)) == max(count - n, 0)
