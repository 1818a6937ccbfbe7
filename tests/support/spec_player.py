"""Plays the input of a golden case into a store, as RocketMQ was given it.

    steps = steps_of(golden)
    for step in steps:
        clock.advance_ms(step.at - clock.now_ms())
        store.put(step.request)

Values come from `spec.json`. The golden record itself gives only what the run decided: the order
of its properties (that of a Java hash map), its store time, and a compressed body, since
compressors differ. What the broker wrote by itself (half and op messages, delayed ones delivered)
is taken from the record as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rocketlake.format.batch import BatchEntry, encode_entries
from rocketlake.format.record import Check, StoredMessage, encode_properties, scan
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.compression import inflate
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.hashes import java_hash
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, BatchRequest
from support.golden import Golden, Line
from support.spec_bodies import body_bytes, is_compressed

PLACEHOLDER = "?"
"""Value of a property that the store sets: only its place among the others is given."""

BORN_HOST = "192.168.0.1:1234"
STORE_HOST = "10.0.0.2:10911"

_SET_BY_THE_STORE = frozenset(
    {names.REAL_TOPIC, names.REAL_QUEUE_ID, names.INNER_BASE, names.MULTI_QUEUE_OFFSET}
)
_TIMED = "TIMER_OUT_MS"
_TRANSACTION = {"prepared": 0x4, "commit": 0x8, "rollback": 0xC}


class Step(Struct, frozen=True, kw_only=True):
    """One put: when it is done, what is put, what RocketMQ answered and wrote."""

    at: int
    """Unix milliseconds: the store time of its records."""
    request: AppendRequest | BatchRequest
    wanted: Line
    """RocketMQ's answer; empty for what the broker wrote by itself."""
    records: tuple[StoredMessage, ...]
    """What RocketMQ wrote; empty if the put was refused, or its records are expired or damaged."""
    by_broker: bool = False
    """The record is put as it is: no hook may change it once more."""


def steps_of(golden: Golden) -> list[Step]:
    """Translate a case; what the broker wrote by itself stands where it stands in the log."""
    return list(_Translation(golden).steps())


class _Translation:
    """Puts of a spec beside the records they became."""

    def __init__(self, golden: Golden) -> None:
        self._spec = golden.case.spec
        self._puts = [line for line in golden.case.puts if "put" in line]
        self._left = {record.physical_offset: record for record in good_records(golden)}
        self._now = 0

    def steps(self) -> Iterator[Step]:
        """Yield what is put, in order."""
        items = [item for item in self._spec["messages"] if "pause" not in item]
        for item, answer in zip(items, self._puts, strict=True):
            if answer.get("status") == "PUT_OK":
                yield from self._written_before(answer["wroteOffset"])
                yield self._stored(item, answer)
            elif "status" in answer:
                request = _request(item, ())
                yield Step(at=self._now, request=request, wanted=answer, records=())
        yield from self._written_before(1 << 62)

    def _written_before(self, offset: int) -> Iterator[Step]:
        """What lies in the log in front of an offset and no put answers for."""
        for at in sorted(at for at in self._left if at < offset):
            yield self._as_it_is(self._left.pop(at), {})

    def _stored(self, item: Line, answer: Line) -> Step:
        begin, end = answer["wroteOffset"], answer["wroteOffset"] + answer["wroteBytes"]
        places = sorted(at for at in self._left if begin <= at < end)
        records = tuple(self._left.pop(at) for at in places)
        # A batch of 4.6 answers with a later time than it writes.
        self._now = records[0].store_timestamp if records else answer["storeTimestamp"]
        # A message that has its time is not given one: the store cannot put it into its place.
        if not _is_of_the_store(item) or (records and _TIMED in records[0].properties):
            (record,) = records
            return self._as_it_is(record, answer)
        request = _request(item, records)
        return Step(at=self._now, request=request, wanted=answer, records=records)

    def _as_it_is(self, record: StoredMessage, answer: Line) -> Step:
        self._now = record.store_timestamp
        message = Message(
            topic=record.topic,
            body=record.stored_body,
            properties=_without_checksum(record.properties),
            flag=record.flag,
        )
        request = AppendRequest(
            message=message,
            queue_id=record.queue_id,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            sys_flag=record.sys_flag & ~(flags.BORN_HOST_V6 | flags.STORE_HOST_V6),
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
        )
        return Step(at=self._now, request=request, wanted=answer, records=(record,), by_broker=True)


