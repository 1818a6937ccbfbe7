"""`put` and `put_batch` in one thread, ASYNC_FLUSH, files of 1 GiB."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import Figure, Result, Skipped, medians, scaled
from store import limits, our_store, rocketmq

ROUNDS = 3
COUNTS = {100: 1_000_000, 1024: 500_000}
BATCH = 100


def _workload(name: str, size: int, *, batch: int, wanted: float) -> Callable[[], Iterator[Result]]:
    def run() -> Iterator[Result]:
        count = scaled(COUNTS[size], least=BATCH) // BATCH * BATCH
        body = our_store.body_of(size)
        writer = our_store.put if batch == 1 else our_store.put_batches
        data = our_store.record_of(body) * batch

        def ours() -> float:
            with tempfile.TemporaryDirectory() as place, our_store.opened(Path(place)) as store:
                return our_store.per_second(store, writer, body=body, count=count)

        def theirs() -> float:
            with tempfile.TemporaryDirectory() as place:
                sizes = {"count": count, "size": size, "file_size": our_store.FILE_SIZE}
                return float(rocketmq.put(Path(place), **sizes, batch=batch)["msgsPerSecond"])

        def limit() -> float:
            with tempfile.TemporaryDirectory() as place:
                copies = count // batch
                rate = limits.copied_per_second(Path(place), data, copies, our_store.FILE_SIZE)
                return rate * batch

        why = rocketmq.lacking()
        sides = {"ours": ours, **({} if why else {"theirs": theirs}), "limit": limit}
        yield from _figures(name, medians(ROUNDS, sides), wanted=wanted, why=why)

    return run


def _figures(name: str, rates: dict[str, float], *, wanted: float, why: str) -> Iterator[Result]:
    ours = f"{rates['ours']:,.0f}/s"
    if why:
        yield Skipped(name, why)
    else:
        detail = f"{ours}, RocketMQ {rates['theirs']:,.0f}/s"
        ratio = rates["ours"] / rates["theirs"]
        yield Figure(name, ratio, wanted, "x RocketMQ", detail=detail)
    detail = f"{ours}, copying alone {rates['limit']:,.0f}/s"
    yield Figure(f"{name}.limit", rates["ours"] / rates["limit"], None, "x limit", detail=detail)


WORKLOADS = {
    name: _workload(name, size, batch=batch, wanted=wanted)
    for name, size, batch, wanted in (
        ("put.100b", 100, 1, 1.2),
        ("put.1k", 1024, 1, 1.2),
        ("put_batch.100b", 100, BATCH, 2.0),
        ("put_batch.1k", 1024, BATCH, 2.0),
    )
}
