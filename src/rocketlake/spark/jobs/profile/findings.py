"""What stands out: rules over the tables, each of which can be checked by hand.

A rule says nothing about little data: three messages have no hot topic. Warnings come first.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

from msgspec import Struct

from rocketlake.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlake.spark.jobs.profile.number_text import (
    count_text,
    plural,
    share_text,
    short_count,
    shortened,
)
from rocketlake.spark.jobs.profile.tables import (
    Finding,
    GroupRow,
    KeyRow,
    QueueRow,
    Summary,
    TimeRow,
    TopicRow,
    TopicTimeRow,
)
from rocketlake.spark.jobs.profile.time_axis import span_text, utc_text

DEAD_LETTERS: Final = DEAD_LETTER_PREFIX
RETRIES: Final = RETRY_PREFIX

MESSAGES_MIN: Final = 100
"""Fewer messages tell nothing."""
HOT_TOPIC: Final = 0.6
HOT_KEY: Final = 0.1
PEAK: Final = 5
JUMP: Final = 5
JUMP_MS_MIN: Final = 100
SKEW: Final = 2
SILENCE: Final = 0.1
BEHIND: Final = 0.1
_EACH_MAX: Final = 3
_STEPS_MIN: Final = 8
_TEXT_MAX: Final = 500  # a key may be as long as a message

RULES: Final = (
    f"a topic with more than {HOT_TOPIC:.0%} of all messages",
    f"a step with more than {PEAK} times the usual rate",
    f"no message for more than {SILENCE:.0%} of the time",
    f"a step whose p99 latency is {JUMP} times the usual one, and above {JUMP_MS_MIN} ms",
    "messages that were stored before they were born",
    f"a queue with more than {SKEW} times the messages of its topic's other queues",
    f"a key with more than {HOT_KEY:.0%} of its topic's messages",
    f"a group that is behind by more than {BEHIND:.0%} of what its topic holds",
    "a group that missed messages, because they were deleted first",
    "dead letters, and messages that were consumed again",
)
"""The rules, for people."""

SlowTopic = Callable[[int, float], str | None]
"""Tells which topic has most messages at or above a latency in the step that begins at a time."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What the rules look at."""

    summary: Summary
    topics: list[TopicRow]
    times: list[TimeRow]
    topic_times: list[TopicTimeRow]
    keys: list[KeyRow]
    queues: list[QueueRow]
    groups: list[GroupRow]


def find(seen: Evidence, slow_topic: SlowTopic) -> list[Finding]:
    """Apply every rule; warnings first."""
    found = [
        *_groups(seen),
        *_dead_letters(seen),
        *_latency(seen, slow_topic),
        *_silence(seen),
        *_peak(seen),
        *_skew(seen),
        *_hot_topic(seen),
        *_hot_keys(seen),
        *_clocks(seen),
        *_retried(seen),
    ]
    return sorted(found, key=lambda finding: not finding.is_warning)


def _warn(kind: str, text: str) -> Finding:
    return Finding(is_warning=True, kind=kind, text=shortened(text, _TEXT_MAX))


def _note(kind: str, text: str) -> Finding:
    return Finding(is_warning=False, kind=kind, text=shortened(text, _TEXT_MAX))


def _groups(seen: Evidence) -> Iterator[Finding]:
    held = {row.topic: row.messages for row in seen.topics}
    for row in sorted(seen.groups, key=lambda row: -row.missed)[:_EACH_MAX]:
        if row.missed:
            yield _warn(
                "missed",
                f"group {row.group} missed {plural(row.missed, 'message')} of {row.topic}:"
                " deleted before it consumed them",
            )
    for row in sorted(seen.groups, key=lambda row: -row.lag)[:_EACH_MAX]:
        holds = held.get(row.topic, 0)
        if row.lag >= MESSAGES_MIN and row.lag > BEHIND * holds:
            share = f", {share_text(row.lag, holds)} of what the topic holds" if holds else ""
            yield _warn(
                "lag",
                f"group {row.group} is {plural(row.lag, 'message')} behind in {row.topic}{share}",
            )


def _dead_letters(seen: Evidence) -> Iterator[Finding]:
    dead = [row for row in seen.topics if row.topic.startswith(DEAD_LETTERS)]
    for row in dead[:_EACH_MAX]:
        group = row.topic.removeprefix(DEAD_LETTERS)
        yield _warn(
            "dead letters",
            f"group {group} gave up on {plural(row.messages, 'message')} (dead letters), the last"
            f" at {utc_text(row.last_ms, 1000)}",
        )


