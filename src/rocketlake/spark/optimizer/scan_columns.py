"""What the optimizer's rule tells the source: in the metadata of the first column of a scan.

Spark passes a source the columns of a scan and nothing else that a rule could set. Both keys stand
in ColumnPruning.java too.
"""

import json
from typing import Final

from msgspec import Struct
from pyspark.sql.types import StructField, StructType

COLUMNS_KEY: Final = "rocketlake.table"
FILTERS_KEY: Final = "rocketlake.pushesFilters"


class ScanColumns(Struct, frozen=True):
    """The columns of one scan."""

    table: StructType
    """All columns of what is read, with their metadata."""
    columns: StructType
    """Those that the scan makes."""
    pushes_filters: bool
    """Whether this scan is of one query only, which may leave rows out."""


def scan_columns(schema: StructType) -> ScanColumns:
    """Return what a source is asked for by a schema, with or without the rule."""
    columns = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    found = schema.fields[0].metadata if schema.fields else {}
    text = found.get(COLUMNS_KEY)
    table = StructType.fromJson(json.loads(text)) if isinstance(text, str) else schema
    return ScanColumns(table, columns, pushes_filters=found.get(FILTERS_KEY) is True)
