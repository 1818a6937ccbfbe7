"""Sender: puts messages to the engine, each into a queue of its topic.

1. A valid message for a known topic takes one lookup and one call.
2. An unknown topic is created after its first message was appended: a refused message leaves
   nothing behind.
3. The engine answers with statuses. A put that did not end with PUT_OK raises here, unless the
   store was opened with `raise_on_failure=False`; a successful put costs one comparison for that.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from rocketlake.delay.store_access import DueRequest
from rocketlake.embedded import inner_batch
from rocketlake.embedded.checks import check_message, explain
from rocketlake.embedded.plug_ins import Engine
from rocketlake.embedded.put_failure import is_of_closed_store, put_failure, raising
from rocketlake.embedded.routes import Route
from rocketlake.embedded.send_back import OF_ONE_RECORD
from rocketlake.embedded.topic_registry import TopicRegistry
from rocketlake.errors import StoreClosedError, StoreError
from rocketlake.format.record import StoredMessage
from rocketlake.model.flags import TRANSACTION_MASK
from rocketlake.model.message import Message
from rocketlake.model.topics import TopicConfig, is_system_topic
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt, PutStatus
from rocketlake.store.put.future import OnFailure, PutFuture

_OK: Final = PutStatus.PUT_OK


class Sender:
    """Puts messages. Thread-safety: any thread may put."""

    def __init__(
        self, engine: Engine, topics: TopicRegistry, *, path: Path, raises: bool = True
    ) -> None:
        """Without `raises` a failed put returns a receipt with its status."""
        self.path = path
        self._engine = engine
        self._raises = raises
        self._on_failure: OnFailure | None = self._failure if raises else None
        self._topics = topics
        self._routes = topics.routes
        # Of an engine without plug-ins: Putter.put_plain, in store/put/putter.py.
        self._put_plain = engine.put_plain
        self._put_plain_async = engine.put_plain_async
        self._host = engine.options.store_endpoint

    # --- one message ---------------------------------------------------------------------------

    def put(self, message: Message, queue_id: int | None = None) -> PutReceipt:
        """Store a message; the receipt has its position.

        Without `queue_id` it goes to the queue of its `ordering_key`, or else to the queues in
        turn. An unknown topic is created. With `flush_disk_type="SYNC_FLUSH"` the message is on
        disk when this returns; otherwise it is flushed in the background.

        Raises:
            PutFailedError: the store refused the message, or could not flush or replicate it;
                `may_be_stored` tells which. With `raise_on_failure=False` the `status` of the
                receipt says so instead.
            TypeError, ValueError: a record cannot hold the message, or the topic has no such
                queue; the message names field, value and way out, and nothing was changed.
            StoreClosedError: the store is closed.
            StorePoisonedError: a flush failed, now or before.
        """
        try:
            route = self._routes.get(message.topic)
            if route is None:
                return self._put_first(message, queue_id)
            if queue_id is None:
                key = message.ordering_key
                queue_id = route.turn() if key is None else route.queue_of(key)
            elif not 0 <= queue_id < route.count:
                route.check(message.topic, queue_id)
            # The engine refuses what a record cannot hold; `explain` says it better.
            receipt = self._put_plain(message, queue_id)
        except (AttributeError, TypeError, ValueError) as error:
            explain(message, error)
        return receipt if receipt.status is _OK else self._answer(receipt, message.topic)

    def put_async(self, message: Message, queue_id: int | None = None) -> Future[PutReceipt]:
        """Store a message without waiting for the disk; the future has the result of `put`.

        The message has its queue offset when this returns. The future raises what `put` would
        raise after the append: PutFailedError, StorePoisonedError.

        Raises:
            TypeError, ValueError, StoreClosedError: as `put`.
        """
        try:
            config = None
            route = self._routes.get(message.topic)
            if route is None:
                refused = self._refuse_if_closed()
                if refused is not None:
                    return _done(refused)
                check_message(message)
                route, config = self._topics.find_route(message.topic)
            queue = self._choose_queue(route, message, queue_id)
            future = self._put_plain_async(message, queue)
        except (AttributeError, TypeError, ValueError) as error:
            explain(message, error)
        if config is not None and _is_appended(future):
            self._add_topic(config)
        if self._on_failure is not None:
            # Why: with many puts in flight, one call less is measurable.
            if type(future) is PutFuture:
                future.on_failure = self._on_failure
            else:
                future = raising(future, self._on_failure)
        return future

    def put_again(self, message: StoredMessage) -> PutReceipt:
        """Store a message of an earlier log as a new record.

        Topic, queue, properties, body, born time and born host stay; a delayed message is delayed
        again. A missing topic or queue is created.

        Raises:
            ValueError: a record cannot hold the message, or the topic may not be written.
            PutFailedError, StoreClosedError, StorePoisonedError: as `put`.
        """
        refused = self._refuse_if_closed()
        if refused is not None:
            return refused
        if not is_system_topic(message.topic):
            self._topics.ensure_queues(message.topic, message.queue_id + 1)
            self._topics.find_route(message.topic)[0].check(message.topic, message.queue_id)
        properties = {k: v for k, v in message.properties.items() if k not in OF_ONE_RECORD}
        again = Message(
            topic=message.topic,
            body=message.stored_body,
            properties=properties,
            flag=message.flag,
        )
        request = DueRequest(
            message=again,
            queue_id=message.queue_id,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            sys_flag=message.sys_flag & ~TRANSACTION_MASK,
            reconsume_times=message.reconsume_times,
        )
        return self._answer(self._engine.put(request), message.topic)

    # --- several -------------------------------------------------------------------------------

    def put_batch(self, messages: Iterable[Message], queue_id: int | None = None) -> PutReceipt:
        """Store messages of one topic, one after another, in one queue: all of them, or none.

        The offsets of the receipt are those of the first. In a topic with batch queues the
        messages become one record.

        Raises:
            TypeError, ValueError: as `put`; there is no message, or there are several topics.
            PutFailedError, StoreClosedError, StorePoisonedError: as `put`.
        """
        refused = self._refuse_if_closed()
        if refused is not None:
            return refused
        batch = messages if isinstance(messages, list) else list(messages)
        try:
            request, config = self._batch_request(batch, queue_id)
            if isinstance(request, BatchRequest):
                receipt = self._engine.put_batch(request)
            else:
                receipt = self._engine.put(request)
        except (AttributeError, TypeError, ValueError) as error:
            _explain_batch(batch, error)
        if config is not None and receipt.is_ok:
            self._add_topic(config)
        return self._answer(receipt, batch[0].topic)

    def put_batch_async(
        self, messages: Iterable[Message], queue_id: int | None = None
    ) -> Future[PutReceipt]:
        """Store messages as `put_batch` does; the future has its result.

        Raises:
            TypeError, ValueError, StoreClosedError: as `put_batch`.
        """
        refused = self._refuse_if_closed()
        if refused is not None:
            return _done(refused)
        batch = list(messages)
        for message in batch:
            check_message(message)
        request, config = self._batch_request(batch, queue_id)
        if isinstance(request, BatchRequest):
            future = self._engine.put_batch_async(request)
        else:
            future = self._engine.put_async(request)
        if config is not None and _is_appended(future):
            self._add_topic(config)
        return future if self._on_failure is None else raising(future, self._on_failure)

    def _batch_request(
        self, batch: Sequence[Message], queue_id: int | None
    ) -> tuple[BatchRequest | AppendRequest, TopicConfig | None]:
        if not batch:
            raise ValueError("messages is empty: a batch needs at least one message")
        first = batch[0]
        topic = first.topic
        if topic not in self._routes:
            for message in batch:
                check_message(message)
        for message in batch:
            if message.topic != topic:
                raise ValueError(
                    f"messages are of several topics, {topic!r} and {message.topic!r}; a batch has"
                    " one"
                )
        route, config = self._topics.find_route(topic)
        queue = self._choose_queue(route, _leader(batch, queue_id), queue_id)
        if route.is_batch and len(batch) > 1:
            packed = inner_batch.pack(batch)
            return self._request(packed, queue, inner_batch.PACKED), config
        request = BatchRequest(
            messages=batch,
            topic=topic,
            queue_id=queue,
            born_timestamp=self._engine.clock.now_ms(),
            born_host=self._host,
            wait=first.wait or any(message.wait for message in batch),
        )
        return request, config

    # --- results of puts -----------------------------------------------------------------------

    @abstractmethod
    def require_open(self) -> None:
        """Raise unless the store is open, and in this process.

        Raises:
            StoreClosedError: it is closed, or was opened before this process was forked.
        """

    @abstractmethod
    def _closed_error(self) -> StoreClosedError:
        """Return what `require_open` raises."""

    def _refuse_if_closed(self) -> PutReceipt | None:
        """Return the receipt of a put into a closed store; None if the store is open.

        Raises:
            StoreClosedError: the store is closed, and failures are raised.
        """
        try:
            self.require_open()
        except StoreClosedError as error:
            if self._raises:
                raise
            return PutReceipt(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        return None

    def _answer(self, receipt: PutReceipt, topic: str) -> PutReceipt:
        """Return the receipt of a put, or raise its error.

        Raises:
            PutFailedError, StoreClosedError: it is not PUT_OK, and failures are raised.
        """
        if receipt.status is not _OK and self._raises:
            raise self._failure(receipt, topic)
        return receipt

    def _failure(self, receipt: PutReceipt, topic: str = "") -> StoreError:
        if is_of_closed_store(receipt):
            return self._closed_error()
        return put_failure(receipt, self.path, topic)

    # --- topics and queues ---------------------------------------------------------------------

    def _put_first(self, message: Message, queue_id: int | None) -> PutReceipt:
        refused = self._refuse_if_closed()
        if refused is not None:
            return refused
        check_message(message)
        route, config = self._topics.find_route(message.topic)
        queue = self._choose_queue(route, message, queue_id)
        receipt = self._put_plain(message, queue)
        if config is not None and receipt.is_ok:
            self._add_topic(config)
        return self._answer(receipt, message.topic)

    def _add_topic(self, config: TopicConfig) -> None:
        """Add the topic of an appended message."""
        # Why: if the store was closed meanwhile, the next start adds the topic.
        with suppress(StoreClosedError):
            self._topics.register(config)

    def _choose_queue(self, route: Route, message: Message, queue_id: int | None) -> int:
        if queue_id is not None:
            return route.check(message.topic, queue_id)
        key = message.ordering_key
        return route.turn() if key is None else route.queue_of(key)

    def _request(self, message: Message, queue_id: int, sys_flag: int = 0) -> AppendRequest:
        return AppendRequest(
            message=message,
            queue_id=queue_id,
            born_timestamp=self._engine.clock.now_ms(),
            born_host=self._host,
            sys_flag=sys_flag,
        )


def _leader(batch: Sequence[Message], queue_id: int | None) -> Message:
    """Return the message that determines the queue of a batch.

    Raises:
        ValueError: no queue is given, and the messages have different ordering keys.
    """
    if queue_id is None:
        keys = {message.ordering_key for message in batch}
        if len(keys) > 1:
            shown = sorted(map(repr, keys))
            raise ValueError(
                f"messages have different ordering keys ({', '.join(shown[:3])}); put them"
                " one by one, or name their queue_id"
            )
    return batch[0]


def _explain_batch(batch: Sequence[Message], error: Exception) -> NoReturn:
    """Raise the most specific error for messages that cannot be put."""
    for message in batch:
        check_message(message)
    raise error


def _done(receipt: PutReceipt) -> Future[PutReceipt]:
    """Return a future that has its receipt."""
    future = PutFuture()
    future.answer(receipt)
    return future


def _is_appended(future: Future[PutReceipt]) -> bool:
    """Tell whether the message was appended: a refused put has its receipt at once."""
    return not future.done() or (future.exception() is None and future.result().is_ok)
