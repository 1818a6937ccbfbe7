"""A stream, call by call, without Spark: what batches hold, whatever happens to the store."""

import json
import logging
from contextlib import closing
from itertools import chain

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError, StoreError
from rocketlake.metadata import offsets as offset_table
from rocketlake.store.offline.log_sync import LogSync
from spark.stream.stream_play import Play, bodies
from support.store_builder import BEGIN_MS, StoreBuilder


def filled(root, count=12, queues=3, **shape):
    """A store whose topic T has messages 0, 1, 2, ... in turn in its queues."""
    builder = StoreBuilder(root, **shape)
    return more(builder, 0, count, queues)


def more(builder, begin, end, queues=3):
    for number in range(begin, end):
        builder.record("T", number % queues, f"{number:03}".encode())
    return builder


def names(begin, end):
    return [f"{number:03}" for number in range(begin, end)]


def test_batches_keep_to_the_limit_and_hold_everything_once(tmp_path):
    root = filled(tmp_path / "s", 50).write()
    play = Play(root, topic="T", maxOffsetsPerTrigger="7")
    batches = play.drain()
    assert [len(rows) for rows in batches] == [7] * 7 + [1]
    assert bodies(chain.from_iterable(batches)) == names(0, 50)
    assert {row["broker"] for row in batches[0]} == {"s"}
    assert len({row["queue_id"] for row in batches[0]}) == 3
    assert play.step() is None


def test_a_restart_at_every_step_reads_the_same(tmp_path):
    builder = filled(tmp_path / "s", 20)
    root = builder.write()
    options = {"topic": "T", "maxOffsetsPerTrigger": "6"}
    offsets, batches = [], []
    while True:
        play = Play(root, offsets, **options)
        if offsets:  # killed between sink and commit: the batch is read again
            assert play.again(len(offsets) - 1) == batches[-1]
        rows = play.step()
        if rows is None:
            break
        batches.append(rows)
        if len(batches) == 2:
            more(builder, 20, 30).write()
    assert bodies(chain.from_iterable(batches)) == names(0, 30)
    assert len(batches) == 5


def test_bytes_limit_a_batch(tmp_path):
    builder = filled(tmp_path / "s", 40)
    play = Play(builder.write(), topic="T", maxBytesPerTrigger="1000")
    sizes = [sum(row["store_size"] for row in rows) for rows in play.drain()]
    assert max(sizes) <= 1000
    assert min(sizes[:-1]) > 1000 - 2 * builder.placed[0].size
    both = Play(builder.write(), topic="T", maxBytesPerTrigger="1000", maxOffsetsPerTrigger="3")
    assert [len(rows) for rows in both.drain()][:3] == [3, 3, 3]


def test_new_queues_and_topics_begin_at_their_first_message(tmp_path):
    builder = filled(tmp_path / "s", 6)
    root = builder.write()
    offsets = []
    play = Play(root, offsets, topicPattern="T.*", startingOffsets="latest")
    assert play.step() == []  # the start is pinned
    assert play.step() is None
    builder.record("T", 7, b"new queue").record("T2", 0, b"new topic").record("U", 0, b"other")
    builder.write()
    assert bodies(play.step()) == ["new queue", "new topic"]
    builder.record("T", 7, b"more").write()
    late = Play(root, offsets, topicPattern="T.*")
    assert bodies(late.again(1)) == ["new queue", "new topic"]
    assert bodies(late.step()) == ["more"]


def test_the_start_is_pinned_by_the_first_batch(tmp_path):
    builder = filled(tmp_path / "s", 6)
    root = builder.write()
    offsets = []
    options = {"topic": "T", "startingOffsets": "latest"}
    play = Play(root, offsets, **options)
    more(builder, 6, 9).write()
    # Order: the start is asked for after the write, and once more after a crash, much later.
    assert play.start["initial"] is True
    more(builder, 9, 12).write()
    assert bodies(play.step()) == names(9, 12)
    more(builder, 12, 15).write()
    assert bodies(Play(root, offsets, **options).again(0)) == names(9, 12)
    assert bodies(Play(root, offsets, **options).step()) == names(12, 15)


