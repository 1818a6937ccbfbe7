"""Records -> the buffers of Arrow columns: all of them, and against the pure twin."""

from collections.abc import Iterator

import corpus
import numpy as np
from measure import Figure, best_of

from rocketlake.format import record
from rocketlake.format._kernel import pure
from rocketlake.format.arrow_columns import ArrowColumn, arrow_columns
from rocketlake.spark.worker_process import tune_worker

COUNT = 200_000
PURE_COUNT = 2000
BATCH = 8192  # as many as a batch of the Spark source has
EVERY = ArrowColumn(sum(ArrowColumn))


def columns_100b() -> Iterator[Figure]:
    tune_worker()  # as the source does
    data = corpus.log_bytes(COUNT, 100, with_client_properties=True)
    parts = list(_scanned(data))
    few = np.ascontiguousarray(parts[0].rows[:PURE_COUNT]).view(np.uint8)
    native, slow = best_of(
        7,
        lambda: _lay_out(parts),
        lambda: pure.arrow_columns(data, few, int(EVERY)),
    )
    ratio = (slow / PURE_COUNT) / (native / COUNT)
    detail = f"seven properties; {ratio:.0f} x pure"
    yield Figure("arrow.columns_100b", native / COUNT * 1e6, 0.3, "us/row", True, detail)


def _lay_out(parts: list[record.RecordColumns]) -> None:
    """Lay out one batch after the other, as the source does: none is kept."""
    for part in parts:
        arrow_columns(part, EVERY)


def _scanned(data: bytes) -> Iterator[record.RecordColumns]:
    position = 0
    while position < len(data):
        found = record.scan(data, position, checks=record.Check.SHAPE, rows_max=BATCH)
        position = found.position
        yield found.columns


WORKLOADS = {"arrow.columns_100b": columns_100b}
