"""Store: an open message store as a program uses it."""

import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from rocketlake.closing import Closing
from rocketlake.delay.switch import DelaySwitch
from rocketlake.embedded.checks import check_group, check_new_topic
from rocketlake.embedded.consumer.consumer import Consumer
from rocketlake.embedded.consumer.group_assignment import GroupAssignment
from rocketlake.embedded.consumer.groups import Groups
from rocketlake.embedded.consumer.plan import ConsumerPlan, Start, parse_queues, parse_start
from rocketlake.embedded.plug_ins import Engine
from rocketlake.embedded.readable_store import ReadableStore
from rocketlake.embedded.selection import parse_selection
from rocketlake.embedded.send_back import send_back_request
from rocketlake.embedded.sender import Sender
from rocketlake.embedded.shared_filters import SharedFilters
from rocketlake.embedded.tables import TableKeeper
from rocketlake.embedded.topic_registry import TopicRegistry, check_topic_arguments, topic_changes
from rocketlake.errors import StoreClosedError
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.metadata.groups import GroupBook, SubscriptionGroup
from rocketlake.metadata.offsets import OffsetBook, OffsetTable
from rocketlake.model.topics import Perm, TopicConfig, retry_topic
from rocketlake.store import exit_hook
from rocketlake.store.api import PutReceipt
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import StoreOptions
from rocketlake.store.put.future import callback_thread
from rocketlake.store.recovery.parts import RecoveryReport
from rocketlake.store.retention.rules import HOUR_MS
from rocketlake.store.retention.service import Deleted

_CALLBACKS_S: Final = 5.0


class StoreParts(Struct, frozen=True, kw_only=True):
    """The parts of a store, besides its engine."""

    core: MessageStore
    """The engine inside the plug-ins."""
    topics: TopicRegistry
    offsets: OffsetBook
    groups: Groups
    filters: SharedFilters
    group_book: GroupBook
    delay: DelaySwitch
    services: tuple[DelaySwitch | TableKeeper, ...] = ()
    """Closed before the engine, in this order."""
    gauges: Callable[[], Mapping[str, str]] = dict
    """More members for `info`."""
    recovery: RecoveryReport | None = None
    """What the start found and did."""
    worker: ShieldedWorker
    """Runs the operations that no exception of a caller may interrupt."""


