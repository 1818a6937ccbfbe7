"""Durability: a put's wait for the flush and the replicas, which work side by side."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.store.api import PutReceipt, PutStatus, ReplicaAnswer
from rocketlake.store.put.flush import FlushWait, FlushWatcher, GroupCommit, Poison
from rocketlake.store.put.future import PutFuture

if TYPE_CHECKING:
    from rocketlake.store.ports import AppendListener, Replicator

log = logging.getLogger(__name__)

_OK: Final = PutStatus.PUT_OK
_SLACK_S: Final = 1.0

_ALL_WELL: Final = ReplicaAnswer(_OK)
_TOO_LATE: Final = ReplicaAnswer(PutStatus.FLUSH_SLAVE_TIMEOUT)

_Asked: TypeAlias = ReplicaAnswer | Future[PutStatus] | Future[ReplicaAnswer]


class PutTimeouts(Struct, frozen=True):
    """How many milliseconds a put waits."""

    flush_ms: int
    replica_ms: int


class Wakeable(Protocol):
    """The dispatch thread, as a put sees it (store.dispatch is above this package)."""

    is_idle: bool
    has_reads: bool

    def wake_and_yield(self) -> None:
        """Wake it; while reads wait for it, yield the interpreter to it."""
        ...


class Durability:
    """Completes puts. Thread-safety: any thread may call anything."""

    def __init__(
        self,
        poison: Poison,
        clock: Clock,
        *,
        group_commit: GroupCommit | None,
        dispatch: Wakeable,
        wake_more: Callable[[], None] | None = None,
        timeouts: PutTimeouts,
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
        self._timeouts = timeouts
        self._flush_timeout_s = timeouts.flush_ms / 1000
        self._replica_timeout_ms = timeouts.replica_ms

    @property
    def only_wakes_dispatch(self) -> bool:
        """Whether an append is followed by nothing but a wake-up of dispatch."""
        is_told = self._wake_more is not None or bool(self.append_listeners)
        return not (self._group_commit is not None or self.replicator is not None or is_told)

    @property
    def answers_at_once(self) -> bool:
        """Whether a put is complete as soon as it is appended."""
        return self._group_commit is None and self.replicator is None

    def note_appended(self) -> None:
        """Notify the append listeners.

        Order: before the flush, so that replicas get the bytes while the disk works.
        """
        for listener in self.append_listeners:
            try:
                listener.appended()
            except Exception:  # a listener's fault must not fail a put that is in the log
                log.exception("append listener failed listener=%r", listener)

    def wake(self) -> None:
        """Wake dispatch, and the service that commits or flushes in the background."""
        if self.dispatch.is_idle or self.dispatch.has_reads:
            self.dispatch.wake_and_yield()
        if self._wake_more is not None:
            self._wake_more()

    def wake_all(self) -> None:
        """Notify listeners and services of records that no put waits for."""
        self.note_appended()
        if self._group_commit is not None:
            self._group_commit.wakeup()
        self.wake()

    def wait_durable(self, receipt: PutReceipt, *, waits: bool = True) -> PutReceipt:
        """Wait for the flush and the replicas where required, and return the final receipt.

        Raises:
            StorePoisonedError: the flush failed.
        """
        self.note_appended()
        if self.answers_at_once:
            self.wake()
            return receipt
        end = receipt.physical_offset + receipt.size
        # Order: replicas are asked first, so that they work while the disk does.
        replicas = self._ask_replicas(end) if waits else _ALL_WELL
        status = _OK
        if self._group_commit is not None:
            if not waits:
                self._group_commit.wakeup()
            else:
                status = self._group_commit.flush_for(end, self._flush_timeout_s)
        self.wake()
        return self.end(receipt, status, self._await_replicas(replicas))

    def complete_when_durable(self, receipt: PutReceipt, future: PutFuture, *, waits: bool) -> None:
        """Complete a future with the final receipt, in the thread that learns it."""
        self.note_appended()
        end = receipt.physical_offset + receipt.size
        replicas = self._ask_replicas(end) if waits else _ALL_WELL
        if self._group_commit is None or not waits:
            if self._group_commit is not None:
                self._group_commit.wakeup()
            self.wake()
            self.finish(receipt, future, _OK, replicas)
            return
        deadline_s = self._clock.monotonic_s() + self._flush_timeout_s
        wait = _AnswerLater(receipt, future, deadline_s, durability=self, replicas=replicas)
        self.watcher.watch(wait)
        self._group_commit.ask(wait)
        self.wake()

    def finish(
        self, receipt: PutReceipt, future: PutFuture, flush: PutStatus, replicas: _Asked
    ) -> None:
        """Complete a future whose flush has ended: now, or when the replicas answer."""
        if isinstance(replicas, ReplicaAnswer):
            future.answer(self.end(receipt, flush, replicas))
            return
        # Why a deadline of ours: the replicator ends its future at the timeout; this is for one
        # that does not.
        deadline_s = self._clock.monotonic_s() + self._replica_timeout_ms / 1000 + _SLACK_S
        end = receipt.physical_offset + receipt.size
        wait = _ReplicaWait(
            end, deadline_s, lambda answer: future.answer(self.end(receipt, flush, answer))
        )
        replicas.add_done_callback(wait.replicated)
        if wait.status is None:
            self.watcher.watch_replicas(wait)

    def end(self, receipt: PutReceipt, flush: PutStatus, replicas: ReplicaAnswer) -> PutReceipt:
        """Return the final receipt; one that is not PUT_OK says why."""
        # Compat: as in CommitLog#handleDiskFlushAndHA, a failing replica overwrites a failing
        # flush.
        status = replicas.status if replicas.status is not _OK else flush
        if status is _OK:
            return receipt
        return replace(receipt, status=status, reason=replicas.reason or self._explain(status))

    def _explain(self, status: PutStatus) -> str:
        match status:
            case PutStatus.FLUSH_DISK_TIMEOUT:
                limit = f"syncFlushTimeout = {self._timeouts.flush_ms} ms"
                return f"the flush did not end in time ({limit})"
            case PutStatus.FLUSH_SLAVE_TIMEOUT:
                limit = f"slaveTimeout = {self._replica_timeout_ms} ms"
                return f"too few replicas had the message in time ({limit})"
            case PutStatus.SLAVE_NOT_AVAILABLE:
                return "no replica follows the log closely enough to be waited for"
            case PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
                return "too few replicas follow the log"
            case _:
                return f"the replicator answered {status}"

    def _ask_replicas(self, end: int) -> _Asked:
        if self.replicator is None:
            return _ALL_WELL
        try:
            answer = self.replicator.ask(end, timeout_ms=self._replica_timeout_ms)
        except Exception as error:  # noqa: BLE001 - the message is in the log, whatever this is
            return _failed(error)
        return answer if isinstance(answer, Future) else _read(answer)

    def _await_replicas(self, answer: _Asked) -> ReplicaAnswer:
        if isinstance(answer, ReplicaAnswer):
            return answer
        try:
            # Why: the replicator ends the future at its timeout; this is for one that does not.
            answer.result(self._replica_timeout_ms / 1000 + _SLACK_S)
        except BaseException as error:  # what ended the future, or came from a signal handler
            if isinstance(error, WaitTimeoutError) and not answer.done():
                return _TOO_LATE
            if not _has_ended_with(answer, error):
                raise
        return _answer_of(answer)


class _AnswerLater(FlushWait):
    """Completes the future of a put when the flush has ended."""

    __slots__ = ("_durability", "_future", "_receipt", "_replicas")

    def __init__(
        self,
        receipt: PutReceipt,
        future: PutFuture,
        deadline_s: float,
        *,
        durability: Durability,
        replicas: _Asked,
    ) -> None:
        super().__init__(receipt.physical_offset + receipt.size, deadline_s)
        self._receipt = receipt
        self._future = future
        self._durability = durability
        self._replicas = replicas

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        if error is not None:
            self._future.set_exception(error)
        else:
            self._durability.finish(self._receipt, self._future, status, self._replicas)


class _ReplicaWait(FlushWait):
    """Completes the future of a put when replicas have answered, or take too long."""

    __slots__ = ("_complete",)

    def __init__(
        self, end: int, deadline_s: float, complete: Callable[[ReplicaAnswer], None]
    ) -> None:
        super().__init__(end, deadline_s)
        self._complete = complete

    def replicated(self, done: Future[PutStatus] | Future[ReplicaAnswer]) -> None:
        """Take the answer of the replicas."""
        self.answer(_answer_of(done))

    def answer(self, replicas: ReplicaAnswer) -> None:
        """Complete the future; a second answer has no effect."""
        self.status = self.status or replicas.status
        self._complete(replicas)

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        _ = status, error
        self.answer(_TOO_LATE)


def _has_ended_with(
    future: Future[PutStatus] | Future[ReplicaAnswer], error: BaseException
) -> bool:
    return future.done() and (future.cancelled() or future.exception(0) is error)


def _answer_of(done: Future[PutStatus] | Future[ReplicaAnswer]) -> ReplicaAnswer:
    """Return the replicas' answer; an error or a cancelled future is one, too."""
    try:
        found = done.result(0)
    except BaseException as error:  # noqa: BLE001 - cancelled, too: the put has to be answered
        return _failed(error)
    return _read(found)


def _read(found: object) -> ReplicaAnswer:
    """Return the answer of a replicator as a ReplicaAnswer."""
    if isinstance(found, ReplicaAnswer):
        return found
    if isinstance(found, PutStatus):
        return ReplicaAnswer(found)
    return _failed(TypeError(f"replicas answered {found!r}"))


def _failed(error: BaseException) -> ReplicaAnswer:
    """Return the answer for a replicator that failed."""
    # Compat: as DefaultMessageStore#waitForPutResult.
    log.error("replicator failed reason=%r", error)
    return ReplicaAnswer(PutStatus.UNKNOWN_ERROR, f"the replicator failed: {error!r}")
