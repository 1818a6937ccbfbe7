"""A data source that yields the same Arrow batch again and again: what the API itself can do.

It is given a file with one batch, and how many partitions of how many rows it is to have.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class ConstantSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> StructType:
        return StructType.fromDDL(self.options["ddl"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConstantReader(dict(self.options))


class ConstantReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(int(rows)) for rows in self.options["rows"].split(",")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self.options["file"]) as stream:
            (batch,) = stream
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
