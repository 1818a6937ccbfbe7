"""From where a batch goes on, lane by lane, and which messages it can no longer have."""

from collections.abc import Mapping

from msgspec import Struct

from rocketlake.spark.stream.limits import Stretch
from rocketlake.spark.stream.offsets import Lane

WAY_OUT = "option failOnDataLoss = false goes on without them"


class Advance(Struct, frozen=True):
    """What there is to read, and what is lost."""

    news: dict[Lane, Stretch]
    """From where each lane goes on, up to its last message."""
    losses: list[str]
    """What is lost, in words."""


def advance(ends: Mapping[Lane, int], bounds: Mapping[Lane, Stretch]) -> Advance:
    """Compare what was read with what there is.

    A lane that was not read before begins at its first message. One that ends before what was
    read of it was made anew and begins at its first message too.
    """
    news: dict[Lane, Stretch] = {}
    losses: list[str] = []
    for lane, bound in bounds.items():
        at = ends.get(lane)
        if at is None or bound.begin <= at <= bound.end:
            news[lane] = Stretch(bound.begin if at is None else at, bound.end)
            continue
        news[lane] = bound
        losses.append(_expired(lane, at, bound) if at < bound.begin else _anew(lane, at, bound))
    for lane, at in ends.items():
        if lane in bounds:
            continue
        if at == 0:
            news[lane] = Stretch(0, 0)  # a queue that no message has entered yet
        else:
            losses.append(
                f"{lane} was read up to {at} and is gone: its topic was deleted, or path and topic"
                f" no longer name it (a store that was moved keeps its name as name=path);"
                f" {WAY_OUT}"
            )
    return Advance(news, losses)


def clip(
    wanted: Mapping[Lane, Stretch], bounds: Mapping[Lane, Stretch]
) -> tuple[dict[Lane, Stretch], list[str]]:
    """Return what there still is of the stretches of a batch, and what is lost of them."""
    found: dict[Lane, Stretch] = {}
    losses: list[str] = []
    for lane, stretch in wanted.items():
        if not stretch.count:
            continue
        bound = bounds.get(lane, Stretch(0, 0))
        kept = Stretch(max(stretch.begin, bound.begin), min(stretch.end, bound.end))
        if kept.count:
            found[lane] = kept
        if stretch.begin < bound.begin:
            losses.append(_expired(lane, stretch.begin, bound))
        elif stretch.end > bound.end:
            losses.append(_anew(lane, stretch.end, bound))
    return found, losses


def _expired(lane: Lane, at: int, bound: Stretch) -> str:
    what = "bytes" if lane.is_log else "messages"
    return (
        f"{what} {at} to {bound.begin} of {lane} expired before they were read (it now begins at"
        f" {bound.begin}); keep them longer, or read sooner; {WAY_OUT}"
    )


def _anew(lane: Lane, at: int, bound: Stretch) -> str:
    return (
        f"{lane} was read up to {at}, but ends at {bound.end}: the store or the topic was made"
        " anew, or lost its end in a crash; give the query a new checkpointLocation, or:"
        " option failOnDataLoss = false begins at its first message"
    )
