"""The entry points of programs on Spark: `session` and `explain`.

Executors, and every program that reads any format, import this module with the package: what the
functions need is imported when they are called.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415 - see above


def session(
    master: str | None = None,
    *,
    name: str = "rocketlake",
    memory: str | None = None,
    catalog: str | Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a session in which the format `rocketlake` works; the one there is, if there is one.

    A new session runs its Python processes with this interpreter, sends data as Arrow batches and
    pushes filters. One that is there keeps its settings; those of `conf` that a running session can
    take are set. In either case the session becomes the active one of the calling thread, which
    `df.write` needs: a thread that writes calls this first.

    Args:
        master: Where Spark runs: `local[*]` (the default), `spark://HOST:PORT`, `yarn`, `sc://…`.
        name: The application's name in Spark's own pages.
        memory: Of the driver, such as `4g`; in local mode a quarter of the machine's by default.
        catalog: A directory for tables that later sessions see too.
        conf: More Spark settings; they take precedence.

    Raises:
        ConfigError: Java is missing, or a running session has another Python or catalog.
        SparkError: Spark does not start.
    """
    from rocketlake.spark.session_builder import build

    return build(master, name=name, memory=memory, catalog=catalog, conf=conf or {})


def explain(frame: "DataFrame") -> str:
    """Return a line for each table of a store that a batch query reads: options, filters, columns.

    The query is planned for it, and not run.

    Raises:
        ConfigError: the session is one of Spark Connect.
    """
    from rocketlake.spark.scan_text import describe_scans

    return describe_scans(frame)
