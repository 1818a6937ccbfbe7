"""Random stores: what a seed writes, and which damage it does to copies.

A plan is a pure function of its seed; times, and the order of what a broker writes by itself, are
those of the run. Each store holds plain messages, and those of a few kinds. No delay ends during
a run.
"""

import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from store_damage import DAMAGES

Item = dict[str, Any]
"""One put of a spec."""

Spec = dict[str, Any]
"""The input of the driver's `write`: options, messages, how to stop; StoreWriter.java reads it."""

_ALL = ("5.5.0", "5.3.3", "4.9.7", "4.6.0")
_TOPICS = ("A", "Bb-topic", "%RETRY%g", "x" * 100)
_KEYS = ("Aa", "BB", *(f"k{number}" for number in range(20)))  # Aa and BB have the same hash
_BORN = 1_700_000_000_000


class Plan(Struct, frozen=True):
    """Which release writes what, and how copies of it are damaged."""

    seed: int
    version: str
    kinds: tuple[str, ...]
    spec: Spec
    damages: tuple[str, ...]

    @property
    def is_killed(self) -> bool:
        """Tell whether the writer is halted, not shut down."""
        return "exit" in self.spec

    @property
    def is_5x(self) -> bool:
        """Tell whether a release of 5.x writes."""
        return self.version.startswith("5.")

    @property
    def topics(self) -> list[str]:
        """The topics of the spec."""
        return sorted({item["topic"] for item in self.spec["messages"] if "topic" in item})

    def __str__(self) -> str:
        how = "killed" if self.is_killed else "clean"
        return f"seed {self.seed} ({self.version}, {' '.join(self.kinds) or 'plain'}, {how})"


class Kind(Struct, frozen=True):
    """What a kind of store needs: options, keys of the spec, and how it changes a put."""

    change: Callable[[random.Random, int, Item], Item | None]
    versions: tuple[str, ...] = _ALL
    options: dict[str, Any] = {}
    spec: Spec = {}


def make_plan(seed: int) -> Plan:
    """Draw a store and its damage."""
    rng = random.Random(seed)
    version = rng.choice(("5.5.0", *_ALL))
    known = [name for name, kind in KINDS.items() if version in kind.versions]
    kinds = tuple(sorted(rng.sample(known, rng.choice((0, 1, 2, 2, 3, 3, 4)))))
    spec: Spec = {"version": version, "options": _sizes(rng)}
    for name in kinds:
        spec["options"].update(KINDS[name].options)
        spec.update(KINDS[name].spec)
    spec["messages"] = _messages(rng, kinds)
    if rng.random() < 0.6:
        spec.update(exit="kill", settle=rng.choice((0, 300, 1500)))
    damages = tuple(rng.sample(sorted(DAMAGES), 5))
    return Plan(seed, version, kinds, spec, damages)


