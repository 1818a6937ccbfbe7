"""Durability: what a put waits for after its append, the flush and then the replicas."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.flush import FlushWait, FlushWatcher, GroupCommit, Poison
from rocketlake.store.put_future import PutFuture

if TYPE_CHECKING:
    from rocketlake.store.ports import Replicator

_OK: Final = PutStatus.PUT_OK
_SLACK_S: Final = 5.0


class Patience(Struct, frozen=True):
    """How many milliseconds a put waits."""

    flush_ms: int
    replica_ms: int


class Sleeper(Protocol):
    """A service that says when it sleeps, and when it is waited for."""

    is_idle: bool
    has_reads: bool

    def attend(self) -> None:
        """End its sleep; while reads wait for it, leave the interpreter to it for a moment."""
        ...


class Durability:
    """Answers puts. Thread-safety: any thread may settle."""

    def __init__(
        self,
        poison: Poison,
        clock: Clock,
        *,
        group_commit: GroupCommit | None,
        dispatch: Sleeper,
        wake_more: Callable[[], None] | None = None,
        patience: Patience,
    ) -> None:
        """Without a group commit nobody waits for the disk.

        `dispatch` is woken by appends, and so is what `wake_more` wakes.
        """
        self.poison = poison
        self.replicator: Replicator | None = None
        self.watcher = FlushWatcher(clock)
        self._clock = clock
        self._group_commit = group_commit
        self.dispatch = dispatch
        self._wake_more = wake_more
        self._flush_timeout_s = patience.flush_ms / 1000
        self._replica_timeout_ms = patience.replica_ms

    @property
    def only_wakes_dispatch(self) -> bool:
        """Whether there is nothing to do after an append but to wake dispatch, if it sleeps."""
        is_waited_for = self._group_commit is not None or self.replicator is not None
        return not is_waited_for and self._wake_more is None

    def wake(self) -> None:
        """Tell who works on what was appended."""
        if self.dispatch.is_idle or self.dispatch.has_reads:
            self.dispatch.attend()
        if self._wake_more is not None:
            self._wake_more()

    def settle(self, receipt: PutReceipt, *, waits: bool = True) -> PutReceipt:
        """Wait for what must be waited for, and return the final receipt.

        Raises:
            StorePoisonedError: the flush failed.
        """
        if self._group_commit is None and self.replicator is None:
            self.wake()
            return receipt
        status = _OK
        end = receipt.physical_offset + receipt.size
        if self._group_commit is not None:
            if not waits:
                self._group_commit.wakeup()
            else:
                status = self._group_commit.flush_for(end, self._flush_timeout_s)
        self.wake()
        if self.replicator is not None and waits:
            status = _worse(status, self._ask_replicas(end))
        return receipt if status is _OK else replace(receipt, status=status)

    def settle_later(self, receipt: PutReceipt, future: PutFuture, *, waits: bool) -> None:
        """Complete a future with the final receipt, from whatever thread knows it first."""
        if self._group_commit is None or not waits:
            if self._group_commit is not None:
                self._group_commit.wakeup()
            self.wake()
            self.finish(receipt, future, _OK, waits=waits)
            return
        deadline_s = self._clock.monotonic_s() + self._flush_timeout_s
        wait = _AnswerLater(receipt, future, deadline_s, self)
        self.watcher.watch(wait)
        self._group_commit.ask(wait)
        self.wake()

    def finish(
        self, receipt: PutReceipt, future: PutFuture, status: PutStatus, *, waits: bool
    ) -> None:
        """Complete a future once the flush has ended somehow, now or when the replicas answer."""
        if self.replicator is None or not waits:
            future.answer(receipt if status is _OK else replace(receipt, status=status))
            return
        end = receipt.physical_offset + receipt.size
        answer = self.replicator.ask(end, timeout_ms=self._replica_timeout_ms)
        if isinstance(answer, PutStatus):
            future.answer(replace(receipt, status=_worse(status, answer)))
            return

        def replicated(done: Future[PutStatus]) -> None:
            error = done.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.answer(replace(receipt, status=_worse(status, done.result())))

        answer.add_done_callback(replicated)

    def _ask_replicas(self, end: int) -> PutStatus:
        assert self.replicator is not None, "asked without a replicator"
        answer = self.replicator.ask(end, timeout_ms=self._replica_timeout_ms)
        if isinstance(answer, PutStatus):
            return answer
        try:
            # Why: the replicator ends the future at its timeout; this is for one that does not.
            return answer.result(self._replica_timeout_ms / 1000 + _SLACK_S)
        except WaitTimeoutError:
            return PutStatus.FLUSH_SLAVE_TIMEOUT


class _AnswerLater(FlushWait):
    """A put that is answered by its future."""

    __slots__ = ("_durability", "_future", "_receipt")

    def __init__(
        self, receipt: PutReceipt, future: PutFuture, deadline_s: float, durability: Durability
    ) -> None:
        super().__init__(receipt.physical_offset + receipt.size, deadline_s)
        self._receipt = receipt
        self._future = future
        self._durability = durability

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        if error is not None:
            self._future.set_exception(error)
        else:
            self._durability.finish(self._receipt, self._future, status, waits=True)


def _worse(flush: PutStatus, replicas: PutStatus) -> PutStatus:
    # Compat: as in CommitLog#handleDiskFlushAndHA, a failing replica overwrites a failing flush.
    return replicas if replicas is not _OK else flush
