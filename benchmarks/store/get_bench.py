"""Reading a queue of a million messages of 100 B, warm: RocketMQ and we read the same store."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import Figure, Result, Skipped, medians, scaled
from store import our_store, rocketmq

ROUNDS = 3
COUNT = 1_000_000
BATCH = 32
SIZE = 100


def objects_per_second(
    store: Any, count: int, clock_s: Callable[[], float] = time.perf_counter
) -> float:
    """Touch topic, body, keys and offset of each message."""
    offset = seen = 0
    begin = clock_s()
    while seen < count:
        result = store.get(our_store.TOPIC, 0, offset, BATCH)
        for message in result.messages:
            _ = message.topic, message.body, message.keys, message.queue_offset
        seen += len(result.messages)
        offset = result.next_offset
    return seen / (clock_s() - begin)


def columns_per_second(batch: int) -> Callable[[Any, int], float]:
    """Read the same messages as columns, so many at a time."""

    def read(store: Any, count: int) -> float:
        offset = seen = 0
        begin = time.perf_counter()
        while seen < count:
            result = store.columns(our_store.TOPIC, 0, offset, batch)
            seen += len(result.columns)
            offset = result.next_offset
        return seen / (time.perf_counter() - begin)

    return read


def _workload(
    name: str, read: Callable[[Any, int], float], *, wanted: float
) -> Callable[[], Iterator[Result]]:
    def run() -> Iterator[Result]:
        count = scaled(COUNT, least=100) // 100 * 100
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            with our_store.opened(folder) as store:
                our_store.put_batches(store, our_store.Load(our_store.body_of(SIZE), count))

            def ours() -> float:
                with our_store.opened(folder) as store:
                    return max(read(store, count) for _ in range(3))

            def theirs() -> float:
                line = rocketmq.get(folder, queue=0, batch=BATCH, file_size=our_store.FILE_SIZE)
                if line["count"] != count:
                    raise AssertionError(f"RocketMQ read {line['count']} of {count} messages")
                return float(line["msgsPerSecond"])

            why = rocketmq.lacking()
            rates = medians(ROUNDS, {"ours": ours, **({} if why else {"theirs": theirs})})
        if why:
            yield Skipped(name, f"{why}; ours {rates['ours']:,.0f}/s")
            return
        detail = f"{rates['ours']:,.0f}/s, RocketMQ {rates['theirs']:,.0f}/s"
        yield Figure(name, rates["ours"] / rates["theirs"], wanted, "x RocketMQ", detail=detail)

    return run


WORKLOADS = {
    "get.objects": _workload("get.objects", objects_per_second, wanted=0.7),
    "get.columns": _workload("get.columns", columns_per_second(1024), wanted=3.0),
    "get.columns_32": _workload("get.columns_32", columns_per_second(BATCH), wanted=3.0),
}
