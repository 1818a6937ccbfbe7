"""A stream over more queues than a checkpoint names: offsets are a place in the log."""

import json
import logging
import random
from itertools import chain
from types import SimpleNamespace

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError, StoreError
from rocketlake.spark.stream.limits import OffsetRange
from rocketlake.spark.stream.listener import read_lag
from rocketlake.spark.stream.offsets import NAMED_MAX, Position, StreamOffset, StreamSource
from rocketlake.spark.stream.positions import BoundsSnapshot
from rocketlake.store.offline.log_sync import LogSync
from spark.stream.stream_play import Play, bodies
from support.store_builder import StoreBuilder

QUEUES = NAMED_MAX + 22


def more(builder, begin, end, queues=QUEUES):
    for number in range(begin, end):
        builder.record(f"T{number % queues % 5}", number % queues, f"{number:04}".encode())
    return builder


def filled(root, count=2 * QUEUES):
    return more(StoreBuilder(root), 0, count)


def names(begin, end):
    return [f"{number:04}" for number in range(begin, end)]


# --- what the checkpoint holds -------------------------------------------------------------------


def test_offset_of_many_queues_is_one_place_in_the_log(tmp_path):
    builder = filled(tmp_path / "s")
    play = Play(builder.write(), topicPattern="T.*")
    assert bodies(play.step()) == names(0, 2 * QUEUES)
    more(builder, 2 * QUEUES, 2 * QUEUES + 3).write()
    assert bodies(play.step()) == names(2 * QUEUES, 2 * QUEUES + 3)
    assert play.offsets[-1]["at"]["s"][:2] == [builder.end, QUEUES]
    assert play.offsets[-1]["queues"] == {}
    assert len(json.dumps(play.offsets[-1])) < 120
    assert play.step() is None


