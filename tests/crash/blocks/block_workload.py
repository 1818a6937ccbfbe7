"""What runs on the logged device: one process that does all that programs do with a store.

It writes every promise to a file outside of the device, stamped with the place in the block log.
"""

import contextlib
import faulthandler
import logging
import os
import random
import threading
import time
import traceback
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from block_log import BlockCounter
from block_promises import (
    BUNDLES,
    GROUP,
    PASSING,
    TOPICS,
    Acked,
    AnyEvent,
    Consumed,
    Dropped,
    Dropping,
    Expired,
    Expiring,
    Failed,
    Flushed,
    body_of,
    encode_event,
    name_of,
)
from msgspec import Struct

from rocketlake.embedded.open_store import open_store
from rocketlake.embedded.store import Store
from rocketlake.errors import StoreClosedError
from rocketlake.model.message import Message
from rocketlake.store.api import PutReceipt, PutStatus

MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {"flush_disk_type": "ASYNC_FLUSH"},
    "buffers": {
        "flush_disk_type": "ASYNC_FLUSH",
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 3,
    },
}
STEPS = {
    "put": 50,
    "put_batch": 10,
    "put_without_waiting": 8,
    "put_bundle": 6,
    "put_level": 6,
    "put_timed": 6,
    "put_passing": 6,
    "rest": 10,
    "flush": 3,
    "expire": 1,
    "drop": 1,
    "reopen": 0.4,
}


class Task(Struct, frozen=True):
    """What one workload does."""

    seed: str
    mode: str
    root: Path
    """On the device."""
    place: Path
    """Outside of it."""
    steps: int
    without: tuple[str, ...] = ()
    """Kinds of steps that are left out."""

    @property
    def options(self) -> dict[str, Any]:
        return make_options(self.seed, self.mode)


def make_options(seed: str, mode: str) -> dict[str, Any]:
    """Small files; some intervals are short, others so long that only a flush or a close counts."""
    rng = random.Random(f"{seed}/options")
    return {
        "mapped_file_size_commit_log": rng.choice((16 << 10, 64 << 10)),
        "mapped_file_size_consume_queue": rng.choice((400, 2000)),
        "max_hash_slot_num": 40,
        "max_index_num": rng.choice((60, 500)),
        "flush_interval_commit_log": rng.choice((10, 100)),
        "flush_commit_log_thorough_interval": rng.choice((50, 10_000)),
        "commit_interval_commit_log": rng.choice((5, 50)),
        "commit_commit_log_thorough_interval": rng.choice((10, 200)),
        "flush_interval_consume_queue": 20,
        "flush_consume_queue_thorough_interval": rng.choice((50, 60_000)),
        "flush_consumer_offset_interval": rng.choice((10, 100)),
        "flush_delay_offset_interval": rng.choice((10, 100)),
        "timer_precision_ms": 100,
        "timer_flush_interval_ms": rng.choice((20, 200)),
        **MODES[mode],
    }


