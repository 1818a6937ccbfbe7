"""Putter: checks a message, appends it, and waits for its durability.

1. Checks come in the order of the reference; a refused message changes nothing.
2. A plain message, which needs nothing but the append, skips them: `put_plain` looks at the flags
   and calls the kernel's append.
3. After the append a put waits for the flush and for the replicas, as the options say.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import perf_counter_ns
from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.format.appending import PropertyEdits
from rocketlake.model import flags as sys_flags
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.model.topics import is_lmq
from rocketlake.store.api import (
    AppendRequest,
    BatchRequest,
    PutReceipt,
    PutStatus,
    ReplicaAnswer,
    SendFields,
)
from rocketlake.store.log.commit_log import CommitLog, Step
from rocketlake.store.log.queue_offsets import QueueOffsets, QueueSlot
from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.options import CompatVersion, StoreOptions
from rocketlake.store.ports import AppendListener, PutHook, Replicator, TopicCatalog
from rocketlake.store.put import checks as put_checks
from rocketlake.store.put import hooks as put_hooks
from rocketlake.store.put.batch_append import BatchAppender
from rocketlake.store.put.durability import Durability
from rocketlake.store.put.future import PutFuture
from rocketlake.store.put.message_fields import (
    inert,
    light_offsets,
    plain_fields,
    waits_for_answer,
    with_properties,
    without_property,
)
from rocketlake.store.put.no_replicas import NoReplicas
from rocketlake.store.queue.light_queues import may_fan_out, number_of
from rocketlake.store.role import Role
from rocketlake.store.running_flags import RunningFlags
from rocketlake.store.stats.store_stats import SparseLog, StoreStats

log = logging.getLogger(__name__)

_OK: Final = PutStatus.PUT_OK
_SAMPLE: Final = 15  # of plain puts, one in 16 is timed; slow appends always are
_BUSY_MAX_MS: Final = 10_000_000


class PutParts(Struct, frozen=True):
    """The parts of a store that a put uses."""

    log: CommitLog
    offsets: QueueOffsets
    flags: RunningFlags
    catalog: TopicCatalog
    stats: StoreStats
    durability: Durability
    role: Role


class Putter:
    """Puts messages. Thread-safety: any thread may put."""

    def __init__(self, parts: PutParts, options: StoreOptions, clock: Clock) -> None:
        self._log = parts.log
        self._offsets = parts.offsets
        self._options = options
        self._flags = parts.flags
        self._clock = clock
        self._stats = parts.stats
        self._catalog = parts.catalog
        self.durability = parts.durability
        self.dispatch = parts.durability.dispatch
        self.waits = True  # whether a put does more after its append than wake dispatch
        self._notes = SparseLog(log, clock)
        self._shape = RecordShape.of(options)
        self._store_host = options.store_endpoint
        self._topics = parts.offsets.topics
        self._version = options.compat_version
        self._has_light_queues = put_checks.has_light_queues(options)
        self._busy_ms = parts.log.tail.busy_ms = options.os_page_cache_busy_time_out_mills
        # LogTail.append and append_fields: format/_kernel/pure/tail.py, compiled from tail.pxi.
        self._append_plain = parts.log.tail.append
        self._append_plain_fields = parts.log.tail.append_fields
        parts.log.on_slow = self._note_slow
        self._role = parts.role
        self._no_replicas = NoReplicas.of(options)
        self._hooks: tuple[PutHook, ...] = ()
        self._own_replicator: Replicator | None = None
        self._replicator: Replicator | None = None  # the one in use: its own, or NoReplicas
        self._batches = BatchAppender(parts.log, parts.stats, self._shape, options)
        self.limits_topics = True  # a store without the broker's hooks takes longer ones
        self._is_gated = True  # whether plain puts take the long way, `put`
        self._refusal: str | None = "the store is not started"

    # --- what changes while a store lives --------------------------------------------------------

    @property
    def hooks(self) -> tuple[PutHook, ...]:
        """The hooks that see messages before they are put, in order."""
        return self._hooks

    def add_hook(self, hook: PutHook, *, is_first: bool = False) -> None:
        """Add a hook that sees messages before they are put."""
        self._hooks = (hook, *self._hooks) if is_first else (*self._hooks, hook)
        self.update_gate()

    def set_replicator(self, replicator: Replicator | None) -> None:
        """Ask a replicator before a put is answered, while the store is a SYNC_MASTER."""
        self._own_replicator = replicator
        self.update_gate()

    def add_append_listener(self, listener: AppendListener) -> None:
        """Notify a listener of every append from the next one on."""
        self.durability.append_listeners = (*self.durability.append_listeners, listener)
        self.update_gate()

    def remove_append_listener(self, listener: AppendListener) -> None:
        """Stop notifying a listener of appends."""
        left = [each for each in self.durability.append_listeners if each is not listener]
        self.durability.append_listeners = tuple(left)
        self.update_gate()

    def open(self) -> None:
        """Accept messages from now on."""
        self._refusal = None
        self.update_gate()

    def refuse(self, reason: str) -> None:
        """Refuse messages from now on."""
        self._refusal = reason
        self._is_gated = True

    def close(self) -> None:
        """Refuse messages from now on, and log the warnings that were held back."""
        self.refuse("the store is closed")
        self._notes.close()

    def update_gate(self) -> None:
        """Apply the hooks, role and replicator to the puts that follow."""
        sees_all = any(not getattr(hook, "sees_only_special", False) for hook in self._hooks)
        asked = self._own_replicator or self._no_replicas
        self._replicator = asked if self._role.waits_for_replicas else None
        self.durability.replicator = self._replicator
        self.waits = not self.durability.only_wakes_dispatch
        self._is_gated = self._refusal is not None or sees_all or not self._role.takes_puts

    # --- putting ---------------------------------------------------------------------------------

    def put_plain(self, message: Message, queue_id: int) -> PutReceipt:
        """Put a message born here and now.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
            StorePoisonedError: a flush failed, now or before.
        """
        queues = self._topics.get(message.topic)
        slot = queues.get(queue_id) if queues is not None else None
        frame = slot.frame if slot is not None else None
        if slot is None or frame is None or self._is_gated or self._flags.bits:
            return self.put(self._request_of(message, queue_id))
        if self._replicator is not None and self._check_replicas() is not None:
            return self.put(self._request_of(message, queue_id))
        puts = slot.puts
        is_sampled = not puts.count & _SAMPLE
        is_timed = self.waits or is_sampled
        started = perf_counter_ns() if is_timed else 0
        receipt: PutReceipt | None = self._append_plain(message, slot, frame)
        if receipt is None:
            return self.put(self._request_of(message, queue_id))
        puts.count += 1
        puts.size += receipt.size
        if self.waits:
            receipt = self.durability.wait_durable(receipt)
        elif self.dispatch.is_idle or self.dispatch.has_reads:
            self.dispatch.wake_and_yield()
        if is_timed:
            self._note_timed(perf_counter_ns() - started, is_sampled=is_sampled)
        return receipt

    def _note_timed(self, elapsed_ns: int, *, is_sampled: bool) -> None:
        self._stats.put.add(elapsed_ns, 1 if self.waits else _SAMPLE + 1)
        if is_sampled:
            self._stats.note_append(self._log.tail.lock_ns, self._log.tail.copy_ns)

    def _note_slow(self, lock_ns: int, copy_ns: int) -> None:
        """Count a slow append; of the others only a sample is timed."""
        self._stats.note_append(lock_ns, copy_ns)
        if not self.waits:
            self._stats.put.add(lock_ns + copy_ns)

    def append_fields(
        self,
        fields: SendFields,
        edits: PropertyEdits,
        may_wait: bool = True,  # noqa: FBT001, FBT002 - a keyword costs a tenth of the call
    ) -> PutReceipt | None:
        """Append a message from its client's fields; None if it must take the long way.

        Without `may_wait` also None if another thread holds the append lock.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
        """
        queues = self._topics.get(fields.topic)
        slot = queues.get(fields.queue_id) if queues is not None else None
        frame = slot.frame if slot is not None else None
        if slot is None or frame is None or self._is_gated or self._flags.bits:
            return None
        if self._replicator is not None and self._check_replicas() is not None:
            return None
        receipt: PutReceipt | None
        receipt = self._append_plain_fields(fields, slot, frame, edits, may_wait)
        if receipt is not None:
            puts = slot.puts
            puts.count += 1
            puts.size += receipt.size
        return receipt

    def answer_later(self, receipt: PutReceipt) -> PutReceipt | Future[PutReceipt]:
        """Return the final receipt of a put that was appended, or a future of it."""
        if self.durability.answers_at_once:
            return self.durability.wait_durable(receipt)
        future = PutFuture()
        self.durability.complete_when_durable(receipt, future, waits=True)
        return future

    def put_plain_async(self, message: Message, queue_id: int) -> Future[PutReceipt]:
        """Put a message born here and now; the future completes when `put_plain` would return.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
        """
        slot = self._offsets.find(message.topic, queue_id)
        receipt: PutReceipt | None = None
        frame = slot.frame if slot is not None else None
        is_open = not (self._is_gated or self._flags.bits) and self._check_replicas() is None
        if is_open and slot is not None and frame is not None:
            receipt = self._append_plain(message, slot, frame)
        if slot is None or receipt is None:
            return self.put_async(self._request_of(inert(message), queue_id))
        slot.puts.count += 1
        slot.puts.size += receipt.size
        future = PutFuture()
        self.durability.complete_when_durable(receipt, future, waits=True)
        return future

    def put(self, request: AppendRequest) -> PutReceipt:
        """Put a message.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
            StorePoisonedError: a flush failed, now or before.
        """
        started = perf_counter_ns()
        receipt, waits = self.append(request)
        return self._finish(receipt, started, waits=waits)

    def _finish(self, receipt: PutReceipt, started: int, *, waits: bool) -> PutReceipt:
        if receipt.is_ok:
            receipt = self.durability.wait_durable(receipt, waits=waits)
        self._note_end(receipt, started)
        return receipt

    def put_async(self, request: AppendRequest) -> Future[PutReceipt]:
        """Put a message; the future completes when `put` would return, and raises what it would."""
        return self._later(lambda: self.append(request))

    def put_batch(self, batch: BatchRequest) -> PutReceipt:
        """Put messages of one topic into one queue, all of them or none.

        Raises:
            ValueError: one of them cannot be encoded; nothing was changed.
            StorePoisonedError: a flush failed, now or before.
        """
        started = perf_counter_ns()
        return self._finish(self.append_batch(batch), started, waits=batch.wait)

    def put_batch_async(self, batch: BatchRequest) -> Future[PutReceipt]:
        """Put a batch; the future completes when `put_batch` would return."""
        return self._later(lambda: (self.append_batch(batch), batch.wait))

    def _later(self, append: Callable[[], tuple[PutReceipt, bool]]) -> Future[PutReceipt]:
        future = PutFuture()
        self.complete_later(append, future)
        return future

    def complete_later(
        self, append: Callable[[], tuple[PutReceipt, bool]], future: PutFuture
    ) -> None:
        """Append in this thread; the future completes when a put would return."""
        started = perf_counter_ns()
        try:
            receipt, waits = append()
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)
            return
        self._note_end(receipt, started)
        if receipt.is_ok:
            self.durability.complete_when_durable(receipt, future, waits=waits)
        else:
            future.answer(receipt)

    def _note_end(self, receipt: PutReceipt, started: int) -> None:
        self._stats.note_put_end(perf_counter_ns() - started, is_ok=receipt.is_ok)
        if receipt.status is not _OK:
            self._notes.warning(
                receipt.status, "put ended status=%s reason=%s", receipt.status, receipt.reason
            )

    # --- staged records --------------------------------------------------------------------------

    @property
    def takes_records(self) -> bool:
        """Whether records can be appended in bulk: no hook or replicator wants each by itself."""
        return not self._is_gated and self._replicator is None

    def note_rows(self, shares: Sequence[tuple[str, int, int]]) -> None:
        """Count the messages and bytes that topics received in bulk, and wake dispatch."""
        for topic, count, size in shares:
            self._stats.note_put(topic, count=count, size=size)
        self.durability.wake_all()

    # --- checks and append -----------------------------------------------------------------------

    def append(self, request: AppendRequest) -> tuple[PutReceipt, bool]:
        """Check and append; return the receipt, and whether the put waits for more than that.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
            StorePoisonedError: a flush failed before.
        """
        refused = self.check_before(request.message.topic, is_message=True)
        if refused is not None:
            return refused, False
        shown = put_hooks.show_message(self._hooks, request)
        if isinstance(shown, PutReceipt):
            return shown, False
        request = shown
        message = without_property(inert(request.message), names.MULTI_QUEUE_OFFSET)
        message = plain_fields(message, drops_crc=self._options.enabled_append_prop_crc)
        refused = (
            put_checks.check_inner_batch(request, self._catalog.is_batch_queue)
            or (self._check_replicas() if waits_for_answer(request.message) else None)
            or self._check_sizes(message, request)
            or self._check_light_queues(message)
        )
        if refused is not None:
            return refused, False
        receipt = self._append_checked(message, request)
        if receipt.is_ok:
            self._stats.note_put(message.topic, count=receipt.count, size=receipt.size)
        return receipt, waits_for_answer(request.message)

    def _append_checked(self, message: Message, request: AppendRequest) -> PutReceipt:
        topic, queue_id = message.topic, request.queue_id
        frame = self._shape.frame(
            topic,
            queue_id,
            sys_flag=request.sys_flag,
            born_host=request.born_host,
            store_host=request.store_host,
            reconsume_times=request.reconsume_times,
            prepared_transaction_offset=request.prepared_transaction_offset,
        )
        slot: QueueSlot | None = None
        if sys_flags.enters_queue(request.sys_flag):
            slot = self.slot(topic, queue_id)
        step = self._step_of(message, request, slot)
        if isinstance(step, PutReceipt):
            return step
        receipt = self._log.append_step(message, slot, frame, request.born_timestamp, step=step)
        assert receipt is not None, "only a guarded frame turns a message away"
        return receipt

    def append_batch(self, batch: BatchRequest) -> PutReceipt:
        """Check and append a batch; raises as `append` does."""
        refused = self.check_before(batch.topic)
        if refused is None and batch.wait:
            refused = self._check_replicas()
        asked = refused or put_hooks.show_batch(self._hooks, batch)
        if isinstance(asked, PutReceipt):
            return asked
        return self._batches.append(asked, self.slot(asked.topic, asked.queue_id))

    def check_before(self, topic: str, *, is_message: bool = False) -> PutReceipt | None:
        """Check the store first, then the topic [checkBeforePutMessage]."""
        self.durability.poison.check()
        unavailable = PutStatus.SERVICE_NOT_AVAILABLE
        if self._refusal is not None:
            return put_checks.refuse(unavailable, self._refusal)
        if not self._role.takes_puts:
            return put_checks.refuse(unavailable, "a replica takes no messages (brokerRole=SLAVE)")
        if not self._flags.is_writable:
            return put_checks.refuse(
                unavailable, f"the store is not writable: {self._flags.explain()}"
            )
        topic_refused = put_checks.check_topic(topic, self._version) if self.limits_topics else None
        topic_refused = topic_refused or put_checks.check_name(topic, self._shape.version(topic))
        # Compat: 4.9 looks at its locks first, 4.6 behind the properties of a message.
        if self._version is CompatVersion.V4_9:
            return self._check_busy() or topic_refused
        is_later = is_message and self._version is CompatVersion.V4_6
        return topic_refused or (None if is_later else self._check_busy())

    def _check_sizes(self, message: Message, request: AppendRequest) -> PutReceipt | None:
        refused = put_checks.check_sizes(message, request, self._shape, self._version)
        is_last = self._version is CompatVersion.V4_6
        return put_checks.refuse_busy(refused, self._check_busy) if is_last else refused

    def _check_light_queues(self, message: Message) -> PutReceipt | None:
        if not self._has_light_queues:
            return None
        known = self._offsets.light_queues
        return put_checks.check_light_queues(message) or put_checks.check_light_queue_count(
            message, known, self._options
        )

    def _check_busy(self) -> PutReceipt | None:
        if not self.is_busy():
            return None
        text = f"an append has held the log for more than {self._busy_ms} ms"
        return put_checks.refuse(PutStatus.OS_PAGE_CACHE_BUSY, text)

    def is_busy(self) -> bool:
        """Tell whether an append has held the log for too long [isOSPageCacheBusy]."""
        since = self._log.lock_since_ms
        return bool(since) and self._busy_ms < self._clock.now_ms() - since < _BUSY_MAX_MS

    def _check_replicas(self) -> PutReceipt | None:
        if self._replicator is None:
            return None
        try:
            status = self._replicator.check(self._log.wrote_where)
        except Exception as error:
            log.exception("replicator failed")
            return put_checks.refuse(PutStatus.UNKNOWN_ERROR, f"the replicator failed: {error!r}")
        if status is _OK:
            return None
        answer = status if isinstance(status, ReplicaAnswer) else ReplicaAnswer(status)
        if answer.status is _OK:
            return None
        return put_checks.refuse(answer.status, answer.reason or "too few replicas follow the log")

    # --- queues ----------------------------------------------------------------------------------

    def slot(self, topic: str, queue_id: int) -> QueueSlot:
        """Return a queue as the appender sees it, made when it is first named."""
        slot = self._offsets.slot(topic, queue_id)
        slot.puts = slot.puts or self._stats.topic(topic)
        if slot.frame is None and queue_id >= 0 and not self._catalog.is_batch_queue(topic):
            slot.frame = self._shape.plain_frame(topic, queue_id)
        return slot

    def _step_of(
        self, message: Message, request: AppendRequest, slot: QueueSlot | None
    ) -> Step | PutReceipt:
        """Return how this append moves queue offsets; or a receipt that ends the put."""
        properties = message.properties
        if slot is None or not properties:
            return Step()
        if request.sys_flag & sys_flags.INNER_BATCH:
            count = max(number_of(properties.get(names.INNER_NUM), 1), 1)
            return Step(
                count,
                rewrite=lambda: with_properties(message, {names.INNER_BASE: str(slot.next_offset)}),
            )
        fans_out = self._has_light_queues and names.MULTI_DISPATCH in properties
        if not fans_out or not may_fan_out(message.topic):
            return Step()
        queues = properties[names.MULTI_DISPATCH].split(names.MULTI_SEPARATOR)
        light = [self._offsets.slot(q, 0 if is_lmq(q) else request.queue_id) for q in queues if q]
        self._offsets.light_queues.update(slot.topic for slot in light)
        return Step(1, light, rewrite=lambda: with_properties(message, light_offsets(light)))

    def _request_of(self, message: Message, queue_id: int) -> AppendRequest:
        return AppendRequest(
            message=message,
            queue_id=queue_id,
            born_timestamp=self._clock.now_ms(),
            born_host=self._store_host,
        )
