"""What stands out: each rule speaks when it should, and is silent about little data."""

import profile_cases as cases
import pytest

from rocketlake.spark.jobs.profile.findings import find
from rocketlake.spark.jobs.profile.tables import GroupRow, KeyRow, QueueRow, TopicTimeRow


def kinds(**fields) -> list[str]:
    found = find(cases.evidence(**fields), lambda _moment, _latency: "slow one")
    return [finding.kind for finding in found]


def queues(counts: list[int]) -> list[QueueRow]:
    return [
        QueueRow(
            broker="b", topic="t", queue_id=n, messages=m, bytes=0, first_ms=None, last_ms=None
        )
        for n, m in enumerate(counts)
    ]


def group(lag: int, missed: int = 0) -> GroupRow:
    return GroupRow(broker="b", group="g", topic="orders", queues=1, lag=lag, missed=missed)


USUAL = [100] * 20
TOPICS = [cases.topic_row("orders", 1000), cases.topic_row("b", 900)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"times": cases.steps(USUAL)}, []),
        ({"times": cases.steps([*USUAL[:9], 501, *USUAL])}, ["peak"]),
        ({"times": cases.steps([*USUAL, 501])}, []),
        ({"times": cases.steps([*USUAL, 0, 0, 0, *USUAL[:5]])}, ["silence"]),
        ({"times": cases.steps([*USUAL, 0, 0, *USUAL[:5]])}, []),
        ({"times": cases.steps(USUAL, [33.0] * 19 + [166.0])}, ["latency"]),
        ({"times": cases.steps(USUAL, [33.0] * 19 + [160.0])}, []),
        ({"times": cases.steps(USUAL, [3.0] * 19 + [90.0])}, []),
        ({"topics": TOPICS}, []),
        ({"topics": [cases.topic_row(messages=7000), *TOPICS[1:]]}, ["hot topic"]),
        ({"topics": [cases.topic_row(messages=7000)]}, []),
        ({"topics": [*TOPICS, cases.topic_row("%DLQ%g", 1)]}, ["dead letters"]),
        ({"topics": [*TOPICS, cases.topic_row("%RETRY%g", 1)]}, ["retries"]),
        ({"queues": queues([100, 100, 201, 100])}, ["skew"]),
        ({"queues": queues([100, 100, 199, 100])}, []),
        ({"queues": queues([1, 50])}, []),
        ({"queues": queues([500])}, []),
        ({"topics": TOPICS, "groups": [group(101)]}, ["lag"]),
        ({"topics": TOPICS, "groups": [group(99)]}, []),
        ({"topics": TOPICS, "groups": [group(0, missed=1)]}, ["missed"]),
        ({"summary": cases.summary(10_000, latency_below_zero=1)}, ["clocks"]),
        (
            {
                "topics": TOPICS,
                "keys": [KeyRow(topic="orders", key="k", messages=101, bytes=1)],
            },
            ["hot key"],
        ),
    ],
)
def test_a_rule_speaks_only_of_what_it_is_about(fields, expected):
    assert kinds(**fields) == expected


def test_warnings_come_first_and_texts_name_what_and_where():
    here = TopicTimeRow(
        topic="orders", start_ms=cases.START_MS + 9 * cases.STEP_MS, messages=400, bytes=1
    )
    seen = cases.evidence(
        times=cases.steps([*USUAL[:9], 501, *USUAL], [33.0] * 28 + [1000.0, 33.0]),
        topic_times=[here],
        groups=[group(500)],
        topics=TOPICS,
    )
    found = find(seen, lambda _moment, _latency: "slow one")
    assert [(item.is_warning, item.kind) for item in found] == [
        *((True, "lag"), (True, "latency"), (False, "peak")),
    ]
    texts = " ".join(item.text for item in found)
    assert "group g is 500 messages behind in orders, 50 % of what the topic holds" in texts
    assert "jumped to 1 s (p99) at 2026-01-01 02:20, most of it in slow one" in texts
    assert "mostly orders: 5 times the usual rate" in texts
