"""The data pipeline on Spark: a topic is a table.

    import rocketlake.spark

    spark = rocketlake.spark.session()

`source` is what Spark calls; `jobs` are functions over whole stores. Executors read through
`store.offline` and `format` alone; only the driver opens a store for writing, by `embedded`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlake.spark.scan_text import explain as explain
    from rocketlake.spark.session_builder import session as session

__all__ = ["explain", "session"]


def __getattr__(name: str) -> object:
    # Why: executors and every program that reads any format import this package; a session is
    # for drivers. The module `session` is older than the function, and is called as one.
    if name == "session":
        return import_module("rocketlake.spark.session")
    if name == "explain":
        return import_module("rocketlake.spark.scan_text").explain
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
