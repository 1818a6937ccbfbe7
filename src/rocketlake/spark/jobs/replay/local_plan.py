"""The flows of a replay, counted in this process instead of by Spark.

Each function is the twin of one of `rows`, over Arrow.
"""

# ruff: noqa: ANN401 - Arrow ships no types

from collections import defaultdict
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketlake.model import properties as names
from rocketlake.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from rocketlake.spark.jobs.replay.rows import DLQ_ORIGIN_TOPIC, SURELY_FITS, FlowRow, do_fit

_RESENT: Final = (DEAD_LETTER_PREFIX, RETRY_PREFIX)


def count_flows(table: pa.Table, to_topic: str | None) -> list[FlowRow]:
    """Return how many messages of each topic go to which, sorted as Spark sorts them."""
    found: dict[tuple[str, str | None, bool, bool], list[int]] = defaultdict(lambda: [0, 0, 0])
    for batch in table.to_batches():
        counted = pa.table(
            {
                "topic": batch["topic"],
                "target": _targets(batch, to_topic),
                "is_batch": _property(batch, names.INNER_NUM).is_valid(),
                "fits": _fits(batch),
                "size": pc.cast(batch["store_size"], pa.int64()),
                "queue": batch["queue_id"],
            }
        ).group_by(["topic", "target", "is_batch", "fits"])
        sums = counted.aggregate([("size", "count"), ("size", "sum"), ("queue", "max")])
        for row in sums.to_pylist():
            flow = found[row["topic"], row["target"], row["is_batch"], row["fits"]]
            flow[0] += row["size_count"]
            flow[1] += row["size_sum"]
            flow[2] = max(flow[2], row["queue_max"])
    order = sorted(found, key=lambda key: (key[0], key[1] is not None, key[1] or "", *key[2:]))
    return [FlowRow(*key, *found[key]) for key in order]


def _targets(batch: pa.RecordBatch, to_topic: str | None) -> Any:
    topics = batch["topic"]
    if to_topic is not None:
        return pa.array([to_topic] * len(topics), pa.string())
    kinds = pc.unique(topics).to_pylist()
    targets = topics
    if any(name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX) for name in kinds):
        is_system = pc.starts_with(topics, SYSTEM_PREFIX)
        for name in SYSTEM_TOPICS.intersection(kinds):
            is_system = pc.or_(is_system, pc.equal(topics, name))
        targets = pc.if_else(is_system, _property(batch, names.REAL_TOPIC), targets)
    if any(name.startswith(_RESENT) for name in kinds):
        is_resent = pc.or_(*(pc.starts_with(topics, prefix) for prefix in _RESENT))
        origin = pc.coalesce(
            _property(batch, DLQ_ORIGIN_TOPIC), _property(batch, names.RETRY_TOPIC)
        )
        targets = pc.if_else(is_resent, origin, targets)
    return targets


def _fits(batch: pa.RecordBatch) -> Any:
    is_small = pc.less(batch["store_size"], SURELY_FITS).to_numpy(zero_copy_only=False)
    found = is_small.copy()
    for row in np.flatnonzero(~is_small).tolist():
        found[row] = do_fit(batch["properties"][row].as_py() or ())
    return pa.array(found)


def _property(batch: pa.RecordBatch, name: str) -> Any:
    """Return a property of each row; null if it is not there, or empty."""
    found = pc.map_lookup(batch["properties"], pa.scalar(name), "last")
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)
