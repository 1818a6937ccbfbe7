"""The text of `rocketlake.spark.explain(frame)`: the stores that a query reads, and how much.

Without the optimizer's rule, Spark's own `explain` shows a Python source by its name and columns
only. This module reads the options of each scan from the plan.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from rocketlake.spark.catalog_table import kept_table
from rocketlake.spark.session import check_classic

_NAME: Final = "rocketlake"
_FIRST: Final = ("path", "paths", "archive", "table", "topic", "topics", "topicpattern")


def describe_scans(frame: DataFrame) -> str:
    """Return a line for each table of a store that a query reads.

    Raises:
        ConfigError: the session is one of Spark Connect.
    """
    check_classic(frame.sparkSession, "rocketlake.spark.explain")
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - PySpark has no other way to it
    lines = [_line(leaf) for leaf in _leaves(plan) if _is_ours(leaf)]
    return "\n".join(lines) or "no table of the format rocketlake is read"


def _leaves(plan: Any) -> Iterator[Any]:  # noqa: ANN401 - objects of Java
    found = plan.collectLeaves().iterator()
    while found.hasNext():
        yield found.next()


def _is_ours(leaf: Any) -> bool:  # noqa: ANN401 - an object of Java
    if leaf.getClass().getSimpleName() != "DataSourceV2ScanRelation":
        return False
    return bool(leaf.relation().table().name() == _NAME)


def _line(leaf: Any) -> str:  # noqa: ANN401 - an object of Java
    relation = leaf.relation()
    options = {str(key): str(value) for key, value in dict(relation.options()).items()}
    columns = StructType.fromJson(json.loads(relation.schema().json()))
    kept = kept_table(columns)
    if kept is not None and not {"path", "paths", "archive"} & set(options):
        options = {**kept.options, **options}
    said = ", ".join(f"{key} {value}" for key, value in _ordered(options))
    output = leaf.output()
    names = ", ".join(output.apply(index).name() for index in range(output.length()))
    return f"rocketlake: {said}; pushed filters: {_pushed(leaf.scan())}; columns: {names}"


def _ordered(options: Mapping[str, str]) -> list[tuple[str, str]]:
    def place(item: tuple[str, str]) -> tuple[int, str]:
        return (_FIRST.index(item[0]) if item[0] in _FIRST else len(_FIRST), item[0])

    return sorted(options.items(), key=place)


def _pushed(scan: Any) -> str:  # noqa: ANN401 - an object of Java
    """Return the filters that the source was given, as Spark writes them."""
    found = scan.getMetaData().get("PushedFilters")
    text = str(found.get()).strip("[]") if found.isDefined() else ""
    return text or "none"
