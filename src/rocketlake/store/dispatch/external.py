"""OutsideDispatcher: a store whose queues and index a job writes still tells who waits."""

import time
from typing import Final

from rocketlake.store.dispatch.arrivals import Arrivals
from rocketlake.store.dispatch.dispatcher import Dispatcher, DispatchParts
from rocketlake.store.dispatch.external_files import Handshake
from rocketlake.store.dispatch.placement import Records
from rocketlake.store.ports import DispatchSlice

_LAST_S: Final = 5.0
_LOOK_S: Final = 0.02


class OutsideDispatcher(Dispatcher):
    """Walks what is confirmed, tells listeners of it, and writes nothing but how far that is.

    `dispatched_where` is how far listeners know the log; `reach` how far the job has come.
    """

    def __init__(self, parts: DispatchParts, handshake: Handshake) -> None:
        super().__init__(parts)
        self.is_outside = True
        self._handshake = handshake

    @property
    def owed_bytes(self) -> int:
        """How many bytes of the log the job has not dispatched and flushed."""
        return max(self._log.max_offset - self.reach(), 0)

    def reach(self) -> int:
        """Return the offset below which queues and index have everything."""
        note, found = self._handshake.writer(), self._handshake.progress_of_writer()
        if found is not None:
            return found.where
        return note.dispatch_from if note is not None else 0

    def run_once(self) -> None:
        """Tell of what is confirmed, and let it be dispatched."""
        super().run_once()
        self._handshake.publish(self._log.confirm_offset)

    def run_last(self) -> None:
        """Tell a last time, and give a job that follows the time to end what is left."""
        self.run_once()
        end_s = time.monotonic() + _LAST_S
        while self.owed_bytes and self._handshake.job is not None and time.monotonic() < end_s:
            time.sleep(_LOOK_S)

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
            self._tell(Arrivals(placement, ends, dispatched.bitmaps))