def test_restart_at_every_step_reads_the_same(tmp_path):
    builder = filled(tmp_path / "s", QUEUES + 40)
    root = builder.write()
    chance = random.Random(14)
    written = QUEUES + 40
    offsets, batches = [], []
    for run in range(40):
        rows_max = 9 if run < 4 else chance.choice((9, 200, None))
        limits = {} if rows_max is None else {"maxOffsetsPerTrigger": str(rows_max)}
        play = Play(root, offsets, topicPattern="T.*", **limits)
        for _ in range(chance.randint(1, 3)):
            if offsets:
                assert play.again(len(offsets) - 1) == batches[-1]
            rows = play.step()
            if rows is None:
                break
            batches.append(rows)
        if chance.random() < 0.5 and written < 4 * QUEUES:
            more(builder, written, written + 30, queues=QUEUES + written // 100).write()
            written += 30
    batches += Play(root, offsets, topicPattern="T.*").drain()
    assert bodies(chain.from_iterable(batches)) == names(0, written)
    assert len(batches) > 8
    assert any("at" in offset and isinstance(offset["queues"], str) for offset in offsets)


def test_checkpoint_of_an_earlier_release_goes_on(tmp_path):
    builder = filled(tmp_path / "s")
    root = builder.write()
    old = Play(root, topicPattern="T.*", compactOffsets="false", maxOffsetsPerTrigger="170")
    first = old.step()
    assert old.offsets[-1]["version"] == 1
    assert sum(len(queues) for queues in old.offsets[-1]["queues"]["s"].values()) == QUEUES
    new = Play(root, old.offsets, topicPattern="T.*")
    assert new.again(0) == first
    rest = new.drain()
    assert bodies([*first, *chain.from_iterable(rest)]) == names(0, 2 * QUEUES)
    assert new.offsets[-1]["version"] == 2


def test_units_in_many_packed_names_are_the_same_again():
    chance = random.Random(3)
    ends = {
        StreamSource(broker, f"topic é {chance.randrange(50)}", chance.randrange(-1, 400) or 5): (
            chance.randrange(1 << 60)
        )
        for broker in "ab"
        for _ in range(400)
    }
    ends = {source: at for source, at in ends.items() if not source.is_log}
    offset = StreamOffset(ends, ends, is_initial=True, at={"c": Position(1 << 60, 3, 4)})
    text = json.dumps(offset.encode())
    assert StreamOffset.decode(json.loads(text)) == offset
    shuffled = dict(chance.sample(sorted(ends.items()), len(ends)))
    assert json.dumps(StreamOffset(shuffled, ends, True, offset.at).encode()) == text


def test_log_is_on_the_disk_up_to_the_place_that_is_named(tmp_path, monkeypatch):
    builder = filled(tmp_path / "s")
    seen = []
    monkeypatch.setattr(LogSync, "run", lambda sync, end: seen.append(end) or True)
    play = Play(builder.write(), topicPattern="T.*", maxOffsetsPerTrigger="200")
    while play.step() is not None:
        assert seen[-1] >= play.offsets[-1]["at"]["s"][0]
    assert len(seen) == len(play.offsets)


def test_available_now_names_the_place_where_it_ends(tmp_path):
    builder = filled(tmp_path / "s")
    play = Play(builder.write(), available_now=True, topicPattern="T.*")
    end = builder.end
    more(builder, 2 * QUEUES, 3 * QUEUES).write()
    assert bodies(chain.from_iterable(play.drain())) == names(0, 2 * QUEUES)
    assert play.offsets[-1]["at"]["s"][0] == end
    assert play.offsets[-1]["queues"] == {}
    again = Play(builder.write(), play.offsets, topicPattern="T.*")
    assert bodies(chain.from_iterable(again.drain())) == names(2 * QUEUES, 3 * QUEUES)


def test_sum_of_queues_follows_each_change():
    chance = random.Random(4)
    sources = [StreamSource("a", "T", number) for number in range(200)]
    look = BoundsSnapshot({source: OffsetRange(0, 5) for source in sources}, {"a": 100})
    look.positions([])
    for step in range(50):
        changed = {source: OffsetRange(0, step) for source in chance.sample(sources, 5)}
        look.change(changed, {"a": 100 + step})
        named = chance.sample(sources, 3)
        anew = BoundsSnapshot(look.bounds, {"a": 100 + step}).positions(named)
        assert look.positions(named) == anew
    assert look.positions(sources)["a"] == Position(149, 0, 0)


# --- what is not the same any more ---------------------------------------------------------------


def without_topic(builder, topic):
    for number in range(QUEUES):
        if f"T{number % 5}" == topic:
            builder.lose_queue(topic, number)
    (builder.root / "consumequeue" / topic).rmdir()


def test_topic_that_is_gone_is_named_while_the_query_runs(tmp_path):
    builder = filled(tmp_path / "s")
    root = builder.write()
    play = Play(root, topicPattern="T.*")
    play.step()
    without_topic(builder, "T3")
    with pytest.raises(StoreError, match=r"T3 queue \d+ of s was read up to 2 and is gone"):
        play.step()


def test_topic_that_is_gone_after_a_restart_is_loss(tmp_path, caplog):
    builder = filled(tmp_path / "s")
    root = builder.write()
    play = Play(root, topicPattern="T.*")
    play.step()
    without_topic(builder, "T3")
    more(builder, 0, 3).write()
    words = rf"{QUEUES} queues of s were read up to byte \d+ .* the {QUEUES - 30} that have"
    with pytest.raises(StoreError, match=words):
        Play(root, play.offsets, topicPattern="T.*").step()
    with caplog.at_level(logging.WARNING):
        lax = Play(root, play.offsets, topicPattern="T.*", failOnDataLoss="false")
        assert bodies(lax.step()) == names(0, 3)
    assert "a topic was deleted" in caplog.text


def test_topics_that_were_not_read_before_are_not_passed_in_silence(tmp_path):
    builder = filled(tmp_path / "s")
    builder.record("U", 0, b"u")
    root = builder.write()
    play = Play(root, topicPattern="T.*")
    play.step()
    with pytest.raises(StoreError, match="path and topic name others than before"):
        Play(root, play.offsets, topicPattern="[TU].*").step()


def test_store_that_was_made_anew(tmp_path):
    root = filled(tmp_path / "s").write()
    play = Play(root, topicPattern="T.*")
    play.step()
    root.rename(tmp_path / "old")
    filled(tmp_path / "s", QUEUES).write()
    with pytest.raises(StoreError, match="created again"):
        Play(root, play.offsets, topicPattern="T.*").step()
    lax = Play(root, play.offsets, topicPattern="T.*", failOnDataLoss="false")
    assert bodies(lax.step()) == names(0, QUEUES)


def test_damaged_store_has_all_queues_by_name(tmp_path):
    builder = filled(tmp_path / "s")
    root = builder.write()
    path = root / "consumequeue" / "T0" / "0" / f"{0:020}"
    good = path.read_bytes()
    units = bytearray(good)
    units[20 + 8 : 20 + 12] = b"\xff" * 4  # the second unit is none
    path.write_bytes(units)
    play = Play(root, topicPattern="T.*", onDamage="skip")
    play.step()
    assert "at" not in play.offsets[-1]
    ends = StreamOffset.decode(play.offsets[-1]).ends
    assert ends[StreamSource("s", "T0", 0)] == 1
    path.write_bytes(good)  # as a start of the broker would mend it
    again = Play(root, play.offsets, topicPattern="T.*", onDamage="skip")
    assert bodies(again.step()) == [f"{QUEUES // 5 * 5:04}"]


# --- lag and progress ----------------------------------------------------------------------------


def lag_of(play):
    source = SimpleNamespace(
        endOffset=json.dumps(play.offsets[-1]),
        latestOffset=json.dumps(play.reader.reportLatestOffset()),
    )
    fields = {"id": "q", "runId": "r", "name": None, "batchId": 4, "timestamp": "t"}
    return read_lag(SimpleNamespace(sources=[source], **fields))


def test_lag_names_the_queues_that_have_some(tmp_path):
    builder = filled(tmp_path / "s")
    play = Play(builder.write(), topicPattern="T.*", maxOffsetsPerTrigger="200")
    left = 2 * QUEUES
    while (rows := play.step()) is not None:
        left -= len(rows)
        assert lag_of(play).lag == left
    assert left == 0
    more(builder, 0, 7).write()
    waiting = Play(
        builder.write(),
        play.offsets,
        topicPattern="T.*",
        minOffsetsPerTrigger="1000",
        maxTriggerDelay="1h",
    )
    assert len(waiting.step()) == 7  # the first does not wait
    more(builder, 0, 4).write()
    assert waiting.step() is None
    assert lag_of(waiting).by_topic == {"T0": 1, "T1": 1, "T2": 1, "T3": 1}


def test_group_has_progress_in_every_queue(tmp_path):
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("T", QUEUES)
        for number in range(QUEUES):
            store.put(Message(topic="T", body=b"x"), queue_id=number)
    play = Play(tmp_path / "s", topic="T", group="g")
    assert len(play.drain()[0]) == QUEUES
    with rocketlake.open_store(tmp_path / "s") as store:
        assert {at.offset for at in store.progress("g")} == {1}
        assert len(list(store.progress("g"))) == QUEUES


def test_option_that_is_no_flag(tmp_path):
    with pytest.raises(ConfigError, match="compactOffsets = 'no': wanted true or false"):
        Play(filled(tmp_path / "s").write(), topicPattern="T.*", compactOffsets="no")
