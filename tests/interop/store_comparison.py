"""RocketMQ's answers about a store beside ours: every difference, in words."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from reference_store import Answer, Line

from rocketlake.format.queue_unit import is_ext_address
from rocketlake.format.record import StoredMessage
from rocketlake.model.message import split_keys
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.owed_units import Places
from rocketlake.store.offline import Boundary, KeyQuery, OfflineStore

_CAP = 64  # RocketMQ gives at most so many messages by key
_SHOWN = 3


Place = tuple[str, int, int, int]
"""Topic, queue and queue offset of a unit, and the physical offset it points to."""


class Circumstances(Struct, frozen=True, kw_only=True):
    """How a store came to be, and what RocketMQ says of it without the damage."""

    is_5x: bool
    is_clean: bool
    damage: str
    undamaged: Answer


def differences(answer: Answer, view: OfflineStore, known: Circumstances) -> list[str]:
    """Return what RocketMQ and we say differently, beyond the differences of docs/compat.md."""
    if not answer.loads:
        return [*_refused(view, known)]
    if _cuts_earlier(answer, view, known) or _claims_another_place(answer, view):
        return [*_messages(answer, view, until=min(answer.log[1], view.max_offset))]
    apart = _whole_queues(view, known)
    return [
        *_messages(answer, view, without=apart),
        *_bounds(answer, view, known, without=apart),
        *_keys(answer, view, known),
        *_times(answer, view, known, without=apart),
    ]


def _refused(view: OfflineStore, known: Circumstances) -> Iterator[str]:
    """Where RocketMQ does not start we show all there was, or say what is wrong."""
    ours = [*_our_lines(view)]
    if ours != [_theirs(line) for line in known.undamaged.messages] and not view.damage.count:
        count = len(known.undamaged.messages)
        yield f"RocketMQ refuses the store, we show {len(ours)} of {count} messages without a word"


def _cuts_earlier(answer: Answer, view: OfflineStore, known: Circumstances) -> bool:
    """Tell whether 4.x ends the log at a bad record of an earlier file; 5.3.3 and we do not look.

    We leave that one record out and say so.
    """
    if known.is_5x or not known.is_clean or answer.log[1] >= view.max_offset:
        return False
    _ = [*_our_lines(view)]
    return answer.log[1] in _reported(view)


def _claims_another_place(answer: Answer, view: OfflineStore) -> bool:
    """Tell whether we end the log at a record whose own offset is wrong; RocketMQ goes on."""
    passed_over = {line["physicalOffset"] for line in answer.missing}
    return view.max_offset < answer.log[1] and view.max_offset in passed_over


def _whole_queues(view: OfflineStore, known: Circumstances) -> frozenset[QueueKey]:
    """Return the queues we show as they were before queue files were damaged.

    RocketMQ may show less: it dispatches strictly behind what the other queues hold (5.3.3), puts
    units behind a gap at the end, and fills no hole.
    """
    if "queue" not in known.damage:
        return frozenset()
    before: dict[QueueKey, list[Line]] = {}
    for line in map(_theirs, known.undamaged.messages):
        before.setdefault(_key_of(line), []).append(line)
    return frozenset(key for key in view.queues if [*_queue_lines(view, key)] == before.get(key))


def _reported(view: OfflineStore) -> set[int]:
    """The physical offsets of the records that were reported as damaged."""
    places = {str(file.path): file.base_offset for file in view.log.files}
    return {
        places[finding.path] + finding.position
        for finding in view.damage.findings
        if finding.path in places
    }


# --- messages and bounds ------------------------------------------------------------------------


def _messages(
    answer: Answer,
    view: OfflineStore,
    *,
    until: int = 1 << 62,
    without: frozenset[QueueKey] = frozenset(),
) -> Iterator[str]:
    ours, theirs = (
        {
            _place(line): line
            for line in lines
            if _key_of(line) not in without and line["physicalOffset"] < until
        }
        for lines in (_our_lines(view), map(_theirs, answer.messages))
    )
    # RocketMQ hands out a record whose body does not have its checksum; we report it.
    bad = _reported(view)
    theirs = {place: line for place, line in theirs.items() if place in ours or place[3] not in bad}
    lacking = [place for place in theirs if place not in ours]
    extra = [place for place in ours if place not in theirs and not _impossible_host(ours[place])]
    if lacking:
        yield f"{len(lacking)} messages only RocketMQ shows: {_some(lacking)}"
    if extra:
        yield f"{len(extra)} messages only we show: {_some(extra)}"
    for place in theirs.keys() & ours.keys():
        yield from _fields_apart(place, theirs[place], ours[place])
    if ours.keys() == theirs.keys() and [*ours] != [*theirs]:
        yield "the messages come in another order"


def _impossible_host(line: Line) -> bool:
    """Tell whether a flipped bit made a port that no host has: RocketMQ decodes no such record."""
    ports = (int(line[name].rpartition(":")[2]) for name in ("bornHost", "storeHost"))
    return any(not 0 <= port <= 65535 for port in ports)


def _fields_apart(place: Place, theirs: Line, ours: Line) -> Iterator[str]:
    for name in theirs.keys() | ours.keys():
        mine, yours = ours.get(name), theirs.get(name)
        if mine != yours:
            yield f"{name} of message {place}: RocketMQ {yours!r:.80}, ours {mine!r:.80}"


def _our_lines(view: OfflineStore) -> Iterator[Line]:
    return (line for key in view.queues for line in _queue_lines(view, key))


def _queue_lines(view: OfflineStore, key: QueueKey) -> Iterator[Line]:
    for batch in view.messages(key):
        for place, message in zip(batch.places, batch.columns.messages(), strict=True):
            yield {**_fields(message), "unit": _unit(view, key, place)}


def _fields(message: StoredMessage) -> Line:
    line: Line = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "msgId": message.msg_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        "body": b64encode(message.stored_body).decode(),
    }
    if message.sys_flag & 1:
        line["inflated"] = b64encode(message.body).decode()
    return line


def _unit(view: OfflineStore, key: QueueKey, place: Places) -> Line:
    code = int(place["tags_code"])
    if is_ext_address(code):
        extension = view.ext_unit(key, code)
        assert extension is not None, f"no extension at {code} of {key}"
        code = extension.tags_code
    return {
        "topic": key.topic,
        "queueId": key.queue_id,
        "queueOffset": int(place["queue_offset"]),
        "batchNum": int(place["batch_size"]),
        "tagsCode": code,
    }


def _theirs(line: Line) -> Line:
    """A message without the name of its line, and the code of its extension in its place."""
    unit = dict(line["unit"])
    extension = unit.pop("ext", None)
    if extension is not None:
        unit["tagsCode"] = extension["tagsCode"]
    return {name: value for name, value in line.items() if name != "line"} | {"unit": unit}


def _place(line: Line) -> Place:
    unit = line["unit"]
    return unit["topic"], unit["queueId"], unit["queueOffset"], line["physicalOffset"]


def _key_of(line: Line) -> QueueKey:
    return QueueKey(line["unit"]["topic"], line["unit"]["queueId"])


def _bounds(
    answer: Answer, view: OfflineStore, known: Circumstances, *, without: frozenset[QueueKey]
) -> Iterator[str]:
    ours = {key: (queue.min_offset, queue.max_offset) for key, queue in view.queues.items()}
    theirs = {
        QueueKey(line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"])
        for line in answer.queues
    }
    for line in answer.missing:
        key = _key_of(line)
        if line["storeSize"] == 0:  # 4.x takes the first unit of a queue full of zeros for one
            theirs.pop(key, None)
        elif not known.is_5x and key in ours and key in theirs:
            # 4.x looks for the lowest offset in the first file only, and that may be all expired.
            lowest, end = theirs[key]
            if line["unit"]["queueOffset"] == lowest < ours[key][0]:
                theirs[key] = (lowest + 1, end)
    for key in sorted(ours.keys() | theirs.keys()):
        # RocketMQ names no queue that is empty.
        if key not in without and ours.get(key, (0, 0)) != theirs.get(key, (0, 0)):
            yield f"bounds of {key}: RocketMQ {theirs.get(key)}, ours {ours.get(key)}"
    log = (view.min_offset, view.max_offset)
    if log != answer.log:
        yield f"bounds of the log: RocketMQ {answer.log}, ours {log}"


# --- questions ----------------------------------------------------------------------------------


def _keys(answer: Answer, view: OfflineStore, known: Circumstances) -> Iterator[str]:
    lines = answer.keys
    if known.damage == "lose_index" and known.is_clean:
        # RocketMQ makes no new index after a clean stop and finds nothing; we scan the log.
        if any(line["found"] for line in lines):
            yield "RocketMQ finds keys without an index"
        lines = known.undamaged.keys
    bad = _reported(view)
    for line in lines:
        found = view.find(KeyQuery(topic=line["topic"], key=line["key"]))
        ours = [message.physical_offset for message in found]
        theirs = [offset for offset in _with_key(line) if offset not in bad]
        if not known.is_clean:
            # RocketMQ makes the index anew, but not all of it: files of the same millisecond
            # have one name. What its messages say is what there is to find.
            theirs = sorted({*theirs, *_having_key(answer.messages, line)} - bad)[-_CAP:]
        if len(line["found"]) >= _CAP:  # full of messages that share the hash, or come twice
            ours = ours[len(ours) - len(theirs) :]
        if ours != theirs:
            yield f"key {line['key']} of {line['topic']}: RocketMQ {theirs}, ours {ours}"


def _having_key(messages: list[Line], asked: Line) -> Iterator[int]:
    for line in messages:
        properties = line["properties"]
        keys = {*split_keys(properties.get("KEYS")), properties.get("UNIQ_KEY")}
        if line["topic"] == asked["topic"] and asked["key"] in keys:
            yield line["physicalOffset"]


def _with_key(line: Line) -> list[int]:
    """The messages that really have the key, each once, in the order of the log."""
    key = line["key"]
    return sorted(
        {
            one["physicalOffset"]
            for one in line["found"]
            if one["topic"] == line["topic"]
            and (key in split_keys(one["keys"]) or key == one["uniqueKey"])
        }
    )


def _times(
    answer: Answer, view: OfflineStore, known: Circumstances, *, without: frozenset[QueueKey]
) -> Iterator[str]:
    if not known.is_5x and known.damage.startswith("lose_queue"):
        return  # 4.x goes by the times at which queue files were modified, and these are new
    if known.damage == "lose_log_file":
        return  # RocketMQ takes a record that is gone for one of the year 1969
    for line in answer.times:
        key, time = QueueKey(line["topic"], line["queueId"]), line["timestamp"]
        if key not in view.queues or key in without or "error" in line:
            continue
        if known.is_5x:
            ours = [view.offset_by_time(key, time, boundary) for boundary in Boundary]
            theirs = [line[boundary.value] for boundary in Boundary]
        else:
            ours, theirs = [view.nearest_offset_by_time(key, time)], [line["offset"]]
        if ours != theirs:
            yield f"time {time} in {key}: RocketMQ {theirs}, ours {ours}"


def _some(items: Sequence[Any]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(map(str, items[:_SHOWN])) + more
