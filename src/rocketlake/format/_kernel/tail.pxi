# LogTail: the append of a plain message in one call (docs/adr/0010-the-append-tail.md); included by
# native.pyx, the twin of pure/tail.py.

cdef extern from "<time.h>" nogil:
    ctypedef long long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    int CLOCK_REALTIME
    int CLOCK_MONOTONIC

cdef extern from *:
    """
    #ifdef CLOCK_MONOTONIC_COARSE
    #define RL_CLOCK_COARSE CLOCK_MONOTONIC_COARSE
    #else
    #define RL_CLOCK_COARSE CLOCK_MONOTONIC
    #endif
    """
    int RL_CLOCK_COARSE

from time import time_ns as _time_ns

cdef enum:
    NS_PER_MS = 1000000
    SLOW_NS = 1000000
    SAMPLE = 15  # one append in 16 is timed to the nanosecond, others by a clock of few ticks


cdef inline int64_t clock_ns(int clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


def set_together(changes):
    """Set attributes, each given as (object, name, value): no Python code runs in between."""
    for target, name, value in changes:
        setattr(target, name, value)


cdef bint is_inert(object message) except -1:
    """Tell whether reading the fields of a message runs no code of its sender."""
    body, keys = field_of(message, BODY), field_of(message, KEYS)
    return (
        type(field_of(message, PROPERTIES)) is dict
        and (type(keys) is tuple or type(keys) is list or type(keys) is str)
        and (type(body) is bytes or type(body) is bytearray or type(body) is memoryview
             or not hasattr(type(body), "__buffer__"))
    )


def are_inert(messages):
    """Tell whether reading the fields of messages runs no code of their sender."""
    for message in messages:
        if not is_inert(message):
            return False
    return True


cdef class LogTail:
    """The end of a log: the file that is appended to, and what an append needs beside it."""

    cdef object _acquire
    cdef object _release
    cdef object _now_ns
    cdef object _receipt
    cdef object _ok
    cdef object _on_ahead
    cdef object _on_slow
    cdef object _file
    cdef Py_buffer _view
    cdef int64_t _base
    cdef bint _has_view
    cdef bint _has_system_time
    cdef uint32_t _calls
    cdef readonly int64_t lock_ns
    cdef readonly int64_t copy_ns
    cdef public int64_t lock_since_ms
    cdef public int64_t busy_ms
    cdef public int64_t ahead_at

    def __init__(self, lock, now_ns, receipt, ok, on_ahead, on_slow):
        self._acquire = lock.acquire
        self._release = lock.release
        self._now_ns = now_ns
        self._has_system_time = now_ns is _time_ns
        self._receipt = receipt
        self._ok = ok
        self._on_ahead = on_ahead
        self._on_slow = on_slow
        self._file = None
        self.busy_ms = 1 << 62

    def __dealloc__(self):
        if self._has_view:
            PyBuffer_Release(&self._view)

    def attach(self, file, base_offset):
        """Append to a file from now on."""
        self.detach()
        self._base = to_i64(base_offset)
        PyObject_GetBuffer(file.buffer, &self._view, PyBUF_WRITABLE)
        self._has_view = True
        self._file = file

    def detach(self):
        """Append to no file."""
        self._file = None
        if self._has_view:
            self._has_view = False
            PyBuffer_Release(&self._view)

    cdef int64_t now_ms(self) except? -1:
        if self._has_system_time:
            return clock_ns(CLOCK_REALTIME) // NS_PER_MS
        return to_i64(self._now_ns()) // NS_PER_MS

    def append(self, message, slot, RecordFrame frame not None):
        """Append a plain message; None if it must take the long way."""
        cdef int64_t started, locked, lock_ns, copy_ns
        cdef int clock = RL_CLOCK_COARSE if self._calls & SAMPLE else CLOCK_MONOTONIC
        cdef int64_t since = self.lock_since_ms
        if not is_inert(message):
            return None
        if since and self.now_ms() - since > self.busy_ms:
            return None
        started = clock_ns(clock)
        self._acquire()
        try:
            self._calls += 1
            locked = clock_ns(clock)
            receipt = self.append_locked(message, slot, frame)
            lock_ns = locked - started
            copy_ns = clock_ns(clock) - locked
            if clock == CLOCK_MONOTONIC:
                self.lock_ns = lock_ns
                self.copy_ns = copy_ns
        finally:
            self.lock_since_ms = 0
            self._release()
        if lock_ns + copy_ns > SLOW_NS and receipt is not None:
            self._on_slow(lock_ns, copy_ns)
        return receipt

    def append_fields(self, fields, slot, RecordFrame frame not None,
                      PropertyEdits edits not None, bint may_wait):
        """Append the message that a client's fields describe; None if it must take the long way."""
        cdef int64_t started, locked, lock_ns, copy_ns
        cdef int clock = RL_CLOCK_COARSE if self._calls & SAMPLE else CLOCK_MONOTONIC
        cdef int64_t since = self.lock_since_ms
        cdef Fields numbers
        if _sent_type is None:
            learn_sent_type(type(fields))
        # Order: read before the lock is taken, since it may run any code.
        cdef bytes born_host = sent_of(fields, SENT_BORN_HOST)
        body, properties = sent_of(fields, SENT_BODY), sent_of(fields, SENT_PROPERTIES)
        read_fields(&numbers, fields, born_host)
        if since and self.now_ms() - since > self.busy_ms:
            return None
        started = clock_ns(clock)
        if not self._acquire(may_wait):
            return None
        try:
            self._calls += 1
            locked = clock_ns(clock)
            receipt = self.append_fields_locked(slot, frame, edits, &numbers, body, properties)
            lock_ns = locked - started
            copy_ns = clock_ns(clock) - locked
            if clock == CLOCK_MONOTONIC:
                self.lock_ns = lock_ns
                self.copy_ns = copy_ns
        finally:
            self.lock_since_ms = 0
            self._release()
        if lock_ns + copy_ns > SLOW_NS and receipt is not None:
            self._on_slow(lock_ns, copy_ns)
        return receipt

    cdef int64_t find_end(self, object file, object slot, int64_t* places) except? -2:
        """Return where in the file the next record goes, and its places; -1: there is no room."""
        cdef int64_t at
        places[2] = self.now_ms()
        self.lock_since_ms = places[2]
        at = to_i64(file.wrote)
        places[0] = to_i64(slot.next_offset)
        places[1] = self._base + at
        return at if 0 <= at <= self._view.len - BLANK_HEADER_SIZE else -1

    cdef object keep(self, object file, object slot, RecordFrame frame, int64_t at, int64_t size,
                     const int64_t* places):
        """Move the positions behind a record that was written; return its receipt."""
        receipt = self._receipt(self._ok, places[0], places[1], places[2], size, 1,
                                frame.store_host)
        # Order: the bytes are there before their end moves. No Python code runs between these
        # three lines, so that an exception raised by a signal cannot separate them.
        file.wrote = at + size
        file.store_timestamp = places[2]
        slot.next_offset = places[0] + 1
        if at + size > self.ahead_at:
            self._on_ahead()
        return receipt

    cdef object append_locked(self, object message, object slot, RecordFrame frame):
        cdef int64_t places[3]
        cdef int64_t at, size, room
        cdef Text properties
        cdef uint8_t scratch[SCRATCH_SIZE]
        file = self._file
        if file is None:
            return None
        at = self.find_end(file, slot, places)
        if at < 0:
            return None
        room = self._view.len - at - BLANK_HEADER_SIZE
        text_start(&properties)
        properties.data = scratch
        properties.room = SCRATCH_SIZE
        properties.is_lent = True
        try:
            size = append_one(<uint8_t*>self._view.buf + at, room, message, frame, &properties,
                              places, places[2])
        finally:
            text_free(&properties)
        if size <= 0 or size > room:
            return None
        return self.keep(file, slot, frame, at, size, places)

    cdef object append_fields_locked(self, object slot, RecordFrame frame, PropertyEdits edits,
                                     Fields* fields, object body, object properties):
        cdef int64_t places[3]
        cdef int64_t at, size, room
        file = self._file
        if file is None:
            return None
        at = self.find_end(file, slot, places)
        if at < 0:
            return None
        room = self._view.len - at - BLANK_HEADER_SIZE
        size = append_encoded(<uint8_t*>self._view.buf + at, room, frame, edits, fields, body,
                              properties, places)
        if size <= 0 or size > room:
            return None
        return self.keep(file, slot, frame, at, size, places)
