"""RoleChange: a running store becomes a replica, or takes puts again.

To a replica: puts end first, so that nothing is appended behind what the primary has.
To a primary: what is left of the log is cut to whole records and dispatched, the next queue offsets
are taken from the queues, and only then puts begin.

Each step can be repeated. A change that fails leaves a replica, and can be asked for again.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketlake.errors import StoreError
from rocketlake.files.store_dir import StoreDir
from rocketlake.format.record import Check, StopReason, reason_text, scan
from rocketlake.store.assembly import Parts
from rocketlake.store.disk.log import Chunk
from rocketlake.store.options import BrokerRole
from rocketlake.store.recovery.log_walk import viewed

if TYPE_CHECKING:
    from rocketlake.store.ports import RoleListener

log = logging.getLogger(__name__)

REPLICA_REFUSAL: Final = "a replica takes no messages (brokerRole=SLAVE)"


class RoleChange:
    """Changes the role of one store.

    Thread-safety: changes come one after the other. Puts, reads and raw appends go on meanwhile,
    and see the old role or the new one.
    """

    def __init__(self, parts: Parts, directory: StoreDir, follow: Callable[[], None]) -> None:
        """`follow` has the readers follow the role."""
        self._parts = parts
        self._directory = directory
        self._follow = follow
        self._changing = threading.Lock()
        self._changer: int | None = None  # the thread that changes the role
        self.listeners: tuple[RoleListener, ...] = ()

    def change(self, role: BrokerRole) -> None:
        """Take a role; nothing happens if the store has it already.

        Raises:
            StoreError: the rest of the log cannot be dispatched, so that puts would take the
                places of its messages.
            StorePoisonedError: a flush failed.
        """
        if self._changer == threading.get_ident():
            raise StoreError("the role is being changed: a role listener cannot change it again")
        with self._changing:
            self._changer = threading.get_ident()
            try:
                self._change(role)
            finally:
                self._changer = None

    def _change(self, role: BrokerRole) -> None:
        before = self._parts.role.broker_role
        if role is before:
            return
        if role is BrokerRole.SLAVE:
            self._become_replica()
        elif before is BrokerRole.SLAVE:
            self._become_primary(role)
        else:
            self._parts.role.broker_role = role
            self._parts.putter.update_gate()
        log.info("role changed from=%s to=%s", before, role)

    def _become_replica(self) -> None:
        parts = self._parts
        # Order: services that put are notified first, so that they stop by themselves.
        self._tell(is_replica=True)
        parts.role.broker_role = BrokerRole.SLAVE
        parts.putter.update_gate()
        if not parts.role.takes_puts:
            parts.log.refuse_puts(REPLICA_REFUSAL)
        parts.raw_appender.resume()
        self._follow()

    def _become_primary(self, role: BrokerRole) -> None:
        parts = self._parts
        parts.log.refuse_puts(REPLICA_REFUSAL)  # also where duplicationEnable lets them in
        parts.raw_appender.stop("the store becomes a primary")
        replicated = parts.log.replicated_where
        try:
            # Order: all of it is readable before its end is looked for.
            parts.log_parts.flusher.flush_all()
            self._cut_rest()
            self._dispatch_rest()
            with parts.log.pause():
                parts.offsets.renumber(
                    {key: queue.max_offset for key, queue in parts.queues.items()}
                )
        except BaseException:
            parts.log.set_confirm_offset(replicated)
            parts.raw_appender.resume()
            raise
        parts.role.broker_role = role
        parts.log.refuse_puts(None)
        parts.putter.update_gate()
        self._follow()
        self._tell(is_replica=False)

    def _cut_rest(self) -> None:
        """Cut a record that came in part, as it is at the end of a replica's log.

        Raises:
            StoreError: a damaged record lies behind what was dispatched.
        """
        parts = self._parts
        where, end = parts.dispatcher.dispatched_where, parts.log.wrote_where
        reason = StopReason.OK
        while where < end and reason in {StopReason.OK, StopReason.END_OF_FILE}:
            held = parts.log.slice(where)
            if held is None:
                break
            with held:
                # Why not stepped over as dispatch does: the next start would cut the log here.
                checks = Check.BODY_CRC | Check.OFFSET
                found = scan(held.view, base_offset=where, checks=checks)
            where, reason = where + found.position, found.reason
            if reason is StopReason.END_OF_FILE:
                where += parts.log.files.file_size - where % parts.log.files.file_size
        if where >= end:
            return
        is_rest = reason in {StopReason.TORN, StopReason.END_OF_DATA}
        if not is_rest or self._holds_records(where, end):
            # Compat: truncateInvalidMsg cuts good records behind it off, too, and saves none.
            raise StoreError(
                f"the record at offset {where} of the log is damaged ({reason_text(reason)}), and"
                " good records may follow it. The store stays a replica. Close it and open it with"
                " another brokerRole: the start saves these records before it cuts the log"
            )
        log.warning("rest of a record cut offset=%d bytes=%d", where, end - where)
        with parts.log.pause():
            parts.log.cut(where)
        parts.raw_appender.forget()

    def _holds_records(self, where: int, end: int) -> bool:
        """Tell whether good records follow a place at which none begins."""
        # Why: a record whose size was damaged looks like one that came in part.
        with viewed(self._directory, self._parts.log.files.file_size) as view:
            steps = view.walk(where, end, checks=Check.OFFSET)
            return any(isinstance(step, Chunk) and len(step.columns) for step in steps)

    def _dispatch_rest(self) -> None:
        """Dispatch everything, confirmed by replication or not."""
        parts = self._parts
        # Why: from now on this log says what there is.
        parts.log.set_confirm_offset(None)
        end = parts.log.wrote_where
        parts.dispatcher.catch_up(end)
        reached = parts.dispatcher.dispatched_where
        if reached < end:
            raise StoreError(
                f"the log ends at {end} and is dispatched up to {reached}: puts would take the"
                " places of the messages in between. The store stays a replica; its log tells what"
                " keeps dispatch from going on"
            )

    def _tell(self, *, is_replica: bool) -> None:
        for listener in self.listeners:
            try:
                listener.role_changed(is_replica=is_replica)
            except Exception:  # a listener's fault must not leave a role half changed
                log.exception("role listener failed listener=%r", listener)
