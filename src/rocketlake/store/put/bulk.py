"""BulkAppender: appends records that another process has encoded.

1. The checks of a put are made once per piece: may anything be put at all, and to these topics?
2. A store that handles puts one by one (hooks that see every message, replicas) takes none of them:
   the caller puts them by hand.
3. A bulk append does not wait for the disk: the caller flushes when all is appended.
"""

from rocketlake.errors import StoreError
from rocketlake.model.topics import is_lmq
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.log.topic_routes import Appended, TopicRoute, TopicRoutes
from rocketlake.store.options import StoreOptions
from rocketlake.store.ports import TopicCatalog
from rocketlake.store.put.putter import Putter


class BulkAppender:
    """Appends staged records. Thread-safety: as puts."""

    def __init__(
        self, putter: Putter, log: CommitLog, catalog: TopicCatalog, options: StoreOptions
    ) -> None:
        self._putter = putter
        self._log = log
        self._catalog = catalog
        self._with_crc = options.enabled_append_prop_crc

    def route(self, topic: str, queue_count: int, turn: int | None = None) -> TopicRoute:
        """Return the route of a topic; without `turn` its queues go on where their messages end."""
        slots = [self._putter.slot(topic, queue) for queue in range(queue_count)]
        if turn is None:
            turn = sum(slot.next_offset for slot in slots) % queue_count
        is_plain = not self._catalog.is_batch_queue(topic) and not is_lmq(topic)
        takes = is_plain and self._putter.takes_records
        return TopicRoute(topic, queue_count, turn, slots if takes else ())

    def append(self, records: bytes | memoryview, position: int, routes: TopicRoutes) -> Appended:
        """Append staged records from a position on, up to one that must be put by hand.

        Raises:
            StoreError: nothing may be put; what was appended before stays.
            StorePoisonedError: a flush failed before.
        """
        for route in routes.routes:
            refused = self._putter.check_before(route.topic)
            if refused is not None:
                raise StoreError(f"no rows can be appended: {refused.reason}")
        done = self._log.append_rows(records, position, routes, with_crc=self._with_crc)
        self._putter.note_rows(routes.take_shares())
        if done.reason:
            raise StoreError(f"rows were appended in part: {done.reason}")
        return done
