"""Lets Spark find the source by itself: `spark.read.format("rocketlake")` needs no registration.

Spark imports every top-level module whose name begins with `pyspark_`, in every program that reads
any data source: nothing here may cost time or fail.
"""

from rocketlake.spark.source import RocketLakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
