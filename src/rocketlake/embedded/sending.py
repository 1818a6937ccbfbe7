"""Sender: messages on their way to the engine, each with its topic and its queue.

1. A good message for a topic that is known takes one look-up and one call.
2. A topic that is not known is made when its first message was taken: one that is refused leaves
   nothing behind.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Final, NoReturn

from rocketlake.delay.ports import DueRequest
from rocketlake.embedded import inner_batch
from rocketlake.embedded.checks import check_message, explain, topic_size_max
from rocketlake.embedded.ports import Engine
from rocketlake.embedded.routes import Route
from rocketlake.embedded.topics import TopicDesk
from rocketlake.format.record import StoredMessage
from rocketlake.model import properties as names
from rocketlake.model.flags import TRANSACTION_MASK
from rocketlake.model.message import Message
from rocketlake.model.topics import TopicConfig, is_system_topic
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt

_OF_THE_PLACE: Final = frozenset({names.RECORD_CRC, names.INNER_BASE, names.MULTI_QUEUE_OFFSET})
"""Properties that a put writes: they speak of one record and its place in the log."""


class Sender:
    """Puts messages. Thread-safety: any thread may put."""

    def __init__(self, engine: Engine, desk: TopicDesk) -> None:
        self._engine = engine
        self._desk = desk
        self._routes = desk.routes
        self._put_plain = engine.put_plain
        self._put_plain_async = engine.put_plain_async
        self._host = engine.options.store_endpoint
        self._may_create = engine.options.auto_create_topic_enable

    # --- one message ---------------------------------------------------------------------------

    def put(self, message: Message, queue_id: int | None = None) -> PutReceipt:
        """Store a message; the receipt's `status` says how that ended, its offsets where it is.

        Without `queue_id` it goes to the queue of its `ordering_key`; without that, queues take
        turns. A topic that is not known is made. With `flush_disk_type="SYNC_FLUSH"` the message
        is on disk when PUT_OK is returned; otherwise it goes there in the background.

        Raises:
            TypeError, ValueError: a record cannot express the message, or the topic has no such
                queue; the text names field, value and way out, and nothing was changed.
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
            return self._put_plain(message, queue_id)
        except (AttributeError, TypeError, ValueError) as error:
            explain(message, error)

    def put_async(self, message: Message, queue_id: int | None = None) -> Future[PutReceipt]:
        """Store a message without waiting for the disk; the future has what `put` would return.

        The message has its place in the queue when this returns.

        Raises:
            TypeError, ValueError: as `put`.
        """
        try:
            config = None
            route = self._routes.get(message.topic)
            if route is None:
                check_message(message)
                route, config = self._find_route(message.topic)
            queue = self._choose_queue(route, message, queue_id)
            future = self._put_plain_async(message, queue)
        except (AttributeError, TypeError, ValueError) as error:
            explain(message, error)
        if config is not None and _is_taken(future):
            self._desk.register(config)
        return future

    def put_again(self, message: StoredMessage) -> PutReceipt:
        """Store a message that a log held before, as a new record.

        Topic, queue, properties, body and birth stay; one that waited for its time waits again. A
        topic or queue that is not known is made.

        Raises:
            ValueError: a record cannot express the message, or the topic may not be written.
            StorePoisonedError: a flush failed, now or before.
        """
        if not is_system_topic(message.topic):
            self._desk.make_room(message.topic, message.queue_id + 1)
            self._find_route(message.topic)[0].check(message.topic, message.queue_id)
        properties = {k: v for k, v in message.properties.items() if k not in _OF_THE_PLACE}
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
        return self._engine.put(request)

    # --- several -------------------------------------------------------------------------------

    def put_batch(self, messages: Iterable[Message], queue_id: int | None = None) -> PutReceipt:
        """Store messages of one topic behind each other in one queue: all of them, or none.

        The receipt's offsets are those of the first. In a topic whose queues are batch queues they
        become one record.

        Raises:
            TypeError, ValueError: as `put`; there is no message, or they have several topics.
        """
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
            self._desk.register(config)
        return receipt

    def put_batch_async(
        self, messages: Iterable[Message], queue_id: int | None = None
    ) -> Future[PutReceipt]:
        """Store messages as `put_batch` does; the future has what it would return.

        Raises:
            TypeError, ValueError: as `put_batch`.
        """
        batch = list(messages)
        for message in batch:
            check_message(message)
        request, config = self._batch_request(batch, queue_id)
        if isinstance(request, BatchRequest):
            future = self._engine.put_batch_async(request)
        else:
            future = self._engine.put_async(request)
        if config is not None and _is_taken(future):
            self._desk.register(config)
        return future

    def _batch_request(
        self, batch: Sequence[Message], queue_id: int | None
    ) -> tuple[BatchRequest | AppendRequest, TopicConfig | None]:
        if not batch:
            raise ValueError("messages is empty: a batch needs at least one message")
        first = batch[0]
        topic = first.topic
        for message in batch:
            if message.topic != topic:
                raise ValueError(
                    f"messages are of several topics, {topic!r} and {message.topic!r}; a batch has"
                    " one"
                )
        route, config = self._find_route(topic)
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

    # --- topics and queues ---------------------------------------------------------------------

    def _put_first(self, message: Message, queue_id: int | None) -> PutReceipt:
        check_message(message)
        route, config = self._find_route(message.topic)
        queue = self._choose_queue(route, message, queue_id)
        receipt = self._put_plain(message, queue)
        if config is not None and receipt.is_ok:
            self._desk.register(config)
        return receipt

    def _find_route(self, topic: str) -> tuple[Route, TopicConfig | None]:
        """Return the route of a topic, and the topic itself where it is yet to be made.

        Raises:
            ValueError: the topic may not be written, or there is none and none may be made.
        """
        route = self._routes.get(topic)
        if route is not None:
            return route, None
        known = self._desk.book.get(topic)
        if known is not None:
            # Why: a topic that another thread is making has its route when it is on the disk.
            route = self._desk.settled_route(topic)
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
        config = self._desk.make_config(topic)
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


def _is_taken(future: Future[PutReceipt]) -> bool:
    """Tell whether the log has the message: a put that is refused is answered at once."""
    return not future.done() or (future.exception() is None and future.result().is_ok)
