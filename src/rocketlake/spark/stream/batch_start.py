"""From where a batch goes on, source by source, and which messages it can no longer have."""

from collections.abc import Mapping

from msgspec import Struct

from rocketlake.spark.stream.limits import OffsetRange, Ranges
from rocketlake.spark.stream.offsets import StreamSource

WAY_OUT = "option failOnDataLoss = false goes on without them"


class Advance(Struct, frozen=True):
    """What there is to read, and what is lost."""

    available: dict[StreamSource, OffsetRange]
    """From where each source goes on, up to its last message."""
    losses: list[str]
    """What is lost, in words."""


def advance(ends: Mapping[StreamSource, int], bounds: Ranges) -> Advance:
    """Compare what was read with what there is.

    A lane that was not read before begins at its first message. One that ends before what was
    read of it was made anew and begins at its first message too.
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
    """Return what there still is of the spans of a batch, and what is lost of them."""
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
        f"{source} was read up to {at}, but ends at {bound.end}: the store or the topic was made"
        " anew, or lost its end in a crash; give the query a new checkpointLocation, or:"
        " option failOnDataLoss = false begins at its first message"
    )