def good_records(golden: Golden) -> Iterator[StoredMessage]:
    """Every undamaged record of a golden log, also behind a damaged one in another file."""
    for path in golden.log_files:
        checks = Check.BODY_CRC | Check.OFFSET
        yield from scan(
            path.read_bytes(), base_offset=int(path.name), checks=checks
        ).columns.messages()


def _is_of_the_store(item: Line) -> bool:
    """Half messages and what ends them are made by the broker."""
    return not item.keys() & {"half", "commit", "rollback"}


def _request(item: Line, records: Sequence[StoredMessage]) -> AppendRequest | BatchRequest:
    shared: dict[str, Any] = {
        "queue_id": item.get("queueId", 0),
        "born_timestamp": item["bornTimestamp"],
        "born_host": Endpoint.parse(item.get("bornHost", BORN_HOST)),
        "store_host": Endpoint.parse(item.get("storeHost", STORE_HOST)),
    }
    sys_flag = item.get("sysFlag", 0) | _TRANSACTION.get(item.get("transaction", ""), 0)
    if "batch" in item:
        parts = item["batch"]
        known: Sequence[StoredMessage | None] = records or [None] * len(parts)
        pairs = zip(parts, known, strict=True)
        messages = [_message(item["topic"], part, record) for part, record in pairs]
        return BatchRequest(messages=messages, topic=item["topic"], sys_flag=sys_flag, **shared)
    record = records[0] if records else None
    if "innerBatch" in item:
        sys_flag |= flags.NEED_UNWRAP | flags.INNER_BATCH
    return AppendRequest(
        message=_message(item["topic"], item, record),
        sys_flag=sys_flag,
        reconsume_times=item.get("reconsumeTimes", 0),
        prepared_transaction_offset=item.get("preparedTransactionOffset", 0),
        **shared,
    )


def _message(topic: str, item: Line, record: StoredMessage | None) -> Message:
    return Message(
        topic=topic,
        body=_body(item, record),
        properties=_in_order(_properties(item, record), record),
        flag=item.get("flag", 0),
    )


def _body(item: Line, record: StoredMessage | None) -> bytes:
    if "innerBatch" in item:
        entries = (
            BatchEntry(
                body_bytes(part["body"]),
                encode_properties(_in_order(_properties(part, None), None), True),
                part.get("flag", 0),
            )
            for part in item["innerBatch"]
        )
        return encode_entries(entries)
    if not is_compressed(item["body"]):
        return body_bytes(item["body"])
    assert record is not None, "a compressed body is taken from its record"
    plain = inflate(record.stored_body, record.sys_flag)
    assert plain == body_bytes(item["body"]), "the record holds another body"
    return record.stored_body


def _properties(item: Line, record: StoredMessage | None) -> dict[str, str]:
    """What the driver sets, in its order."""
    found: dict[str, str] = {}
    if "keys" in item:
        found[names.KEYS] = item["keys"]
    if "tags" in item:
        found[names.TAGS] = item["tags"]
    for name, value in item.get("properties", {}).items():
        is_of_the_run = value.startswith("{now+") and record is not None
        found[name] = record.properties[name] if is_of_the_run and record else value
    if "innerBatch" in item:
        found[names.INNER_NUM] = str(len(item["innerBatch"]))
    if "delayLevel" in item:
        found[names.DELAY] = str(item["delayLevel"])
    return found


def _in_order(given: dict[str, str], record: StoredMessage | None) -> dict[str, str]:
    """Properties in the order of their record, with a place for those that the store adds."""
    if record is None:
        return {name: given[name] for name in java_order(given)}
    written = _without_checksum(record.properties)
    added = {name: PLACEHOLDER for name in written if name in _SET_BY_THE_STORE}
    assert written.keys() == given.keys() | added.keys(), f"{sorted(written)} of {sorted(given)}"
    return {name: given.get(name, PLACEHOLDER) for name in written}


def java_order(given: Mapping[str, str]) -> list[str]:
    """Return keys in the order of a java.util.HashMap of 16 buckets; within one, as they came."""
    assert len(given) <= 12, "a larger map has more buckets"
    return sorted(given, key=lambda name: _bucket(java_hash(name)))


def _bucket(hash_: int) -> int:
    return (hash_ ^ (hash_ & 0xFFFFFFFF) >> 16) & 15


def _without_checksum(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name != names.RECORD_CRC}
