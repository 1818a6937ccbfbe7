# Index files: put entries, look a hash up, walk a chain; included by native.pyx, the twin of
# pure/indexing.py.

cdef extern from "bigendian.h" nogil:
    void rl_publish()
    void rl_observe()
    void rl_prefetch(const uint8_t* p)

cdef enum:
    PREFETCH_AHEAD = 16  # a power of two


def index_put(uint8_t[::1] buffer not None, slots_, entries_, hash__, physical_offset_,
              store_timestamp_, bint count_every_put):
    """Add an entry to an index file and update its header; False if the file is full."""
    cdef int64_t slots = to_i64(slots_), entries = to_i64(entries_)
    cdef int32_t hash_ = to_i32(hash__)
    cdef int64_t physical_offset = to_i64(physical_offset_)
    cdef int64_t store_timestamp = to_i64(store_timestamp_)
    cdef int64_t length = buffer.shape[0]
    cdef int64_t first_entry = entries_start(slots, length)
    cdef int64_t begin, diff
    cdef int32_t count, used, previous
    cdef uint8_t* data = &buffer[0] if length else NULL
    cdef uint8_t* slot
    cdef uint8_t* entry
    if first_entry < 0 or entries < 0 or entries > (length - first_entry) // INDEX_ENTRY_SIZE:
        raise ValueError(f"{length} bytes do not hold {slots} slots and {entries} entries")
    begin = rl_load64(data)
    count = rl_load32(data + INDEX_ENTRY_COUNT_AT)
    if count < 1:
        count = 1
    if count >= entries:
        return False
    slot = data + INDEX_HEADER_SIZE + floor_mod(hash_, slots) * INDEX_SLOT_SIZE
    previous = rl_load32(slot)
    if previous <= 0 or previous > count:
        previous = 0
    diff = rl_sub64(store_timestamp, begin)
    if begin <= 0 or diff < 0:
        diff = 0
    diff = min(diff // 1000, <int64_t>MAX_I32)
    entry = data + first_entry + <int64_t>count * INDEX_ENTRY_SIZE
    rl_store32(entry, hash_)
    rl_store64(entry + ENTRY_OFFSET_AT, physical_offset)
    rl_store32(entry + ENTRY_TIME_DIFF_AT, <int32_t>diff)
    rl_store32(entry + ENTRY_PREVIOUS_AT, previous)
    rl_store32(slot, count)
    if count <= 1:
        rl_store64(data, store_timestamp)
        rl_store64(data + INDEX_BEGIN_OFFSET_AT, physical_offset)
    rl_store64(data + INDEX_END_TIMESTAMP_AT, store_timestamp)
    rl_store64(data + INDEX_END_OFFSET_AT, physical_offset)
    if previous == 0 or count_every_put:
        used = <int32_t>(<uint32_t>rl_load32(data + INDEX_SLOT_COUNT_AT) + 1)
        rl_store32(data + INDEX_SLOT_COUNT_AT, used)
    rl_store32(data + INDEX_ENTRY_COUNT_AT, count + 1)
    return True


cdef inline int64_t entries_start(int64_t slots, int64_t length) noexcept nogil:
    """Return where entry 0 of an index file would lie; -1 if the slots do not fit into it."""
    if slots <= 0 or length < INDEX_HEADER_SIZE:
        return -1
    if slots > (length - INDEX_HEADER_SIZE) // INDEX_SLOT_SIZE:
        return -1
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE


cdef inline int64_t floor_mod(int64_t value, int64_t by) noexcept nogil:
    cdef int64_t rest = value % by
    return rest + by if rest < 0 else rest


def index_lookup(const uint8_t[::1] buffer not None, slots_, hash__, begin_, end_, limit_):
    """Return the physical offsets of entries with this hash and a time in range, newest first."""
    cdef int64_t slots = to_i64(slots_)
    cdef int32_t hash_ = to_i32(hash__)
    cdef int64_t begin = to_i64(begin_), end = to_i64(end_), limit = to_i64(limit_)
    cdef int64_t length = buffer.shape[0]
    cdef int64_t first_entry = entries_start(slots, length)
    cdef int64_t steps_max = (length - first_entry) // INDEX_ENTRY_SIZE
    cdef int64_t file_begin, time, steps = 0, entry_at
    cdef int32_t count, entry, diff, previous
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const uint8_t* p
    cdef list found = []
    if first_entry < 0:
        return found
    file_begin = rl_load64(data)
    count = rl_load32(data + INDEX_ENTRY_COUNT_AT)
    if count < 1:
        count = 1
    entry = rl_load32(data + INDEX_HEADER_SIZE + floor_mod(hash_, slots) * INDEX_SLOT_SIZE)
    while 0 < entry <= count and steps < steps_max and len(found) < limit:
        entry_at = first_entry + <int64_t>entry * INDEX_ENTRY_SIZE
        if entry_at + INDEX_ENTRY_SIZE > length:
            break
        p = data + entry_at
        diff = rl_load32(p + ENTRY_TIME_DIFF_AT)
        previous = rl_load32(p + ENTRY_PREVIOUS_AT)
        if diff < 0:
            break
        time = rl_add64(file_begin, <int64_t>diff * 1000)
        if rl_load32(p) == hash_ and begin <= time <= end:
            found.append(rl_load64(p + ENTRY_OFFSET_AT))
        if previous == entry or time < begin:
            break
        entry = previous
        steps += 1
    return found


# --- many at a time ----------------------------------------------------------------------------

cdef inline uint8_t* slot_of(uint8_t* data, int64_t slots, int32_t hash_) noexcept nogil:
    cdef int64_t number
    if hash_ >= 0 and slots <= MAX_I32:
        number = <uint32_t>hash_ % <uint32_t>slots
    else:
        number = floor_mod(hash_, slots)
    return data + INDEX_HEADER_SIZE + number * INDEX_SLOT_SIZE


def put_entries(uint8_t[::1] buffer not None, slots_, entries_, hashes, physical_offsets,
                store_timestamps, bint count_every_put):
    """Put one entry behind the other until the file is full; return how many were put."""
    cdef int64_t slots = to_i64(slots_), entries = to_i64(entries_)
    cdef const uint8_t[::1] hash_bytes_ = memoryview(hashes).cast("B")
    cdef const uint8_t[::1] offset_bytes = memoryview(physical_offsets).cast("B")
    cdef const uint8_t[::1] time_bytes = memoryview(store_timestamps).cast("B")
    cdef int64_t length = buffer.shape[0]
    cdef int64_t first_entry = entries_start(slots, length)
    cdef int64_t total = min(hash_bytes_.shape[0] // 4, offset_bytes.shape[0] // 8)
    cdef int64_t done = 0
    cdef uint8_t* data = &buffer[0] if length else NULL
    if first_entry < 0 or entries < 0 or entries > (length - first_entry) // INDEX_ENTRY_SIZE:
        raise ValueError(f"{length} bytes do not hold {slots} slots and {entries} entries")
    total = min(total, time_bytes.shape[0] // 8)
    if total:
        with nogil:
            done = put_all(data, slots, entries, first_entry, total,
                           &hash_bytes_[0], &offset_bytes[0], &time_bytes[0], count_every_put)
    return done


cdef int64_t put_all(uint8_t* data, int64_t slots, int64_t entries, int64_t first_entry,
                     int64_t total, const uint8_t* hashes, const uint8_t* offsets,
                     const uint8_t* times, bint count_every_put) noexcept nogil:
    cdef int64_t begin = rl_load64(data)
    cdef int64_t i, offset, time, diff
    cdef int32_t count = rl_load32(data + INDEX_ENTRY_COUNT_AT)
    cdef int32_t used = rl_load32(data + INDEX_SLOT_COUNT_AT)
    cdef int32_t hash_, previous
    cdef uint8_t* ahead[PREFETCH_AHEAD]
    cdef uint8_t* slot
    cdef uint8_t* entry
    if count < 1:
        count = 1
    if count >= entries:
        return 0
    if total > entries - count:
        total = entries - count
    # Slots lie far apart: each is asked for a while before it is needed.
    for i in range(min(total, <int64_t>PREFETCH_AHEAD)):
        memcpy(&hash_, hashes + 4 * i, 4)
        ahead[i] = slot_of(data, slots, hash_)
        rl_prefetch(ahead[i])
    for i in range(total):
        slot = ahead[i & (PREFETCH_AHEAD - 1)]
        if i + PREFETCH_AHEAD < total:
            memcpy(&hash_, hashes + 4 * (i + PREFETCH_AHEAD), 4)
            ahead[i & (PREFETCH_AHEAD - 1)] = slot_of(data, slots, hash_)
            rl_prefetch(ahead[i & (PREFETCH_AHEAD - 1)])
        memcpy(&hash_, hashes + 4 * i, 4)
        memcpy(&offset, offsets + 8 * i, 8)
        memcpy(&time, times + 8 * i, 8)
        previous = rl_load32(slot)
        if previous <= 0 or previous > count:
            previous = 0
        diff = rl_sub64(time, begin)
        if begin <= 0 or diff < 0:
            diff = 0
        entry = data + first_entry + <int64_t>count * INDEX_ENTRY_SIZE
        rl_store32(entry, hash_)
        rl_store64(entry + ENTRY_OFFSET_AT, offset)
        rl_store32(entry + ENTRY_TIME_DIFF_AT, <int32_t>min(diff // 1000, <int64_t>MAX_I32))
        rl_store32(entry + ENTRY_PREVIOUS_AT, previous)
        if count == 1:
            begin = time
            rl_store64(data, time)
            rl_store64(data + INDEX_BEGIN_OFFSET_AT, offset)
        # Order: an entry is whole before a slot names it, and counted before another slot does.
        rl_publish()
        rl_store32(slot, count)
        rl_publish()
        if previous == 0 or count_every_put:
            used = <int32_t>(<uint32_t>used + 1)
            rl_store32(data + INDEX_SLOT_COUNT_AT, used)
        count += 1
        rl_store64(data + INDEX_END_TIMESTAMP_AT, time)
        rl_store64(data + INDEX_END_OFFSET_AT, offset)
        rl_store32(data + INDEX_ENTRY_COUNT_AT, count)
    return total


def index_walk(const uint8_t[::1] buffer not None, slots_, hash__, entry_, begin_, end_, found):
    """Follow a chain until `found` is full; return how many are in it, and where to go on."""
    cdef int64_t slots = to_i64(slots_)
    cdef int32_t hash_ = to_i32(hash__)
    cdef int64_t entry = to_i64(entry_), begin = to_i64(begin_), end = to_i64(end_)
    cdef uint8_t[::1] out = memoryview(found).cast("B")
    cdef int64_t length = buffer.shape[0]
    cdef int64_t first_entry = entries_start(slots, length)
    cdef int64_t room = out.shape[0] // 8, done = 0
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef uint8_t* found_at = &out[0] if out.shape[0] else NULL
    if first_entry < 0:
        return 0, 0
    with nogil:
        entry = walk(data, length, slots, first_entry, hash_, entry, begin, end, found_at, room,
                     &done)
    return done, entry


cdef int64_t walk(const uint8_t* data, int64_t length, int64_t slots, int64_t first_entry,
                  int32_t hash_, int64_t entry, int64_t begin, int64_t end, uint8_t* out,
                  int64_t room, int64_t* done) noexcept nogil:
    cdef int64_t file_begin, time, last, offset
    cdef int32_t diff, previous
    cdef const uint8_t* p
    if entry == 0:
        entry = rl_load32(slot_of(<uint8_t*>data, slots, hash_))
    # Order: the slot before the header, so that the count is not older than the slot.
    rl_observe()
    file_begin = rl_load64(data)
    last = rl_load32(data + INDEX_ENTRY_COUNT_AT)
    if last < 1:
        last = 1
    last = min(last, (length - first_entry) // INDEX_ENTRY_SIZE - 1)
    while 0 < entry <= last and done[0] < room:
        p = data + first_entry + entry * INDEX_ENTRY_SIZE
        diff = rl_load32(p + ENTRY_TIME_DIFF_AT)
        previous = rl_load32(p + ENTRY_PREVIOUS_AT)
        time = rl_add64(file_begin, <int64_t>diff * 1000) if entry > 1 else file_begin
        if diff >= 0 and rl_load32(p) == hash_ and begin <= time <= end:
            offset = rl_load64(p + ENTRY_OFFSET_AT)
            memcpy(out + 8 * done[0], &offset, 8)
            done[0] += 1
        entry = previous if diff >= 0 and previous < entry and time >= begin else 0
    return entry if 0 < entry <= last else 0
