# Queue units -> rows -> messages or columns; included by native.pyx behind message.pxi, the twin of
# pure/reading.py.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "Python.h":
    int PyByteArray_Resize(object data, Py_ssize_t size) except -1

cdef enum:
    CHECK_HEAD_ONLY = 16
    FULL_CHECKS = 15
    FETCH_AHEAD = 4  # units whose records are on their way from memory

cdef extern from "resident.h" nogil:
    bint rl_is_resident(const uint8_t* p, int64_t n)

cdef enum:
    READ_END = 0
    READ_FULL = 1
    READ_OUTSIDE = 2
    READ_DAMAGED = 3
    READ_ON = 4  # not an answer: there was no more room for rows
    ROWS_AT_ONCE = 64

cdef int64_t LIMIT_MAX = 1LL << 62

cdef struct Walk:
    const uint8_t* units
    int64_t unit_count
    int64_t unit_size
    int64_t index
    int64_t next_offset
    int64_t stop_offset
    const uint8_t* log
    int64_t log_size
    int64_t log_base
    int64_t log_end
    int checks
    const int32_t* hashes
    int64_t hash_count  # -1: every unit is wanted
    int64_t count
    int64_t size
    int64_t count_max
    int64_t count_stop
    int64_t size_max
    int damage


cdef int walk_units(Walk* walk, Row* rows, int64_t room, int64_t* filled) noexcept nogil:
    """Parse the records of units until something ends it; rows get the number of their unit."""
    cdef const uint8_t* unit
    cdef int64_t number, messages = 1, physical_offset, size
    cdef int64_t claim[3]
    cdef Row* row
    filled[0] = 0
    while filled[0] < room:
        if walk.index >= walk.unit_count:
            return READ_END
        unit = walk.units + walk.index * walk.unit_size
        number = walk.next_offset
        if walk.unit_size == BATCH_UNIT_SIZE:
            number = rl_load64(unit + BATCH_UNIT_BASE_OFFSET_AT)
            messages = max(rl_load16(unit + BATCH_UNIT_COUNT_AT), <int16_t>1)
        if number >= walk.stop_offset:
            return READ_END
        physical_offset = rl_load64(unit)
        size = rl_load32(unit + UNIT_RECORD_SIZE_AT)
        if physical_offset < walk.log_base or physical_offset >= walk.log_end:
            return READ_OUTSIDE
        if walk.count > 0 and (
                walk.count + messages > walk.count_max or walk.count >= walk.count_stop
                or walk.size + size > walk.size_max):
            return READ_FULL
        if walk.hash_count < 0 or is_wanted(walk, rl_load64(unit + UNIT_TAGS_CODE_AT)):
            claim[0] = rl_sub64(physical_offset, walk.log_base)
            claim[1] = size
            claim[2] = physical_offset
            row = rows + filled[0]
            if walk.checks & CHECK_HEAD_ONLY:
                if walk.index + FETCH_AHEAD < walk.unit_count:
                    prefetch_record(walk, unit + FETCH_AHEAD * walk.unit_size)
                walk.damage = parse_head(walk.log, walk.log_size, claim, row)
            else:
                walk.damage = parse_claimed(walk.log, walk.log_size, claim, walk.checks, row)
            if walk.damage != OK:
                return READ_DAMAGED
            row.queue_offset = number
            filled[0] += 1
            walk.count += messages
            walk.size += size
        walk.index += 1
        walk.next_offset = rl_add64(number, messages)
    return READ_ON


cdef inline void prefetch_record(const Walk* walk, const uint8_t* unit) noexcept nogil:
    """Prefetch the head of a unit's record."""
    cdef int64_t position = rl_sub64(rl_load64(unit), walk.log_base)
    if 0 <= position < walk.log_size:
        rl_prefetch(walk.log + position)


cdef inline bint is_wanted(const Walk* walk, int64_t tags_code) noexcept nogil:
    cdef int64_t i
    if tags_code <= EXT_ADDRESS_MAX:
        return True
    for i in range(walk.hash_count):
        if walk.hashes[i] == <int32_t>tags_code:
            return True
    return False


cdef int64_t to_limit(object value) except -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < 0 or number > LIMIT_MAX:
        raise ValueError(f"a limit lies between 0 and 2**62, unlike {value}")
    return number


