"""ArchiveJob: archives a store as it grows, run after run in one Spark session."""

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from rocketlake.errors import ArchiveBusyError
from rocketlake.spark.jobs.archive.plan import ArchiveSettings
from rocketlake.spark.jobs.archive.report import ArchiveReport
from rocketlake.spark.jobs.archive.run import catch_up
from rocketlake.spark.progress import OnProgress


class ArchiveJob:
    """Archives what is new, again and again; each round is a run like any other.

    A round without news starts no task. While another run is at work in the archive, such as
    archive-compact, a round is left out. What fails otherwise ends the job.

    Thread-safety: one thread runs; any may call `stop`.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: str | Path,
        target: str | Path,
        *,
        settings: ArchiveSettings | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._spark = spark
        self._store = store
        self._target = target
        self._settings = settings or ArchiveSettings()
        self._on_progress = on_progress
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Have `run` end after the round it is in."""
        self._stopping.set()

    def run(
        self, poll_s: float = 60.0, on_report: Callable[[ArchiveReport], object] | None = None
    ) -> int:
        """Archive until `stop`, looking every so often; return how many messages that were.

        `on_report` gets each round that found something; a lasting problem is reported once.

        Raises:
            ConfigError, StoreError: as `archive`.
        """
        rows = 0
        reported: tuple[str, ...] = ()
        while True:
            report = self._round()
            if report is not None:
                rows += report.rows
                is_new = report.rows or report.gaps or report.problems != reported
                reported = report.problems
                if on_report is not None and is_new:
                    on_report(report)
            if self._stopping.wait(poll_s):
                return rows

    def _round(self) -> ArchiveReport | None:
        try:
            return catch_up(
                self._spark,
                self._store,
                self._target,
                settings=self._settings,
                on_progress=self._on_progress,
            )
        except ArchiveBusyError:
            return None
