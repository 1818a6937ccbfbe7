"""Marks of runs in tables: a commit of Delta or Iceberg says which run of which archive made it.

| Format | The mark is in | A repeated append |
| --- | --- | --- |
| delta | `userMetadata`, and the transaction (`txnAppId`, `txnVersion`) | Delta skips it |
| iceberg | the snapshot's summary: `rocketlake.archive`, `rocketlake.run` | is not made |

A mark is part of the commit: it is there exactly if the rows are.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from rocketlake.errors import ConfigError

NAME_OPTION: Final = "table"
"""Among a table's options: its name in the catalog; without it the table is in the directory."""

_ARCHIVE: Final = "rocketlake.archive"
_RUN: Final = "rocketlake.run"
_LOOK_BACK: Final = 100
"""Commits of Delta that are searched first; other jobs may have made some since."""
_OWN_OPTIONS: Final = ("userMetadata", "txnAppId", "txnVersion")


class RunMark(Struct, frozen=True):
    """A run that a table has."""

    run: int
    rows: int


class TableMarks:
    """The marks that one archive has left in a table.

    Thread-safety: one thread.
    """

    def __init__(
        self, spark: SparkSession, table_format: str, options: dict[str, str], path: str
    ) -> None:
        self._spark = spark
        self._format = table_format
        self._name = options.get(NAME_OPTION)
        self._path = path

    def options(self, archive: str, run: int) -> dict[str, str]:
        """Return the options of a write that marks its commit."""
        if self._format == "delta":
            mark = msgspec.json.encode({_ARCHIVE: archive, _RUN: run}).decode()
            return {
                "txnAppId": f"rocketlake-archive-{archive}",
                "txnVersion": str(run),
                "userMetadata": mark,
            }
        if self._format == "iceberg":
            return {
                f"snapshot-property.{_ARCHIVE}": archive,
                f"snapshot-property.{_RUN}": str(run),
            }
        return {}

    def find(self, archive: str, run: int) -> RunMark | None:
        """Return the mark of a run; None if no commit that the table still lists has it.

        The table must be there.
        """
        return next((mark for mark in self._marks(archive) if mark.run == run), None)

    def last(self, archive: str) -> RunMark | None:
        """Return the mark of the latest run that the table lists."""
        return max(self._marks(archive), key=lambda mark: mark.run, default=None)

    def _marks(self, archive: str) -> Iterator[RunMark]:
        if self._format == "delta":
            yield from self._delta_marks(archive)
        elif self._format == "iceberg":
            yield from self._iceberg_marks(archive)

    def _delta_marks(self, archive: str) -> Iterator[RunMark]:
        table = self._name or f"delta.`{self._path.replace('`', '``')}`"
        for limit in (f" LIMIT {_LOOK_BACK}", ""):
            history = self._spark.sql(f"DESCRIBE HISTORY {table}{limit}")
            marked = history.where(sf.col("userMetadata").contains(archive))
            rows = marked.select("userMetadata", "operationMetrics").collect()
            for row in rows:
                mark = msgspec.json.decode(row["userMetadata"])
                count = int(row["operationMetrics"].get("numOutputRows", 0))
                yield RunMark(int(mark[_RUN]), count)
            if rows:
                return

    def _iceberg_marks(self, archive: str) -> Iterator[RunMark]:
        summary = sf.col("summary")
        snapshots = self._spark.table(f"{self._name}.snapshots")
        marked = snapshots.where(summary[_ARCHIVE] == archive)
        for row in marked.select(summary[_RUN], summary["added-records"]).collect():
            yield RunMark(int(row[0]), int(row[1] or 0))


def check_table_options(table_format: str, options: dict[str, str]) -> None:
    """Refuse options of a table that do not go with its marks.

    Raises:
        ConfigError: one does not.
    """
    if table_format == "iceberg" and NAME_OPTION not in options:
        raise ConfigError(
            "format iceberg: a table of Iceberg has a name in a catalog; give it as option"
            " table=CATALOG.DATABASE.TABLE"
        )
    for name in _OWN_OPTIONS if table_format == "delta" else ():
        if name.lower() in {given.lower() for given in options}:
            raise ConfigError(f"option {name}: the archive marks its runs with it; leave it out")
