"""The source, hindered: its first attempts fail, dawdle or wait, in the middle of what they read.

Shipped to executors as a module of its own.
"""

import os
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketlake.spark.source import RocketLakeDataSource

DEADLINE_S = 300


class HinderedDataSource(RocketLakeDataSource):
    """Option `hindrance`: fail, dawdle or wait; option `marks`: a directory for marks."""

    @classmethod
    def name(cls):
        return "rocketlake_hindered"

    def __init__(self, options):
        super().__init__(options)
        self.hindrance = options.pop("hindrance")
        self.marks = options.pop("marks")

    def reader(self, schema):
        return HinderedReader(super().reader(schema), self.hindrance, self.marks)


class HinderedReader(DataSourceReader):
    """Lets the first batch of a task pass, then does what hinders its first attempt."""

    def __init__(self, reader, hindrance, marks):
        self.reader = reader
        self.hindrance = hindrance
        self.marks = Path(marks)

    def partitions(self):
        return [HinderedPart(number, part) for number, part in enumerate(self.reader.partitions())]

    def read(self, partition):
        context = TaskContext.get()
        name = f"{partition.number}-{context.attemptNumber()}"
        batches = list(self.reader.read(partition.part))
        yield batches[0]
        mark = self.marks / f"begun-{name}"
        mark.with_suffix(".new").write_text(str(os.getpid()))
        mark.with_suffix(".new").rename(mark)
        if context.attemptNumber() == 0:
            getattr(self, f"_{self.hindrance}")(partition.number)
        yield from batches[1:]
        (self.marks / f"done-{name}").touch()

    def _fail(self, number):
        raise OSError(f"part {number}: a disk that had a bad moment")

    def _dawdle(self, number):
        """Go on only when somebody else has read the same."""
        if number == 0:
            self._await(self.marks / f"done-{number}-1")

    def _wait(self, number):
        """Go on when the test says so, unless killed."""
        self._await(self.marks / "go")

    def _await(self, mark):
        deadline = time.monotonic() + DEADLINE_S
        while not mark.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(mark)
            time.sleep(0.02)


class HinderedPart(InputPartition):
    """A part with its number."""

    def __init__(self, number, part):
        self.number = number
        self.part = part
