"""Over Spark Connect: errors in our words, progress, and a job; one start of Spark for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

from rocketlake.spark.session import check_java
from support.store_builder import StoreBuilder

SCRIPT = Path(__file__).with_name("connected.py")


def test_over_connect(tmp_path):
    check_java()
    store = StoreBuilder(tmp_path / "broker-a")
    for number in range(20):
        store.record("orders", number % 2, b"order %d" % number)
    environment = {key: value for key, value in os.environ.items() if "SPARK_CONNECT" not in key}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(store.write()), str(tmp_path)],
        capture_output=True,
        text=True,
        # SPARK_TESTING is the way of Spark's own tests to a port that is free.
        env={**environment, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["is_connect"]
    assert found["refused"].startswith("this job cannot run over Spark Connect: ")
    assert found["planning"].startswith("there is no topic 'ordres' in ")
    assert found["loading"] == "option topic = '': it names no topic"
    assert found["rows"] == 20
    assert found["archived"] == 20
    for done_tasks, total in found["told"]:
        assert done_tasks == total > 0
