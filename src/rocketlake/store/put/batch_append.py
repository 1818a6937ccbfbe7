"""BatchAppender: appends several messages to one queue, all of them or none."""

from msgspec.structs import replace

from rocketlake.format.appending import are_inert
from rocketlake.model import properties as names
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.log.queue_offsets import QueueSlot
from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.options import StoreOptions
from rocketlake.store.put import checks as put_checks
from rocketlake.store.put.message_fields import inert, without_property
from rocketlake.store.stats.store_stats import StoreStats


class BatchAppender:
    """Appends batches to the log. Thread-safety: any thread may append."""

    def __init__(
        self, log: CommitLog, stats: StoreStats, shape: RecordShape, options: StoreOptions
    ) -> None:
        self._log = log
        self._stats = stats
        self._shape = shape
        self._store_host = options.store_endpoint
        self._options = options
        self._has_light_queues = options.enable_lmq and options.enable_multi_dispatch

    def append(self, batch: BatchRequest, slot: QueueSlot) -> PutReceipt:
        """Check the messages and append them.

        Raises:
            ValueError: one of them cannot be encoded; nothing was changed.
        """
        if not are_inert(batch.messages):
            batch = replace(batch, messages=[inert(message) for message in batch.messages])
        frame = slot.frame
        is_plain = not batch.sys_flag and batch.store_host is None and frame is not None
        if is_plain and batch.born_host == self._store_host:
            receipt = self._log.append_batch(batch.messages, slot, frame, batch.born_timestamp)
            if receipt is not None:
                return self._note(batch.topic, receipt)
        return self._check(batch) or self._append_checked(batch, slot)

    def _check(self, batch: BatchRequest) -> PutReceipt | None:
        shape, version = self._shape, self._options.compat_version
        refused = put_checks.check_batch(batch, shape, self._options.max_message_size, version)
        for message in batch.messages if refused is None else ():
            request = AppendRequest(
                message=message,
                queue_id=0,
                born_timestamp=0,
                born_host=batch.born_host,
                store_host=batch.store_host,
            )
            refused = put_checks.check_sizes(message, request, shape, version)
            if refused is None and self._has_light_queues:
                refused = put_checks.check_light_queues(
                    message
                ) or put_checks.check_batch_light_queues(message)
            if refused is not None:
                break
        return refused

    def _append_checked(self, batch: BatchRequest, slot: QueueSlot) -> PutReceipt:
        frame = self._shape.frame(
            batch.topic,
            batch.queue_id,
            sys_flag=batch.sys_flag,
            born_host=batch.born_host,
            store_host=batch.store_host,
        )
        messages = [
            without_property(message, names.MULTI_QUEUE_OFFSET) for message in batch.messages
        ]
        receipt = self._log.append_batch(messages, slot, frame, batch.born_timestamp)
        assert receipt is not None, "only a guarded frame turns a message away"
        return self._note(batch.topic, receipt)

    def _note(self, topic: str, receipt: PutReceipt) -> PutReceipt:
        if receipt.is_ok:
            self._stats.note_put(topic, count=receipt.count, size=receipt.size)
        return receipt
