"""The example runs: topic to tables and back into a topic, and a second run takes what is new."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rocketlake.errors import ConfigError
from rocketlake.spark.session import check_java
from rocketlake.store.offline import OfflineStore

ROOT = Path(__file__).resolve().parents[3]

# Both runs share a session, as its start takes longest; the command finds it and leaves it running.
TWO_RUNS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import prepare
from rocketlake.cli.main import main
from rocketlake.spark.pipelines.run import connect_settings
from rocketlake.spark.session import command_session

root = Path(sys.argv[1])
project = prepare.prepare(root)
run = ["pipeline", "run", str(project)]
# Spark gives the Python process of a stream ten seconds to start, which a busy machine exceeds.
patient = {"spark.sql.pipelines.maxFlowRetryAttempts": "9", "spark.sql.shuffle.partitions": "2"}
with command_session("local[2]", name="test", conf={**connect_settings(project), **patient}):
    main.main(run, standalone_mode=False)
    prepare.put_orders(root / "store", 200, 50)
    main.main(run, standalone_mode=False)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))
    root = tmp_path_factory.mktemp("orders")
    example = ROOT / "examples" / "orders_pipeline"
    done = subprocess.run(
        [sys.executable, "-c", TWO_RUNS, root, example],
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
        cwd=root,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done


def rows(root, table):
    found = ds.dataset(root / "pipeline" / "data" / "tables" / table, format="parquet")
    return found.to_table().to_pylist()


def test_tables_hold_every_order_once_after_both_runs(ran):
    root, _ = ran
    bronze, silver = rows(root, "bronze_messages"), rows(root, "silver_orders")
    bad = rows(root, "quarantine_orders")
    assert sorted(row["keys"][0] for row in bronze) == sorted(f"order-{n}" for n in range(250))
    assert sorted(row["id"] for row in silver) == [n for n in range(250) if n % 25]
    assert {row["body"] for row in bad} == {b"\xff not JSON"}
    assert len(bad) == 10
    one = next(row for row in silver if row["id"] == 8)
    assert one["customer"] == {"name": "customer-1", "country": "FR"}
    assert (one["amount"], one["items"], one["keys"]) == (2.0, [0, 1], ["order-8"])


def test_views_are_computed_from_all_of_it(ran):
    root, _ = ran
    gold = rows(root, "gold_per_minute")
    assert sum(row["messages"] for row in gold) == 250
    assert {row["topic"] for row in gold} == {"orders"}
    revenue = rows(root, "gold_revenue")
    assert sum(row["orders"] for row in revenue) == 240
    assert sum(row["revenue"] for row in revenue) == sum(n / 4 for n in range(250) if n % 25)


def test_sink_holds_every_good_order_once(ran):
    root, _ = ran
    with OfflineStore(root / "clean") as store:
        found = [
            message
            for key in store.queues
            if key.topic == "orders-clean"
            for batch in store.messages(key)
            for message in batch.columns.messages()
        ]
    values = [json.loads(message.body) for message in found]
    assert sorted(value["id"] for value in values) == [n for n in range(250) if n % 25]
    assert {tuple(message.keys) for message in found} == {
        (f"order-{value['id']}",) for value in values
    }


def test_output_says_what_happened_and_no_stack(ran):
    _, done = ran
    assert "silver_orders: done" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    counts = done.stdout.split()
    assert "250" in counts
    assert "240" in counts
