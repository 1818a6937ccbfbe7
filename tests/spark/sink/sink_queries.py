"""The query that tests of the sink run, kill and run again."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def run_query(spark: SparkSession, store: str, source: str, checkpoint: str) -> None:
    """Write lines of text files, one file a batch, through a shuffle; return when all are read."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
    rows = lines.repartition(2, f.rand()).select(
        f.col("value").cast("binary").alias("body"),
        f.lit("orders").alias("topic"),
        f.array("value").alias("keys"),
        f.when(f.col("value") % 10 == 0, 18).alias("delay_level"),
    )
    query = (
        rows.writeStream.format("rocketlake")
        .option("path", store)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