class Store(Sender, ReadableStore, Closing):
    """An open store: put, get, query, consume. Made by `rocketlake.open_store`.

    Close it, or use it as a context manager; a program that ends without does so for it.

    Thread-safety: any thread may call anything.
    """

    def __init__(
        self,
        engine: Engine,
        parts: StoreParts,
        *,
        path: Path,
        unused_options: tuple[str, ...] = (),
        raise_on_failure: bool = True,
    ) -> None:
        Sender.__init__(self, engine, parts.topics, path=path, raises=raise_on_failure)
        ReadableStore.__init__(self, engine, query_max=engine.options.max_msgs_num_batch)
        self.unused_options = unused_options
        """Keys that were set and have no effect on this store; the options page says why."""
        self._parts = parts
        self._offsets = parts.offsets
        self._groups = parts.groups
        self._filters = parts.filters
        self._is_open = True
        self._life = threading.Lock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"<Store {str(self.path)!r} {state}, {len(self._topics.list())} topics>"

    @property
    def is_open(self) -> bool:
        """Whether the store was not closed."""
        return self._is_open

    @property
    def options(self) -> StoreOptions:
        """Every setting, defaults included."""
        return self._engine.options

    @property
    def recovery(self) -> RecoveryReport | None:
        """What the start found and did; `notes` describes what it corrected."""
        return self._parts.recovery

    def close(self) -> None:
        """End every consumer, write the tables, and bring everything to disk.

        A call that an exception ends (Ctrl-C) closes the store all the same. Another call is
        harmless, and waits for a call in progress.

        Raises:
            RocketLakeError: something could not be written; the store is closed all the same.
        """
        if os.getpid() != self._pid:
            return  # the files belong to the parent of this fork
        worker = self._parts.worker
        try:
            worker.run(self._close)
        except BaseException:
            # Why again: a signal handler may have raised before the worker got the call.
            worker.run(self._close)
            raise
        finally:
            worker.end()
        # Why here: a callback may close the store, and this is then its thread.
        callback_thread.wait_idle(_CALLBACKS_S)

    def _close(self) -> None:
        with self._life:
            if not self._is_open:
                return
            self._is_open = False
            self._groups.close()
            failed: Exception | None = None
            for part in (self._topics, *self._parts.services, self._engine):
                try:
                    part.close()
                except Exception as error:  # noqa: BLE001 - raised after the rest is closed
                    failed = failed or error
            exit_hook.unregister(self)
        if failed is not None:
            raise failed

    def info(self) -> dict[str, str]:
        """Return counters and gauges as they are now, by RocketMQ's names.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return {**self._engine.runtime_info(), **self._parts.gauges()}

    def flush(self) -> None:
        """Bring everything that was put to disk, and the progress of groups.

        Raises:
            StoreClosedError: the store is closed.
            StorePoisonedError: a flush failed, now or before.
        """
        self.require_open()
        self._engine.flush()
        self._topics.book.persist()
        self._offsets.persist()

    def delete_expired(self, hours: float | None = None) -> Deleted:
        """Delete log files that were not written to for `hours`, regardless of the time of day.

        Without `hours`, `file_reserved_time` applies; 0 deletes every file but the last. Groups
        that had not consumed the messages see them in `Consumer.missed`.

        Raises:
            ValueError: `hours` is negative.
            StoreClosedError: the store is closed.
            FileAccessError: a file cannot be removed; those before it are gone.
        """
        self.require_open()
        if hours is None:
            return self._engine.delete_expired()
        if not hours >= 0:
            raise ValueError(f"hours = {hours!r}: wanted 0 or more")
        return self._engine.delete_expired(reserved_ms=int(hours * HOUR_MS), force=hours == 0)

    # --- topics --------------------------------------------------------------------------------

    def topics(self) -> list[TopicConfig]:
        """Return the topics, by name.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return self._topics.list()

    def _offset_table(self) -> OffsetTable:
        return self._offsets.snapshot()

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic; None if it does not exist.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return self._topics.book.get(name)

    def create_topic(
        self, name: str, queues: int | None = None, *, attributes: Mapping[str, str] | None = None
    ) -> TopicConfig:
        """Create a topic; without `queues` it has as many as one that a put creates.

        Raises:
            ValueError: the topic exists, or the name is not allowed.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        check_topic_arguments(queues, attributes)
        check_new_topic(name)
        config = self._topics.make_config(name)
        queues = config.read_queue_count if queues is None else queues
        return self._topics.create(
            TopicConfig(
                name=name,
                read_queue_count=queues,
                write_queue_count=queues,
                attributes=dict(attributes or {}),
            )
        )

    def update_topic(
        self,
        name: str,
        queues: int | None = None,
        *,
        readable: bool | None = None,
        writable: bool | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> TopicConfig:
        """Change a topic; arguments that are None stay as they are.

        Consumers rebalance the queues. Messages in removed queues are kept, and are consumed when
        the queues are added again.

        Raises:
            ValueError: the topic does not exist.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        perm = self._topics.require(name).perm & ~Perm.INHERIT
        changes = topic_changes(
            queues, readable=readable, writable=writable, perm=perm, attributes=attributes
        )
        return self._topics.update(name, changes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its queues, and the progress of groups in it.

        Its messages can no longer be read by queue; their bytes are deleted when the log expires.

        Raises:
            ValueError: the topic does not exist.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        self._topics.delete(name, lambda: self._drop_topic(name))

    def _drop_topic(self, name: str) -> None:
        """Remove the queues of a topic, then the progress of its groups.

        A crash in between leaves progress beyond the end of queues, which the next start corrects.
        """
        self._engine.drop_topic(name)
        # Order: before the topic can be created again. Progress that is left, or that a consumer
        # commits for a message it still holds, would make a group skip messages of the new topic.
        self._groups.topic_dropped(name)
        self._offsets.remove_topic(name)
        self._offsets.persist()

    # --- consumer groups -----------------------------------------------------------------------

    def consumer(  # noqa: PLR0913 - each says one thing a consumer can be told
        self,
        group: str,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        start: Start = "first",
        timeout: float | None = None,
        auto_commit: bool = True,
        batch: int = 32,
        queues: Collection[int] | None = None,
    ) -> Consumer:
        """Join a consumer group: iterate over the result to get each message once.

        Consumers of a group share the queues of the topic. `start` is where a group begins that has
        not consumed the topic before. The loop waits for messages; it ends after `timeout` seconds
        without one (None: never), or when the consumer or the store is closed. A message is
        committed when the loop asks for the next one.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        plan = ConsumerPlan(
            group=group,
            topic=topic,
            selection=parse_selection(tags, sql),
            start=parse_start(start),
            timeout_s=timeout,
            auto_commit=auto_commit,
            batch=batch,
            queues=parse_queues(queues),
        )
        assignment = self._groups.assignment(group, topic)
        self._ensure_group(group)
        plan = structs.replace(plan, selection=self._filters.join(group, topic, plan.selection))
        clock = self._engine.clock
        return Consumer(
            plan,
            assignment,
            self._engine,
            self._offsets,
            clock=clock,
            on_left=lambda: self._note_left(assignment),
        )

    def _note_left(self, assignment: GroupAssignment) -> None:
        """End the filter of a group whose last consumer of a topic has left."""
        if assignment.member_count == 0:
            with suppress(StoreClosedError):  # every filter counts as ended after the next start
                self._filters.leave(assignment.group, assignment.topic)

    def reset_offsets(self, group: str, topic: str, to: Start | Mapping[int, int]) -> None:
        """Move a group to the first or last message, to a time, or to offsets.

        `to` may be a dictionary of offsets by queue; other queues stay where they are. Running
        consumers continue there with their next message.

        Raises:
            TypeError, ValueError: the topic does not exist, or `to` is wrong.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        check_group(group)
        count = self._topics.require(topic).read_queue_count
        if isinstance(to, Mapping):
            offsets = {queue: _check_offset(queue, at, count) for queue, at in to.items()}
        else:
            start = parse_start(to, "to")
            offsets = {queue: self._offset_of(start, topic, queue) for queue in range(count)}
        for queue, at in offsets.items():
            self._offsets.commit(topic, group, queue, at)
        assignment = self._groups.find(group, topic)
        if assignment is not None:
            assignment.reset_offsets(offsets)

    def send_back(
        self,
        group: str,
        physical_offset: int,
        *,
        delay_level: int = 0,
        max_times: int | None = None,
    ) -> PutReceipt:
        """Return a message that a group could not consume: it is redelivered, later each time.

        The message goes to the topic `%RETRY%group`, which the group must consume too, after the
        delay of `delay_level` (0: level 3, then 4, 5, ...). After `max_times` redeliveries (None:
        the limit of the group, 16 by default), or with a level below 0, it goes to `%DLQ%group`.

        Raises:
            ValueError: no valid record begins at the offset.
            PutFailedError, StoreClosedError, StorePoisonedError: as `put`.
        """
        refused = self._refuse_if_closed()
        if refused is not None:
            return refused
        message = self._engine.message_at(physical_offset)
        if message is None:
            raise ValueError(f"no message of {self.path} begins at {physical_offset}")
        request = send_back_request(
            message,
            self.join_group(group),
            delay_level=delay_level,
            max_times=max_times,
            is_4x=self.options.compat_version.is_4x,
        )
        self._topics.ensure_queues(request.message.topic, request.queue_id + 1)
        return self._answer(self._engine.put(request), request.message.topic)

    def join_group(self, group: str) -> SubscriptionGroup:
        """Create a group and its retry topic unless they exist; return the group.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        check_group(group)
        found = self._ensure_group(group)
        self._topics.ensure_queues(retry_topic(group), max(found.retry_queue_count, 1))
        return found

    def _ensure_group(self, group: str) -> SubscriptionGroup:
        # Compat: as a broker with autoCreateSubscriptionGroup, which is its default.
        return self._parts.group_book.create(SubscriptionGroup(name=group))

    # --- open or closed ------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise unless the store is open, and in this process.

        Every public method that reads or writes calls this first.

        Raises:
            StoreClosedError: it is closed, or was opened before this process was forked.
        """
        if not self._is_open or os.getpid() != self._pid:
            raise self._closed_error()

    def _closed_error(self) -> StoreClosedError:
        if os.getpid() != self._pid:
            # Why: a fork has a copy of the object, but neither its threads nor its lock.
            return StoreClosedError(
                f"{self.path} belongs to the parent of this process; use it there, or open it after"
                " the fork"
            )
        return StoreClosedError(
            f"the store {self.path} is closed; open_store({str(self.path)!r}) opens it again"
        )

    def _offset_of(self, start: str | int, topic: str, queue_id: int) -> int:
        if start == "first":
            return self.min_offset(topic, queue_id)
        if isinstance(start, int):
            return self.offset_by_time(topic, queue_id, start)
        return self.max_offset(topic, queue_id)


def _check_offset(queue_id: int, offset: object, count: int) -> int:
    if not 0 <= queue_id < count:
        raise ValueError(f"to has queue {queue_id}; the topic has {count} queues")
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ValueError(f"to has the offset {offset!r} for queue {queue_id}; wanted 0 or more")
    return offset
