"""NoReplicas: the replicator of a SYNC_MASTER without replication."""

from typing import Final, Self

from rocketlake.store.api import PutStatus, ReplicaAnswer
from rocketlake.store.options import StoreOptions

_OK: Final = PutStatus.PUT_OK


class NoReplicas:
    """The replicator of a store that has none (store.ports.Replicator).

    Compat: with no replica connected, 4.9 answers SLAVE_NOT_AVAILABLE at once. 5.x counts copies,
    itself among them: with inSyncReplicas = 1, its default, it waits for none; with more it answers
    FLUSH_SLAVE_TIMEOUT when slaveTimeout is over. Here that answer comes at once: without
    replication no copy can appear meanwhile.

    Thread-safety: immutable.
    """

    def __init__(self, answer: ReplicaAnswer) -> None:
        self._answer = answer

    @classmethod
    def of(cls, options: StoreOptions) -> Self | None:
        """Return the one for a store's options; None if the store needs no replica."""
        role, wanted = "brokerRole is SYNC_MASTER", options.in_sync_replicas
        if options.compat_version.is_4x:
            words = f"{role}, and no replica follows the log"
            return cls(ReplicaAnswer(PutStatus.SLAVE_NOT_AVAILABLE, words))
        if wanted <= 1:
            return None
        words = f"{role}, inSyncReplicas is {wanted}, and no replica follows the log"
        return cls(ReplicaAnswer(PutStatus.FLUSH_SLAVE_TIMEOUT, words))

    def check(self, end_offset: int) -> PutStatus:
        """Accept every put: only a broker counts replicas before the append."""
        _ = end_offset
        return _OK

    def ask(self, end_offset: int, *, timeout_ms: int) -> ReplicaAnswer:
        """Return the answer of the release without replicas."""
        _ = end_offset, timeout_ms
        return self._answer
