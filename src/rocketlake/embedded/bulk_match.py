"""LogMatcher: which staged rows are already in the log, from an offset on.

Rows of one append are adjacent in the log. So the first record that is not the next row ends the
match: another program, or the delivery of delayed messages, wrote it.
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

from rocketlake.delay.redelivery import real_queue
from rocketlake.embedded.bulk_store import queue_of
from rocketlake.format import layout
from rocketlake.format.bulk import BY_KEY, TURN, StagedRow, read_row, row_size
from rocketlake.format.record import Check, StopReason, StoredMessage, scan
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.log.topic_routes import TopicRoutes

_MAGICS: Final = (layout.MAGIC_V1, layout.MAGIC_V2)
_I32: Final = Layout(">i")
_I64: Final = Layout(">q")
_FLAG: Final = slice(layout.RECORD_FLAG_AT, layout.RECORD_QUEUE_OFFSET_AT)
_V6: Final = 0x10
_SET_BY_PUT: Final = frozenset(
    {
        names.DELAY,
        names.INNER_BASE,
        names.MULTI_QUEUE_OFFSET,
        names.REAL_QUEUE_ID,
        names.REAL_TOPIC,
        names.RECORD_CRC,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_S,
        names.TIMER_DELIVER_MS,
        names.TIMER_OUT_MS,
        names.WAIT,
    }
)
"""Properties that a put may add, remove or change."""


class LogMatcher:
    """Compares staged rows with the log, in order. Thread-safety: one thread."""

    def __init__(self, log: CommitLog, offset: int, *, with_crc: bool) -> None:
        self._trailer = layout.RECORD_CRC_SIZE if with_crc else 0
        self._records = _records(log, offset)
        self.is_over = False
        """Whether a row was missing."""

    def pass_over(self, records: memoryview, position: int, routes: TopicRoutes) -> tuple[int, int]:
        """Return how many rows are in the log, one after another, and where the next begins.

        The turns of the routes move on as they did when the rows were appended.
        """
        count = 0
        while position < len(records) and not self.is_over:
            found = next(self._records, None)
            size = row_size(records, position)
            staged = records[position : position + size]
            if found is None or not self._is_same(staged, found, routes):
                self.is_over = True
                break
            position, count = position + size, count + 1
        return count, position

    def _is_same(self, staged: memoryview, found: bytes, routes: TopicRoutes) -> bool:
        route = _route_of(staged)
        if route is not None and routes.routes[route].slots:
            return self._is_same_record(staged, found, route, routes)
        row = read_row(staged, 0)
        before = routes.table[row.route].copy()
        queue = queue_of(row, routes)
        is_same = _is_same_message(row, queue, scan(found, rows_max=1).columns.message(0))
        if not is_same:
            routes.table[row.route] = before
        return is_same

    def _is_same_record(
        self, staged: memoryview, found: bytes, route: int, routes: TopicRoutes
    ) -> bool:
        flags = _I32.unpack_from(staged, layout.RECORD_SYS_FLAG_AT)[0]
        born_size = layout.HOST_V6_SIZE if flags & _V6 else layout.HOST_V4_SIZE
        time_at = layout.RECORD_BORN_HOST_AT + born_size
        wanted: int = _I32.unpack_from(staged, layout.RECORD_QUEUE_ID_AT)[0]
        end = len(staged) - self._trailer
        is_same = (
            len(staged) == len(found)
            and staged[: layout.RECORD_QUEUE_ID_AT] == found[: layout.RECORD_QUEUE_ID_AT]
            and _I32.unpack_from(found, layout.RECORD_QUEUE_ID_AT)[0]
            == _queue_of(staged, wanted, route, routes)
            and staged[_FLAG] == found[_FLAG]
            and staged[layout.RECORD_SYS_FLAG_AT : time_at]
            == found[layout.RECORD_SYS_FLAG_AT : time_at]
            and staged[time_at + 8 : end] == found[time_at + 8 : end]
        )
        if is_same and wanted == TURN:
            routes.turn(route, routes.routes[route].queue_count)
        return is_same


def _route_of(staged: memoryview) -> int | None:
    """Return the route of a staged record; None for a message."""
    if _I32.unpack_from(staged, layout.RECORD_MAGIC_AT)[0] not in _MAGICS:
        return None
    return int(_I64.unpack_from(staged, layout.RECORD_QUEUE_OFFSET_AT)[0])


def _queue_of(staged: memoryview, wanted: int, route: int, routes: TopicRoutes) -> int:
    if wanted == TURN:
        return routes.turns[route]
    if wanted == BY_KEY:
        key_hash: int = _I32.unpack_from(staged, layout.RECORD_PHYSICAL_OFFSET_AT + 4)[0]
        return abs(key_hash) % routes.routes[route].queue_count
    return wanted


def _records(log: CommitLog, offset: int) -> Iterator[bytes]:
    """Yield the good records of the log from an offset on, which one of them begins at."""
    while True:
        held = log.slice(offset)
        if held is None:
            return
        with held:
            found = scan(
                held.view,
                base_offset=offset,
                checks=Check.BODY_CRC | Check.OFFSET,
                rows_max=4096,
            )
            rows = zip(
                found.columns["position"].tolist(), found.columns["size"].tolist(), strict=True
            )
            records = [bytes(held.view[at : at + size]) for at, size in rows]
        yield from records
        offset += found.position
        if found.reason is StopReason.END_OF_FILE:
            file_size = log.files.file_size
            offset += file_size - offset % file_size
        elif not records:
            return


def _is_same_message(row: StagedRow, queue: int, stored: StoredMessage) -> bool:
    """Tell whether a record is what a put makes of a row, delayed or not."""
    found = stored.properties
    # Why: a message that does not wait may have any text in the properties of one that does.
    is_waiting = stored.topic in {SCHEDULE_TOPIC, TIMER_TOPIC}
    place = real_queue(found) if is_waiting else QueueKey(stored.topic, stored.queue_id)
    message = row.message
    return (
        place == QueueKey(message.topic, queue)
        and stored.born_timestamp == row.born_timestamp
        and (stored.flag, stored.stored_body) == (message.flag, message.body)
        and _essence(found) == _essence(_all_properties(message))
    )


def _all_properties(message: Message) -> dict[str, str]:
    properties = {k: v for k, v in message.properties.items() if v}
    if message.keys:
        properties.setdefault(names.KEYS, names.KEY_SEPARATOR.join(message.keys))
    if message.tags:
        properties.setdefault(names.TAGS, message.tags)
    return properties


def _essence(properties: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in properties.items() if k not in _SET_BY_PUT}
