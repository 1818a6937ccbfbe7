"""One hash over all that a read gave, for comparing reads of different processes."""

import hashlib

from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession, *, options: dict[str, str], name: str = "rocketlake"
) -> dict[str, object]:
    """Read through a source: how many rows, and the hash of them."""
    return digest(spark.read.format(name).options(**options).load())


def digest(frame: DataFrame) -> dict[str, object]:
    """Rows, and one hash over all columns of all of them, in the order of the log."""
    rows = [
        tuple(sorted(value.items()) if isinstance(value, dict) else value for value in row)
        for row in frame.orderBy("broker", "physical_offset").collect()
    ]
    return {"rows": len(rows), "digest": hashlib.sha256(repr(rows).encode()).hexdigest()}
