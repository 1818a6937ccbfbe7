"""Role: whether a store takes messages or follows another one; it may change while it is open."""

from rocketlake.store.options import BrokerRole, StoreOptions


class Role:
    """The role of one store.

    Thread-safety: any thread may read it; only `role_change` changes it.
    """

    __slots__ = ("_is_4x", "_takes_puts_always", "broker_role")

    def __init__(self, options: StoreOptions) -> None:
        self.broker_role = options.broker_role
        self._is_4x = options.compat_version.is_4x
        self._takes_puts_always = options.duplication_enable

    @property
    def is_replica(self) -> bool:
        """Whether the log comes from another store."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def takes_puts(self) -> bool:
        """Whether messages may be put."""
        return self._takes_puts_always or not self.is_replica

    @property
    def takes_raw(self) -> bool:
        """Whether bytes of another log may be appended."""
        return self._takes_puts_always or self.is_replica

    @property
    def waits_for_replicas(self) -> bool:
        """Whether a put that waits is answered by replicas, too."""
        # Compat: as CommitLog#needHandleHA.
        return self.broker_role is BrokerRole.SYNC_MASTER and not self._takes_puts_always

    @property
    def counts_dispatched(self) -> bool:
        """Whether dispatched records count as put: nothing else counts those of a primary."""
        # Compat: as ReputMessageService#doReput.
        return self.is_replica and not self._takes_puts_always

    @property
    def tells_arrivals(self) -> bool:
        """Whether arrival listeners are notified of dispatched messages."""
        # Compat: a slave of 4.x tells nothing, one of 5.x does.
        return not (self._is_4x and self.is_replica)
