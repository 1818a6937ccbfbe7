"""The checks of `rocketlake verify`, as Spark tasks: a piece for each file of log and index.

The same pieces, the same judge, the same summary: only where the pieces run differs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rocketlake.files.local_path import absolute_path
from rocketlake.spark.jobs.store_paths import is_named_from_the_root, named_from_the_root
from rocketlake.spark.jobs.tasks import map_on, seeing, session
from rocketlake.spark.progress import watching
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.findings import Fault
from rocketlake.upkeep.verify.store_layout import IndexPlace
from rocketlake.upkeep.verify.verifier import (
    Verifier,
    VerifyOptions,
    VerifyPlan,
    VerifySummary,
    plan_verify,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS: Final = "kind string, path string, position long, reason string, about string"
"""The table of findings: `about` is the queue (`topic/id`), table or family that it speaks of."""

_ENTRY_BYTES: Final = 500
"""Bytes of the log that are checked while an entry of the index is."""

OnProgress = Callable[[int, int], None]
"""Receives how many tasks are done, and of how many."""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """The result of the checks."""

    summary: VerifySummary
    faults: list[Fault]
    """At most as many as `VerifyOptions.kept`; the summary counts all."""

    def findings(self, spark: "SparkSession") -> "DataFrame":
        """Return the findings as a DataFrame."""
        rows = [
            (fault.kind.value, fault.path, fault.position, fault.reason, fault.about)
            for fault in self.faults
        ]
        return spark.createDataFrame(rows, FINDINGS)


def run_verify(
    spark: "SparkSession",
    store: OfflineStore,
    options: VerifyOptions | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Check a store, which may be in use; nothing is changed.

    Raises:
        StoreNotFoundError: there is no store, or an executor cannot see it.
    """
    if not is_named_from_the_root(store):
        with named_from_the_root(store) as view:
            return run_verify(spark, view, options, on_progress=on_progress)
    root = store.directory.root

    def on_spark(action: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
        weight = partial(_weight, file_size=store.log.file_size)
        return map_on(spark, seeing(root, action), pieces, weight=weight)

    verifier = Verifier(store, options, mapper=on_spark)
    with watching(spark, on_progress):
        summary = verifier.run()
    return VerifyReport(summary=summary, faults=verifier.ledger.faults)


def _weight(piece: object, file_size: int) -> float:
    """Return how long a piece of work takes, as bytes of the log."""
    return piece.count * _ENTRY_BYTES if isinstance(piece, IndexPlace) else max(file_size, 1)


def verify(
    spark: "SparkSession | None",
    store: str | Path,
    options: VerifyOptions | None = None,
    *,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> VerifyReport | VerifyPlan:
    """Check every record, unit, entry and table of a store; `dry_run` only plans.

    Raises:
        StoreNotFoundError: there is no store, or an executor cannot see it.
    """
    with OfflineStore(absolute_path(store)) as view:
        if dry_run:
            return plan_verify(view, options)
        return run_verify(spark or session(), view, options, on_progress=on_progress)
