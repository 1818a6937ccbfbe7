"""RocketLakeDataSource: the format `rocketlake`, as Spark calls it.

Wiring only; each part is imported when it is asked for: Spark imports this module in every program.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ruff: noqa: PLC0415 - see above


class RocketLakeDataSource(DataSource):
    """Message stores as tables: `option("path", …)`, `option("topic", …)`; see docs/spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketlake"

    def schema(self) -> StructType:
        """Return the columns of the table that the options ask for."""
        from rocketlake.spark.reading.options import SourceOptions

        if "provider" not in self.options:
            return SourceOptions.parse(self.options).schema
        from rocketlake.spark.catalog_table import keep_options, options_of_create, without_sink

        created = options_of_create(self.options)
        if created is None:
            return SourceOptions.parse(self.options).schema
        return keep_options(SourceOptions.parse(without_sink(created)).schema, created)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        from rocketlake.spark.catalog_table import options_of_read
        from rocketlake.spark.optimizer.scan_columns import scan_columns
        from rocketlake.spark.reading.batch_reader import make_reader

        scan = scan_columns(schema)
        options, _ = options_of_read(self.options, scan.table)
        return make_reader(options, scan.columns, pushes_filters=scan.pushes_filters)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return what reads a stream."""
        from rocketlake.spark.catalog_table import options_of_read
        from rocketlake.spark.stream.stream_reader import make_stream_reader

        return make_stream_reader(*options_of_read(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Return what writes a batch."""
        from rocketlake.spark.sink.writer import make_writer

        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        """Return what writes a stream."""
        from rocketlake.spark.sink.writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite=overwrite)


def register(spark: "SparkSession") -> None:
    """Make the format known to a session that does not find it by itself."""
    spark.dataSource.register(RocketLakeDataSource)
