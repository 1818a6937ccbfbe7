"""One cluster for all tests of this room: two executors with an environment of their own.

`local-cluster` is a whole Spark: a master, two workers, an executor process on each.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketlake
from rocketlake.errors import ConfigError
from rocketlake.spark.session import check_java
from spark.cluster import shipping
from spark.cluster.talking import Cluster, end

HERE = Path(__file__).resolve().parent
SOURCE = Path(rocketlake.__file__).resolve().parent.parent
MASTER = "local-cluster[2,1,1024]"
PYTHON = "./environment/bin/python"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose executors have neither this source tree nor rocketlake installed."""
    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("cluster")
    hidden = folder / "hidden"
    hidden.mkdir()
    shipping.make_driver_python(folder / PYTHON, SOURCE)
    environment = shipping.pack_environment(folder)
    code = shipping.pack_code(folder, HERE / "hindered.py")
    process = subprocess.Popen(
        [sys.executable, str(HERE / "driver.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "SPARK_HOME": str(shipping.make_spark_home(folder)),
            "PYTHONPATH": os.pathsep.join(
                (str(SOURCE), str(HERE), os.environ.get("PYTHONPATH", ""))
            ),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    cluster = Cluster(process, folder, hidden)
    try:
        conf = {
            "spark.archives": f"{environment}#environment",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executorEnv.JAVA_HOME": str(shipping.make_java_home(folder, hidden)),
            "spark.local.dir": str(folder / "local"),
            "spark.pyspark.python": PYTHON,
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.minTaskRuntime": "4s",  # longer than a worker takes to start
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.submit.pyFiles": str(code),
        }
        assert "ready" in cluster.call(master=MASTER, conf=conf)
        yield cluster
    finally:
        end(process)
        shutil.rmtree(folder, ignore_errors=True)
