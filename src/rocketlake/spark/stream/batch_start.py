"""Where a batch begins in each source, and which messages are lost to it."""

from collections.abc import Mapping

from msgspec import Struct

from rocketlake.spark.stream.limits import OffsetRange, Ranges
from rocketlake.spark.stream.offsets import StreamSource

WAY_OUT = "option failOnDataLoss = false goes on without them"


class Advance(Struct, frozen=True):
    """What there is to read, and what is lost."""

    available: dict[StreamSource, OffsetRange]
    """What each source has behind what was read."""
    losses: list[str]
    """The texts of what is lost."""


def advance(ends: Mapping[StreamSource, int], bounds: Ranges) -> Advance:
    """Compare what was read with what there is.

    A source that was not read before begins at its first message. So does one that ends before
    what was read of it: its topic or its store was created again.
    """
    available: dict[StreamSource, OffsetRange] = {}
    losses: list[str] = []
    for source, bound in bounds.items():
        at = ends.get(source)
        if at is None or bound.begin <= at <= bound.end:
            available[source] = OffsetRange(bound.begin if at is None else at, bound.end)
            continue
        available[source] = bound
        losses.append(
            _expired(source, at, bound) if at < bound.begin else _recreated(source, at, bound)
        )
    for source, at in ends.items():
        if source in bounds:
            continue
        if at == 0:
            available[source] = OffsetRange(0, 0)  # a queue that no message has entered yet
        else:
            losses.append(
                f"{source} was read up to {at} and is gone: its topic was deleted, or path and"
                f" topic no longer name it (a store that was moved keeps its name as name=path);"
                f" {WAY_OUT}"
            )
    return Advance(available, losses)


def clip(wanted: Ranges, bounds: Ranges) -> tuple[dict[StreamSource, OffsetRange], list[str]]:
    """Return what is left of the spans of a batch, and the texts of what is lost."""
    found: dict[StreamSource, OffsetRange] = {}
    losses: list[str] = []
    for source, span in wanted.items():
        if not span.count:
            continue
        bound = bounds.get(source, OffsetRange(0, 0))
        kept = OffsetRange(max(span.begin, bound.begin), min(span.end, bound.end))
        if kept.count:
            found[source] = kept
        if span.begin < bound.begin:
            losses.append(_expired(source, span.begin, bound))
        elif span.end > bound.end:
            losses.append(_recreated(source, span.end, bound))
    return found, losses


def _expired(source: StreamSource, at: int, bound: OffsetRange) -> str:
    what = "bytes" if source.is_log else "messages"
    return (
        f"{what} {at} to {bound.begin} of {source} expired before they were read (it now begins at"
        f" {bound.begin}); keep them longer, or read sooner; {WAY_OUT}"
    )


def _recreated(source: StreamSource, at: int, bound: OffsetRange) -> str:
    return (
        f"{source} was read up to {at}, but ends at {bound.end}: the store or the topic was created"
        " again, or lost its end in a crash; give the query a new checkpointLocation, or set"
        " failOnDataLoss = false to begin at its first message"
    )