cdef int start_walk(Walk* walk, object unit_size, object start, object queue_offset,
                    object stop_offset, object log_size, object log_base, object log_end,
                    int checks) except -1:
    if unit_size != UNIT_SIZE and unit_size != BATCH_UNIT_SIZE:
        raise ValueError(f"a unit has 20 or 46 bytes, not {unit_size}")
    walk.unit_size = unit_size
    walk.index = to_i64(start)
    if walk.index < 0:
        raise ValueError(f"units are counted from 0, not from {start}")
    walk.next_offset = to_i64(queue_offset)
    walk.stop_offset = to_i64(stop_offset)
    walk.log_size = max(to_i64(log_size), <int64_t>0)
    walk.log_base = to_i64(log_base)
    walk.log_end = to_i64(log_end)
    walk.checks = checks
    walk.hashes = NULL
    walk.hash_count = -1
    walk.damage = OK
    return 0


cdef void take_buffers(Walk* walk, const Py_buffer* units, const Py_buffer* log) noexcept:
    walk.units = <const uint8_t*>units.buf
    walk.unit_count = units.len // walk.unit_size
    walk.log = <const uint8_t*>log.buf
    walk.log_size = min(walk.log_size, <int64_t>log.len)


cdef int take_limits(Walk* walk, tuple limits) except -1:
    count, size, count_max, count_stop, size_max = limits
    walk.count = to_limit(count)
    walk.size = to_limit(size)
    walk.count_max = to_limit(count_max)
    walk.count_stop = to_limit(count_stop)
    walk.size_max = to_limit(size_max)
    return 0


cdef int read_wanted(Walk* walk, list found, object units, object log, object hashes, bint may_wait,
                     bint as_ranges) except -1:
    """Add the messages of units to a list, or the ranges of their records; return the stop."""
    cdef Py_buffer unit_buffer, log_buffer, hash_buffer
    PyObject_GetBuffer(units, &unit_buffer, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &log_buffer, PyBUF_SIMPLE)
        try:
            take_buffers(walk, &unit_buffer, &log_buffer)
            if hashes is None:
                return read_records(walk, found, may_wait, as_ranges)
            PyObject_GetBuffer(hashes, &hash_buffer, PyBUF_SIMPLE)
            try:
                walk.hashes = <const int32_t*>hash_buffer.buf
                walk.hash_count = hash_buffer.len // 4
                return read_records(walk, found, may_wait, as_ranges)
            finally:
                PyBuffer_Release(&hash_buffer)
        finally:
            PyBuffer_Release(&log_buffer)
    finally:
        PyBuffer_Release(&unit_buffer)


def read_units(list messages not None, units, start, unit_size, queue_offset, stop_offset, log,
               log_size, log_base, log_end, int checks, hashes, tuple limits not None, bint may_wait):
    """Append the messages of units to a list, until something ends it."""
    cdef Walk walk
    start_walk(&walk, unit_size, start, queue_offset, stop_offset, log_size, log_base, log_end,
               checks)
    take_limits(&walk, limits)
    walk.checks &= FULL_CHECKS
    cdef int64_t first = walk.index
    cdef int stop = read_wanted(&walk, messages, units, log, hashes, may_wait, False)
    return walk.index - first, stop, walk.damage, walk.next_offset, walk.count, walk.size


def read_ranges(units, start, unit_size, queue_offset, stop_offset, log, log_size, log_base,
                log_end, int checks, hashes, tuple limits not None, bint may_wait):
    """Find where the records of units lie, until something ends it; neighbours are one range."""
    cdef Walk walk
    cdef list ranges = []
    start_walk(&walk, unit_size, start, queue_offset, stop_offset, log_size, log_base, log_end,
               checks)
    take_limits(&walk, limits)
    cdef int64_t first = walk.index
    cdef int stop = read_wanted(&walk, ranges, units, log, hashes, may_wait, True)
    return ranges, walk.index - first, stop, walk.damage, walk.next_offset, walk.count, walk.size


cdef int read_records(Walk* walk, list found, bint may_wait, bint as_ranges) except -1:
    cdef Row rows[ROWS_AT_ONCE]
    cdef int stop = READ_ON
    cdef int64_t filled, last[2]
    last[0] = last[1] = -1
    while stop == READ_ON:
        # Why: giving up the interpreter lock is worth it only where the disk is waited for: the caller that
        # gives it up gets it back when others have had their turn, milliseconds later.
        if may_wait and not are_resident(walk):
            with nogil:
                stop = walk_units(walk, rows, ROWS_AT_ONCE, &filled)
        else:
            stop = walk_units(walk, rows, ROWS_AT_ONCE, &filled)
        if as_ranges:
            add_ranges(found, rows, filled, last)
        else:
            add_messages(found, walk.log, rows, filled)
    if last[1] >= 0:
        found.append((last[0], last[1]))
    return stop


cdef int add_ranges(list ranges, const Row* rows, int64_t count, int64_t* last) except -1:
    """Join records to ranges; the last one, which may go on, is kept back in `last`."""
    cdef int64_t i
    for i in range(count):
        if rows[i].position != last[1]:
            if last[1] >= 0:
                ranges.append((last[0], last[1]))
            last[0] = rows[i].position
        last[1] = rows[i].position + rows[i].size
    return 0


