"""Sender: messages on their way to the engine, each with its topic and its queue.

1. A good message for a topic that is known takes one look-up and one call.
2. A topic that is not known is made when its first message was taken: one that is refused leaves
   nothing behind.
3. The engine answers with statuses. Here a put that did not end with PUT_OK raises, unless the
   store was opened with `raise_on_failure=False`; a put that succeeds pays one comparison for that.
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
from rocketlake.embedded.ports import Engine
from rocketlake.embedded.put_failure import is_of_closed_store, put_failure, raising
from rocketlake.embedded.routes import Route
from rocketlake.embedded.send_back import OF_ONE_RECORD
from rocketlake.embedded.topic_registry import TopicRegistry
from rocketlake.errors import StoreClosedError, StoreError
from rocketlake.format.record import StoredMessage
from rocketlake.model.flags import TRANSACTION_MASK
from rocketlake.model.message import Message
from rocketlake.model.topics import TopicConfig, is_system_topic, topic_size_max
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt, PutStatus
from rocketlake.store.put.future import OnFailure, PutFuture

_OK: Final = PutStatus.PUT_OK


class Sender:
    """Puts messages. Thread-safety: any thread may put."""

    def __init__(
        self, engine: Engine, topics: TopicRegistry, *, path: Path, raises: bool = True
    ) -> None:
        """Without `raises` a put that fails is answered with its status."""
        self.path = path
        self._engine = engine
        self._raises = raises
        self._on_failure: OnFailure | None = self._failure if raises else None
        self._topics = topics
        self._routes = topics.routes
        self._put_plain = engine.put_plain
        self._put_plain_async = engine.put_plain_async
        self._host = engine.options.store_endpoint
        self._may_create = engine.options.auto_create_topic_enable

    # --- one message ---------------------------------------------------------------------------

    def put(self, message: Message, queue_id: int | None = None) -> PutReceipt:
        """Store a message; the receipt says where it is.

        Without `queue_id` it goes to the queue of its `ordering_key`; without that, queues take
        turns. A topic that is not known is made. With `flush_disk_type="SYNC_FLUSH"` the message
        is on disk when this returns; otherwise it goes there in the background.

        Raises:
            PutFailedError: the store refused the message, or could not keep the promise above;
                `may_be_stored` tells which. With `raise_on_failure=False` the receipt's `status`
                says so instead.
            TypeError, ValueError: a record cannot express the message, or the topic has no such
                queue; the text names field, value and way out, and nothing was changed.
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
            # What a record cannot express the engine refuses; `explain` has better words.
            receipt = self._put_plain(message, queue_id)
        except (AttributeError, TypeError, ValueError) as error:
            explain(message, error)
        return receipt if receipt.status is _OK else self._answer(receipt, message.topic)

    def put_async(self, message: Message, queue_id: int | None = None) -> Future[PutReceipt]:
        """Store a message without waiting for the disk; the future has what `put` would return.

        The message has its place in the queue when this returns. The future raises what `put`
        would raise once the message is on its way: PutFailedError, StorePoisonedError.

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
                route, config = self.find_route(message.topic)
            queue = self._choose_queue(route, message, queue_id)
            future = self._put_plain_async(message, queue)
        except (AttributeError, TypeError, ValueError) as error:
            explain(message, error)
        if config is not None and _is_taken(future):
            self._keep_topic(config)
        if self._on_failure is not None:
            # Why: a call less is felt where many puts are under way.
            if type(future) is PutFuture:
                future.on_failure = self._on_failure
            else:
                future = raising(future, self._on_failure)
        return future

    def put_again(self, message: StoredMessage) -> PutReceipt:
        """Store a message that a log held before, as a new record.

        Topic, queue, properties, body and birth stay; one that waited for its time waits again. A
        topic or queue that is not known is made.

        Raises:
            ValueError: a record cannot express the message, or the topic may not be written.
            PutFailedError, StoreClosedError, StorePoisonedError: as `put`.
        """
        refused = self._refuse_if_closed()
        if refused is not None:
            return refused
        if not is_system_topic(message.topic):
            self._topics.ensure_queues(message.topic, message.queue_id + 1)
            self.find_route(message.topic)[0].check(message.topic, message.queue_id)
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
        """Store messages of one topic behind each other in one queue: all of them, or none.

        The receipt's offsets are those of the first. In a topic whose queues are batch queues they
        become one record.

        Raises:
            TypeError, ValueError: as `put`; there is no message, or they have several topics.
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
            self._keep_topic(config)
        return self._answer(receipt, batch[0].topic)

    def put_batch_async(
        self, messages: Iterable[Message], queue_id: int | None = None
    ) -> Future[PutReceipt]:
        """Store messages as `put_batch` does; the future has what it would return.

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
        if config is not None and _is_taken(future):
            self._keep_topic(config)
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
        route, config = self.find_route(topic)
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

    # --- how a put ended -----------------------------------------------------------------------

    @abstractmethod
    def require_open(self) -> None:
        """Refuse to work unless the store is open, and in this process.

        Raises:
            StoreClosedError: it is closed, or was opened before this process was forked.
        """

    @abstractmethod
    def _closed_error(self) -> StoreClosedError:
        """Return what `require_open` raises."""

    def _refuse_if_closed(self) -> PutReceipt | None:
        """Return the answer to a put into a closed store; None if the store is open.

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
        """Return the receipt of a put, or raise what it means.

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
        route, config = self.find_route(message.topic)
        queue = self._choose_queue(route, message, queue_id)
        receipt = self._put_plain(message, queue)
        if config is not None and receipt.is_ok:
            self._keep_topic(config)
        return self._answer(receipt, message.topic)

    def _keep_topic(self, config: TopicConfig) -> None:
        """Keep the topic of a message that the log has."""
        # Why: where `close` came between the two, the next start adopts the topic of the message.
        with suppress(StoreClosedError):
            self._topics.register(config)

    def find_route(self, topic: str) -> tuple[Route, TopicConfig | None]:
        """Return the route of a topic, and its config if the topic does not exist yet.

        Raises:
            ValueError: the topic may not be written, or does not exist and is not created by a put.
        """
        route = self._routes.get(topic)
        if route is not None:
            return route, None
        known = self._topics.book.get(topic)
        if known is not None:
            # Why: a topic that another thread is making has its route when it is on the disk.
            route = self._topics.wait_for_route(topic)
            if route is not None:
                return route, None
            raise ValueError(
                f"topic {topic!r} may not be written (perm {known.perm},"
                f" {known.write_queue_count} write queues);"
                f" update_topic({topic!r}, writable=True) allows it"
            )
        if not self._may_create:
            raise ValueError(
                f"there is no topic {topic!r}, and auto_create_topic_enable is off;"
                f" create_topic({topic!r}) makes it"
            )
        config = self._topics.make_config(topic)
        if len(topic) > topic_size_max(topic):
            return Route(config), None  # the engine refuses it, with a status of its own
        return Route(config), config

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
    """Return the message that says where a batch goes.

    Raises:
        ValueError: no queue is named, and the messages belong to different ones.
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
    """Raise the best words for why messages cannot be put; at worst those there are."""
    for message in batch:
        check_message(message)
    raise error


def _done(receipt: PutReceipt) -> Future[PutReceipt]:
    """Return a future that is answered."""
    future = PutFuture()
    future.answer(receipt)
    return future


def _is_taken(future: Future[PutReceipt]) -> bool:
    """Tell whether the log has the message: a put that is refused is answered at once."""
    return not future.done() or (future.exception() is None and future.result().is_ok)
