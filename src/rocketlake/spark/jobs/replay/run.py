"""Runs a replay: one write through the sink, or paced pieces of it.

Each write has a name made of the replay's, so that a replay that was killed and is repeated under
the same id writes every message once.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, structs
from pyspark.sql import DataFrame, Row, SparkSession

from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import ConfigError
from rocketlake.spark.jobs.replay.plan import PIECE_S, ReplayPlan, ReplaySettings, keep, plan_replay
from rocketlake.spark.jobs.replay.rows import NEEDED, as_messages, fits, is_batch
from rocketlake.spark.jobs.selection import Selection
from rocketlake.spark.progress import OnProgress, watching

_PIECE_BYTES: Final = 32 << 20
_ORDER: Final = ("store_timestamp", "broker", "source", "source_queue", "queue_offset")


class ReplayReport(Struct, frozen=True, kw_only=True):
    """What a replay has done."""

    id: str
    target: str
    messages: int
    pieces: int
    left_out: int
    """Records with several messages in one body, and those whose properties have no room."""
    seconds: float
    was_done: bool = False

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        if self.was_done:
            yield f"replay {self.id!r} was done before; nothing was written again"
            return
        yield (
            f"{self.messages} messages written to {self.target} in {self.seconds:.1f} s"
            f" (id {self.id})"
        )
        if self.left_out:
            yield f"{self.left_out} records were left out: batches, or properties too large"


def replay(
    spark: SparkSession,
    selection: Selection,
    target: str | Path,
    *,
    settings: ReplaySettings | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> ReplayPlan | ReplayReport:
    """Write messages again, into a store or another topic of it.

    Each source queue keeps its order. What RocketMQ added to a message in its first life is left
    behind; ORIGIN_MESSAGE_ID says which message it was. With `dry_run` the plan is returned.

    Raises:
        ConfigError: an option is wrong, or messages do not say where they go.
        StoreError: something cannot be read or written.
    """
    plan = plan_replay(spark, selection, target, settings)
    return plan if dry_run else run_replay(spark, plan, on_progress=on_progress)


def run_replay(
    spark: SparkSession,
    plan: ReplayPlan,
    *,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Do what a plan says.

    Raises:
        ConfigError: messages do not say where they go.
        StoreError: something cannot be read or written.
    """
    clock = clock or SystemClock()
    begun = clock.monotonic_s()
    asked = plan.asked
    if asked.is_done:
        return _report(plan, asked.messages, 0, 0.0, was_done=True)
    if plan.homeless:
        raise ConfigError(
            f"{plan.homeless} messages do not say which topic they came from (they have neither"
            " DLQ_ORIGIN_TOPIC nor RETRY_TOPIC); name one to send them to"
        )
    root = Path(plan.target)
    keep(root, asked)
    pieces = messages = 0
    if plan.messages:
        frame = _frame(spark, plan)
        if asked.settings.rate is None:
            with watching(spark, on_progress):
                _write(_in_queue_order(frame), plan, asked.id)
            pieces, messages = 1, plan.messages
        else:
            paced = _Pace(plan, clock, wait, on_progress)
            for piece in cut(frame.orderBy(*_ORDER).toLocalIterator(), paced.rows):
                rows = spark.createDataFrame(piece, frame.schema)
                _write(rows, plan, f"{asked.id}-{pieces:06d}")
                pieces += 1
                messages += len(piece)
                paced.note(messages)
    keep(root, structs.replace(asked, is_done=True, messages=messages))
    return _report(plan, messages, pieces, clock.monotonic_s() - begun)


class _Pace:
    """Waits so that messages go at the rate asked for."""

    def __init__(
        self,
        plan: ReplayPlan,
        clock: Clock,
        wait: Callable[[float], None],
        on_progress: OnProgress | None,
    ) -> None:
        self._rate = plan.asked.settings.rate or 1.0
        self.rows = max(1, int(self._rate * PIECE_S))
        self._total = plan.messages
        self._clock = clock
        self._wait = wait
        self._on_progress = on_progress
        self._begun = clock.monotonic_s()

    def note(self, done: int) -> None:
        """Say how far it is, and wait for the time of the next piece."""
        if self._on_progress is not None:
            self._on_progress(done, self._total)
        due = self._begun + done / self._rate
        if done < self._total:
            self._wait(max(0.0, due - self._clock.monotonic_s()))


def cut(rows: Iterable[Row], count: int, size: int = _PIECE_BYTES) -> Iterator[list[Row]]:
    """Cut rows into pieces of a count, or sooner of a size: always at the same places."""
    piece: list[Row] = []
    held = 0
    for row in rows:
        piece.append(row)
        held += len(row.body)
        if len(piece) >= count or held >= size:
            yield piece
            piece, held = [], 0
    if piece:
        yield piece


def _frame(spark: SparkSession, plan: ReplayPlan) -> DataFrame:
    """Return the messages as the sink takes them, with where they come from."""
    frame = plan.asked.selection.load(spark, NEEDED).where(~is_batch() & fits())
    return as_messages(frame, plan.topic(), plan.queue())


def _in_queue_order(frame: DataFrame) -> DataFrame:
    """Have each source queue in one task, in its order."""
    queue = ("broker", "source", "source_queue")
    return frame.repartition(*queue).sortWithinPartitions(*queue, "queue_offset")


def _write(frame: DataFrame, plan: ReplayPlan, name: str) -> None:
    messages = frame.drop(*_ORDER)
    options = {"path": plan.target, "writeId": f"replay-{name}", **plan.asked.settings.sink_options}
    messages.write.format("rocketlake").mode("append").options(**options).save()


def _report(
    plan: ReplayPlan, messages: int, pieces: int, seconds: float, *, was_done: bool = False
) -> ReplayReport:
    return ReplayReport(
        id=plan.asked.id,
        target=plan.target,
        messages=messages,
        pieces=pieces,
        left_out=plan.batches + plan.too_large,
        seconds=seconds,
        was_done=was_done,
    )
