"""DataFrames into a store: rows are staged by executors and appended, exactly once, by a commit."""

from rocketlake.spark.sink.unfinished_commits import finish

__all__ = ["finish"]