def questions(plan: Plan, queues: list[tuple[str, int]], times: list[int]) -> dict[str, list[Item]]:
    """Ask for keys of a plan's topics, and for times near the first, middle and last put."""
    rng = random.Random(plan.seed)
    keys = [
        {"topic": topic, "key": key}
        for topic in (*plan.topics[:3], "no such topic")
        for key in ("Aa", *rng.sample(_KEYS, 2), _unique_key(rng.randrange(60)), "no such key")
    ]
    around = sorted({times[0], times[len(times) // 2], times[-1]})
    asked = [
        {"topic": topic, "queueId": queue_id, "timestamp": time + step}
        for topic, queue_id in rng.sample(queues, min(len(queues), 4))
        for time in around
        for step in (-1, 0, 1)
    ]
    return {"keys": keys, "times": asked}


def _sizes(rng: random.Random) -> dict[str, Any]:
    return {
        "mappedFileSizeCommitLog": rng.choice((8192, 16384, 65536)),
        "mappedFileSizeConsumeQueue": rng.choice((200, 400, 2000)),
        "maxHashSlotNum": rng.choice((7, 50, 100, 333)),
        "maxIndexNum": rng.choice((30, 77, 400, 1000)),
    }


def _messages(rng: random.Random, kinds: tuple[str, ...]) -> list[Item]:
    topics = _TOPICS[: rng.randint(1, len(_TOPICS))]
    items: list[Item] = []
    for number in range(rng.choice((5, 60, 150, 300))):
        item: Item = _message(rng, number, topics)
        for name in kinds:
            item = KINDS[name].change(rng, number, item) or item
        items.append(item)
        if rng.random() < 0.02:
            items.append({"pause": rng.choice((5, 50, 300))})
    return _with_ends(rng, items)


def _message(rng: random.Random, number: int, topics: tuple[str, ...]) -> Item:
    item: Item = {
        "topic": rng.choice(topics),
        "queueId": rng.randint(0, 3),
        "body": {"seed": number, "size": rng.choice((0, 1, 10, 100, 1000, 3000))},
        "bornTimestamp": _BORN + number,
    }
    if rng.random() < 0.6:
        item["keys"] = " ".join(rng.choices(_KEYS, k=rng.randint(1, 3)))
    if rng.random() < 0.6:
        item["tags"] = rng.choice(("T1", "T2", "标签"))
    if rng.random() < 0.2:
        item["properties"] = {"p": f"vä{number}", "UNIQ_KEY": _unique_key(number)}
    if rng.random() < 0.03:
        item["transaction"] = rng.choice(("prepared", "commit", "rollback"))
    return item


def _unique_key(number: int) -> str:
    return f"C0A80009123418B4AAC2{number:012X}"


# --- kinds: each changes some of the puts -------------------------------------------------------


def _delay(rng: random.Random, _: int, item: Item) -> Item | None:
    if rng.random() < 0.7 or _is_batch(item):
        return None
    return {**item, "delayLevel": rng.choice((5, 9, 18, 30))}


def _timer(rng: random.Random, number: int, item: Item) -> Item | None:
    if rng.random() < 0.7 or _is_batch(item):
        return None
    delay = {"TIMER_DELAY_SEC": rng.choice(("60", "9000"))}
    unique = {"UNIQ_KEY": _unique_key(number)}
    return {**item, "properties": {**item.get("properties", {}), **delay, **unique}}


def _batch(rng: random.Random, _: int, item: Item) -> Item | None:
    if rng.random() < 0.6 or item["topic"].startswith("%"):
        return None
    parts = [
        {"body": f"b{number}", "tags": "x", "keys": f"k{number}"}
        for number in range(rng.randint(1, 12))
    ]
    return {**_place(item), "batch": parts}


def _lmq(rng: random.Random, _: int, item: Item) -> Item | None:
    if rng.random() < 0.5 or item["topic"].startswith("%") or _is_batch(item):
        return None
    names = rng.sample(("%LMQ%a", "%LMQ%b", "%LMQ%c"), rng.randint(1, 3))
    light = {"INNER_MULTI_DISPATCH": ",".join(names)}
    return {**item, "properties": {**item.get("properties", {}), **light}}


def _batch_queue(rng: random.Random, number: int, item: Item) -> Item | None:
    if rng.random() < 0.5:
        return None
    parts = [{"body": f"b{number}-{part}"} for part in range(rng.randint(1, 5))]
    place = {**_place(item), "topic": "Bcq", "queueId": rng.randint(0, 1)}
    return {**place, "innerBatch": parts, "properties": {"UNIQ_KEY": _unique_key(number)}}


def _ipv6(rng: random.Random, number: int, item: Item) -> Item | None:
    hosts = {"bornHost": f"[2001:db8::{number:x}]:99", "storeHost": "[fe80::1]:10911"}
    return {**item, **{name: text for name, text in hosts.items() if rng.random() < 0.5}}


def _compressed(rng: random.Random, _: int, item: Item) -> Item | None:
    if rng.random() < 0.5 or _is_batch(item):
        return None
    plain = {"repeat": "compressed again and again. ", "size": rng.choice((1, 300, 9000))}
    return {**item, "body": {"zlib": plain}, "sysFlag": 1}


def _half(rng: random.Random, number: int, item: Item) -> Item | None:
    if rng.random() < 0.7 or _is_batch(item) or {"delayLevel", "transaction"} & set(item):
        return None
    group = {"PGROUP": "PG", "UNIQ_KEY": _unique_key(number)}
    return {**item, "half": str(number), "properties": {**item.get("properties", {}), **group}}


def _long(rng: random.Random, _: int, item: Item) -> Item | None:
    if rng.random() < 0.7 or "innerBatch" in item:
        return None
    return {**item, "topic": rng.choice(("l" * 127, "L" * 128))}


def _nothing(rng: random.Random, number: int, item: Item) -> None:
    del rng, number, item


def _is_batch(item: Item) -> bool:
    return "batch" in item or "innerBatch" in item


def _place(item: Item) -> Item:
    return {name: item[name] for name in ("topic", "queueId", "bornTimestamp")}


def _with_ends(rng: random.Random, items: list[Item]) -> list[Item]:
    """Commit or roll back some of the half messages, each a while after it was put."""
    out: list[Item] = []
    pending: list[str] = []
    for item in items:
        out.append(item)
        if "half" in item:
            pending.append(item["half"])
        if pending and rng.random() < 0.3:
            end = rng.choice(("commit", "rollback"))
            out.append({end: pending.pop(rng.randrange(len(pending)))})
    return out


_CONFIG: Spec = {
    "topics": [{"name": "A", "readQueueNums": 8}, {"name": "Bb-topic", "perm": 4}],
    "groups": [{"name": "CG_1"}, {"name": "组", "retryMaxTimes": 3}],
    "offsets": [
        {"group": "CG_1", "topic": "A", "queueId": number, "offset": 10 + number}
        for number in range(4)
    ],
    "laterOffsets": [{"group": "CG_1", "topic": "A", "queueId": 0, "offset": 99}],
}

_5 = ("5.5.0", "5.3.3")

# In the order in which they change a put: those that replace it come first.
KINDS: dict[str, Kind] = {
    "batch": Kind(_batch),
    "bcq": Kind(
        _batch_queue,
        versions=_5,
        options={"mapperFileSizeBatchConsumeQueue": 460},
        spec={"topics": [{"name": "Bcq", "attributes": {"queue.type": "BatchCQ"}}]},
    ),
    "compressed": Kind(_compressed),
    "config": Kind(_nothing, spec={"config": _CONFIG}),
    "crc": Kind(_nothing, versions=_5, options={"enabledAppendPropCRC": True}),
    "delay": Kind(_delay, spec={"broker": True}),
    "expire": Kind(_nothing, spec={"expire": {"files": 2}}),
    "ext": Kind(
        _nothing,
        options={"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024},
    ),
    "half": Kind(_half, versions=(*_5, "4.9.7"), spec={"broker": True}),
    "ipv6": Kind(_ipv6),
    "lmq": Kind(_lmq, versions=_5, options={"enableLmq": True, "enableMultiDispatch": True}),
    "long": Kind(_long, versions=_5),
    "multi": Kind(
        _nothing,
        versions=(*_5, "4.9.7"),
        options={"storePathCommitLog": "{store}/cl-b,{store}/cl-a"},
    ),
    "no map": Kind(_nothing, versions=("5.5.0",), options={"writeWithoutMmap": True}),
    "timer": Kind(
        _timer,
        versions=_5,
        options={"timerWheelEnable": True, "mappedFileSizeTimerLog": 5200},
        spec={"broker": True},
    ),
}
