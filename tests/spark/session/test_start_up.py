"""What Spark's processes import of ours: only what they need, for each pays for it anew."""

import subprocess
import sys

import pytest

HEAVY = ("lark", "pyarrow.parquet", "ssl", "rocketlake.embedded.store", "rocketlake.spark.jobs")
DRIVER = "rocketlake.spark.session"


@pytest.mark.parametrize(
    "modules",
    [
        "pyspark_rocketlake",
        "rocketlake.spark.reading.options, rocketlake.spark.catalog_table",
        "rocketlake.spark.reading.batch_reader",
        "rocketlake.spark.stream.stream_reader, rocketlake.spark.stream.stream_driver",
        "rocketlake.spark.sink.writer",
    ],
)
def test_a_process_of_spark_imports_what_it_needs(modules: str) -> None:
    code = (
        f"import sys, {modules}\n"
        f"print(*(name for name in {(*HEAVY, DRIVER)!r} if name in sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []
