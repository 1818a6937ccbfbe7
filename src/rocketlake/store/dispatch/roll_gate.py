"""RollGate: the log begins no file while the queues lack more than its last few.

Why: RocketMQ 5.5 reads at most the last ten files of a log that a killed process left, empty ones
made ahead among them (CommitLog#recoverAbnormally with commitLogRecoverMaxNum), and makes units of
what it finds there. Units of earlier records must be in the queues by then, or the messages are
lost to it, and the queue offsets of later ones with them.

1. The preallocator's thread asks before it hands over a file. A put waits for a file as it does
   anyway, and only if it fills files faster than dispatch reads them: small files, long dispatch.
2. A put is refused when it has waited too long for the file, or at once if dispatch fails.
"""

from typing import Final

from rocketlake.files.preallocator import Hold, Preallocator
from rocketlake.store.dispatch.dispatcher import Dispatcher
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.options.bounds import RECOVERED_FILES

_EMPTY_FILES_MAX: Final = 2  # made ahead: the one that is held back, and the one behind it
OWED_FILES_MAX: Final = 6
# Why more: a task in the dispatch thread may wait for the append lock, which a put that waits for a
# file holds. What remains between this and ten is the file that is begun.
_OWED_BESIDE_TASK_MAX: Final = RECOVERED_FILES - _EMPTY_FILES_MAX - 1


class RollGate:
    """Compares the start of the next file with what dispatch has reached.

    Thread-safety: any thread may ask.
    """

    def __init__(self, log: CommitLog, dispatcher: Dispatcher, preallocator: Preallocator) -> None:
        """Take the place at which files are handed over."""
        self._log = log
        self._dispatcher = dispatcher
        self._preallocator = preallocator
        self._is_holding = False
        preallocator.holder = self
        dispatcher.on_moved = self._note_moved

    def is_holder(self) -> bool:
        """Tell whether the calling thread dispatches: a listener may put."""
        return self._dispatcher.is_own_thread

    def hold(self, base_offset: int, *, for_holder: bool) -> Hold | None:
        """Return why a file may not be begun yet; None if it may."""
        # Order: first say so, then look: dispatch that moves in between sees one or the other.
        self._is_holding = True
        hold = None if for_holder else self._find_hold(base_offset)
        self._is_holding = hold is not None
        return hold

    def _find_hold(self, base_offset: int) -> Hold | None:
        dispatcher, file_size = self._dispatcher, self._log.files.file_size
        files_max = _OWED_BESIDE_TASK_MAX if dispatcher.is_exclusive else OWED_FILES_MAX
        # No release dispatches or acknowledges what is not confirmed.
        owed_to = min(self._log.confirm_offset, base_offset)
        reached = max(dispatcher.dispatched_where, self._log.min_offset)
        if not dispatcher.is_running or dispatcher.is_closing:
            return None
        # Why a file: of a record that is confirmed in part dispatch takes nothing, however long it
        # is waited for.
        if owed_to - reached < file_size:
            return None
        if base_offset - reached <= files_max * file_size:
            return None
        error = dispatcher.error
        reason = f"queues lack the last {base_offset - reached} bytes of the log"
        if error is not None:
            return Hold(f"{reason}: {error}", is_stuck=True)
        dispatcher.wakeup()
        return Hold(reason)

    def _note_moved(self) -> None:
        if self._is_holding:
            self._preallocator.wakeup()
