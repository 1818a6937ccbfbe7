"""What a page's `setup:` comments may call: stores that the page takes for granted, small files.

Whatever is made is made the same way each time, so that a page may show what commands print.
"""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketlake
from rocketlake import Message, OfflineStore
from support.golden import ROCKSDB_DATA, GoldenStores


def write(path: str, text: str = "") -> None:
    """Write a file, with its directories."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def remove(*paths: str) -> None:
    """Remove directories that earlier blocks made."""
    for path in paths:
        shutil.rmtree(path)


def orders_store(
    path: str,
    count: int = 200,
    topic: str = "orders",
    *,
    file_size: int = 1 << 20,
    is_new: bool = False,
) -> str:
    """Put orders into a store, which is made if it is not there; return its path.

    Order n has the key `o-{1000 + n}`, a tag of paid, refunded and open, properties region, amount,
    customer and sku, and a body of JSON: n, status, customer and amount.
    """
    if is_new:
        shutil.rmtree(path, ignore_errors=True)
    conf = {"mappedFileSizeCommitLog": file_size, "maxMessageSize": 1 << 14}
    with rocketlake.open_store(path, conf) as store:
        for number in range(count):
            store.put(order(number, topic), queue_id=number % 4)
    return path


def golden_rocksdb_store(path: str, case: str) -> None:
    """Unpack a store that RocketMQ wrote, with its queues or tables in RocksDB."""
    golden = GoldenStores.copy(case, Path("golden"), ROCKSDB_DATA)
    shutil.copytree(golden.root, path)


def flip(path: str, file: int = 0, record: int = 0) -> None:
    """Change one byte in the body of a record: the n-th of a file of the log."""
    log = sorted(Path(path, "commitlog").iterdir())[file]
    with OfflineStore(path) as store:
        places = [
            (message.physical_offset, message.body)
            for key in store.queues
            for batch in store.messages(key)
            for message in batch.columns.messages()
            if message.physical_offset >= int(log.name)
        ]
    offset, body = sorted(places)[record]
    data = bytearray(log.read_bytes())
    data[data.index(body, offset - int(log.name))] ^= 1
    log.write_bytes(data)


def order(number: int, topic: str = "orders") -> Message:
    """Make one order."""
    status = f"timeout after {number * 3} ms" if number % 97 == 13 else "ok"
    value = {"n": number, "status": status, "customer": f"c-{number % 7}", "amount": number * 2}
    return Message(
        topic=topic,
        body=json.dumps(value).encode(),
        tags=("paid", "refunded", "open")[number % 3],
        keys=[f"o-{1000 + number}"],
        properties={
            "region": "EU" if number % 2 else "US",
            "amount": str(number * 2),
            "customer": f"c-{number % 7}",
            "sku": f"s-{number % 20}",
        },
    )


def dead_letters(path: str, group: str, count: int = 5, topic: str = "orders") -> None:
    """Let a group give up on the first messages of a queue."""
    with rocketlake.open_store(path) as store:
        for message in store.get(topic, 0, 0, max_messages=count).messages:
            store.send_back(group, message.physical_offset, delay_level=-1)


def in_background(work: Callable[[], object]) -> None:
    """Run something beside the block that comes next."""
    threading.Thread(target=work, daemon=True).start()


def wait_until(is_true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that another thread or process brings about."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not is_true():
        assert time.monotonic() < end, "it did not come about"
        pause.wait(0.05)


def stop_when_idle(spark: Any) -> None:
    """Stop the query that the next block starts when it has read all there is."""
    known = {query.id for query in spark.streams.active}

    def started() -> list[Any]:
        return [query for query in spark.streams.active if query.id not in known]

    def work() -> None:
        wait_until(lambda: bool(started()))
        for query in started():
            query.processAllAvailable()
            query.stop()

    in_background(work)


SETUPS = {
    function.__name__: function
    for function in (
        dead_letters,
        flip,
        golden_rocksdb_store,
        in_background,
        order,
        orders_store,
        remove,
        stop_when_idle,
        wait_until,
        write,
    )
}
