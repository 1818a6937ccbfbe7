"""Puts of a server: fields that are not decoded, and callers that must not wait.

1. A plain message goes from its client's fields into the log by one call of the kernel. Any other
   is decoded and put as `Putter.put` does.
2. `NonBlockingPutter` never waits for the append lock, a new file or the flush, so that an event
   loop can call it. A message that cannot be appended at once is appended by a thread, and so are
   all that follow until none is left: the puts of one caller keep their order.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from time import sleep
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.files.background_service import BackgroundService
from rocketlake.format.appending import PropertyEdits
from rocketlake.format.record import decode_properties
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt, PutStatus, SendFields
from rocketlake.store.put.field_types import check_fields, explain
from rocketlake.store.put.future import PutFuture
from rocketlake.store.put.putter import Putter

_CROWD: Final = 64  # with more waiting puts their callers yield to the thread

Answer: TypeAlias = PutReceipt | Future[PutReceipt]
"""A receipt if the put is complete, a future if it waits for something."""


class ServerProperties(Struct, frozen=True):
    """What a server changes in the properties of every message that clients send."""

    added: Mapping[str, str] = {}
    """Set, in place of what the client says."""
    dropped: Collection[str] = ()

    def apply(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return properties with these changes."""
        left_out = {*self.added, *self.dropped}
        kept = {name: value for name, value in properties.items() if name not in left_out}
        return {**kept, **self.added}


class FieldPutter:
    """Puts messages from their clients' fields. Thread-safety: any thread may put."""

    def __init__(self, putter: Putter) -> None:
        self._putter = putter
        self._changes = ServerProperties()
        self.edits = PropertyEdits({}, ())

    def edit_properties(self, changes: ServerProperties) -> None:
        """Change the properties of all messages that follow.

        Raises:
            ValueError: a property cannot be written.
        """
        self.edits = PropertyEdits(changes.added, changes.dropped)
        self._changes = changes

    def put(self, fields: SendFields) -> PutReceipt:
        """Put a message; raises as `Putter.put` does."""
        try:
            receipt = self._putter.append_fields(fields, self.edits)
        except (AttributeError, TypeError, ValueError) as error:
            explain(fields, error)
        if receipt is None:
            return self._putter.put(self.request(fields))
        return self._putter.durability.wait_durable(receipt)

    def append(self, fields: SendFields) -> tuple[PutReceipt, bool]:
        """Append a message; return the receipt, and whether the put waits for durability."""
        receipt = self._putter.append_fields(fields, self.edits)
        return self._putter.append(self.request(fields)) if receipt is None else (receipt, True)

    def request(self, fields: SendFields) -> AppendRequest:
        """Decode a message.

        Raises:
            ValueError: the fields are not those of a message.
        """
        check_fields(fields)
        raw = fields.properties
        data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
        message = Message(
            topic=fields.topic,
            body=bytes(fields.body),
            properties=self._changes.apply(decode_properties(data)),
            flag=fields.flag,
        )
        return AppendRequest(
            message=message,
            queue_id=fields.queue_id,
            born_timestamp=fields.born_timestamp,
            born_host=Endpoint.decode(fields.born_host),
            sys_flag=fields.sys_flag,
            reconsume_times=fields.reconsume_times,
        )


class NonBlockingPutter(BackgroundService):
    """Puts for callers that must not wait. Thread-safety: any thread may put.

    An error of a put is raised by its future.
    """

    def __init__(self, putter: Putter, fields: FieldPutter) -> None:
        super().__init__("rocketlake-append", is_daemon=True)
        self._putter = putter
        self._fields = fields
        self._dispatch = putter.dispatch
        # Invariant: a put stays in here until it is appended, so that no later one overtakes it.
        self._waiting: deque[tuple[Callable[[], tuple[PutReceipt, bool]], PutFuture]] = deque()
        self.handed_over_count = 0
        """How many puts were handed to the thread."""

    @property
    def waiting_count(self) -> int:
        """How many puts are not appended yet."""
        return len(self._waiting)

    def put_fields(self, fields: SendFields) -> Answer:
        """Put a message from its client's fields.

        A body that is not a bytes object is copied, or in the log, when this returns.

        Raises:
            ValueError: the fields are not those of a message; for some errors the future raises it.
        """
        if not self._waiting:
            edits = self._fields.edits
            try:
                receipt = self._putter.append_fields(fields, edits, False)  # noqa: FBT003 - as declared
            except (AttributeError, TypeError, ValueError) as error:
                explain(fields, error)
            if receipt is not None:
                if self._putter.waits:
                    return self._putter.answer_later(receipt)
                dispatch = self._dispatch
                if dispatch.is_idle or dispatch.has_reads:
                    dispatch.wake_and_yield()
                return receipt
        own = fields
        if type(fields.body) is not bytes:
            check_fields(fields)
            own = replace(fields, body=bytes(fields.body))
        return self._hand_over(lambda: self._fields.append(own))

    def put(self, request: AppendRequest) -> Answer:
        """Put a message."""
        return self._hand_over(lambda: self._putter.append(request))

    def put_batch(self, batch: BatchRequest) -> Answer:
        """Put messages of one topic into one queue, all of them or none."""
        return self._hand_over(lambda: (self._putter.append_batch(batch), batch.wait))

    def _hand_over(self, append: Callable[[], tuple[PutReceipt, bool]]) -> Answer:
        future = PutFuture()
        self._waiting.append((append, future))
        self.handed_over_count += 1
        self.wakeup()
        if len(self._waiting) > _CROWD:
            # Why: a caller that puts in a tight loop keeps the interpreter from the thread.
            sleep(0)
        if self._is_closed and not self.is_running:
            # The last run may not have seen it; if it has, its own answer was a refusal, too.
            refused = PutStatus.SERVICE_NOT_AVAILABLE
            future.answer(PutReceipt(refused, reason="the store is closed"))
        return future

    def run_once(self) -> None:
        """Append the waiting puts, in order."""
        while self._waiting:
            append, future = self._waiting[0]
            try:
                self._putter.complete_later(append, future)
            except BaseException as error:  # noqa: BLE001 - the future raises it, `sys.exit` too
                future.set_exception(error)
            finally:
                self._waiting.popleft()
