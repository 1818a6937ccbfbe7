"""What our store is given to write for RocketMQ to read, and what RocketMQ must then say.

wrote = write(store, "5.3.3", generation=0)      every kind of message
python our_writing.py STORE VERSION              the same, in a process that waits to be killed
"""

import random
import sys
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rocketlake.clock import SystemClock
from rocketlake.delay.hook import DelayHook
from rocketlake.delay.levels import DelayLevels
from rocketlake.delay.store_access import Usage
from rocketlake.format.batch import BatchEntry, encode_entries
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.compression import Compression, deflate
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt, PutStatus
from rocketlake.store.message_store import MessageStore
from support.engine import open_engine

Line = dict[str, Any]

BORN_V4, BORN_V6 = "192.168.0.1:1234", "[2001:db8:0:0:0:0:0:7]:99"
STORE_V4, STORE_V6 = "10.0.0.2:10911", "[fe80:0:0:0:0:0:0:1]:10911"
LEVEL, LEVEL_MS = 18, 2 * 3600 * 1000

COMPAT = {"5.5.0": "5.5", "5.3.3": "5.3", "4.9.7": "4.9", "4.6.0": "4.6"}

SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
TWO_DIRECTORIES = {"storePathCommitLog": "{store}/cl-b,{store}/cl-a"}
"""4.6.0 knows one only."""
NEW_QUEUES = {
    "enableLmq": True,
    "enableMultiDispatch": True,
    "mapperFileSizeBatchConsumeQueue": 460,
}
"""5.x has batch queues, and light queues of this form."""
BATCH_TOPIC = "Bcq"


class Wrote(Struct, frozen=True):
    """A message of a queue: its unit's place, and the fields RocketMQ must read."""

    queue: tuple[str, int, int]
    line: Line


def options(version: str) -> Line:
    """The options of a store for one release."""
    found: Line = dict(SIZES)
    if version != "4.6.0":
        found |= TWO_DIRECTORIES
    if version.startswith("5."):
        found |= NEW_QUEUES
    return found


def topics(version: str) -> list[Line]:
    """The topics that RocketMQ must know before."""
    batch = {"name": BATCH_TOPIC, "attributes": {"queue.type": "BatchCQ"}}
    return [batch] if version.startswith("5.") else []


def open_ours(store: Path, version: str) -> MessageStore:
    """Open the store as that release would."""
    chosen = {
        name: value.replace("{store}", str(store)) if isinstance(value, str) else value
        for name, value in options(version).items()
    }
    opened = open_engine(
        store,
        SystemClock(),
        source=chosen,
        batch_topics=[topic["name"] for topic in topics(version)],
        compat_version=COMPAT[version],
    )
    delay(opened)
    return opened


def delay(store: MessageStore) -> None:
    """Let a store take messages with a delay level; nothing is delivered."""
    levels = DelayLevels(store.options.delay_levels_ms)
    store.add_hook(DelayHook(levels, store.clock, Usage(), timer=None))


def write(store: MessageStore, version: str, generation: int) -> list[Wrote]:
    """Put every kind of message; return those that are in a queue."""
    writer = _Writer(store, version, generation)
    for number in range(120):
        writer.plain(number)
        for kind, every in writer.kinds.items():
            if number % every == 0:
                kind(number)
    for number in range(60):
        writer.put(f"Many-{number}", number % 2, b"one of many")
    return writer.wrote


