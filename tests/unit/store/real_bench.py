"""The bench of recovery with the queues, the index and the dispatcher that a store really has."""

from recovery_fakes import RecoveryBench

from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.store.dispatch.dispatcher import Dispatcher, DispatchParts
from rocketlake.store.dispatch.placement import PlacementRules
from rocketlake.store.dispatch.unit_builder import UnitBuilder
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.index.index_file import IndexShape
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape
from rocketlake.store.role import Role
from rocketlake.store.running_flags import RunningFlags
from rocketlake.store.stats.store_stats import StoreStats

FAMILIES = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")


class FakeCatalog:
    """Knows which topics have batch queues."""

    def __init__(self, batch_topics):
        self._batch_topics = batch_topics

    def is_batch_queue(self, topic):
        return topic in self._batch_topics

    def read_queue_count(self, topic):
        return 8

    def write_queue_count(self, topic):
        return 8


class RealBench(RecoveryBench):
    """Opens queues and index for each recovery, and closes them behind it.

    `bounds` has the bounds of each queue then; `keys` the offsets that the index has for `asked`.
    """

    def __init__(self, root, options=None, *, batch_topics=("B",), **rest):
        super().__init__(root, options, **rest)
        self.catalog = FakeCatalog(batch_topics)
        self.asked = []
        self.bounds = {}
        self.keys = {}
        self._dispatcher = None

    def recover(self, *, is_clean=None):
        """Recover, bring all to disk, and take the mark of a running store away."""
        directory = StoreDir(self.ops, self.root, self.log_dirs)
        if is_clean is None:
            is_clean = not directory.exists(names.ABORT)
        self.checkpoint.load()
        self._open(directory, is_clean)
        try:
            report = super().recover(is_clean=is_clean)
            self.bounds = {
                (key.topic, key.queue_id): (queue.min_offset, queue.max_offset)
                for key, queue in self.queues.items()
            }
            self.keys = {pair: sorted(self.index.offsets(*pair)) for pair in self.asked}
            self.queues.flush(0)
            self.index.flush()
        finally:
            self.queues.close()
            self.index.close()
        (self.root / names.ABORT).unlink(missing_ok=True)
        return report

    def _open(self, directory, is_clean):
        options = self.options
        shape = QueueShape(
            file_size=options.mapped_file_size_consume_queue,
            batch_file_size=options.mapper_file_size_batch_consume_queue,
            ext_file_size=options.mapped_file_size_consume_queue_ext,
            has_ext=options.enable_consume_queue_ext,
            is_4x=options.compat_version.is_4x,
        )
        self.queues = ConsumeQueueSet(directory, self.clock, shape)
        self.queues.load()
        path = directory.path(names.INDEX)
        self.index = IndexFileSet(self.ops, self.clock, path, IndexShape.of(options))
        self.index.load(is_clean=is_clean, checkpoint=self.checkpoint)
        self._dispatcher = None

    def dispatch_range(self, start, end):
        self.dispatched.append((start, end))
        if self._dispatcher is None:
            rules = PlacementRules(
                delays_ms=self.options.delay_levels_ms,
                has_light_queues=self.options.enable_lmq and self.options.enable_multi_dispatch,
            )
            builder = UnitBuilder(self.queues, self.catalog.is_batch_queue, rules)
            log = CommitLog(self.files, self.clock)
            rest = (RunningFlags(), Role(self.options), StoreStats(0))
            self._dispatcher = Dispatcher(DispatchParts(log, builder, self.index, *rest))
        return self._dispatcher.dispatch_range(start, end)

    def snapshot(self, *families):
        """The files of families, by their paths."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for family in families or FAMILIES
            for path in sorted((self.root / family).rglob("*"))
            if path.is_file()
        }
