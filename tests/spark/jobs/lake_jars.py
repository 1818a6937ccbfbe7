"""The jars of Delta and Iceberg that fit this Spark, as far as they can be had.

Without a fitting jar the tests are skipped with the reason. `ROCKETLAKE_DELTA_JARS` and
`ROCKETLAKE_ICEBERG_JARS` name others, by commas.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pyspark
import pytest

TRIED = {
    "delta": (
        "Delta 4.4.0 has jars for Spark 4.0, 4.1 and 4.2; that for 4.2 fails on Spark 4.3"
        " (NoSuchMethodError: LogicalRDD)"
    ),
    "iceberg": (
        "Iceberg 1.11.0 and 1.12.0 have jars for Spark 4.0 and 4.1; both fail on Spark 4.2 and 4.3"
        " (IncompatibleClassChangeError: View, CatalogManager)"
    ),
}
COORDINATES = {
    ("delta", "4.2"): (
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "io.delta:delta-kernel-api:4.4.0",
        "io.delta:delta-kernel-defaults:4.4.0",
        "io.delta:delta-kernel-unitycatalog:4.4.0",
        "io.unitycatalog:unitycatalog-client:0.6.0",
        "io.unitycatalog:unitycatalog-hadoop:0.6.0",
    ),
}
_FETCH_S = 300


def jars_of(table_format: str, place: Path) -> str:
    """Return the jars by commas, or skip the test."""
    given = os.environ.get(f"ROCKETLAKE_{table_format.upper()}_JARS")
    if given:
        return given
    spark = ".".join(pyspark.__version__.split(".")[:2])
    wanted = COORDINATES.get((table_format, spark))
    if wanted is None:
        pytest.skip(
            f"{table_format} has no jar that works with Spark {spark}: {TRIED[table_format]}"
        )
    if shutil.which("mvn") is None:
        pytest.skip(f"{table_format} needs Maven, which brings its jars")
    return ",".join(str(_copied(coordinate, place)) for coordinate in wanted)


@cache
def _copied(coordinate: str, place: Path) -> Path:
    _, name, version = coordinate.split(":")
    done = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinate}",
         f"-DoutputDirectory={place}"],
        capture_output=True, text=True, check=False, timeout=_FETCH_S,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"Maven does not bring {coordinate}: {done.stdout[-200:]}")
    return place / f"{name}-{version}.jar"
