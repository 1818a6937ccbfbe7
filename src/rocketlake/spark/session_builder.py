"""Implementation of `rocketlake.spark.session(...)`: a session in which the format works."""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError, SparkError
from rocketlake.files.local_path import absolute_path
from rocketlake.spark.optimizer.column_pruning import enable_column_pruning
from rocketlake.spark.session import is_connect, open_session
from rocketlake.spark.source import register

log = logging.getLogger(__name__)

_DEFAULTS: Final = {
    # Data between Spark and pandas goes as Arrow batches.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "WARN",
}
_MEMORY: Final = "spark.driver.memory"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_CATALOG: Final = "spark.sql.catalogImplementation"
_GIB: Final = 1 << 30
_MEMORY_GIB_MAX: Final = 8
_LOOK: Final = (
    "import sys, importlib.util as u;"
    "print('%d.%d' % sys.version_info[:2],"
    " *[n for n in ('rocketlake', 'pyarrow', 'pandas') if u.find_spec(n) is None])"
)


def build(
    master: str | None,
    *,
    name: str,
    memory: str | None,
    catalog: str | Path | None,
    conf: Mapping[str, str],
) -> SparkSession:
    """Return a session as `rocketlake.spark.session` promises it.

    Raises:
        ConfigError: there is no Java for it, or a running session has another Python or catalog.
        SparkError: Spark does not start.
    """
    wanted = dict(conf)
    folder = None if catalog is None else absolute_path(catalog)
    if SparkSession.getActiveSession() is None and not _has_context():
        where = master or wanted.get("spark.master", "local[*]")
        if not where.startswith("sc://"):
            wanted = {**_defaults(where, memory), **_catalog(folder, wanted), **wanted}
        spark = open_session(where, name=name, conf=wanted, is_quiet=False)
        if is_connect(spark):
            return spark
    else:
        spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        if is_connect(spark):
            return spark
        _check_python(spark)
        if folder is not None and spark.conf.get(_CATALOG, "in-memory") != "hive":
            raise ConfigError(
                "the session that is running keeps its catalog in memory; call"
                " rocketlake.spark.session(catalog=…) before any other session is made"
            )
        _set(spark, wanted)
    _activate(spark)
    register(spark)
    try:
        enable_column_pruning(spark)
    except SparkError as error:  # another Spark than the tested ones: slower, and right
        log.warning("%s", error)
    return spark


def _has_context() -> bool:
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - other threads see no session


def _activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread: Spark looks formats up there when it writes."""
    jvm = spark._jvm  # noqa: SLF001 - PySpark has no other way to it
    assert jvm is not None
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - see above


def _set(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Apply the settings that a running session can change, and log the others."""
    left = []
    for key, value in conf.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        elif spark.conf.get(key, None) != value:
            left.append(key)
    if left:
        log.warning(
            "a running Spark session cannot change %s; set it when the session is made",
            ", ".join(left),
        )


def _defaults(master: str, memory: str | None) -> dict[str, str]:
    found = dict(_DEFAULTS)
    if memory is not None:
        found[_MEMORY] = memory
    elif master.startswith("local") and "SPARK_CONF_DIR" not in os.environ:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        found[_MEMORY] = f"{min(max(size // _GIB // 4, 1), _MEMORY_GIB_MAX)}g"
    return found


def _catalog(root: Path | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a catalog in a directory: Hive's metastore in a Derby database.

    Raises:
        ConfigError: the database cannot be in this directory.
    """
    if root is None:
        return {}
    if set("; \"'\\") & set(str(root)):
        raise ConfigError(
            f"catalog = {str(root)!r}: Derby allows no blanks, quotes or semicolons in a path"
        )
    java = f"{conf.get(_JAVA_OPTIONS, '')} -Dderby.stream.error.file={root / 'derby.log'}".strip()
    root.mkdir(parents=True, exist_ok=True)
    return {
        _CATALOG: "hive",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={root / 'metastore'};create=true"
        ),
        _JAVA_OPTIONS: java,
    }


def _check_python(spark: SparkSession) -> None:
    """Make sure that a running session's Python processes have what the format needs.

    Raises:
        ConfigError: they do not; Java keeps the environment it was started with.
    """
    jvm = spark._jvm  # noqa: SLF001 - only Java knows which environment it was started with
    assert jvm is not None
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        return  # what executors run is not for this machine to know
    variables = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    python = next((found for key in variables if (found := jvm.System.getenv(key))), "python3")
    if python in (sys.executable, os.environ.get("PYSPARK_PYTHON")):
        return
    try:
        done = subprocess.run(  # noqa: S603 - what Spark itself runs
            [python, "-c", _LOOK], capture_output=True, text=True, check=False
        )
        version, *lacking = done.stdout.split() or ["", "a Python that runs"]
    except OSError:
        version, lacking = "", ["a Python that runs"]
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version and version != own:
        lacking = [f"Python {own}", *lacking]
    if lacking:
        raise ConfigError(
            f"the Spark session that is running starts its Python processes with {python}, which"
            f" lacks {', '.join(lacking)}, and keeps to it until this program ends: call"
            " rocketlake.spark.session() before any other session is made, or start the program"
            f" with PYSPARK_PYTHON={sys.executable}"
        )
