"""Preallocator: makes the next file before it is needed [AllocateMappedFileService]."""

import logging
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, Protocol

from msgspec import Struct

from rocketlake.errors import RocketLakeError, StoreClosedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.file_traits import FilePlace
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_factory import MappedFileFactory
from rocketlake.files.write_buffer_pool import WriteBufferPool

log = logging.getLogger(__name__)

WAIT_S: Final = 5.0
RETRY_S: Final = 0.5
_DISCARD_AFTER_MS: Final = 1000
_SLOW_NS: Final = 10_000_000


class Hold(Struct, frozen=True):
    """Why a file that is made may not be used yet."""

    reason: str
    is_stuck: bool = False
    """Waiting does not help now: the queue that asks gets the reason at once."""


class Holder(Protocol):
    """Keeps new files back. Whatever ends a hold wakes the preallocator."""

    def hold(self, base_offset: int, *, for_holder: bool) -> Hold | None:
        """Return why a file may not be used yet; None if it may.

        With `for_holder` the thread that asks for it is the one that would end the hold.
        """
        ...

    def is_holder(self) -> bool:
        """Tell whether the calling thread is the one that ends holds."""
        ...


class WarmUp(Struct, frozen=True):
    """Bring new files into memory; flush them after each so many pages, or not at all (0)."""

    sync_every_pages: int = 0