class _Writer:
    def __init__(self, store: MessageStore, version: str, generation: int) -> None:
        self.wrote: list[Wrote] = []
        self.kinds = {
            self.batch: 7,
            self.compressed: 11,
            self.transactional: 13,
            self.delayed: 9,
            self.unicode: 10,
        }
        if version.startswith("5."):
            self.kinds |= {self.light: 8, self.inner_batch: 6}
        self._store = store
        self._light: dict[str, int] = {}
        self._is_old = version == "4.6.0"
        self._generation = generation
        self._rng = random.Random(generation)

    def plain(self, number: int) -> None:
        rng = self._rng
        topic = rng.choice(("A", "Bb-topic", "%RETRY%g", "x" * 100))
        properties = {"p": f"v{number}"} if number % 3 else {}
        if number % 4 == 0:
            properties["UNIQ_KEY"] = f"C0A80009123418B4AAC2{self._generation:04X}{number:08X}"
        self.put(
            topic,
            rng.randrange(4),
            rng.randbytes(rng.choice((0, 1, 100, 1000, 3000))),
            keys=[f"k{number % 20}", "Aa"] if number % 2 else ["BB"],
            tags=rng.choice((None, "T1", "T2")),
            properties=properties,
            flag=rng.choice((0, 7, -1)),
            born_host=rng.choice((BORN_V4, BORN_V6)),
            store_host=rng.choice((STORE_V4, STORE_V6)),
        )

    def unicode(self, number: int) -> None:
        properties = {"имя": "значение 🚀", "ü": '"\\'}
        fields = {"keys": ["ключ", "键"], "tags": "标签", "properties": properties}
        self.put("A", 1, f"тело {number} 🚀".encode(), **fields)

    def compressed(self, number: int) -> None:
        kind = Compression.ZLIB_OLD if self._is_old else Compression.ZLIB
        body = deflate(b"compressed again and again. " * (1 + number), kind)
        bits = 1 if self._is_old else 0x301
        self.put("A", 2, body, sys_flag=bits, keys=["zip"])

    def transactional(self, number: int) -> None:
        for bits in (4, 12, 8):
            fields = {"sys_flag": bits, "prepared": 123 if bits != 4 else 0}
            self.put("OldTx", 0, f"{bits} of {number}".encode(), **fields)

    def delayed(self, number: int) -> None:
        properties = {"DELAY": str(LEVEL)}
        self.put("Later", 3, f"later {number}".encode(), properties=properties, keys=["late"])

    def light(self, number: int) -> None:
        """One record that belongs to light queues too."""
        queues = [f"%LMQ%{self._generation}{name}" for name in ("a", "b")[: 1 + number % 2]]
        offsets = [self._light.get(queue, 0) for queue in queues]
        self.put("LmqParent", 0, b"light", properties={names.MULTI_DISPATCH: ",".join(queues)})
        line = self.wrote[-1].line
        line["properties"][names.MULTI_QUEUE_OFFSET] = ",".join(map(str, offsets))
        for queue, offset in zip(queues, offsets, strict=True):
            self._light[queue] = offset + 1
            self.wrote.append(Wrote((queue, 0, offset), line))

    def inner_batch(self, number: int) -> None:
        """One record that stands for several messages."""
        count = 1 + number % 4
        body = encode_entries(BatchEntry(f"{number}-{part}".encode()) for part in range(count))
        unique = f"C0A8000B123418B4AAC2{self._generation:04X}{number:08X}"
        properties = {names.INNER_NUM: str(count), names.UNIQUE_KEY: unique}
        bits = flags.NEED_UNWRAP | flags.INNER_BATCH
        self.put(BATCH_TOPIC, number % 2, body, sys_flag=bits, properties=properties)
        line = self.wrote[-1].line
        line["properties"][names.INNER_BASE] = str(line["queueOffset"])

    def batch(self, number: int) -> None:
        messages = [
            Message(
                topic="Batch",
                body=self._rng.randbytes(part * 50),
                tags="b",
                keys=[f"b{part}"],
                flag=part,
                properties={"n": str(part)},
            )
            for part in range(1 + number % 8)
        ]
        host = BORN_V6 if number % 2 else BORN_V4
        asked = BatchRequest(
            messages=messages,
            topic="Batch",
            queue_id=number % 2,
            born_timestamp=1_700_000_000_000 + number,
            born_host=Endpoint.parse(host),
            store_host=Endpoint.parse(STORE_V4),
        )
        receipt = self._store.put_batch(asked)
        assert receipt.status is PutStatus.PUT_OK, receipt
        ids = receipt.msg_id.split(",")
        for index, message in enumerate(messages):
            place = {
                "queueOffset": receipt.queue_offset + index,
                "physicalOffset": receipt.offsets[index],
                "msgId": ids[index],
                "storeTimestamp": receipt.store_timestamp,
            }
            line = _line(asked, message, host, STORE_V4) | place
            self._keep("Batch", asked.queue_id, line)

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        born_host: str = BORN_V4,
        store_host: str = STORE_V4,
        sys_flag: int = 0,
        prepared: int = 0,
        **fields: Any,
    ) -> None:
        message = Message(topic=topic, body=body, **fields)
        asked = AppendRequest(
            message=message,
            queue_id=queue_id,
            born_timestamp=1_700_000_000_000 + self._generation,
            born_host=Endpoint.parse(born_host),
            store_host=Endpoint.parse(store_host),
            sys_flag=sys_flag,
            reconsume_times=self._generation,
            prepared_transaction_offset=prepared,
        )
        receipt = self._store.put(asked)
        assert receipt.status is PutStatus.PUT_OK, receipt
        line = _line(asked, message, born_host, store_host) | _place(receipt)
        line |= {"reconsumeTimes": self._generation, "preparedTransactionOffset": prepared}
        if names.DELAY in message.properties:
            line["properties"] |= {names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
            line |= {"topic": SCHEDULE_TOPIC, "queueId": LEVEL - 1}
            topic, queue_id = SCHEDULE_TOPIC, LEVEL - 1
        if flags.enters_queue(sys_flag):
            self._keep(topic, queue_id, line)

    def _keep(self, topic: str, queue_id: int, line: Line) -> None:
        self.wrote.append(Wrote((topic, queue_id, line["queueOffset"]), line))


def _place(receipt: PutReceipt) -> Line:
    return {
        "queueOffset": receipt.queue_offset,
        "physicalOffset": receipt.physical_offset,
        "storeSize": receipt.size,
        "storeTimestamp": receipt.store_timestamp,
        "msgId": receipt.msg_id,
    }


def _line(
    asked: AppendRequest | BatchRequest, message: Message, born_host: str, store_host: str
) -> Line:
    """What RocketMQ prints of a message, as far as the sender knows it."""
    properties = dict(message.properties)
    if message.keys:
        properties[names.KEYS] = " ".join(message.keys)
    if message.tags:
        properties[names.TAGS] = message.tags
    bits = (flags.BORN_HOST_V6 if born_host == BORN_V6 else 0) | (
        flags.STORE_HOST_V6 if store_host == STORE_V6 else 0
    )
    return {
        "topic": message.topic,
        "queueId": asked.queue_id,
        "bornTimestamp": asked.born_timestamp,
        "bornHost": born_host,
        "storeHost": store_host,
        "flag": message.flag,
        "sysFlag": asked.sys_flag | bits,
        "properties": properties,
        "body": b64encode(message.body).decode(),
    }


def main() -> None:
    """Write, tell what was written, and wait for the end."""
    store = open_ours(Path(sys.argv[1]), sys.argv[2])
    wrote = write(store, sys.argv[2], generation=0)
    if not sys.argv[2].startswith("5."):
        # Why: a kill while a queue file is made leaves it empty, and 4.x, which leaves such files
        # itself, then does not start. 5.x removes them.
        store.catch_up()
    sys.stdout.write(msgspec.json.encode(wrote).decode() + "\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
