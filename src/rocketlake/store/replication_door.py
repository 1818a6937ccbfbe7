"""ReplicationDoor: what a message store gives to replication; a part of MessageStore.

Raw bytes, the confirmed end, replicas that puts wait for, and a role that changes while it runs.
"""

from abc import abstractmethod

from rocketlake.errors import StoreError
from rocketlake.files.store_dir import StoreDir
from rocketlake.store.assembly import Parts
from rocketlake.store.lifecycle import Lifecycle
from rocketlake.store.options import BrokerRole
from rocketlake.store.ports import AppendListener, Replicator, RoleListener, require_methods
from rocketlake.store.put.raw_append import RawAppend
from rocketlake.store.role_change import RoleChange


class ReplicationDoor:
    """Thread-safety: any thread may call anything."""

    def __init__(
        self, parts: Parts, life: Lifecycle, directory: StoreDir, *, is_external: bool
    ) -> None:
        self.parts = parts
        self._life = life
        self._is_external = is_external
        self._role_change = RoleChange(parts, directory, self._follow_role)

    @abstractmethod
    def _require_open(self) -> None:
        """Refuse to work unless the store is open.

        Raises:
            StoreClosedError: it is closed.
        """

    @abstractmethod
    def _follow_role(self) -> None:
        """Have readers act as the role says."""

    def _refuse_in_dispatch(self, method: str) -> None:
        if self.parts.dispatcher.is_own_thread:
            raise StoreError(
                f"{method} waits for dispatch, and dispatch waits for the listener that calls it:"
                " call it from another thread"
            )

    def set_replicator(self, replicator: Replicator | None) -> None:
        """Have replicas asked before a put is answered, while the store is a SYNC_MASTER.

        Raises:
            TypeError: it lacks `check` or `ask`.
        """
        if replicator is not None:
            require_methods("replicator", replicator, "check", "ask")
        self.parts.putter.set_replicator(replicator)

    def append_raw(self, offset: int, data: bytes | memoryview) -> RawAppend:
        """Append bytes of another log, for a replica; the answer says how far, and why not all.

        They begin at the end of this log, or at the start of any file of an empty one, and may end
        inside a record. Blank records come with the data.

        Raises:
            StoreClosedError: the store is closed.
        """
        self._require_open()
        return self.parts.raw_appender.append(offset, data)

    @property
    def role(self) -> BrokerRole:
        """The role that the store has now."""
        return self.parts.role.broker_role

    def change_role(self, role: BrokerRole) -> None:
        """Become a replica, or take puts again, while the store runs.

        A replica that becomes a primary first cuts what is no whole record at the end of its log,
        dispatches all that it has, and counts its queue offsets anew. `set_confirm_offset` of the
        log is undone: from then on this log says what there is.

        Raises:
            ValueError: there is no such role.
            StoreClosedError: the store is closed.
            StoreError: the log cannot be dispatched, and the store stays a replica; or the caller
                is a listener that dispatch, or another change, waits for.
            StorePoisonedError: a flush failed, now or before; the store stays a replica.
        """
        self._require_open()
        role = BrokerRole(role)
        self._refuse_in_dispatch("change_role")
        if self.parts.dispatcher.external_range is not None or self._is_external:
            raise StoreError("the role of a store with external dispatch cannot be changed")
        self._life.shielded(lambda: self._role_change.change(role))

    def add_role_listener(self, listener: RoleListener) -> None:
        """Tell a listener when the role has changed.

        Raises:
            TypeError: it lacks `role_changed`.
        """
        require_methods("listener", listener, "role_changed")
        self._role_change.listeners = (*self._role_change.listeners, listener)

    def add_append_listener(self, listener: AppendListener) -> None:
        """Tell a listener of every append, before the flush and dispatch.

        Raises:
            TypeError: it lacks `appended`.
        """
        require_methods("listener", listener, "appended")
        self.parts.putter.add_append_listener(listener)

    def remove_append_listener(self, listener: AppendListener) -> None:
        """Tell a listener of no more appends."""
        self.parts.putter.remove_append_listener(listener)

    def confirm_up_to(self, offset: int | None) -> None:
        """Let readers see the log up to an offset at most, which replicas have; None: all of it.

        What is not flushed is not confirmed where puts wait for the disk. The checkpoint keeps the
        confirmed end.

        Raises:
            TypeError: the offset is no number.
        """
        if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
            raise TypeError(f"offset = {offset!r}: wanted an int, or None")
        self.parts.log.set_confirm_offset(offset)
