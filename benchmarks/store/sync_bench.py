"""SYNC_FLUSH, bodies of 1 KiB: one writer, many threads, many answers outstanding."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import Figure, Result, Skipped, medians, scaled
from store import limits, our_store, rocketmq
from store.our_store import Writer

ROUNDS = 3
SIZE = 1024
FILE_SIZE = 1 << 30
LIMIT_SHARE = 0.8


def _ours(writer: Writer, count: int, threads: int) -> float:
    body = our_store.body_of(SIZE)
    with (
        tempfile.TemporaryDirectory() as place,
        our_store.opened(Path(place), flush_disk_type="SYNC_FLUSH") as store,
    ):
        return our_store.per_second(store, writer, body=body, count=count, threads=threads)


def _theirs(count: int, threads: int) -> float:
    with tempfile.TemporaryDirectory() as place:
        sizes = {"count": count, "size": SIZE, "file_size": FILE_SIZE}
        line = rocketmq.put(Path(place), **sizes, threads=threads, flush="SYNC")
        return float(line["msgsPerSecond"])


def _limit(count: int) -> float:
    data = our_store.record_of(our_store.body_of(SIZE))
    with tempfile.TemporaryDirectory() as place:
        return limits.synced_per_second(Path(place), data, count, 64 << 20)


def _workload(
    name: str, usual: int, *, threads: int, wanted: float, writer: Writer = our_store.put
) -> Callable[[], Iterator[Result]]:
    """`threads` are RocketMQ's; ours are as many unless one thread puts asynchronously."""
    own_threads = threads if writer is our_store.put else 1

    def run() -> Iterator[Result]:
        count = scaled(usual, least=threads) // threads * threads
        sides: dict[str, Callable[[], float]] = {"ours": lambda: _ours(writer, count, own_threads)}
        why = rocketmq.lacking()
        if not why:
            sides["theirs"] = lambda: _theirs(count, threads)
        sides["limit"] = lambda: _limit(scaled(3000))
        rates = medians(ROUNDS, sides)
        ours = f"{rates['ours']:,.0f}/s"
        if why:
            yield Skipped(name, why)
        else:
            detail = f"{ours}, RocketMQ with {threads} threads {rates['theirs']:,.0f}/s"
            ratio = rates["ours"] / rates["theirs"]
            yield Figure(name, ratio, wanted, "x RocketMQ", detail=detail)
        detail = f"{ours}, write and fdatasync alone {rates['limit']:,.0f}/s"
        share = LIMIT_SHARE if threads == 1 else None
        yield Figure(
            f"{name}.limit", rates["ours"] / rates["limit"], share, "x limit", detail=detail
        )

    return run


WORKLOADS = {
    "sync.1": _workload("sync.1", 6_000, threads=1, wanted=1.2),
    "sync.8": _workload("sync.8", 24_000, threads=8, wanted=1.0),
    "sync.64": _workload("sync.64", 64_000, threads=64, wanted=1.0),
    "sync.async64": _workload(
        "sync.async64", 64_000, threads=64, wanted=2.0, writer=our_store.put_async_64
    ),
}