cdef bint are_resident(const Walk* walk) noexcept:
    """Tell whether the next records are in memory, as far as their units can be believed."""
    cdef int64_t wanted = min(max(walk.count_max - walk.count, <int64_t>1), <int64_t>ROWS_AT_ONCE)
    cdef int64_t last = min(walk.unit_count - walk.index, wanted) + walk.index - 1
    cdef const uint8_t* unit = walk.units + last * walk.unit_size
    cdef int64_t begin, end
    if last < walk.index:
        return True
    end = rl_sub64(rl_load64(unit), walk.log_base)
    if end < 0 or end >= walk.log_size:
        end = walk.log_size - 1
    begin = rl_sub64(rl_load64(walk.units + walk.index * walk.unit_size), walk.log_base)
    if begin < 0 or begin > end:
        return True
    return rl_is_resident(walk.log + begin, end - begin + 1)


def read_columns(units, start, unit_size, queue_offset, stop_offset, log, log_size, log_base,
                 log_end, int checks, tuple limits not None, bint may_wait):
    """Copy the records of units behind each other, and parse them, until something ends it."""
    cdef Walk walk
    cdef Py_buffer unit_buffer, log_buffer
    cdef int stop
    cdef int64_t filled = 0
    cdef bytes data
    count_max, size_max = limits
    start_walk(&walk, unit_size, start, queue_offset, stop_offset, log_size, log_base, log_end,
               checks)
    walk.checks &= FULL_CHECKS
    walk.count = walk.size = 0
    walk.count_max = to_limit(count_max)
    walk.count_stop = LIMIT_MAX
    walk.size_max = to_limit(size_max)
    cdef int64_t first = walk.index
    PyObject_GetBuffer(units, &unit_buffer, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &log_buffer, PyBUF_SIMPLE)
        try:
            take_buffers(&walk, &unit_buffer, &log_buffer)
            rows = PyByteArray_FromStringAndSize(NULL, rows_room(&walk) * <int64_t>sizeof(Row))
            stop = fill_rows(&walk, <Row*>PyByteArray_AS_STRING(rows), rows_room(&walk), &filled,
                             may_wait)
            data = PyBytes_FromStringAndSize(NULL, walk.size)
            copy_records(&walk, <uint8_t*>PyBytes_AS_STRING(data),
                         <Row*>PyByteArray_AS_STRING(rows), filled, may_wait)
            PyByteArray_Resize(rows, filled * <int64_t>sizeof(Row))
        finally:
            PyBuffer_Release(&log_buffer)
    finally:
        PyBuffer_Release(&unit_buffer)
    return data, rows, walk.index - first, stop, walk.damage, walk.next_offset


cdef int64_t rows_room(const Walk* walk) noexcept:
    """Return how many rows there can be at most."""
    cdef int64_t room = max(walk.unit_count - walk.index, <int64_t>0)
    cdef int64_t asked = rl_sub64(walk.stop_offset, walk.next_offset)
    room = min(room, max(walk.count_max, <int64_t>1))
    if walk.unit_size == UNIT_SIZE and walk.stop_offset > walk.next_offset and asked > 0:
        room = min(room, asked)
    return room


cdef int fill_rows(Walk* walk, Row* rows, int64_t room, int64_t* filled, bint may_wait) noexcept:
    cdef int stop
    cdef int64_t no_more
    cdef Row unused
    if may_wait or room > ROWS_AT_ONCE:
        with nogil:
            stop = walk_units(walk, rows, room, filled)
    else:
        stop = walk_units(walk, rows, room, filled)
    if stop == READ_ON:  # there can be no further row: only the reason is missing
        stop = walk_units(walk, &unused, 1, &no_more)
    return stop


cdef void copy_records(const Walk* walk, uint8_t* to, Row* rows, int64_t count,
                       bint may_wait) noexcept:
    if may_wait or count > ROWS_AT_ONCE:
        with nogil:
            move_records(walk, to, rows, count)
    else:
        move_records(walk, to, rows, count)


cdef void move_records(const Walk* walk, uint8_t* to, Row* rows, int64_t count) noexcept nogil:
    """Copy records behind each other, and let their rows speak of the copies."""
    cdef int64_t i, moved, at = 0
    for i in range(count):
        memcpy(to + at, walk.log + rows[i].position, rows[i].size)
        moved = at - rows[i].position
        rows[i].position = at
        rows[i].body_position += moved
        rows[i].topic_position += moved
        rows[i].properties_position += moved
        at += rows[i].size
