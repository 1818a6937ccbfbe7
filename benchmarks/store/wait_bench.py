"""How long a message takes from its put to the arrival listener, beside RocketMQ's own store."""

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from measure import Figure, Result, scaled
from store import our_store, rocketmq

from rocketlake.model.message import Message

ROUNDS = 3
COUNT = 5_000
WARM_UP = 2_000
SIZE = 100
RATES = {"one": 0, "rate": 1000}
"""Messages a second; 0: the next one is put when the one before it has arrived."""
FLUSHES = ("ASYNC", "SYNC")
ARRIVES_S = 30.0
WANTED = 1.0
"""Of RocketMQ's time. With SYNC_FLUSH we show a message once it is on the disk; RocketMQ shows it
before, so that its p50 is shorter than its own flush."""


class Latency(NamedTuple):
    """Microseconds."""

    p50: float
    p99: float


class _Arrivals:
    """Notes when each message of a topic has come to its queue."""

    def __init__(self, topic: str, count: int) -> None:
        self._topic = topic
        self._arrived = threading.Semaphore(0)
        self.came = [0] * count

    def arrived(self, arrivals: Sequence[Any]) -> None:
        now = time.perf_counter_ns()
        for one in arrivals:
            if one.topic == self._topic:
                self.came[one.next_offset - 1] = now
                self._arrived.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            if not self._arrived.acquire(timeout=ARRIVES_S):
                raise AssertionError(f"a message did not arrive within {ARRIVES_S} s")


def _put(store: Any, topic: str, count: int, rate: int) -> list[int]:
    arrivals = _Arrivals(topic, count)
    store._engine.add_listener(arrivals)  # noqa: SLF001 - as brokers add theirs
    body = our_store.body_of(SIZE)
    clock = time.perf_counter_ns
    put: list[int] = []
    begin = clock()
    for number in range(count):
        if rate:
            due = begin + number * 1_000_000_000 // rate
            while (left := due - clock()) > 0:
                time.sleep(left / 1e9)
        put.append(clock())
        store.put(Message(topic=topic, body=body, tags="TagA"), queue_id=0)
        if not rate:
            arrivals.wait()
    if rate:
        arrivals.wait(count)
    return [came - at for came, at in zip(arrivals.came, put, strict=True)]


def _ours(rate: int, flush: str) -> Latency:
    count = scaled(COUNT, least=100)
    with (
        tempfile.TemporaryDirectory() as place,
        our_store.opened(Path(place), flush_disk_type=f"{flush}_FLUSH") as store,
    ):
        _put(store, "WarmUp", min(count, WARM_UP), 0)
        took = sorted(_put(store, our_store.TOPIC, count, rate))
    return Latency(took[count // 2] / 1e3, took[int(count * 0.99)] / 1e3)


def _theirs(rate: int, flush: str) -> Latency:
    count = scaled(COUNT, least=100)
    with tempfile.TemporaryDirectory() as place:
        line = rocketmq.wait(
            Path(place), count=count, size=SIZE, rate=rate, flush=flush, file_size=1 << 30
        )
    return Latency(line["p50us"], line["p99us"])


def latency() -> Iterator[Result]:
    why = rocketmq.lacking()
    for flush in FLUSHES:
        for word, rate in RATES.items():
            ours: list[Latency] = []
            theirs: list[Latency] = []
            for _ in range(ROUNDS):  # both sides share the noise
                ours.append(_ours(rate, flush))
                if not why:
                    theirs.append(_theirs(rate, flush))
            for figure in _figures(f"wait.latency.{flush.lower()}.{word}", ours, theirs, why):
                yield replace(figure, wanted=None if why else WANTED)


def _figures(name: str, ours: list[Latency], theirs: list[Latency], why: str) -> Iterator[Figure]:
    for part in Latency._fields:
        mine = statistics.median(getattr(one, part) for one in ours)
        if why:
            yield Figure(f"{name}.{part}", mine, None, "us", detail=why)
            continue
        others = statistics.median(getattr(one, part) for one in theirs)
        yield Figure(
            f"{name}.{part}",
            mine / others,
            None,
            "x RocketMQ",
            at_most=True,
            detail=f"{mine:,.0f} us, RocketMQ {others:,.0f} us",
        )


WORKLOADS = {"wait.latency": latency}