def forget_syncs() -> None:
    """Make every sync of this process a call that does nothing."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _descriptor: None)


def work(task: Task) -> None:
    """Run in a fork until the end; never returns."""
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    notes = _Notes(task.place)
    try:
        _Workload(task, notes).run()
    except BaseException as error:  # noqa: BLE001 - all of it is told
        notes.fail(error)
    os._exit(0)


class _Notes:
    """The promises, outside of the device. Any thread may write."""

    def __init__(self, place: Path) -> None:
        self._counter = BlockCounter(place)
        self._file = (place / "events.json").open("ab", buffering=0)

    def now(self) -> int:
        return self._counter.now()

    def tell(self, event: AnyEvent) -> None:
        self._file.write(encode_event(event) + b"\n")

    def fail(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        self.tell(Failed(at=self.now(), text=text))


class _Workload:
    def __init__(self, task: Task, notes: _Notes) -> None:
        self._task = task
        self._notes = notes
        self._rng = random.Random(f"{task.seed}/work")
        self._number = 0
        self._has_passing = False

    def run(self) -> None:
        self._open()
        kinds, weights = [*STEPS], [*STEPS.values()]
        for kind in self._rng.choices(kinds, weights, k=self._task.steps):
            if kind not in self._task.without:
                getattr(self, f"_{kind}")()
        # The end is not clean: the machine loses power while the store is open.

    def _open(self) -> None:
        self._store = open_store(self._task.root, **self._task.options)
        for name, count in TOPICS.items():
            if self._store.topic(name) is None:
                self._store.create_topic(name, count)
        if self._store.topic(BUNDLES) is None:
            self._store.create_topic(BUNDLES, 1, attributes={"queue.type": "BatchCQ"})
        for topic in TOPICS:
            arguments = self._store, topic
            threading.Thread(target=self._consume, args=arguments, daemon=True).start()

    # --- the other threads -----------------------------------------------------------------------

    def _consume(self, store: Store, topic: str) -> None:
        try:
            with contextlib.suppress(StoreClosedError):
                self._consume_all(store, topic)
        except BaseException as error:  # noqa: BLE001 - all of it is told
            self._notes.fail(error)

    def _consume_all(self, store: Store, topic: str) -> None:
        consumer = store.consumer(GROUP, topic)
        while store.is_open:
            found: dict[int, list[str]] = {}
            for message in consumer.poll(16, timeout=0.05):
                found.setdefault(message.queue_id, []).append(name_of(message.body))
            for queue_id, names in found.items():
                at = self._notes.now()
                self._notes.tell(Consumed(at=at, topic=topic, queue_id=queue_id, names=names))
            if found:
                consumer.commit()

    # --- putting ---------------------------------------------------------------------------------

    def _put(self) -> None:
        topic, queue_id = self._choose()
        names = self._names("one", 1)
        self._acked(names, topic, queue_id, self._store.put(_message(topic, names[0]), queue_id))

    def _put_batch(self) -> None:
        topic, queue_id = self._choose()
        names = self._names("batch", self._rng.randint(2, 6))
        batch = [_message(topic, name) for name in names]
        self._acked(names, topic, queue_id, self._store.put_batch(batch, queue_id))

    def _put_without_waiting(self) -> None:
        """Several at once share a flush."""
        for topic, queue_id, names, future in [
            self._begin_put() for _ in range(self._rng.randint(2, 8))
        ]:
            self._acked(names, topic, queue_id, future.result())

    def _begin_put(self) -> tuple[str, int, list[str], Future[PutReceipt]]:
        topic, queue_id = self._choose()
        names = self._names("many", 1)
        future = self._store.put_async(_message(topic, names[0]), queue_id)
        return topic, queue_id, names, future

    def _put_bundle(self) -> None:
        names = self._names("bundle", self._rng.randint(2, 5))
        receipt = self._store.put_batch([_message(BUNDLES, name) for name in names], 0)
        self._acked(names, BUNDLES, 0, receipt)

    def _put_level(self) -> None:
        topic, queue_id = self._choose()
        names = self._names("level", 1)
        message = _message(topic, names[0], delay_level=self._rng.choice((1, 1, 2)))
        self._acked(names, topic, -1, self._store.put(message, queue_id))

    def _put_timed(self) -> None:
        topic, queue_id = self._choose()
        names = self._names("timed", 1)
        moment = time.time() + self._rng.uniform(0.2, 2)  # noqa: TID251 - as a program would
        message = _message(topic, names[0], deliver_at=datetime.fromtimestamp(moment, UTC))
        self._acked(names, topic, -1, self._store.put(message, queue_id))

    def _put_passing(self) -> None:
        if not self._has_passing:
            self._store.create_topic(PASSING, 1)
            self._has_passing = True
        names = self._names("passing", 1)
        self._acked(names, PASSING, 0, self._store.put(_message(PASSING, names[0]), 0))

    def _acked(self, names: list[str], topic: str, queue_id: int, receipt: PutReceipt) -> None:
        at = self._notes.now()
        if receipt.status is not PutStatus.PUT_OK:
            raise AssertionError(f"a put was refused: {receipt}")
        self._notes.tell(
            Acked(
                at=at,
                names=names,
                topic=topic,
                queue_id=queue_id,
                queue_offset=-1 if queue_id < 0 else receipt.queue_offset,
                offset=receipt.physical_offset,
            )
        )

    # --- what else programs do -------------------------------------------------------------------

    def _rest(self) -> None:
        """Let the threads of the store work; how long is a part of the workload, not a wait."""
        time.sleep(self._rng.choice((0.002, 0.01, 0.03)))

    def _flush(self) -> None:
        progress = self._progress()
        self._store.flush()
        self._notes.tell(Flushed(at=self._notes.now(), progress=progress))

    def _expire(self) -> None:
        self._notes.tell(Expiring(at=self._notes.now()))
        self._store.delete_expired(hours=0)
        at, floor = self._notes.now(), self._store._engine.log.min_offset
        self._notes.tell(Expired(at=at, floor=floor))

    def _drop(self) -> None:
        if self._has_passing:
            self._notes.tell(Dropping(at=self._notes.now(), topic=PASSING))
            self._store.delete_topic(PASSING)
            self._notes.tell(Dropped(at=self._notes.now()))
            self._has_passing = False

    def _reopen(self) -> None:
        progress = self._progress()
        self._store.close()
        self._notes.tell(Flushed(at=self._notes.now(), progress=progress))
        self._open()

    # --- small things ----------------------------------------------------------------------------

    def _choose(self) -> tuple[str, int]:
        topic = self._rng.choice([*TOPICS])
        return topic, self._rng.randrange(TOPICS[topic])

    def _names(self, kind: str, count: int) -> list[str]:
        first, self._number = self._number, self._number + count
        return [f"{kind}-{number}" for number in range(first, self._number)]

    def _progress(self) -> list[tuple[str, int, int]]:
        return [
            (one.topic, one.queue_id, one.offset)
            for one in self._store.progress(GROUP)
            if one.offset is not None
        ]


def _message(topic: str, name: str, **fields: Any) -> Message:
    return Message(topic=topic, body=body_of(name), tags="t", keys=[f"k-{name}"], **fields)
