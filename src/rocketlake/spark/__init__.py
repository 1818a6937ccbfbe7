"""The data pipeline on Spark: a topic is a table.

    import rocketlake.spark

    spark = rocketlake.spark.session()

Spark calls `source`; `jobs` are functions over whole stores. Executors read through
`store.offline` and `format` alone; only the driver opens a store for writing, by `embedded`.
"""

from rocketlake.spark.driver import explain, session

__all__ = ["explain", "session"]
