"""Archives into a table of Delta or Iceberg, in a session of its own; run by test_lake_archives.

`killed` ends with the run's rows in the table and the manifest not yet told; `rest` goes on there
and prints what came out.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from archive_parts import GrowingStore
from pyspark.sql import SparkSession

from rocketlake import failpoint
from rocketlake.errors import StoreError
from rocketlake.spark.jobs import ArchiveReport, ArchiveSettings, archive
from rocketlake.spark.jobs.archive import tables

OPTIONS = {"delta": {}, "iceberg": {"table": "lake.db.messages"}}


def session(table_format: str, jars: str, root: Path) -> SparkSession:
    """Return a session that has the format."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "delta": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
        "iceberg": {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions."
            "IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(root / "warehouse"),
        },
    }[table_format]
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    common = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        **settings,
    }
    for key, value in common.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def no_count(*_: object) -> int:
    """In the place of the count: where commits have marks, none is needed."""
    raise AssertionError("the table was counted")


def fail() -> None:
    """Fail as a driver that loses its store."""
    raise OSError("killed")


class Lake:
    """A store that grows, and the table it is archived into."""

    def __init__(self, spark: SparkSession, table_format: str, root: Path) -> None:
        self.spark = spark
        self.format = table_format
        self.settings = ArchiveSettings(format=table_format, table_options=OPTIONS[table_format])
        self.store = GrowingStore(root / "broker-a")
        self.target = root / "archive"

    def run(self, count: int) -> int:
        """Put messages and archive what is new; return how much that was."""
        self.store.grow(count)
        report = archive(self.spark, self.store.path, self.target, settings=self.settings)
        assert isinstance(report, ArchiveReport)
        return report.rows

    def content(self) -> dict[str, int]:
        """Count what the table has."""
        name = self.settings.table_options.get("table")
        reader = self.spark.read.format(self.format)
        table = self.spark.table(name) if name else reader.load(str(self.target))
        places = table.select("topic", "queue_id", "queue_offset")
        return {
            "rows": table.count(),
            "distinct": places.distinct().count(),
            "bodies": table.select("body").distinct().count(),
        }


def go_on(lake: Lake, root: Path) -> dict[str, object]:
    """Go on after the kill; return what came out."""
    lake.store.count = 100
    lake.store.clock.advance_ms(100_000)
    count, tables._count = tables._count, no_count
    said: dict[str, object] = {"after the kill": lake.run(60)}
    with failpoint.switched_on("archive_table.before", fail):
        try:
            lake.run(40)
        except OSError as error:
            said["failed"] = str(error)
    tables._count = count
    said["after the failure"] = lake.run(20)
    shutil.copy(lake.target / "_manifest.json", root / "older.json")
    said["last"] = lake.run(10)
    shutil.copy(root / "older.json", lake.target / "_manifest.json")
    try:
        lake.run(10)
    except StoreError as error:
        said["older manifest"] = str(error)
    manifest = json.loads((root / "older.json").read_text())
    said["runs"] = [(note["run"], note["rows"]) for note in manifest["runs"]]
    said["files"] = len(manifest["files"])
    return {**said, **lake.content()}


def main(table_format: str, jars: str, root: Path, step: str) -> None:
    """Take a step of the test."""
    lake = Lake(session(table_format, jars, root), table_format, root)
    if step == "killed":
        failpoint.switch_on("archive_table.after", failpoint.kill)
        lake.run(100)
    sys.stdout.write(f"{json.dumps(go_on(lake, root))}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
