"""Dispatch for a recovery: Spark gets the whole range at once, recovery asks file by file."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rocketlake.clock import SystemClock
from rocketlake.embedded.dispatch_files import ConsumeQueue, ConsumeQueueSet, CustomDispatcher
from rocketlake.embedded.external_dispatch import DispatchTargets
from rocketlake.errors import StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import OffsetFile, StoreDir
from rocketlake.format import names
from rocketlake.metadata import topics as topic_table
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.filters import FilterBook
from rocketlake.spark.jobs.dispatch.parts import DISPATCH_CHECKS, LogShape, cut
from rocketlake.spark.jobs.dispatch.run import Results, Runner
from rocketlake.spark.jobs.dispatch.unit_blocks import PartResult, Rules
from rocketlake.spark.jobs.dispatch.writer import DispatchCounts, PartWriter, adjoining_parts
from rocketlake.store.offline import load_deleted_topics
from rocketlake.store.options import StoreOptions

OnProgress = Callable[[int, int], None]


class OfflineDispatch:
    """The RecoveryDispatcher of a recovery. Owned by the thread that recovers."""

    def __init__(
        self,
        runner: Runner,
        on_progress: OnProgress | None = None,
        *,
        part_bytes: int | None = None,
    ) -> None:
        self._runner = runner
        self._part_bytes = part_bytes
        self._on_progress = on_progress
        self._targets: DispatchTargets | None = None
        self._writer: PartWriter | None = None
        self._results: Results | None = None
        self._parts: Iterator[PartResult] = iter(())
        self._next: PartResult | None = None
        self._end = 0
        self.counts = DispatchCounts()
        self.log_files: list[OffsetFile] = []

    def attach(self, targets: DispatchTargets) -> None:
        """Take the queues and the index to write to."""
        self._targets = targets
        self._writer = PartWriter(targets.queues, targets.index)
        self.log_files = targets.directory.log_files()

    def prepare(self, start: int, end: int) -> None:
        """Start the executors on the whole range."""
        assert self._targets is not None, "attached before it is used"
        shape = log_shape(self._targets.directory, self._targets.options, end)
        rules = rules_of(self._targets.directory.root, self._targets.options, self._targets.queues)
        self._results = self._runner.run(
            shape, cut(shape, start, part_bytes=self._part_bytes), rules
        )
        self._parts = adjoining_parts(self._results, shape, rules, start)
        self._next = next(self._parts, None)
        self._end = end

    def dispatch_range(self, start: int, end: int) -> int:
        """Append the parts of one file.

        Raises:
            RocketLakeError: a task failed, or a queue or the index cannot be written.
        """
        assert self._writer is not None, "attached before it is used"
        where = start
        while self._next is not None and self._next.facts.part.begin < end:
            result = self._next
            self._writer.write(result)
            self.counts.add(result)
            where = max(where, min(result.facts.reached, end))
            if self._on_progress is not None:
                self._on_progress(where, self._end)
            self._next = next(self._parts, None)
        return where

    def close(self) -> None:
        """End what still runs."""
        if self._results is not None:
            self._results.close()
        if self._writer is not None:
            self._writer.close()


def log_shape(directory: StoreDir, options: StoreOptions, end: int) -> LogShape:
    """Return what executors must know of a log that ends at an offset."""
    return LogShape(
        root=directory.root,
        log_files=[file for file in directory.log_files() if file.size],
        log_file_size=options.mapped_file_size_commit_log,
        checks=DISPATCH_CHECKS,
        end=end,
        passes_bad=False,
    )


def rules_of(root: Path, options: StoreOptions, queues: ConsumeQueueSet) -> Rules:
    """Return how records become units, by options, tables, and the queues there are."""
    there = queues.items()
    batch = {key.topic for key, queue in there if queue.is_batch}
    plain = {key.topic for key, queue in there if not queue.is_batch}
    extended = frozenset(
        key for key, queue in there if isinstance(queue, ConsumeQueue) and queue.ext is not None
    )
    config = root / names.CONFIG
    has_bits = options.enable_calc_filter_bit_map
    return Rules(
        delays_ms=list(options.delay_levels_ms),
        has_light_queues=options.enable_lmq and options.enable_multi_dispatch,
        batch_topics=frozenset(batch | (_named_batch_topics(config) - plain)),
        has_ext=options.enable_consume_queue_ext,
        ext_queues=frozenset() if options.enable_consume_queue_ext else extended,
        make_bits=partial(make_bits, config, options) if has_bits else None,
        deleted=load_deleted_topics(PosixFileOps(), root),
        has_keys=options.has_index,
        has_tags=options.compat_version.indexes_tags,
    )


def _named_batch_topics(config: Path) -> set[str]:
    try:
        table = topic_table.load(config).topics
    except StoreError:
        return set()
    return {name for name, topic in table.items() if topic.is_batch}


def make_bits(config: Path, options: StoreOptions) -> CustomDispatcher:
    """Make what computes the filter bits of extensions; on an executor."""
    # Imported here: SQL92 needs a grammar, which takes long to import.
    from rocketlake.embedded.shared_filters import make_filter_bits  # noqa: PLC0415

    place = TableLocation(PosixFileOps(), SystemClock(), config, is_4x=options.compat_version.is_4x)
    return make_filter_bits(FilterBook.load(place), options)
