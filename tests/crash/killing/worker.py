"""The process that is killed: it opens the store, compares it with the ledger, puts and consumes.

Every acknowledged put, every processed message and every written progress goes into the pipe at
once, so that nothing of it is lost with the process.
"""

import faulthandler
import logging
import os
import random
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspection import BrokenPromiseError, inspect
from ledger import (
    GROUP,
    TOPICS,
    Acked,
    AnyEvent,
    Closed,
    Committed,
    Done,
    Ledger,
    Opened,
    Put,
    Saved,
    Wrong,
    encode_event,
    name_of,
)
from msgspec import Struct

from rocketlake import failpoint
from rocketlake.clock import SystemClock
from rocketlake.embedded.open_store import open_store  # imported once, not in every fork
from rocketlake.embedded.store import Store
from rocketlake.model.message import Message
from rocketlake.store.api import PutReceipt, PutStatus

_DELIVER_S = 30.0


class Task(Struct, frozen=True, kw_only=True):
    """What one process does, and how it ends."""

    seed: str
    root: Path
    cycle: int
    options: dict[str, Any]
    later_ms: int
    """So much later than it is does this process believe to be."""
    writers: int = 1
    puts: int = 100
    point: str | None = None
    """The crash point that ends it, and how often it is passed before."""
    passes: int = 0
    is_early: bool = False
    """The point is on while the store is opened; else from the first put on."""
    is_last: bool = False
    """Wait for every delayed message, then close."""

    @property
    def has_buffers(self) -> bool:
        return bool(self.options.get("transient_store_pool_enable"))

    @property
    def has_timer(self) -> bool:
        return bool(self.options.get("timer_wheel_enable"))


class LaterClock(SystemClock):
    """The machine's clock, some time ahead: the machine was off between two processes."""

    def __init__(self, later_ms: int) -> None:
        self._later_ns = later_ms * 1_000_000
        self.now_ns = self._now_ns  # type: ignore[method-assign]

    def _now_ns(self) -> int:
        return time.time_ns() + self._later_ns  # noqa: TID251 - a clock

    def now_ms(self) -> int:
        return self._now_ns() // 1_000_000


def work(task: Task, ledger: Ledger, pipe: int) -> None:
    """Run in a fork until the end, whichever comes first; never returns."""
    faulthandler.enable()
    logging.disable(logging.WARNING)  # recovery has much to say here
    worker = _Worker(task, ledger, pipe)
    try:
        worker.run()
    except BaseException as error:  # noqa: BLE001 - all of it is told
        worker.fail(error)
    os._exit(0)


class _Worker:
    def __init__(self, task: Task, ledger: Ledger, pipe: int) -> None:
        self._task = task
        self._ledger = ledger
        self._pipe = pipe
        self._rng = random.Random(f"{task.seed}/{task.cycle}")
        self._clock = LaterClock(task.later_ms)

    def run(self) -> None:
        task = self._task
        if task.is_early:
            self._switch_on()
        store = open_store(task.root, clock=self._clock, **task.options)
        self._tell(Opened())
        found = inspect(store, self._ledger, may_lose=task.has_buffers, rng=self._rng)
        self._tell(found)
        self._ledger.note(task.cycle, found)
        for name, queues in TOPICS.items():
            if store.topic(name) is None:
                store.create_topic(name, queues)
        if not task.is_early:
            self._switch_on()
        if task.is_last:
            self._await_delivery(store)
        else:
            self._put_and_consume(store)
        store.close()
        self._tell(Closed())

    def fail(self, error: BaseException) -> None:
        """Tell what went wrong: a promise that was not kept, or an error nobody expects."""
        if isinstance(error, BrokenPromiseError):
            self._tell(Wrong(str(error)))
        else:
            self._tell(Wrong("".join(traceback.format_exception(error))))
        os._exit(1)

    def _switch_on(self) -> None:
        if self._task.point is not None:
            failpoint.switch_on(self._task.point, failpoint.kill, passes=self._task.passes)

    def _tell(self, event: AnyEvent) -> None:
        os.write(self._pipe, encode_event(event) + b"\n")

    def _spawn(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:  # noqa: BLE001 - all of it is told
                self.fail(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    # --- consuming -------------------------------------------------------------------------------

    def _consume(self, store: Store, topic: str) -> None:
        for message in store.consumer(GROUP, topic):
            place = message.topic, message.queue_id, message.queue_offset
            self._tell(Done(*place, name_of(message.body)))

    def _await_delivery(self, store: Store) -> None:
        """Wait until every delayed message is in its topic."""
        due = {*self._ledger.due()}
        for topic in sorted({self._ledger.waiting[name] for name in due}):
            consumer = store.consumer("last", topic)
            wanted = {name for name in due if self._ledger.waiting[name] == topic}
            while wanted:
                messages = consumer.poll(100, timeout=_DELIVER_S)
                if not messages:
                    raise BrokenPromiseError(f"never delivered: {sorted(wanted)[:5]}")
                wanted -= {name_of(message.body) for message in messages}

    # --- putting ---------------------------------------------------------------------------------

    def _put_and_consume(self, store: Store) -> None:
        for topic in TOPICS:
            self._spawn(self._consume, store, topic)
        more = [self._spawn(self._put_all, store, w) for w in range(1, self._task.writers)]
        self._put_all(store, 0)
        for thread in more:
            thread.join()

    def _put_all(self, store: Store, writer: int) -> None:
        for number in range(self._task.puts // self._task.writers):
            self._put(store, Put(self._task.cycle, writer, number))
            if self._task.has_buffers:
                self._tell(Committed(store._engine.log.files.committed_where))
            if writer == 0:
                self._upkeep(store, number)

    def _put(self, store: Store, put: Put) -> None:
        messages = put.messages(self._clock.now_ms(), has_timer=self._task.has_timer)
        queue_id = put.rng.randrange(TOPICS.get(put.topic, 1))
        if len(messages) > 1:
            receipt = store.put_batch(messages, queue_id)
        else:
            receipt = store.put(messages[0], queue_id)
        _check_receipt(receipt)
        offsets = list(receipt.offsets) or [receipt.physical_offset]
        self._tell(
            Acked(put.writer, put.number, put.topic, queue_id, receipt.queue_offset, offsets)
        )

    def _upkeep(self, store: Store, number: int) -> None:
        """Do now and then what programs do beside putting."""
        rng = random.Random(f"{self._task.seed}/{self._task.cycle}/{number}")
        if rng.random() < 0.06:
            before = self._progress(store)
            store.flush()
            self._tell(Saved(before))
        wants_deletion = (self._task.point or "").startswith("delete.")
        if rng.random() < (0.2 if wants_deletion else 0.02):
            name = f"scratch-{self._task.cycle}-{number}"
            _check_receipt(store.put(Message(topic=name, body=b"for a moment", keys=["scratch"])))
            store.delete_topic(name)

    def _progress(self, store: Store) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for one in store.progress(GROUP):
            if one.offset is not None:
                found.setdefault(one.topic, {})[one.queue_id] = one.offset
        return found


def _check_receipt(receipt: PutReceipt) -> None:
    if receipt.status is not PutStatus.PUT_OK:
        raise BrokenPromiseError(f"a put was refused: {receipt}")
