"""One Spark session for nearly all tests of the pipeline; skips them, with a word, without Java."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError
from rocketlake.spark.session import check_java, open_session

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's Java is started: relative paths of Spark's are below it."""
    return tmp_path_factory.mktemp("spark-directory")


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, spark_directory: Path
) -> Iterator[SparkSession]:
    """A session with two cores whose tasks may fail once; everything it writes goes to /tmp."""
    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))
    root = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(root / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.sql.streaming.metricsEnabled": "false",
    }
    with contextlib.chdir(spark_directory):
        session = open_session("local[2, 2]", name="tests", conf=conf)
    yield session
    session.stop()