def test_starts_by_time_and_by_offset(tmp_path):
    root = filled(tmp_path / "s", 12).write()
    by_time = Play(root, topic="T", startingTimestamp=str(BEGIN_MS + 7))
    assert bodies(by_time.step()) == names(6, 12)
    by_offset = Play(root, topic="T", startingOffsets='{"T": {"0": 2, "1": -1}}')
    assert bodies(by_offset.step()) == ["002", "005", "006", "008", "009", "011"]
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy = latest"):
        Play(root, topic="T", startingTimestamp="9999999999999").step()


def test_small_batches_wait(tmp_path):
    builder = filled(tmp_path / "s", 3)
    options = {"topic": "T", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    play = Play(builder.write(), **options)
    assert len(play.step()) == 3  # the first comes at once
    more(builder, 3, 6).write()
    assert play.step() is None
    more(builder, 6, 9).write()
    assert len(play.step()) == 6
    more(builder, 9, 10).write()
    now = Play(builder.write(), play.offsets, available_now=True, **options)
    assert [len(rows) for rows in now.drain()] == [1]  # and waits for nothing


def test_available_now_reads_what_there_was(tmp_path):
    builder = filled(tmp_path / "s", 20)
    options = {"topicPattern": "T.*", "maxOffsetsPerTrigger": "8"}
    play = Play(builder.write(), available_now=True, **options)
    batches = [play.step()]
    more(builder, 20, 40, queues=5).record("T2", 0, b"late").write()
    batches += play.drain()
    assert bodies(chain.from_iterable(batches)) == names(0, 20)
    again = Play(builder.write(), play.offsets, available_now=True, **options)
    assert bodies(chain.from_iterable(again.drain())) == [*names(20, 40), "late"]


# --- loss ----------------------------------------------------------------------------------------


def expiring(root):
    """A store with small files: some 12 messages in each."""
    return filled(root, 40, log_file_size=1200)


def test_files_that_expire_before_they_were_read(tmp_path, caplog):
    builder = expiring(tmp_path / "s")
    root = builder.write()
    offsets = []
    Play(root, offsets, topic="T", maxOffsetsPerTrigger="6").step()
    gone = sum(p.physical_offset < 2 * 1200 for p in builder.placed)
    builder.expire(2).write()
    with pytest.raises(StoreError, match=r"data loss: messages 2 to \d+ of T queue 0 of s expired"):
        Play(root, offsets, topic="T").step()
    with pytest.raises(StoreError, match="data loss"):
        Play(root, offsets, topic="T").again(0)
    lax = Play(root, offsets, topic="T", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lax.again(0) == []
        assert bodies(lax.step()) == names(gone, 40)
    assert "expired before they were read" in caplog.text
    assert lax.step() is None
    assert bodies(Play(root, offsets, topic="T").again(1)) == names(gone, 40)


def test_what_expires_under_a_running_query(tmp_path):
    builder = expiring(tmp_path / "s")
    root = builder.write()
    strict = Play(root, topic="T", maxOffsetsPerTrigger="6")
    lax = Play(root, topic="T", maxOffsetsPerTrigger="6", failOnDataLoss="false")
    assert len(strict.step()) == len(lax.step()) == 6
    gone = sum(p.physical_offset < 2 * 1200 for p in builder.placed)
    builder.expire(2).write()
    with pytest.raises(StoreError, match="failOnDataLoss = false goes on without them"):
        strict.step()
    assert bodies(chain.from_iterable(lax.drain())) == names(gone, 40)


def test_a_store_that_was_made_anew(tmp_path):
    offsets = []
    root = filled(tmp_path / "s", 40).write()
    Play(root, offsets, topic="T").step()
    root.rename(tmp_path / "old")
    filled(tmp_path / "s", 9).write()
    with pytest.raises(StoreError, match=r"was read up to 14, but ends at 3: the store or the"):
        Play(root, offsets, topic="T").step()
    assert bodies(Play(root, offsets, topic="T", failOnDataLoss="false").step()) == names(0, 9)


def test_a_topic_that_is_gone(tmp_path):
    builder = filled(tmp_path / "s", 6).record("T2", 0, b"x")
    root = builder.write()
    play = Play(root, topicPattern="T.*")
    play.step()
    builder.lose_queue("T2", 0)
    (root / "consumequeue" / "T2").rmdir()
    with pytest.raises(StoreError, match="T2 queue 0 of s was read up to 1 and is gone"):
        Play(root, play.offsets, topic="T").step()
    lax = Play(root, play.offsets, topic="T", failOnDataLoss="false")
    assert lax.step() == []
    assert lax.step() is None


# --- whole logs ----------------------------------------------------------------------------------


def test_a_whole_log_is_read_by_physical_offset(tmp_path):
    builder = filled(tmp_path / "s", 30, log_file_size=1200).record("U", 0, b"u")
    root = builder.write()
    play = Play(root, maxOffsetsPerTrigger="7")
    batches = play.drain()
    assert [len(rows) for rows in batches] == [7, 7, 7, 7, 3]
    assert bodies(chain.from_iterable(batches)) == [*names(0, 30), "u"]
    assert play.offsets[-1] == {"log": {"s": builder.end}, "version": 1}
    more(builder, 30, 33).write()
    small = Play(root, play.offsets, maxBytesPerTrigger=str(2 * builder.placed[0].size))
    assert [len(rows) for rows in small.drain()] == [2, 1]
    late = Play(root, startingTimestamp=str(BEGIN_MS + 29))
    assert bodies(late.step()) == [*names(28, 33), "u"]
    assert Play(root, startingOffsets="latest").step() == []
    builder.expire(1).write()
    with pytest.raises(StoreError, match=r"bytes \d+ to 1200 of the log of s expired"):
        Play(root, play.offsets[:1]).step()


def test_batches_of_messages_and_light_queues_are_read_once(tmp_path):
    builder = StoreBuilder(tmp_path / "s")
    for number in range(5):
        builder.inner_batch(3).record("T", 0, str(number).encode(), light=["%LMQ%x"])
    root = builder.write()
    for topic in ("B", "%LMQ%x"):
        whole = list(chain.from_iterable(Play(root, topic=topic).drain()))
        assert len(whole) == 5
        for limit in ("1", "2", "4"):
            rows = chain.from_iterable(Play(root, topic=topic, maxOffsetsPerTrigger=limit).drain())
            assert list(rows) == whole
        sized = Play(root, topic=topic, maxBytesPerTrigger="300").drain()
        assert list(chain.from_iterable(sized)) == whole
        assert len(sized) > 1


def test_several_brokers(tmp_path):
    filled(tmp_path / "a", 10).write()
    filled(tmp_path / "b", 20).write()
    play = Play(f"x={tmp_path / 'a'},{tmp_path / 'b'}", topic="T", maxOffsetsPerTrigger="9")
    batches = play.drain()
    assert [len(rows) for rows in batches] == [9, 9, 9, 3]
    assert {row["broker"] for row in batches[0]} == {"x", "b"}
    assert bodies(chain.from_iterable(batches)) == sorted(names(0, 10) + names(0, 20))


# --- progress ------------------------------------------------------------------------------------


def committed(root, group="g"):
    """What the store's table has of a group, for topic T."""
    return offset_table.load(root / "config").offsets.get(f"T@{group}", {})


def test_progress_is_in_the_stores_table_while_nobody_has_it_open(tmp_path):
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("T", 1)
        for number in range(10):
            store.put(Message(topic="T", body=str(number).encode()))
        store.reset_offsets("other", "T", {0: 3})
    play = Play(tmp_path / "s", topic="T", group="g", maxOffsetsPerTrigger="4")
    play.step()
    assert committed(tmp_path / "s") == {}  # the batch is not done
    play.step()
    assert committed(tmp_path / "s") == {0: 4}
    play.drain()
    assert committed(tmp_path / "s") == {0: 10}
    assert committed(tmp_path / "s", "other") == {0: 3}
    with rocketlake.open_store(tmp_path / "s") as store:
        assert next(iter(store.progress("g"))).lag == 0
        store.put(Message(topic="T", body=b"last"))
        store.reset_offsets("g", "T", {0: 8})
    again = Play(tmp_path / "s", topic="T", group="g", startingOffsets="group")
    assert bodies(again.step()) == ["8", "9", "last"]


def test_progress_is_in_a_file_of_its_own_while_a_program_has_the_store(tmp_path, caplog):
    own = tmp_path / "own"
    options = {"topic": "T", "group": "g"}
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("T", 1)
        for number in range(6):
            store.put(Message(topic="T", body=str(number).encode()))
        store.reset_offsets("g", "T", {0: 1})
        store.flush()
        blind = Play(tmp_path / "s", **options)
        assert len(blind.drain()) == 1
        assert "set progressPath" in caplog.text
        play = Play(tmp_path / "s", maxOffsetsPerTrigger="4", progressPath=str(own), **options)
        play.step()
        play.step()
        text = (own / "s" / "consumerOffset.json").read_text()
        assert '"T@g":{0:4}' in "".join(text.split())
        assert committed(tmp_path / "s") == {0: 1}
        group = Play(tmp_path / "s", progressPath=str(own), startingOffsets="group", **options)
        assert bodies(group.step()) == ["4", "5"]


def test_a_topic_without_a_message_can_be_followed(tmp_path):
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("Empty", 2)
        store.put(Message(topic="T", body=b"t"))
        store.flush()
        with pytest.raises(ConfigError, match=r"there is no topic 'Emty'.*did you mean 'Empty'"):
            Play(tmp_path / "s", topic="Emty").step()
        play = Play(tmp_path / "s", topic="Empty", startingOffsets="latest")
        assert play.start["queues"] == {"s": {"Empty": {"0": 0, "1": 0}}}
        assert play.step() == []
        store.put(Message(topic="Empty", body=b"first"), queue_id=1)
        assert bodies(play.step()) == ["first"]


def test_a_store_that_is_written_all_the_while(tmp_path):
    with rocketlake.open_store(tmp_path / "s") as store:
        store.put(Message(topic="T", body=b"000"))
        with closing(Play(tmp_path / "s", topic="T").reader._driver) as _:
            play = Play(tmp_path / "s", topic="T", columns=["queue_id", "body"])
            found = [*play.step()]
            for number in range(1, 60):
                store.put(Message(topic="T", body=f"{number:03}".encode()))
                if number % 7 == 0:
                    found += play.step() or []
            found += play.step() or []
    assert bodies(found) == names(0, 60)
    assert play.step() is None
    play.reader.stop()


def test_reported_offsets_show_what_is_not_read(tmp_path):
    builder = expiring(tmp_path / "s")
    builder.write()
    play = Play(tmp_path / "s", topic="T", maxOffsetsPerTrigger="3")
    play.step()
    assert play.reader.reportLatestOffset()["queues"] == {"s": {"T": {"0": 14, "1": 13, "2": 13}}}
    assert json.dumps(play.reader.reportLatestOffset())


def test_log_is_on_the_disk_before_spark_has_the_offset(tmp_path, monkeypatch):
    root = filled(tmp_path / "s", 6).write()
    seen = []
    monkeypatch.setattr(LogSync, "run", lambda sync, end: seen.append(end) or True)
    play = Play(root, topic="T")
    play.reader.initialOffset()
    assert not seen
    assert len(play.step()) == 6
    assert len(seen) == 1
    assert play.step() is None
    assert len(seen) == 1, "nothing new, nothing to sync"
