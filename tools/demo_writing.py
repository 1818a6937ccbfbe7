"""The writing half of the demo: a store of our own, written, read, consumed.

Messages go into several topics; they are read back by queue, by key and by time, a group consumes
them, and a delayed one arrives when it is due.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import rocketlake
from rocketlake import Message
from rocketlake.embedded.store import Store
from rocketlake.model.time_text import time_text

TOPICS = ("orders", "payments", "shipments")
TAGS = ("created", "paid", "refunded")
COUNT = 200_000
BATCH = 100

Step = Callable[[Console, str, str], None]


def write_and_consume(console: Console, step: Step, path: Path) -> None:
    """Write a store, and show every way to its messages."""
    shutil.rmtree(path, ignore_errors=True)
    step(console, "A store of our own", f'rocketlake.open_store("{path.name}")')
    with rocketlake.open_store(path) as store:
        write(console, store)
        read(console, store)
        consume(console, step, store)
        delay(console, step, store)
        step(console, "How the store is doing", "store.info()")
        info = store.info()
        names = ("putMessageTimesTotal", "putMessageSizeTotal", "dispatchBehindBytes")
        for name in (*names, "mappedFiles", "consumeQueues"):
            console.print(f"  {name} = {int(info[name]):,}")


def messages() -> Iterator[Message]:
    """Make the messages of the demo."""
    for number in range(COUNT):
        yield Message(
            topic=TOPICS[number % len(TOPICS)],
            body=f'{{"number": {number}, "amount": {number * 7 % 1000}}}'.encode(),
            tags=TAGS[number % 7 % len(TAGS)],
            keys=[f"o-{number}"],
            properties={"region": "EU" if number % 2 else "US"},
        )


def write(console: Console, store: Store) -> None:
    """Put messages one by one, and some more in batches."""
    columns = (TextColumn("writing"), BarColumn(), TextColumn("{task.completed:>7,.0f} messages"))
    started = perf_counter()
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("writing", total=COUNT + 50 * BATCH)
        for number, message in enumerate(messages(), 1):
            receipt = store.put(message)
            assert receipt.status == "PUT_OK", receipt
            if number % 2000 == 0:
                bar.advance(task, 2000)
        for _ in range(50):
            batch = [Message(topic="metrics", body=bytes(64)) for _ in range(BATCH)]
            assert store.put_batch(batch).status == "PUT_OK"
            bar.advance(task, BATCH)
    seconds = perf_counter() - started
    console.print(f"{COUNT + 50 * BATCH:,} messages in {seconds:.1f} s, one thread")


def read(console: Console, store: Store) -> None:
    """Read by queue, key and time."""
    found = store.get("orders", queue_id=0, offset=0, max_messages=3)
    console.print(f"by queue: {found.status}, next is {found.next_offset} of {found.max_offset}")
    for message in found.messages:
        console.print(f"  {message.queue_offset} {message.tags} {message.keys} {message.body!r}")
    (by_key,) = store.query("payments", key="o-1000")
    console.print(
        f"by key o-1000: queue {by_key.queue_id}, offset {by_key.queue_offset}, {by_key.body!r}"
    )
    moment = store.query("shipments", key="o-100001")[0].store_timestamp
    start = store.offset_by_time("shipments", 0, moment, boundary="lower")
    console.print(f"by time {time_text(moment)}: queue 0 of shipments continues at {start}")


def consume(console: Console, step: Step, store: Store) -> None:
    """Let a group consume a topic, part of it by a filter."""
    step(console, "A consumer group", 'store.consumer(group="billing", topic="payments")')
    seen: Counter[int] = Counter()
    with store.consumer(group="billing", topic="payments", timeout=0.2) as billing:
        for message in billing:
            seen[message.queue_id] += 1
    queues = ", ".join(f"queue {queue}: {count:,}" for queue, count in sorted(seen.items()))
    console.print(
        f"billing consumed {seen.total():,} messages ({queues}); lag {store.lag('billing')}"
    )
    sql = "region = 'EU' AND TAGS = 'refunded'"
    with store.consumer(group="audit", topic="orders", sql=sql, timeout=0.2) as audit:
        count = sum(1 for _ in audit)
    console.print(f"audit consumed {count:,} messages with {sql}")


def delay(console: Console, step: Step, store: Store) -> None:
    """Deliver one message later."""
    step(console, "Later", 'Message(topic="reminders", body=…, delay_level=1)  # one second')
    started = perf_counter()
    store.put(Message(topic="reminders", body=b"now"))
    store.put(Message(topic="reminders", body=b"a second later", delay_level=1))
    with store.consumer(group="people", topic="reminders", timeout=5) as people:
        for message in people:
            console.print(f"  {perf_counter() - started:5.2f} s  {message.body.decode()}")
            if message.body == b"a second later":
                people.commit()
                break
