"""The player gives RocketMQ's input: appended one behind the other it is the golden log."""

import pytest
from msgspec import structs

from rocketlake.format import layout, record
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, BatchRequest
from support.golden import Golden, GoldenCase, case_names
from support.spec_bodies import body_bytes
from support.spec_player import PLACEHOLDER, Step, java_order, steps_of
from support.store_bytes import damaged, differences, log_bytes

BLANK = layout.MAGIC_BLANK.to_bytes(4, "big", signed=True)


class DryLog:
    """A commit log in memory: records, the end of a file, and queue offsets."""

    def __init__(self, golden: Golden) -> None:
        self.options = golden.case.options(golden.root)
        self.file_size: int = self.options["mappedFileSizeCommitLog"]
        self.dirs = sorted(place.name for place in golden.log_dirs)
        # Compat: 4.9.7 does not end the last property.
        self.with_crc = "enabledAppendPropCRC" in self.options
        self.trailing = not golden.case.name.startswith("v4-")
        self.files = [bytearray(self.file_size)]
        self.wrote = 0
        self.next: dict[tuple[str, int], int] = {}

    def put(self, step: Step) -> None:
        """Append what a step puts, as the store would have changed it."""
        request = step.request
        first = step.records[0] if step.records else None
        is_single = isinstance(request, AppendRequest)
        messages = [self.finished(request, step)] if is_single else list(request.messages)
        topic = first.topic if first else messages[0].topic
        queue_id = first.queue_id if first else request.queue_id
        offset = self.next.get((topic, queue_id), 0)
        counted = flags.enters_queue(request.sys_flag)
        self.append(
            messages, topic, self.envelope(request, queue_id, topic), step, offset * counted
        )
        if counted:
            count = int(messages[0].properties.get(names.INNER_NUM, len(messages)))
            self.next[topic, queue_id] = offset + count

    @staticmethod
    def finished(request: AppendRequest, step: Step):
        """The message with what the store sets: names whose places only are in the request."""
        given = request.message.properties
        if not step.records:
            assert PLACEHOLDER not in given.values()
            return request.message
        written = step.records[0].properties
        is_set = {name for name, value in given.items() if value == PLACEHOLDER}
        # A level beyond the last one becomes the last one.
        is_set |= {names.DELAY} & given.keys()
        properties = {
            name: written[name] if name in is_set else value for name, value in given.items()
        }
        return structs.replace(request.message, properties=properties)

    def envelope(self, request: AppendRequest | BatchRequest, queue_id: int, topic: str):
        single = isinstance(request, AppendRequest)
        return record.Envelope(
            queue_id=queue_id,
            born_timestamp=request.born_timestamp,
            born_host=request.born_host,
            store_host=request.store_host,
            sys_flag=request.sys_flag,
            reconsume_times=request.reconsume_times if single else 0,
            prepared_transaction_offset=request.prepared_transaction_offset if single else 0,
            version=record.version_for(topic),
            trailing_separator=self.trailing,
            reserve_crc=self.with_crc,
        )

    def append(self, messages: list, topic: str, envelope, step: Step, offset: int) -> None:
        records = [record.encode(with_topic(message, topic), envelope) for message in messages]
        if sum(map(len, records)) + layout.BLANK_HEADER_SIZE > self.file_size - self.wrote:
            self.roll()
        for number, data in enumerate(records):
            physical = (len(self.files) - 1) * self.file_size + self.wrote
            record.seal(data, 0, offset + number, physical, step.at, self.with_crc)
            self.files[-1][self.wrote : self.wrote + len(data)] = data
            self.wrote += len(data)

    def roll(self) -> None:
        room = self.file_size - self.wrote
        self.files[-1][self.wrote : self.wrote + 8] = room.to_bytes(4, "big") + BLANK
        self.files.append(bytearray(self.file_size))
        self.wrote = 0

    def bytes(self) -> dict[str, bytes]:
        return {
            f"{self.dirs[number % len(self.dirs)]}/{number * self.file_size:020d}": bytes(data)
            for number, data in enumerate(self.files)
        }


def with_topic(message: Message, topic: str) -> Message:
    return structs.replace(message, topic=topic)


@pytest.mark.parametrize("name", case_names())
def test_translated_puts_are_the_golden_log(stores, name):
    golden = stores.get(name)
    log = DryLog(golden)
    for step in steps_of(golden):
        if step.wanted.get("status", "PUT_OK") == "PUT_OK":
            log.put(step)
    expired = golden.case.log_bounds[0] // log.file_size
    ours = dict(list(damaged(log.bytes(), golden.case).items())[expired:])
    assert not differences(ours, log_bytes(golden.log_dirs))


def test_properties_of_a_lost_record_are_ordered_as_java_orders_them(stores):
    for name in ("v5-basic", "v5-batch", "v5-ext", "v5-index"):
        for step in steps_of(stores.get(name)):
            if step.records and not step.by_broker:
                given = dict(sorted(step.records[0].properties.items()))
                assert java_order(given) == list(step.records[0].properties)


def test_bodies_of_a_spec():
    assert body_bytes("ü") == b"\xc3\xbc"
    assert body_bytes({"repeat": "abc", "size": 7}) == b"abcabca"
    assert body_bytes({"seed": 7, "size": 0}) == b""
    assert body_bytes({"zlib": {"hex": "00ff"}}) == b"\0\xff"
    with pytest.raises(ValueError, match="no body"):
        body_bytes({"size": 3})


def test_a_case_names_every_kind_of_put():
    kinds = {kind for name in case_names() for kind in kinds_of(GoldenCase(name))}
    assert {"batch", "innerBatch", "half", "commit", "delayLevel", "transaction"} <= kinds


def kinds_of(case: GoldenCase) -> set[str]:
    return {key for item in case.spec["messages"] for key in item}
