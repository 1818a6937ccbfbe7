"""What a test put into a store, and how much of it must be there after a crash.

The log keeps the order of puts, so one number says what is safe: the first so many messages. Those
behind them that were tried may be there, too, from the first on and without a gap.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.model.queues import QueueKey


class Sent(Struct, frozen=True):
    """One message, as it was put and as it must come back."""

    key: QueueKey
    queue_offset: int
    body: bytes
    keys: tuple[str, ...] = ()
    tags: str | None = None


class Progress(Struct, frozen=True):
    """How many messages were tried so far, and how many of them must survive."""

    tried: int = 0
    safe: int = 0


def check_survivors(
    found: Sequence[Sent], sent: Sequence[Sent], progress: Progress, *, is_exact: bool
) -> None:
    """See that the messages of a recovered store, in the order of its log, are those sent first.

    Without `is_exact` the properties of the last one may be damaged, unless it is safe: no checksum
    covers them, and a page or sector of them may be lost whose record is otherwise whole.
    """
    count = len(found)
    assert count >= progress.safe, (
        f"{count} messages are there, but {progress.safe} were acknowledged: "
        f"lost is {sent[count : count + 3]}"
    )
    assert count <= progress.tried, f"{count} messages are there, only {progress.tried} were tried"
    for number, (mine, wanted) in enumerate(zip(found, sent, strict=False)):
        if not is_exact and number >= progress.safe and number == count - 1:
            assert replace(mine, keys=(), tags=None) == replace(wanted, keys=(), tags=None)
        else:
            assert mine == wanted, f"message {number} is {mine}, was sent as {wanted}"