class Preallocator(BackgroundService):
    """Makes the file that is asked for and the one that will be asked for next.

    One preallocator serves one queue of files: a request is known by its offset, so a file made
    ahead is used even if the rule for its directory has changed since.

    Thread-safety: `obtain` may be called from any thread, for one queue from one at a time. While
    the thread of the service runs, only that thread makes files and hands them to their queue. So
    an exception in a thread that waits (Ctrl-C) leaves no file that belongs to no queue: the queue
    gets it all the same.

    Invariants: an error stays until a file could be made; until then a caller that asks for a
    file that is not there gets it at once, while the thread goes on trying.

    Durability: a crash leaves files that were never written to; recovery and `close` remove them.
    """

    def __init__(
        self,
        factory: MappedFileFactory,
        *,
        stock: WriteBufferPool | None = None,
        warm_up: WarmUp | None = None,
        wait_s: float = WAIT_S,
        retry_s: float = RETRY_S,
        is_daemon: bool = False,
    ) -> None:
        """With a stock, `obtain` gives up at once when its buffers are used up [fastFail…]."""
        super().__init__("rocketlake-preallocator", is_daemon=is_daemon)
        self._factory = factory
        self._stock = stock
        self._warm_up = warm_up
        self._wait_s = wait_s
        self._retry_s = retry_s
        self.note_made: Callable[[int], None] = lambda _: None
        """Gets the nanoseconds that each file took to make."""
        self._change = threading.Lock()
        self._requests: dict[int, _Request] = {}
        self._error: RocketLakeError | None = None
        self._no_buffer_count = 0
        self.holder: Holder | None = None
        self.refusal = ""
        """Why the last `obtain` returned False."""

    @property
    def error(self) -> RocketLakeError | None:
        """Why the last file could not be made; None since one could."""
        return self._error

    def obtain(
        self,
        wanted: FilePlace,
        following: FilePlace | None,
        adopt: Callable[[MappedFile], None],
    ) -> bool:
        """Have a new file made and given to `adopt`, and the one behind it made; tell whether.

        False if there is no write buffer for it, or it takes too long or is held back too long; it
        is then made and given nevertheless, later. `refusal` says which.

        Raises:
            StoreClosedError: the preallocator was closed, before or meanwhile.
            RocketLakeError: why the file cannot be made now, such as DiskFullError.
        """
        with self._change:
            if not self._submit(wanted) or self.is_closing:
                self._check_open()
                return False
            request = self._requests[wanted.base_offset]
            request.adopt = adopt
            request.for_holder = self.holder is not None and self.holder.is_holder()
            request.hold = None
            # Why not a Condition: its methods are Python code that an exception may leave in the
            # middle, with the lock taken. This gate belongs to one wait.
            request.gate = gate = threading.Lock()
            gate.acquire()
            if following is not None:
                self._submit(following)
        self.wakeup()
        if request.file is not None or self._error is None:
            gate.acquire(timeout=self._wait_s)
        if request.is_adopted:
            return True
        self._check_open()
        error = self._error
        if error is not None:
            raise error.with_traceback(None)
        self.refusal = request.why_late(self._wait_s)
        log.warning("no new file path=%s reason=%s", request.place.path, self.refusal)
        return False

    def run_once(self) -> None:
        """Make every file that was asked for; stop at the first that cannot be made."""
        while not self.is_closing:
            self._hand_over()
            request = self._next_request()
            if request is None or not self._fulfil(request):
                return

    def run_last(self) -> None:
        """Remove the files that no queue asked for."""
        self.discard()
        self._open_gates()

    def pause_s(self) -> float | None:
        """Wait for a request; for a short time only if one could not be fulfilled."""
        return None if self._error is None else self._retry_s

    def close(self) -> None:
        """Wake the waiting callers, end the thread and remove the files made ahead."""
        self._closing.set()
        self._open_gates()
        super().close()

    def discard(self) -> None:
        """Remove the files made ahead and forget the requests, as when the log was cut."""
        with self._change:
            unused = [request.file for request in self._requests.values() if request.file]
            self._requests.clear()
            self._error = None
        for file in unused:
            file.destroy(_DISCARD_AFTER_MS)
        if unused:
            log.debug("unused files removed count=%d", len(unused))

    def _hand_over(self) -> None:
        """Give files that are ready to the queues that wait for them."""
        with self._change:
            for base_offset, request in list(self._requests.items()):
                file, adopt = request.file, request.adopt
                if file is not None and adopt is not None and not self.is_closing:
                    request.hold = self._find_hold(base_offset, for_holder=request.for_holder)
                    if request.hold is not None:
                        if request.hold.is_stuck:
                            _open_gate(request)
                        continue
                    del self._requests[base_offset]
                    request.file = None
                    adopt(file)
                    request.is_adopted = True
                    _open_gate(request)

    def _find_hold(self, base_offset: int, *, for_holder: bool) -> Hold | None:
        holder = self.holder
        return holder.hold(base_offset, for_holder=for_holder) if holder is not None else None

    def _open_gates(self) -> None:
        with self._change:
            for request in self._requests.values():
                _open_gate(request)

    def _submit(self, place: FilePlace) -> bool:
        request = self._requests.get(place.base_offset)
        if request is not None:
            request.place = place if request.file is None else request.place
            return True
        pending = sum(request.file is None for request in self._requests.values())
        if self._stock is not None and self._stock.available <= pending:
            self.refusal = f"no write buffer is left for {place.path.name}"
            self._note_no_buffer(place)
            return False
        self._requests[place.base_offset] = _Request(place)
        return True

    def _note_no_buffer(self, place: FilePlace) -> None:
        """Log that a file has no write buffer: the first time, the second, the fourth and so on."""
        # Why: each put comes here until a buffer is free, and its receipt says so.
        self._no_buffer_count += 1
        if not self._no_buffer_count & (self._no_buffer_count - 1):
            log.warning(
                "no write buffer left for a file path=%s count=%d",
                place.path,
                self._no_buffer_count,
            )

    def _check_open(self) -> None:
        if self.is_closing:
            raise StoreClosedError("no new files: the store is closed")

    def _next_request(self) -> "_Request | None":
        with self._change:
            pending = [request for request in self._requests.values() if request.file is None]
            # Compat: AllocateRequest compares so: the larger file first, then the earlier one.
            return min(pending, key=lambda r: (-r.place.size, r.place.base_offset), default=None)

    def _fulfil(self, request: "_Request") -> bool:
        place = request.place
        try:
            file = self._make(place)
            try:
                self._warm(file, request)
            except RocketLakeError:
                file.destroy(_DISCARD_AFTER_MS)
                raise
        except RocketLakeError as error:
            if self._error is None:
                log.warning("file not made path=%s reason=%s", place.path, error)
            # Order: set before the gate opens, since the thread behind it reads the error.
            self._error = error
            self._open_gates()
            return False
        with self._change:
            if self._error is not None:
                log.info("files can be made again path=%s", place.path)
            self._error = None
            is_wanted = self._requests.get(place.base_offset) is request
            if is_wanted:
                request.file = file
        if is_wanted:
            self._hand_over()
        else:
            file.destroy(_DISCARD_AFTER_MS)
        return True

    def _make(self, place: FilePlace) -> MappedFile:
        began = perf_counter_ns()
        file = self._factory.create(place)
        took_ns = perf_counter_ns() - began
        self.note_made(took_ns)
        if took_ns > _SLOW_NS:
            log.info("file made slowly path=%s took_ms=%d", place.path, took_ns // 1_000_000)
        return file

    def _warm(self, file: MappedFile, request: "_Request") -> None:
        if self._warm_up is not None:
            # Why: a caller is waiting for the file, and needs it more than warm pages.
            file.warm(
                lambda: self.is_closing or request.adopt is not None,
                sync_every_pages=self._warm_up.sync_every_pages,
            )


class _Request(Struct):
    """A file that was asked for, and what became of it."""

    place: FilePlace
    file: MappedFile | None = None
    adopt: Callable[[MappedFile], None] | None = None
    """Takes the file; None: it is made ahead, and nothing waits for it."""
    gate: "threading.Lock | None" = None
    """Opened for the thread that waits."""
    is_adopted: bool = False
    for_holder: bool = False
    hold: Hold | None = None
    """Why the file was not given when that was last asked."""

    def why_late(self, waited_s: float) -> str:
        """Return why the file was not given in time."""
        if self.hold is not None:
            return self.hold.reason
        return f"{self.place.path.name} could not be made within {waited_s:g} s"


def _open_gate(request: _Request) -> None:
    gate, request.gate = request.gate, None
    if gate is not None:
        gate.release()
