"""A program as cron runs it, on a path where `python3` is another Python. Prints JSON.

Argument 1 is the kind of session: `ours`, `theirs` (Spark's own builder), or `both`, in that order
of making; argument 2 is a store.
"""

import json
import sys
import threading
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

import rocketlake.spark
from rocketlake.spark.wording import reworded

SETTINGS = {"spark.ui.enabled": "false", "spark.log.level": "FATAL", "spark.driver.memory": "1g"}
found: dict[str, object] = {}


def attempt(name: str, action: Callable[[], object]) -> None:
    try:
        found[name] = action()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        found[name] = f"refused: {reworded(error)}"


def in_thread(name: str, action: Callable[[], object]) -> None:
    thread = threading.Thread(target=attempt, args=(name, action))
    thread.start()
    thread.join()


def main(kind: str, store: str) -> None:
    if kind == "ours":
        spark = rocketlake.spark.session("local[2]", conf=SETTINGS)
    else:
        builder = SparkSession.Builder().master("local[2]")
        spark = builder.config(map=SETTINGS).getOrCreate()
    if kind == "both":
        attempt("session", lambda: rocketlake.spark.session() is spark)
    reader = spark.read.format("rocketlake").options(path=store, topic="orders")
    attempt("count", lambda: reader.load().count())
    if kind == "ours":
        again(spark, reader.load(), store)
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    spark.stop()


def again(spark: SparkSession, orders: DataFrame, store: str) -> None:
    """Write from other threads, and ask for the session once more."""

    def write() -> None:
        writer = orders.select("body").write.format("rocketlake").mode("append")
        writer.options(path=f"{store}-copy", topic="orders").save()

    def write_with_session() -> None:
        rocketlake.spark.session()
        write()

    attempt("zips", lambda: spark.range(1).rdd.flatMap(lambda _: places()).collect())
    in_thread("thread", write)
    in_thread("thread with session", write_with_session)
    copy = spark.read.format("rocketlake").options(path=f"{store}-copy", topic="orders").load()
    attempt("written", copy.count)
    attempt("again", lambda: rocketlake.spark.session("local[7]") is spark)
    rocketlake.spark.session(conf={"spark.sql.shuffle.partitions": "3"})
    found["set"] = spark.conf.get("spark.sql.shuffle.partitions")
    found["pushed"] = rocketlake.spark.explain(orders.where("queue_id = 1").select("tags"))
    attempt("catalog", lambda: str(rocketlake.spark.session(catalog="elsewhere")))


def places() -> list[str]:
    return [place for place in sys.path if place.endswith("pyspark.zip")]


if __name__ == "__main__":
    main(*sys.argv[1:])
