"""Column pruning for a session: reads of the format make only what a query uses.

    from rocketlake.spark.optimizer.column_pruning import enable_column_pruning

    enable_column_pruning(spark)
    spark.read.format("rocketlake").options(path=..., topic=...).load().count()  # reads no body

Spark does not tell a Python source which columns a query uses, and keeps the filters that it pushes
for later queries of the same DataFrame, which then lack rows (PySpark 4.2 and 4.3). A rule of its
optimizer tells the source both, for each query. The rule is a Java file beside this module; Janino,
the compiler that Spark has for its own generated code, makes a class of it in the driver's JVM.
Executors need nothing.
"""

# ruff: noqa: SLF001 - PySpark has no public way to its JVM

from importlib.resources import files
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError, SparkError
from rocketlake.spark.session import is_connect

_CLASS: Final = "rocketlake.ColumnPruning"
_RULES: Final = "extraOptimizations_$eq"


def enable_column_pruning(spark: SparkSession) -> None:
    """Let batch reads of a session make only the columns and rows that their queries use.

    Raises:
        ConfigError: the session is one of Spark Connect, whose optimizer is out of reach.
        SparkError: this Spark is not as 4.2 and 4.3 are; nothing is changed then.
    """
    if is_connect(spark):
        raise ConfigError(
            "the optimizer of a Spark Connect server cannot be given a rule from here: name the"
            " columns with the option columns, or call enable_column_pruning where the server runs"
        )
    if is_column_pruning_enabled(spark):
        return
    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    source = files(__package__).joinpath("ColumnPruning.java").read_text()
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(source)
        made = compiler.getClassLoader().loadClass(_CLASS)
        no_classes = gateway.new_array(jvm.java.lang.Class, 0)
        no_values = gateway.new_array(jvm.java.lang.Object, 0)
        rule = made.getDeclaredConstructor(no_classes).newInstance(no_values)
        rules = jvm.scala.collection.mutable.ListBuffer()
        rules.addAll(_experimental(spark).extraOptimizations())
        rules.addOne(rule)
        getattr(_experimental(spark), _RULES)(rules.toList())
    except (Py4JError, PySparkException, TypeError) as error:
        raise SparkError(
            "column pruning cannot be added to this Spark; name the columns with the option"
            f" columns instead ({str(error).splitlines()[0] if str(error) else error!r})",
            str(error),
        ) from error


def is_column_pruning_enabled(spark: SparkSession) -> bool:
    """Tell whether `enable_column_pruning` was called for a session."""
    rules = _experimental(spark).extraOptimizations()
    names = [rules.apply(index).getClass().getName() for index in range(rules.length())]
    return _CLASS in names


def _experimental(spark: SparkSession) -> Any:  # noqa: ANN401 - a Java object
    return spark._jsparkSession.experimental()
