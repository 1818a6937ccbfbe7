"""Following a log that another process writes."""

from collections.abc import Iterator

from rocketlake.format.record import StopReason
from rocketlake.store.disk.damage import reason_text
from rocketlake.store.disk.log import Chunk, Stop
from rocketlake.store.offline.view import OfflineStore


class Follower:
    """Yields records behind a position as they appear.

    A record that looks bad is one that is being written: it is looked at again the next time. If
    it still looks bad then, and the log goes on behind it, it is damage and stepped over.
    """

    def __init__(self, store: OfflineStore, position: int) -> None:
        self._store = store
        self.position = position
        self._doubted = -1

    def poll(self) -> Iterator[Chunk]:
        """Yield what is new."""
        log = self._store.log
        log.refresh(self._store.options.mapped_file_size_commit_log)
        if self.position < log.min_offset or self.position > log.limit:
            if self.position < log.min_offset:
                log.expired_to = log.min_offset
            self.position = log.min_offset  # files expired, or the log was made anew
        bad: Stop | None = None
        for step in log.walk(self.position, checks=self._store.checks):
            if isinstance(step, Stop):
                if not self._may_pass(step):
                    return
                bad = step
                continue
            is_told = bad is not None and bad.reason != StopReason.END_OF_DATA
            if bad is not None and is_told and not log.is_expired(bad.physical_offset):
                reason = reason_text(bad.reason)
                self._store.damage.report(bad.file.path, bad.file_position, reason)
            bad = None
            last = step.columns.rows[-1]
            self.position = int(last["physical_offset"] + last["size"])
            yield step

    def _may_pass(self, stop: Stop) -> bool:
        """Tell whether what stopped the walk will not change any more."""
        if self._goes_on_behind(stop):
            return True
        is_known = self._doubted == stop.physical_offset
        self._doubted = stop.physical_offset
        return is_known and stop.reason == StopReason.BAD_CRC

    def _goes_on_behind(self, stop: Stop) -> bool:
        """Tell whether a later file holds a record, so that nothing more will come here."""
        later = (f for f in self._store.log.files if f.base_offset > stop.file.base_offset)
        return any(self._store.log.first_timestamp(file) is not None for file in later)
