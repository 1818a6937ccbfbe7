"""SlowSteps: steps of puts, flushes and commits that take more than half a second are logged."""

import logging
from enum import StrEnum
from typing import Final

from rocketlake.clock import Clock
from rocketlake.store.stats.store_stats import SparseLog, StoreStats

log = logging.getLogger(__name__)

SLOW_NS: Final = 500_000_000
_NS_PER_MS: Final = 1_000_000


class Step(StrEnum):
    """A step whose time is measured."""

    PUT = "put"
    """A put, from its call to its answer."""
    APPEND = "append"
    """What a put does under the append lock."""
    FLUSH = "flush"
    """The flush of a file of the log."""
    COMMIT = "commit"
    """The copy of a write buffer to its file."""


_WARNED: Final = frozenset({Step.PUT, Step.APPEND})


class SlowSteps:
    """Logs steps that take long, of each kind one in ten seconds, with how many were left out.

    Compat: CommitLog and DefaultMessageStore warn of slow puts, and log slow flushes and commits.

    Thread-safety: any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._sparse = SparseLog(log, clock)

    def watch(self, stats: StoreStats) -> None:
        """Log the slow steps that a store counts from now on."""
        stats.put.watch(SLOW_NS, lambda took: self.note(Step.PUT, took))
        stats.copy.watch(SLOW_NS, lambda took: self.note(Step.APPEND, took))
        stats.flush.watch(SLOW_NS, lambda took: self.note(Step.FLUSH, took))
        stats.commit.watch(SLOW_NS, lambda took: self.note(Step.COMMIT, took))

    def note(self, step: Step, took_ns: int) -> None:
        """Log one step."""
        level = logging.WARNING if step in _WARNED else logging.INFO
        self._sparse.log(level, step, "slow step=%s took_ms=%d", step, took_ns // _NS_PER_MS)