def _latency(seen: Evidence, slow_topic: SlowTopic) -> Iterator[Finding]:
    steps = [row for row in seen.times if row.latency_p99 is not None and row.messages >= 10]
    if len(steps) < _STEPS_MIN:
        return
    usual = median(row.latency_p99 or 0 for row in steps)
    worst = max(steps, key=lambda row: row.latency_p99 or 0)
    height = worst.latency_p99 or 0
    if height < max(JUMP * usual, JUMP_MS_MIN):
        return
    topic = slow_topic(worst.start_ms, height)
    where = f", most of it in {topic}" if topic else ""
    yield _warn(
        "latency",
        f"producer-to-store latency jumped to {span_text(height)} (p99) at"
        f" {utc_text(worst.start_ms, seen.summary.step_ms)}{where}; usual is {span_text(usual)}",
    )


def _silence(seen: Evidence) -> Iterator[Finding]:
    if seen.summary.messages < MESSAGES_MIN or len(seen.times) < _STEPS_MIN:
        return
    longest, start, run = 0, 0, 0
    for index, row in enumerate(seen.times):
        run = 0 if row.messages else run + 1
        if run > longest:
            longest, start = run, index - run + 1
    if longest > SILENCE * len(seen.times):
        step = seen.summary.step_ms
        yield _warn(
            "silence",
            f"nothing was stored for {span_text(longest * step)}, from"
            f" {utc_text(seen.times[start].start_ms, step)}",
        )


def _peak(seen: Evidence) -> Iterator[Finding]:
    # Why: the first and the last step are cut off by the span, and are no measure of a rate.
    steps = [row for row in seen.times[1:-1] if row.messages]
    if seen.summary.messages < MESSAGES_MIN or len(steps) < _STEPS_MIN:
        return
    usual = median(row.messages for row in steps)
    top = max(steps, key=lambda row: row.messages)
    if top.messages <= PEAK * usual:
        return
    step = seen.summary.step_ms
    here = [row for row in seen.topic_times if row.start_ms == top.start_ms and row.topic]
    most = max(here, key=lambda row: row.messages, default=None)
    is_one = most is not None and most.messages > top.messages / 2
    where = f", mostly {most.topic}" if most is not None and is_one else ""
    yield _note(
        "peak",
        f"{short_count(top.messages * 1000 / step)} messages/s at {utc_text(top.start_ms, step)}"
        f"{where}: {top.messages / usual:.0f} times the usual rate",
    )


def _skew(seen: Evidence) -> Iterator[Finding]:
    by_topic: dict[str, list[int]] = {}
    for row in seen.queues:
        by_topic.setdefault(row.topic, []).append(row.messages)
    found = []
    for topic, counts in by_topic.items():
        rest = (sum(counts) - max(counts)) / max(len(counts) - 1, 1)
        if len(counts) > 1 and sum(counts) >= MESSAGES_MIN and max(counts) > SKEW * rest:
            found.append((max(counts) / max(rest, 1), topic, max(counts), sum(counts)))
    for _, topic, most, total in sorted(found, reverse=True)[:_EACH_MAX]:
        queue = next(r for r in seen.queues if r.topic == topic and r.messages == most)
        yield _warn(
            "skew",
            f"queue {queue.queue_id} of {topic} holds {share_text(most, total)} of its messages"
            f" ({len(by_topic[topic])} queues)",
        )


def _hot_topic(seen: Evidence) -> Iterator[Finding]:
    if len(seen.topics) < 2 or seen.summary.messages < MESSAGES_MIN:
        return
    top = seen.topics[0]
    if top.messages > HOT_TOPIC * seen.summary.messages:
        share = share_text(top.messages, seen.summary.messages)
        size = share_text(top.bytes, seen.summary.bytes)
        yield _note("hot topic", f"{top.topic} has {share} of all messages and {size} of the bytes")


def _hot_keys(seen: Evidence) -> Iterator[Finding]:
    totals = {row.topic: row.messages for row in seen.topics}
    hot = [
        row
        for row in seen.keys
        if row.messages >= MESSAGES_MIN and row.messages > HOT_KEY * totals.get(row.topic, 0)
    ]
    for row in hot[:_EACH_MAX]:
        share = share_text(row.messages, totals.get(row.topic, 0))
        yield _note("hot key", f"key {row.key} is in {share} of the messages of {row.topic}")


def _clocks(seen: Evidence) -> Iterator[Finding]:
    count = seen.summary.latency_below_zero
    if count:
        yield _note(
            "clocks",
            f"{plural(count, 'message')} ({share_text(count, seen.summary.messages)}) stored before"
            " born: clocks of producers and broker differ, and latencies with them",
        )


def _retried(seen: Evidence) -> Iterator[Finding]:
    waiting = sum(row.messages for row in seen.topics if row.topic.startswith(RETRIES))
    if waiting:
        yield _note("retries", f"{count_text(waiting)} messages in retry topics")
