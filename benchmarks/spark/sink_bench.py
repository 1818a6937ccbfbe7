"""The batch sink, commit included, against a Python Arrow sink that discards the same rows.

Rows are made by Spark, in as many partitions as there are cores, and cost it next to nothing; both
sinks take turns in the same session. A store is new in each round, with the reference's file sizes:
what the sink writes is on the disk when a round ends.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import Figure, Result, Skipped, best_of, scaled
from store import our_store

from spark import bench_session

ROUNDS = 5
COUNT = 3_000_000
SIZE = 100
OPTIONS = json.dumps(
    {
        "mappedFileSizeCommitLog": our_store.FILE_SIZE,
        "mappedFileSizeConsumeQueue": our_store.REFERENCE_SIZES["mapped_file_size_consume_queue"],
        "maxHashSlotNum": our_store.REFERENCE_SIZES["max_hash_slot_num"],
        "maxIndexNum": our_store.REFERENCE_SIZES["max_index_num"],
    }
)


def sink_100b() -> Iterator[Result]:
    name = "spark.sink_100b"
    try:
        spark = bench_session.session()
    except bench_session.NoSparkError as error:
        yield Skipped(name, str(error))
        return
    from spark.discard import DiscardSink  # noqa: PLC0415 - needs Spark

    from rocketlake.spark.source import register  # noqa: PLC0415 - needs Spark

    spark.dataSource.register(DiscardSink)
    register(spark)
    count = scaled(COUNT, least=2_000)
    rows = spark.range(0, count, numPartitions=bench_session.CORES).selectExpr(
        f"'{our_store.TOPIC}' as topic", f"cast(repeat('x', {SIZE}) as binary) as body"
    )
    ours, discarded = best_of(ROUNDS, lambda: _write(rows), lambda: _discard(rows))
    detail = f"{count / ours:,.0f} rows/s, discarding {count / discarded:,.0f} rows/s"
    yield Figure(name, discarded / ours, 0.4, "x discarding", detail=detail)


def _write(rows: Any) -> None:
    with tempfile.TemporaryDirectory() as place:
        writer = rows.write.format("rocketlake").option("path", str(Path(place) / "store"))
        writer.option("options", OPTIONS).mode("append").save()


def _discard(rows: Any) -> None:
    rows.write.format("discard").mode("append").save()


WORKLOADS = {"spark.sink_100b": sink_100b}
