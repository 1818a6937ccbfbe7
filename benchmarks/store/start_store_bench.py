"""Starting a store: after an unclean stop, beside RocketMQ; and with ten thousand queues."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Figure, Result, Skipped, medians, scaled
from store import our_store, rocketmq

import rocketlake
from rocketlake.model.message import Message

ROUNDS = 3
COUNT = 10_000_000
SIZE = 100
QUEUES = 10_000
TOPICS = 20
WANTED_RATIO = 0.5
WANTED_S = 2.0
TOPIC = rocketmq.TOPIC


def unclean() -> Iterator[Result]:
    """Seconds to open a store that RocketMQ wrote and nobody closed, over those of RocketMQ."""
    name = "start.unclean"
    why = rocketmq.lacking()
    if why:
        yield Skipped(name, why)
        return
    count = scaled(COUNT, least=1000)
    with tempfile.TemporaryDirectory() as place:
        written = Path(place) / "written"
        rocketmq.put(written, count=count, size=SIZE, file_size=our_store.FILE_SIZE)

        def theirs() -> float:
            copy = _copy(written, "theirs")
            line = rocketmq.recover(copy, file_size=our_store.FILE_SIZE)
            if not line["abort"]:
                raise AssertionError("RocketMQ took the store for one that was closed")
            _expect(count, sum(q["maxOffset"] for q in line["queues"] if q["topic"] == TOPIC))
            return float(line["loadMs"] + line["startMs"]) / 1000

        def ours() -> float:
            copy = _copy(written, "ours")
            begin = time.perf_counter()
            store = rocketlake.open_store(copy)
            seconds = time.perf_counter() - begin
            try:
                ends = store.recovery.queue_offsets.items()
                _expect(count, sum(end for key, end in ends if key.topic == TOPIC))
            finally:
                store.close()
            return seconds

        seconds = medians(ROUNDS, {"ours": ours, "theirs": theirs})
    detail = f"{count:,} messages: {seconds['ours']:.2f} s, RocketMQ {seconds['theirs']:.2f} s"
    ratio = seconds["ours"] / seconds["theirs"]
    yield Figure(name, ratio, WANTED_RATIO, "x RocketMQ", at_most=True, detail=detail)


def queues() -> Iterator[Result]:
    """Seconds to open a closed store of many queues, and to close it when all have news."""
    count = max(scaled(QUEUES), TOPICS) // TOPICS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "store"
        store = rocketlake.open_store(folder)
        for number in range(TOPICS):
            topic = f"Topic{number}"
            store.create_topic(topic, queues=count)
            for queue_id in range(count):
                store.put(Message(topic=topic, body=bytes(SIZE)), queue_id=queue_id)
        begin = time.perf_counter()
        store.close()
        closing_s = time.perf_counter() - begin

        def ours() -> float:
            begin = time.perf_counter()
            store = rocketlake.open_store(folder)
            seconds = time.perf_counter() - begin
            store.close()
            return seconds

        seconds = medians(ROUNDS, {"ours": ours})["ours"]
    detail = f"{TOPICS * count:,} queues; closed in {closing_s:.1f} s when all were new"
    yield Figure("start.queues", seconds, WANTED_S, "s", at_most=True, detail=detail)


def _copy(written: Path, name: str) -> Path:
    """Copy a store, holes as holes, and leave the mark of one that was not closed."""
    target = written.with_name(name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(written, target, copy_function=_copy_sparse)
    (target / "abort").touch()
    os.sync()  # what a broker wrote long ago is on the disk; a copy just made is not
    return target


def _copy_sparse(source: str, target: str) -> str:
    """Copy what a file holds, from begin to the last byte that is not zero."""
    step = 1 << 20
    zeros = bytes(step)
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        while data := old.read(step):
            if data == zeros[: len(data)]:
                new.seek(len(data), 1)
            else:
                new.write(data)
        new.truncate()
    shutil.copystat(source, target)
    return target


def _expect(count: int, found: int) -> None:
    if count != found:
        raise AssertionError(f"{found} of {count} messages are there after the start")


WORKLOADS = {"start.unclean": unclean, "start.queues": queues}
