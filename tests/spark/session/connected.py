"""Over Spark Connect, in a process of its own: errors, progress and a job. Prints JSON."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError
from rocketlake.spark import jobs
from rocketlake.spark.progress import watching
from rocketlake.spark.session import check_classic, is_connect
from rocketlake.spark.wording import reworded


def main(store: str, folder: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    found: dict[str, object] = {"is_connect": is_connect(spark)}
    try:
        check_classic(spark, "this job")
    except ConfigError as error:
        found["refused"] = str(error)
    frame = spark.read.format("rocketlake").option("path", store)
    for name, topic in (("planning", "ordres"), ("loading", "")):
        try:
            frame.option("topic", topic).load().collect()
        except Exception as error:  # noqa: BLE001 - it is what is looked at
            found[name] = str(reworded(error))
    told: list[tuple[int, int]] = []
    with watching(spark, lambda done, total: told.append((done, total))):
        found["rows"] = frame.option("topic", "orders").load().repartition(3).count()
    found["told"] = told[-1:]
    report = jobs.archive(spark, store, f"{folder}/archive")
    assert isinstance(report, jobs.ArchiveReport)
    files = [path for path in Path(folder, "archive").rglob("*.parquet") if path.is_file()]
    found["archived"] = spark.read.parquet(*map(str, files)).count()
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
