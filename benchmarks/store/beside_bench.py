"""Reads beside four threads that put in a tight loop: none of them waits for an end that runs away.

A read that gives the interpreter lock away waits for its turn among five threads. The detail has
what such a turn takes by itself.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from measure import Figure, Result, scaled
from store import our_store

from rocketlake.model.message import Message

WRITERS = 4
SIZE = 100
READS = 2_000
SECONDS = 10.0
BOUND_S = 60.0
"""Writers stop then, whatever a read waits for."""
KEYS = 1000
PAUSE_S = 0.001


class _Writers:
    """Threads that put until they are told to end."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._has_ended = threading.Event()
        self._bound = threading.Timer(BOUND_S, self._has_ended.set)
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(WRITERS)]
        self.count = 0

    def _run(self, queue_id: int) -> None:
        body = our_store.body_of(SIZE)
        number = 0
        while not self._has_ended.is_set():
            key = f"k{number % KEYS}"
            message = Message(topic=our_store.TOPIC, body=body, tags="TagA", keys=[key])
            self._store.put(message, queue_id=queue_id)
            number += 1
        self.count += number

    def __enter__(self) -> Self:
        self._bound.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._bound.cancel()
        for thread in self._threads:
            thread.join()


def _times(read: Callable[[int], object]) -> list[float]:
    """Milliseconds of each read, sorted."""
    took = []
    end = time.perf_counter() + scaled(round(SECONDS * 10)) / 10
    for number in range(scaled(READS)):
        begin = time.perf_counter()
        read(number)
        took.append((time.perf_counter() - begin) * 1000)
        time.sleep(PAUSE_S)  # so that each read comes at any moment of the writers
        if time.perf_counter() > end:
            break
    return sorted(took)


def _figures(name: str, make_read: Callable[[Any], Callable[[int], object]]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as place, our_store.opened(Path(place)) as store:
        our_store.put(store, our_store.Load(our_store.body_of(SIZE), KEYS))
        read = make_read(store)
        alone = _times(read)
        with _Writers(store) as writers:
            beside = _times(read)
            turns = _times(lambda _: time.sleep(0))
    detail = (
        f"p50 {beside[len(beside) // 2]:.3g} ms, max {beside[-1]:.3g} ms,"
        f" {len(beside)} reads beside {writers.count:,} puts;"
        f" alone p99 {_p99(alone):.3g} ms; a turn beside the writers p99 {_p99(turns):.3g} ms"
    )
    yield Figure(name, _p99(beside), None, "ms", at_most=True, detail=detail)


def _p99(took: list[float]) -> float:
    return took[int(len(took) * 0.99)]


def get() -> Iterator[Result]:
    def make(store: Any) -> Callable[[int], object]:
        return lambda number: store.get(our_store.TOPIC, 0, number % KEYS, 32)

    yield from _figures("get.p99_beside_writers", make)


def query() -> Iterator[Result]:
    def make(store: Any) -> Callable[[int], object]:
        return lambda number: store.query(our_store.TOPIC, f"k{number % KEYS}", max_messages=8)

    yield from _figures("query.p99_beside_writers", make)


WORKLOADS = {"get.p99_beside_writers": get, "query.p99_beside_writers": query}
