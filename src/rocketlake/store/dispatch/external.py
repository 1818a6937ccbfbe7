"""ExternalDispatchNotifier: arrivals of a store whose queues and index a job writes."""

from typing import Final

from rocketlake.clock import Clock
from rocketlake.store.dispatch.arrivals import Arrivals
from rocketlake.store.dispatch.dispatcher import Dispatcher, DispatchParts
from rocketlake.store.dispatch.external_files import ExternalDispatch
from rocketlake.store.dispatch.placement import Records
from rocketlake.store.ports import DispatchSlice

_LAST_S: Final = 5.0
_LOOK_S: Final = 0.02


class ExternalDispatchNotifier(Dispatcher):
    """Walks the confirmed log and notifies listeners; writes only up to where the log is confirmed.

    `dispatched_where` is how far listeners know the log; `reach` how far the job has come.
    """

    def __init__(self, parts: DispatchParts, external: ExternalDispatch, clock: Clock) -> None:
        super().__init__(parts)
        self._clock = clock
        self.is_external = True
        self._external = external

    @property
    def owed_bytes(self) -> int:
        """How many bytes of the log the job has not dispatched and flushed."""
        return max(self._log.max_offset - self.reach(), 0)

    def reach(self) -> int:
        """Return the offset below which queues and index have everything."""
        note, found = self._external.writer(), self._external.progress_of_writer()
        if found is not None:
            return found.where
        return note.dispatch_from if note is not None else 0

    def run_once(self) -> None:
        """Notify listeners of what is confirmed, and permit the job to dispatch it."""
        super().run_once()
        self._external.publish(self._log.confirm_offset)

    def run_last(self) -> None:
        """Notify a last time, and wait a while for a job to dispatch the rest."""
        self.run_once()
        end_s = self._clock.monotonic_s() + _LAST_S
        while self.owed_bytes and self._external.job is not None:
            if self._clock.monotonic_s() >= end_s:
                return
            self._clock.sleep(_LOOK_S)

    def _dispatch(self, records: Records) -> None:
        columns = records.columns
        dispatched = DispatchSlice(columns, {})
        for dispatcher in self.last:
            dispatcher.dispatch(dispatched)
        self.records += len(columns)
        if self.listeners:
            placement = self._builder.place(records)
            ends = {
                (block.key.topic, block.key.queue_id): block.following()
                for block in placement.blocks()
            }
            self._notify(Arrivals(placement, ends, dispatched.bitmaps))
