"""The Spark sink: executors stage rows, and one commit appends them, exactly once."""

from rocketlake.spark.sink.unfinished_commits import finish

__all__ = ["finish"]
