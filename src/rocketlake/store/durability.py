"""Durability: what a put waits for after its append: the flush and the replicas, side by side."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.flush import FlushWait, FlushWatcher, GroupCommit, Poison
from rocketlake.store.put_future import PutFuture

if TYPE_CHECKING:
    from rocketlake.store.ports import AppendListener, Replicator

log = logging.getLogger(__name__)

_OK: Final = PutStatus.PUT_OK
_SLACK_S: Final = 1.0

_Answer: TypeAlias = PutStatus | Future[PutStatus]


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
        """Without a group commit no put waits for the disk.

        `dispatch` is woken by appends, and so is what `wake_more` wakes.
        """
        self.poison = poison
        self.replicator: Replicator | None = None
        self.append_listeners: tuple[AppendListener, ...] = ()
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
        is_told = self._wake_more is not None or bool(self.append_listeners)
        return not (self._group_commit is not None or self.replicator is not None or is_told)

    @property
    def answers_at_once(self) -> bool:
        """Whether a put is answered as soon as it is appended."""
        return self._group_commit is None and self.replicator is None

    def note_appended(self) -> None:
        """Tell those who follow the log itself, and services, that it has grown.

        Comes before the flush: replicas get the bytes while the disk works.
        """
        for listener in self.append_listeners:
            try:
                listener.appended()
            except Exception:  # a listener's fault must not fail a put that is in the log
                log.exception("append listener failed listener=%r", listener)

    def wake(self) -> None:
        """Tell who works on what was appended, and can be read now."""
        if self.dispatch.is_idle or self.dispatch.has_reads:
            self.dispatch.attend()
        if self._wake_more is not None:
            self._wake_more()

    def wake_all(self) -> None:
        """Notify all services of records whose puts are answered elsewhere, or not at all."""
        self.note_appended()
        if self._group_commit is not None:
            self._group_commit.wakeup()
        self.wake()

    def settle(self, receipt: PutReceipt, *, waits: bool = True) -> PutReceipt:
        """Wait for what must be waited for, and return the final receipt.

        Raises:
            StorePoisonedError: the flush failed.
        """
        self.note_appended()
        if self.answers_at_once:
            self.wake()
            return receipt
        end = receipt.physical_offset + receipt.size
        # Order: replicas are asked first, so that they work while the disk does.
        replicas = self._ask_replicas(end) if waits else _OK
        status = _OK
        if self._group_commit is not None:
            if not waits:
                self._group_commit.wakeup()
            else:
                status = self._group_commit.flush_for(end, self._flush_timeout_s)
        self.wake()
        return _final(receipt, status, self._await_replicas(replicas))

    def settle_later(self, receipt: PutReceipt, future: PutFuture, *, waits: bool) -> None:
        """Complete a future with the final receipt, from whatever thread knows it first."""
        self.note_appended()
        end = receipt.physical_offset + receipt.size
        replicas = self._ask_replicas(end) if waits else _OK
        if self._group_commit is None or not waits:
            if self._group_commit is not None:
                self._group_commit.wakeup()
            self.wake()
            self.finish(receipt, future, _OK, replicas)
            return
        deadline_s = self._clock.monotonic_s() + self._flush_timeout_s
        wait = _AnswerLater(receipt, future, deadline_s, (replicas, self))
        self.watcher.watch(wait)
        self._group_commit.ask(wait)
        self.wake()

    def finish(
        self, receipt: PutReceipt, future: PutFuture, flush: PutStatus, replicas: _Answer
    ) -> None:
        """Complete a future whose flush has ended somehow: now, or when the replicas answer."""
        if isinstance(replicas, PutStatus):
            future.answer(_final(receipt, flush, replicas))
            return
        # Why a deadline of ours: the replicator ends its future at the timeout; this is for one
        # that does not.
        deadline_s = self._clock.monotonic_s() + self._replica_timeout_ms / 1000 + _SLACK_S
        wait = _ReplicaWait(receipt, future, deadline_s, flush)
        replicas.add_done_callback(wait.replicated)
        if wait.status is None:
            self.watcher.watch_replicas(wait)

    def _ask_replicas(self, end: int) -> _Answer:
        if self.replicator is None:
            return _OK
        try:
            answer = self.replicator.ask(end, timeout_ms=self._replica_timeout_ms)
        except Exception as error:  # noqa: BLE001 - the message is in the log, whatever this is
            return _failed(error)
        is_answer = isinstance(answer, PutStatus | Future)
        return answer if is_answer else _failed(TypeError(f"ask answered {answer!r}"))

    def _await_replicas(self, answer: _Answer) -> PutStatus:
        if isinstance(answer, PutStatus):
            return answer
        try:
            # Why: the replicator ends the future at its timeout; this is for one that does not.
            answer.result(self._replica_timeout_ms / 1000 + _SLACK_S)
        except BaseException as error:  # what ended the future, or came from a signal handler
            if isinstance(error, WaitTimeoutError) and not answer.done():
                return PutStatus.FLUSH_SLAVE_TIMEOUT
            if not _has_ended_with(answer, error):
                raise
        return _status_of(answer)


class _AnswerLater(FlushWait):
    """A put that is answered by its future when the flush has ended."""

    __slots__ = ("_durability", "_future", "_receipt", "_replicas")

    def __init__(
        self,
        receipt: PutReceipt,
        future: PutFuture,
        deadline_s: float,
        rest: tuple[_Answer, Durability],
    ) -> None:
        super().__init__(receipt.physical_offset + receipt.size, deadline_s)
        self._receipt = receipt
        self._future = future
        self._replicas, self._durability = rest

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        if error is not None:
            self._future.set_exception(error)
        else:
            self._durability.finish(self._receipt, self._future, status, self._replicas)


class _ReplicaWait(FlushWait):
    """A put that is answered by its future when replicas have answered, or take too long."""

    __slots__ = ("_flush", "_future", "_receipt")

    def __init__(
        self, receipt: PutReceipt, future: PutFuture, deadline_s: float, flush: PutStatus
    ) -> None:
        super().__init__(receipt.physical_offset + receipt.size, deadline_s)
        self._receipt = receipt
        self._future = future
        self._flush = flush

    def replicated(self, done: Future[PutStatus]) -> None:
        """Take the answer of the replicas."""
        self.answer(_status_of(done))

    def answer(self, replicas: PutStatus) -> None:
        """Complete the future; a second answer is not heard."""
        self.status = self.status or replicas
        self._future.answer(_final(self._receipt, self._flush, replicas))

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        _ = status, error
        self.answer(PutStatus.FLUSH_SLAVE_TIMEOUT)


def _has_ended_with(future: Future[PutStatus], error: BaseException) -> bool:
    return future.done() and (future.cancelled() or future.exception(0) is error)


def _status_of(done: Future[PutStatus]) -> PutStatus:
    """Return what replicas have answered, whatever the future ended with."""
    try:
        found = done.result(0)
    except BaseException as error:  # noqa: BLE001 - cancelled, too: the put has to be answered
        return _failed(error)
    is_status = isinstance(found, PutStatus)
    return found if is_status else _failed(TypeError(f"replicas answered {found!r}"))


def _final(receipt: PutReceipt, flush: PutStatus, replicas: PutStatus) -> PutReceipt:
    # Compat: as in CommitLog#handleDiskFlushAndHA, a failing replica overwrites a failing flush.
    status = replicas if replicas is not _OK else flush
    return receipt if status is _OK else replace(receipt, status=status)


def _failed(error: BaseException) -> PutStatus:
    """Return how a put ends whose replicas could not be asked."""
    # Compat: as DefaultMessageStore#waitForPutResult.
    log.error("replicator failed reason=%r", error)
    return PutStatus.UNKNOWN_ERROR
