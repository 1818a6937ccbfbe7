"""A stream played without Spark: the calls that Spark makes, in its order, with its pickling."""

import json
import pickle

from pyspark.errors import StreamingQueryException

from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.stream.stream_reader import make_stream_reader


class Play:
    """One run of a query; `offsets` is its checkpoint, which the next run may be given."""

    def __init__(self, path, offsets=None, columns=None, *, available_now=False, **options):
        given = {"path": str(path), **options}
        schema = SourceOptions.parse(given).schema
        if columns:
            schema = type(schema)([schema[name] for name in columns])
        self.reader = make_stream_reader(given, schema)
        self.offsets = [] if offsets is None else offsets
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    @property
    def start(self):
        """Where the next batch begins."""
        return self.offsets[-1] if self.offsets else kept(self.reader.initialOffset())

    def step(self):
        """Make the next batch and return its rows; None if there is none to make."""
        start = self.start
        end = kept(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if json.dumps(end) == json.dumps(start):
            return None
        self.offsets.append(end)
        return self.again(len(self.offsets) - 1)

    def again(self, number):
        """Read a batch that is in the checkpoint."""
        before = self.offsets[number - 1] if number else kept(self.reader.initialOffset())
        parts = self.reader.partitions(before, self.offsets[number])
        found = []
        for part in pickle.loads(pickle.dumps(parts)):
            for batch in pickle.loads(pickle.dumps(bare(self.reader))).read(part):
                found += batch.to_pylist()
        return found

    def drain(self):
        """Make batches until there are no more; return the rows of each."""
        found = []
        while (rows := self.step()) is not None:
            found.append(rows)
        return found


def bare(reader):
    """A reader as executors get it."""
    return type(reader)(reader._options, reader._stream, reader._schema)


def kept(offset):
    """An offset as it comes back from a checkpoint."""
    assert json.dumps(offset) == json.dumps(offset, sort_keys=True)
    return json.loads(json.dumps(offset))


def bodies(rows):
    """The bodies of rows, sorted."""
    return sorted(bytes(row["body"]).decode() for row in rows)


def started(start):
    """Start a query on Spark, and return it when it runs: after its first batches.

    Why: Spark gives the Python process of a source ten seconds to start, which no option changes;
    a machine under load may need more.
    """
    for chance in range(5):
        query = start()
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            if chance == 4 or "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError("not reached")


def finished(start):
    """Start a query on Spark, and return it when it has ended."""
    for chance in range(5):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if chance == 4 or "failed to connect back" not in str(error):
                raise
        else:
            return query
        finally:
            query.stop()
    raise AssertionError("not reached")
