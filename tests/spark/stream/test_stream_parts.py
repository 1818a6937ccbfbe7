"""Offsets, limits, options and lag: what needs neither a store nor Spark."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from rocketlake.errors import ConfigError, StoreError
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.stream.batch_start import advance, clip
from rocketlake.spark.stream.limits import OffsetRange, TriggerDelay, share_bytes, share_rows
from rocketlake.spark.stream.listener import LagListener, read_lag
from rocketlake.spark.stream.offsets import StreamOffset, StreamSource
from rocketlake.spark.stream.stream_options import StreamOptions
from support.manual_clock import ManualClock

A0, A1, B0 = StreamSource("a", "T", 0), StreamSource("a", "T", 1), StreamSource("b", "T", 0)


# --- offsets -------------------------------------------------------------------------------------


def test_an_offset_is_the_same_text_whatever_the_order():
    sources = {StreamSource("a", "T", q): q for q in (10, 2, 0)} | {
        StreamSource("a", "S", 0): 7,
        B0: 1,
    }
    shuffled = dict(reversed(sources.items()))
    text = json.dumps(StreamOffset(sources, {A0: 5}).encode())
    assert text == json.dumps(StreamOffset(shuffled, {A0: 5}).encode())
    assert text == (
        '{"begin": {"a": {"T": {"0": 5}}}, "queues": {"a": {"S": {"0": 7}, "T": {"0": 0, "10": 10,'
        ' "2": 2}}, "b": {"T": {"0": 1}}}, "version": 1}'
    )
    assert StreamOffset.decode(json.loads(text)) == StreamOffset(sources, {A0: 5})
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_offsets_of_logs_and_of_a_start():
    logs = StreamOffset({StreamSource("b"): 1, StreamSource("a"): 1 << 60}, is_initial=True)
    text = json.dumps(logs.encode())
    assert text == '{"initial": true, "log": {"a": 1152921504606846976, "b": 1}, "version": 1}'
    assert StreamOffset.decode(json.loads(text)) == logs
    assert StreamOffset.decode(StreamOffset().encode()) == StreamOffset()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"version": 3, "queues": {}}, "version 3, and this release knows versions 1 and 2"),
        ({"version": 2, "queues": "AAAA"}, "cannot be read"),
        ({"version": 2, "queues": "!"}, "cannot be read"),
        ({"version": 2, "queues": {}, "at": {"a": [1, 2]}}, "cannot be read"),
        ({"n": 4}, "version None"),
        ({"version": 1}, "cannot be read"),
        ({"version": 1, "queues": {"a": {"T": {"x": 1}}}}, "cannot be read"),
        ({"version": 1, "queues": {"a": {"T": [1]}}}, "cannot be read"),
    ],
)
def test_offsets_of_others_are_refused(members, words):
    with pytest.raises(StoreError, match=words) as caught:
        StreamOffset.decode(members)
    assert "checkpointLocation" in str(caught.value)


# --- limits --------------------------------------------------------------------------------------


def test_rows_are_shared_by_what_each_has_and_none_starves():
    news = {
        StreamSource("a", "T", q): OffsetRange(100, 100 + n)
        for q, n in enumerate((900, 90, 9, 1, 0))
    }
    shares = share_rows(news, 100, turn=0)
    assert sum(shares.values()) == 100
    assert [shares.get(source, 0) for source in news] == [88, 9, 2, 1, 0]
    assert share_rows(news, 1000, turn=0) == {
        source: s.count for source, s in news.items() if s.count
    }
    few = [{source for source, n in share_rows(news, 1, turn).items() if n} for turn in range(4)]
    assert set.union(*few) == set(news) - {StreamSource("a", "T", 4)}


def test_any_sharing_keeps_to_the_limit_and_takes_what_it_may():
    chance = random.Random(6)
    for _ in range(300):
        counts = [chance.choice((0, 1, 5, 1000)) for _ in range(chance.randint(1, 9))]
        news = {StreamSource("a", "T", q): OffsetRange(0, n) for q, n in enumerate(counts)}
        limit, turn = chance.randint(1, 1500), chance.randint(0, 20)
        shares = share_rows(news, limit, turn)
        assert sum(shares.values()) == min(limit, sum(counts))
        assert all(0 <= n <= news[source].count for source, n in shares.items())
        if limit >= len(counts):
            assert all(shares[source] for source in news if news[source].count)


def test_bytes_are_shared_and_a_large_message_comes_alone():
    sizes = {A0: np.full(1000, 10), A1: np.array([10, 10, 5000, 10]), B0: np.full(10, 100)}
    news = {source: OffsetRange(0, len(found)) for source, found in sizes.items()}
    done = dict.fromkeys(news, 0)
    batches = 0
    while any(done[source] < len(sizes[source]) for source in news):
        left = {source: OffsetRange(done[source], len(sizes[source])) for source in news}
        taken = share_bytes(left, 1000, batches, lambda source, at, n: sizes[source][at : at + n])
        size = sum(
            int(sizes[source][done[source] : done[source] + n].sum()) for source, n in taken.items()
        )
        rows = sum(taken.values())
        assert rows
        assert size <= 1000 or rows == 1
        for source, n in taken.items():
            done[source] += n
        batches += 1
    assert batches <= 24  # 16,040 bytes, and one message alone


def test_small_batches_wait_but_not_for_ever():
    clock = ManualClock()
    patience = TriggerDelay(10, 1000, clock)
    assert patience.is_enough(1)  # the first comes at once
    assert not patience.is_enough(9)
    assert patience.is_enough(10)
    clock.advance_ms(999)
    assert not patience.is_enough(9)
    clock.advance_ms(1)
    assert patience.is_enough(9)
    assert not patience.is_enough(9)


# --- going on ------------------------------------------------------------------------------------


def test_where_each_queue_goes_on():
    bounds = {A0: OffsetRange(0, 10), A1: OffsetRange(5, 9)}
    assert advance({A0: 4}, bounds).available == {A0: OffsetRange(4, 10), A1: OffsetRange(5, 9)}
    assert advance({A0: 10, A1: 9, B0: 0}, bounds).losses == []
    (loss,) = advance({A0: 4, A1: 3}, bounds).losses
    assert loss.startswith("messages 3 to 5 of T queue 1 of a expired before they were read")
    anew = advance({A0: 11}, bounds)
    assert anew.available[A0] == OffsetRange(0, 10)
    assert "T queue 0 of a was read up to 11, but ends at 10" in anew.losses[0]
    (gone,) = advance({A0: 1, B0: 3}, bounds).losses
    assert gone.startswith("T queue 0 of b was read up to 3 and is gone")


def test_a_batch_is_cut_to_what_there_still_is():
    bounds = {A0: OffsetRange(3, 10)}
    found, losses = clip({A0: OffsetRange(0, 5), A1: OffsetRange(2, 2)}, bounds)
    assert (found, len(losses)) == ({A0: OffsetRange(3, 5)}, 1)
    found, losses = clip({A0: OffsetRange(8, 12), B0: OffsetRange(0, 1)}, bounds)
    assert (found, len(losses)) == ({A0: OffsetRange(8, 10)}, 2)


# --- options -------------------------------------------------------------------------------------


def parse(**given):
    return StreamOptions.parse(SourceOptions.parse({"path": "/x", "topic": "T", **given}))


def test_options_of_a_stream():
    found = parse(
        maxOffsetsPerTrigger="10",
        maxBytesPerTrigger="64m",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="30s",
        group="g",
        progressPath="file:///p/q",
    )
    assert (found.max_rows, found.max_bytes, found.min_rows) == (10, 64 << 20, 5)
    assert (found.max_delay_ms, found.group, str(found.progress_path)) == (30_000, "g", "/p/q")
    assert parse().max_delay_ms == 900_000
    assert [parse(maxTriggerDelay=t).max_delay_ms for t in ("7", "2 min", "1h")] == [
        7,
        120_000,
        3_600_000,
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger = '0': wanted a number"),
        ({"maxOffsetsPerTrigger": "1.5"}, "wanted a number from 1 on"),
        ({"maxBytesPerTrigger": "-1"}, "wanted bytes, like"),
        ({"maxTriggerDelay": "soon"}, "is not a duration; wanted"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "= 5 is above"),
        ({"endingOffsets": '{"T": {"0": 1}}'}, "a stream has no end"),
        ({"endingTimestamp": "7"}, "a stream has no end"),
        ({"table": "queue"}, "table queue is not a stream"),
        ({"startingOffsets": "group"}, "needs the option group"),
        ({"progressPath": "/p"}, "name the option group"),
        ({"group": "g", "progressPath": "s3a://b/p"}, "option progressPath: .* not in s3a"),
        ({"maxOffsetPerTrigger": "4"}, "did you mean 'maxOffsetsPerTrigger'"),
    ],
)
def test_options_that_make_no_sense(given, words):
    with pytest.raises(ConfigError, match=words):
        parse(**given)


# --- lag -----------------------------------------------------------------------------------------


def progress(end, latest, **rest):
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    fields = {"id": "q", "runId": "r", "name": None, "batchId": 4, "timestamp": "t"}
    return SimpleNamespace(sources=[source], **fields | rest)


def text(offset):
    return json.dumps(offset.encode())


def test_lag_is_what_is_there_and_was_not_read():
    end = StreamOffset({A0: 4, A1: 2})
    latest = StreamOffset({A0: 10, A1: 9, B0: 7}, {A0: 0, A1: 5, B0: 6})
    found = read_lag(progress(text(end), text(latest)))
    assert [(source.source, source.lag) for source in found.lanes] == [(A0, 6), (A1, 4), (B0, 1)]
    assert (found.lag, found.by_topic) == (11, {"T": 11})
    assert str(found) == "query q batch 4: lag 11, most in T queue 0 of a: 6"
    assert read_lag(progress('{"n": 3}', None)) is None
    assert read_lag(progress(None, None)) is None


def test_a_listener_keeps_the_newest_and_survives_its_callback(caplog):
    seen = []

    def on_lag(found):
        seen.append(found.lag)
        raise RuntimeError("mine")

    listener = LagListener(on_lag)
    for at in (1, 3):
        offsets = (text(StreamOffset({A0: at})), text(StreamOffset({A0: 10}, {A0: 0})))
        listener.onQueryProgress(SimpleNamespace(progress=progress(*offsets)))
    listener.onQueryProgress(SimpleNamespace(progress=progress('{"log": {}, "version": 9}', None)))
    assert (seen, listener.total(), listener.newest()["q"].lag) == ([9, 7], 7, 7)
    assert "on_lag failed" in caplog.text
    assert "version 9" in caplog.text
