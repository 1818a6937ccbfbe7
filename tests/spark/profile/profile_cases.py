"""Profiles made up for tests of the page: a full one, an empty one, one of a single message."""

import math
import random
from collections import Counter

from rocketlake.spark.jobs.profile import bins
from rocketlake.spark.jobs.profile.findings import Evidence, find
from rocketlake.spark.jobs.profile.report import Profile
from rocketlake.spark.jobs.profile.tables import (
    BinRow,
    GroupRow,
    KeyRow,
    QueueRow,
    Summary,
    TagRow,
    TimeRow,
    TopicRow,
    TopicTimeRow,
)

HOSTILE = (
    '</script><img src=x onerror="document.documentElement.dataset.hacked=1">\'&amp;\u202egnp.exe'
)
STEP_MS = 300_000
START_MS = 1_767_225_600_000
_SHARES = (0.5, 0.9, 0.99)


def topic_row(topic: str = "orders", messages: int = 1000, **fields: object) -> TopicRow:
    plain = {
        "bytes": messages * 400,
        "queues": 8,
        "first_ms": START_MS,
        "last_ms": START_MS + 7,
        "keyed": messages,
        "retried": 0,
        "size_max": 9000,
        "latency_max": 4000,
        "size_p50": 480.0,
        "size_p99": 3200.0,
        "latency_p50": 3.0,
        "latency_p99": 31.0,
    }
    return TopicRow(topic=topic, messages=messages, **{**plain, **fields})


def summary(messages: int, **fields: object) -> Summary:
    plain = {
        "store": "/data/store",
        "stores": ["/data/store"],
        "selection": "",
        "topics": 1,
        "bytes": messages * 400,
        "keyed": messages,
        "retried": 0,
        "step_ms": STEP_MS,
        "first_ms": START_MS,
        "last_ms": START_MS + 1234,
        "size_p50": 400.0,
        "size_p99": 900.0,
        "size_max": 1000,
        "latency_p50": 3.0,
        "latency_p90": 9.0,
        "latency_p99": 40.0,
        "latency_max": 400,
        "latency_below_zero": 0,
    }
    if not messages:
        plain = {
            k: None if k[-2:] in {"ms", "50", "90", "99", "ax"} else v for k, v in plain.items()
        }
        plain |= {"step_ms": STEP_MS, "bytes": 0, "topics": 0, "latency_below_zero": 0}
    return Summary(messages=messages, **{**plain, **fields})


def evidence(messages: int = 10_000, **fields: object) -> Evidence:
    plain: dict[str, object] = {
        name: [] for name in ("topics", "times", "topic_times", "keys", "queues", "groups")
    }
    return Evidence(**{"summary": summary(messages), **plain, **fields})


def steps(counts: list[int], p99: list[float | None] | None = None) -> list[TimeRow]:
    return [
        TimeRow(
            start_ms=START_MS + index * STEP_MS,
            messages=count,
            bytes=count * 400,
            latency_p50=3.0 if count else None,
            latency_p90=9.0 if count else None,
            latency_p99=(p99[index] if p99 else 33.0) if count else None,
            latency_max=60 if count else None,
        )
        for index, count in enumerate(counts)
    ]


def empty() -> Profile:
    return _profile(evidence(0), Counter())


def single() -> Profile:
    row = TopicTimeRow(topic="orders", start_ms=START_MS, messages=1, bytes=400)
    seen = evidence(1, topics=[topic_row(messages=1)], times=steps([1]), topic_times=[row])
    return _profile(seen, Counter({bins.bin_of(400): 1}))


def full() -> Profile:
    """Half a day of eight topics: a gap, a peak, a jump of latency, skew, lag, hostile names."""
    rng = random.Random(3)
    weights = {
        "orders": 50,
        "payments": 20,
        "clicks": 10,
        "stock": 9,
        "audit": 5,
        HOSTILE: 2,
        "%RETRY%billing": 0.8,
        "%DLQ%billing": 0.4,
    }
    topic_times, counts, totals, sizes = [], [], Counter[str](), Counter[int]()
    p99: list[float | None] = []
    for index in range(144):
        load = 0 if 60 <= index < 78 else 1 + 0.8 * math.sin((index - 40) / 23)
        load *= 8 if index == 100 else 1
        here = {name: int(weight * load * rng.uniform(40, 60)) for name, weight in weights.items()}
        for name, count in here.items():
            if count:
                start = START_MS + index * STEP_MS
                row = TopicTimeRow(topic=name, start_ms=start, messages=count, bytes=count * 500)
                topic_times.append(row)
        totals.update(here)
        counts.append(sum(here.values()))
        p99.append(33.0 * (40 if 118 <= index <= 121 else 1))
        sizes[bins.bin_of(int(rng.lognormvariate(6, 0.9)) + 90)] += counts[-1]
    topics = [topic_row(name, count) for name, count in totals.most_common()]
    queues = [
        QueueRow(
            broker="b",
            topic=row.topic,
            queue_id=queue,
            messages=int(row.messages / 8 * (4 if queue == 3 and row.topic == "payments" else 1)),
            bytes=0,
            first_ms=START_MS,
            last_ms=START_MS,
        )
        for row in topics
        for queue in range(8)
    ]
    groups = [
        GroupRow(broker="b", group="billing", topic="orders", queues=8, lag=120_344, missed=0),
        GroupRow(broker="b", group=HOSTILE, topic="clicks", queues=8, lag=0, missed=512),
    ]
    keys = [
        KeyRow(topic="orders", key="customer-0", messages=90_000, bytes=900),
        KeyRow(topic=HOSTILE, key=HOSTILE * 3, messages=2, bytes=400),
    ]
    seen = evidence(
        sum(counts),
        topics=topics,
        times=steps(counts, p99),
        topic_times=topic_times,
        keys=keys,
        queues=queues,
        groups=groups,
    )
    return _profile(seen, sizes)


def lopsided() -> Profile:
    """Nine topics over time: one has most messages, and another, of large ones, most bytes."""
    topics = {"many small": (900, 100), "few large": (2, 90_000)}
    topics |= {f"t{number}": (20 + number, 200) for number in range(7)}
    topic_times = [
        TopicTimeRow(
            topic=topic, start_ms=START_MS + step * STEP_MS, messages=count, bytes=count * size
        )
        for step in range(12)
        for topic, (count, size) in topics.items()
    ]
    seen = evidence(
        12 * sum(count for count, _ in topics.values()),
        topics=[topic_row(topic, 12 * count) for topic, (count, _) in topics.items()],
        times=steps([sum(count for count, _ in topics.values())] * 12),
        topic_times=topic_times,
    )
    return _profile(seen, Counter())


def _profile(seen: Evidence, sizes: Counter[int]) -> Profile:
    rows = [BinRow(first=a, end=b, messages=c) for a, b, c in bins.doublings(sizes.items())]
    tags = [
        TagRow(topic=row.topic, tag=tag, messages=row.messages // 3, bytes=0)
        for row in seen.topics[:3]
        for tag in ("paid", HOSTILE, None)
    ]
    return Profile(
        summary=seen.summary,
        findings=find(seen, lambda _moment, _latency: HOSTILE),
        notes=[],
        topics=seen.topics,
        times=seen.times,
        topic_times=seen.topic_times,
        sizes=rows,
        latencies=rows,
        tags=tags,
        keys=seen.keys,
        queues=seen.queues,
        groups=seen.groups,
    )
