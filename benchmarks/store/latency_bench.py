"""What a put does not wait for: dispatch behind a burst, and the next file of the log."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Figure, Result, medians, scaled
from store import our_store, rocketmq

from rocketlake.model.message import Message

ROUNDS = 3
BURST = 1_000_000
BURST_SIZE = 100
CATCH_UP_S = 1.0

ROLL_FILE_SIZE = 16 << 20
ROLL_COUNT = 300_000
ROLL_SIZE = 1024
ROLL_MAX_MS = 50.0


def catch_up() -> Iterator[Result]:
    """How long dispatch lags behind a burst of a million messages."""
    count = scaled(BURST, least=100) // 100 * 100

    def ours() -> float:
        body = our_store.body_of(BURST_SIZE)
        with tempfile.TemporaryDirectory() as place, our_store.opened(Path(place)) as store:
            our_store.put_batches(store, our_store.Load(body, count))
            begin = time.perf_counter()
            while store.info()["dispatchBehindBytes"] != "0":
                time.sleep(0.001)
            return time.perf_counter() - begin

    def theirs() -> float:
        sizes = {"count": count, "size": BURST_SIZE, "file_size": our_store.FILE_SIZE}
        with tempfile.TemporaryDirectory() as place:
            return float(rocketmq.put(Path(place), **sizes, batch=100)["dispatchLagMs"]) / 1000

    why = rocketmq.lacking()
    lags = medians(ROUNDS, {"ours": ours, **({} if why else {"theirs": theirs})})
    detail = why or f"RocketMQ {lags['theirs']:.3f} s"
    yield Figure("dispatch.catch_up", lags["ours"], CATCH_UP_S, "s", at_most=True, detail=detail)


def roll_latency() -> Iterator[Result]:
    """How long single puts take while many files of the log are begun."""
    count = scaled(ROLL_COUNT)
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    why = rocketmq.lacking()
    for _ in range(ROUNDS):
        ours.append(_our_latencies(count))
        if not why:
            theirs.append(_their_latencies(count))
    rolls = count * (ROLL_SIZE + 100) // ROLL_FILE_SIZE
    for number, (part, wanted) in enumerate((("p999", None), ("max", ROLL_MAX_MS))):
        name = f"roll.latency.{part}"
        mine = sorted(times[number] for times in ours)[len(ours) // 2]
        others = sorted(times[number] for times in theirs)
        detail = why or f"RocketMQ {others[len(others) // 2]:.3f} ms; {rolls} rolls"
        yield Figure(name, mine, wanted, "ms", at_most=True, detail=detail)


def _our_latencies(count: int) -> tuple[float, float]:
    body = our_store.body_of(ROLL_SIZE)
    times = []
    clock = time.perf_counter
    with (
        tempfile.TemporaryDirectory() as place,
        our_store.opened(Path(place), file_size=ROLL_FILE_SIZE) as store,
    ):
        our_store.put(store, our_store.Load(body, min(count, our_store.WARM_UP), "WarmUp"))
        for _ in range(count):
            begin = clock()
            store.put(Message(topic=our_store.TOPIC, body=body, tags="TagA"), queue_id=0)
            times.append(clock() - begin)
    times.sort()
    return times[int(len(times) * 0.999)] * 1000, times[-1] * 1000


def _their_latencies(count: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as place:
        line = rocketmq.put(Path(place), count=count, size=ROLL_SIZE, file_size=ROLL_FILE_SIZE)
    return line["p999us"] / 1000, line["maxus"] / 1000


WORKLOADS = {"dispatch.catch_up": catch_up, "roll.latency": roll_latency}
