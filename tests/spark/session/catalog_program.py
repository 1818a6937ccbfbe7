"""A program that makes or uses tables of a persistent catalog. Prints JSON: step -> outcome."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import rocketlake.spark
from rocketlake.spark.wording import reworded


def make(spark: SparkSession, root: Path) -> dict[str, Callable[[], object]]:
    store, new = f"{root}/broker-a", f"{root}/new/store"
    sql = spark.sql
    return {
        "create": lambda: sql(
            f"CREATE TABLE orders USING rocketlake OPTIONS (path '{store}', topic 'orders')"
            " COMMENT 'of the shop' TBLPROPERTIES (team = 'billing')"
        ),
        "queue": lambda: sql(
            f"CREATE TABLE units USING rocketlake OPTIONS (topic 'orders', table 'queue')"
            f" LOCATION '{store}'"
        ),
        "external": lambda: spark.catalog.createTable(
            "late", path=store, source="rocketlake", topic="orders", startingOffsets="latest"
        ),
        "target": lambda: sql(
            f"CREATE TABLE target USING rocketlake OPTIONS (path '{new}', topic 'copy',"
            " lockTimeout '5s')"
        ),
        "made": lambda: Path(new).exists(),
        "typo": lambda: sql(
            f"CREATE TABLE x USING rocketlake OPTIONS (path '{store}', topc 'orders')"
        ),
        "no path": lambda: sql(
            f"CREATE TABLE x USING rocketlake OPTIONS (paths '[\"{store}\"]', topic 'orders')"
        ),
        "relative": lambda: sql("CREATE TABLE x USING rocketlake OPTIONS (path 'a=b,c=/d')"),
        "with columns": lambda: sql(
            f"CREATE TABLE own (body BINARY) USING rocketlake OPTIONS (path '{store}')"
        ),
        "read with columns": lambda: spark.table("own").collect(),
        "view": lambda: sql("CREATE VIEW bodies AS SELECT body FROM orders WHERE queue_id = 0"),
        "lake": lambda: sql("CREATE TABLE lake USING parquet AS SELECT * FROM orders").count(),
        "count": lambda: spark.table("orders").count(),
    }


def use(spark: SparkSession, root: Path) -> dict[str, Callable[[], object]]:
    store, new = root / "broker-a", root / "new" / "store"
    sql = spark.sql

    def count(query: str) -> object:
        return sql(query).first()[0]

    rows = spark.createDataFrame([(b"by frame", ["k"])], "body binary, keys array<string>")
    return {
        "tables": lambda: sorted(table.name for table in spark.catalog.listTables()),
        "comment": lambda: sql("DESCRIBE orders").first()["comment"],
        "select": lambda: count("SELECT count(*) FROM orders"),
        "view": lambda: count("SELECT count(*) FROM bodies"),
        "units": lambda: count("SELECT count(*) FROM units"),
        "late": lambda: count("SELECT count(*) FROM late"),
        "narrowed": lambda: count("SELECT count(*) FROM orders WITH (queueIds = '1')"),
        "insert": lambda: sql(
            "INSERT INTO target (body, keys, tags) SELECT body, keys, 'eu' FROM orders"
        ),
        "insert by name": lambda: sql(
            "INSERT INTO target BY NAME SELECT 'other' AS topic, X'78' AS body"
        ),
        "once": lambda: [
            sql("INSERT INTO target WITH (writeId = '7') (body) VALUES (X'79')") for _ in (1, 2)
        ],
        "append": lambda: rows.writeTo("target").append(),
        "target": lambda: [
            row[0] for row in sql("SELECT hex(body) FROM target ORDER BY physical_offset").tail(2)
        ],
        "target count": lambda: count("SELECT count(*) FROM target WHERE topic = 'copy'"),
        "positional": lambda: sql("INSERT INTO target SELECT * FROM orders"),
        "from lake": lambda: sql("INSERT INTO target SELECT * FROM lake"),
        "literals": lambda: rows.select("body").write.insertInto("target"),
        "into units": lambda: sql("INSERT INTO units (topic) VALUES ('x')"),
        "overwrite": lambda: sql("INSERT OVERWRITE target (body) VALUES (X'78')"),
        "ctas": lambda: sql(
            f"CREATE TABLE c USING rocketlake OPTIONS (path '{new}', topic 'c') AS"
            " SELECT body FROM orders"
        ),
        "alias": lambda: sql(
            f"CREATE TABLE c USING rocketlake OPTIONS (path '{new}', topic 'c') AS"
            " SELECT * FROM orders"
        ),
        "orders after": lambda: count("SELECT count(*) FROM orders"),
        "stream": lambda: _stream(spark, root),
        "temporary": lambda: sql(
            "CREATE TEMPORARY VIEW sink (body STRING, delay_level INT) USING rocketlake"
            f" OPTIONS (path '{new}', topic 'copy', stagingPath '{root}/staging')"
        ),
        "by view": lambda: sql("INSERT INTO sink VALUES ('late', 3)"),
        "drop": lambda: [
            sql(f"DROP TABLE {name}").count()
            for name in ("orders", "units", "late", "target", "own", "lake")
        ],
        "stores": lambda: [store.is_dir(), new.is_dir(), len([*new.rglob("*")]) > 3],
        "warehouse": lambda: sorted(path.name for path in (root / "cat" / "warehouse").iterdir()),
    }


def _stream(spark: SparkSession, root: Path) -> int:
    query = (
        spark.readStream.table("orders")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{root}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{root}/streamed")
    )
    query.awaitTermination()
    return spark.read.parquet(f"{root}/streamed").count()


def main(step: str, folder: str) -> None:
    spark = rocketlake.spark.session(
        "local[2]",
        memory="1g",
        catalog=f"{folder}/cat",
        conf={"spark.ui.enabled": "false", "spark.log.level": "FATAL"},
    )
    found: dict[str, object] = {}
    for name, action in (make if step == "make" else use)(spark, Path(folder)).items():
        try:
            outcome = action()
            found[name] = outcome if isinstance(outcome, int | str | bool | list) else "done"
            if name in ("once", "insert"):
                found[name] = "done"
        except Exception as error:  # noqa: BLE001 - it is what is looked at
            found[name] = f"refused: {reworded(error)}"
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
