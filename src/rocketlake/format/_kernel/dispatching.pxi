# Rows -> what dispatch needs; included by native.pyx, the twin of pure/dispatching.py.

from libc.stdlib cimport free, realloc

cdef enum:
    TRANSACTION_MASK = 0x0C
    ROLLBACK = 0x0C
    PREPARED_BIT = 0x04  # set in prepared and rollback, not in none and commit
    INNER_BATCH = 0x80
    ENTERS_QUEUE = 1
    IS_INDEXED = 2
    IS_SPECIAL = 4

cdef struct Bytes:
    const uint8_t* data
    int64_t size


cdef inline Bytes part_of(const uint8_t* data, int64_t length, int64_t position,
                          int64_t size) noexcept nogil:
    """Return a part of the buffer; an empty one if it does not lie inside."""
    cdef Bytes part
    part.data = NULL
    part.size = 0
    if position >= 0 and size >= 0 and position <= length - size:
        part.data = data + position
        part.size = size
    return part


# --- properties --------------------------------------------------------------------------------

cdef inline bint next_property(Bytes* rest, Bytes* name, Bytes* value) noexcept nogil:
    """Take the next name and value from a property string; False at its end."""
    cdef const uint8_t* p = rest.data
    cdef const uint8_t* end = p + rest.size
    cdef const uint8_t* split
    while p < end:
        name.data = p
        split = NULL
        while p < end and p[0] != PROPERTY_END:
            if p[0] == PROPERTY_NAME_END:
                split = p
                p = <const uint8_t*>memchr(p, PROPERTY_END, end - p)
                if p == NULL:
                    p = end
                break
            p += 1
        if split != NULL and split > name.data and split + 1 < p:
            name.size = split - name.data
            value.data = split + 1
            value.size = p - split - 1
            if p < end:
                p += 1
            rest.data = p
            rest.size = end - p
            return True
        p += 1
    return False


# --- hashes of bytes ---------------------------------------------------------------------------

cdef inline uint32_t hash_bytes(uint32_t value, const uint8_t* p, int64_t size) noexcept nogil:
    """Go on with a Java hash over the UTF-16 units of UTF-8; what is none counts as U+FFFD."""
    cdef const uint8_t* end = p + size
    cdef uint64_t eight
    cdef uint32_t unit
    while p < end:
        if end - p >= 8:
            memcpy(&eight, p, 8)
            if not eight & 0x8080808080808080ULL:
                # Powers of 31, so that the eight do not wait for each other.
                value = (value * 2487512833U + p[0] * 1742810335U + p[1] * 887503681U
                         + p[2] * 28629151U + p[3] * 923521U + p[4] * 29791U + p[5] * 961U
                         + p[6] * 31U + p[7])
                p += 8
                continue
        if p[0] < 0x80:
            value = 31 * value + p[0]
            p += 1
            continue
        unit = next_character(&p, end)
        if unit > 0xFFFF:
            unit -= 0x10000
            value = 31 * value + (0xD800 + (unit >> 10))
            unit = 0xDC00 + (unit & 0x3FF)
        value = 31 * value + unit
    return value


cdef uint32_t next_character(const uint8_t** at, const uint8_t* end) noexcept nogil:
    """Decode one character that is not ASCII, as Python's decoder with `replace` does."""
    cdef const uint8_t* p = at[0]
    cdef uint32_t first = p[0], value
    cdef uint8_t low = 0x80, high = 0xBF
    cdef int i, more
    p += 1
    if first < 0xC2 or first > 0xF4:
        at[0] = p
        return 0xFFFD
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    value = first & (0x3F >> more)
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    for i in range(more):
        if p == end or p[0] < low or p[0] > high:
            value = 0xFFFD  # all that could have begun a character is one
            break
        value = value << 6 | (p[0] & 0x3F)
        low = 0x80
        high = 0xBF
        p += 1
    at[0] = p
    return value


# --- columns -----------------------------------------------------------------------------------

def dispatch_columns(const uint8_t[::1] buffer not None, const uint8_t[::1] rows not None,
                     tags_codes, traits):
    """Write the tags code (a native i64) and the traits (a byte) of each row; return how many."""
    cdef uint8_t[::1] codes = memoryview(tags_codes).cast("B")
    cdef uint8_t[::1] bits = memoryview(traits).cast("B")
    cdef int64_t length = buffer.shape[0], i
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const Row* table = <const Row*>&rows[0] if rows.shape[0] else NULL
    cdef uint8_t* code_out = &codes[0] if codes.shape[0] else NULL
    cdef uint8_t* bits_out = &bits[0] if bits.shape[0] else NULL
    cdef int64_t count = min(rows.shape[0] // <int64_t>sizeof(Row), codes.shape[0] // 8)
    cdef int64_t code
    count = min(count, bits.shape[0])
    with nogil:
        for i in range(count):
            bits_out[i] = column_of(data, length, table + i, &code)
            memcpy(code_out + 8 * i, &code, 8)
    return count


cdef inline uint8_t column_of(const uint8_t* data, int64_t length, const Row* row,
                              int64_t* code) noexcept nogil:
    cdef Bytes rest = part_of(data, length, row.properties_position, row.properties_size)
    cdef Bytes name, value, tags
    cdef uint8_t found = 0
    tags.size = 0
    if row.sys_flag & INNER_BATCH:
        found = IS_SPECIAL
    if not row.sys_flag & PREPARED_BIT:
        found |= ENTERS_QUEUE
    if row.sys_flag & TRANSACTION_MASK != ROLLBACK:
        found |= IS_INDEXED
    while next_property(&rest, &name, &value):
        if name.size == 4:
            if RL_IS(name.data, name.size, RL_TAGS):
                tags = value
        elif is_special(name.data, name.size):
            found |= IS_SPECIAL
    code[0] = <int32_t>hash_bytes(0, tags.data, tags.size) if tags.size else 0
    return found


cdef struct Keys:
    int32_t* hashes  # room for hashes, then as many rows
    int64_t count
    int64_t room


cdef bint grow(Keys* keys) noexcept nogil:
    """Have room for twice as many, or for a first few; False if there is no memory."""
    cdef int64_t room = 2 * keys.room if keys.room else 64
    cdef int32_t* hashes = <int32_t*>realloc(keys.hashes, 8 * room)
    if hashes == NULL:
        return False
    memcpy(hashes + room, hashes + keys.room, 4 * keys.count)
    keys.hashes = hashes
    keys.room = room
    return True


cdef inline bint add_key(Keys* keys, uint32_t before, const uint8_t* data, int64_t size,
                         int32_t row) noexcept nogil:
    """Note the hash of a key; `before` is that of topic and separator. False without memory."""
    cdef int64_t value = <int32_t>hash_bytes(before, data, size)
    if keys.count == keys.room and not grow(keys):
        return False
    if value < 0:
        value = -value
    keys.hashes[keys.count] = <int32_t>value if value <= MAX_I32 else 0
    keys.hashes[keys.room + keys.count] = row
    keys.count += 1
    return True


cdef bint add_keys(Keys* keys, const uint8_t* data, int64_t length, const Row* row, int32_t number,
                   uint32_t before, bint with_tags) noexcept nogil:
    """Note the keys of a record: the unique one, the others, the tag. False without memory."""
    cdef Bytes rest = part_of(data, length, row.properties_position, row.properties_size)
    cdef Bytes name, value, unique, others, tags
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef const uint8_t* end
    unique.size = others.size = tags.size = 0
    while next_property(&rest, &name, &value):
        if name.size == 4:
            if RL_IS(name.data, name.size, RL_KEYS):
                others = value
            elif RL_IS(name.data, name.size, RL_TAGS):
                tags = value
        elif RL_IS(name.data, name.size, RL_UNIQUE_KEY):
            unique = value
    if unique.size and not add_key(keys, before, unique.data, unique.size, number):
        return False
    p = others.data
    end = p + others.size
    while others.size and p < end:
        stop = <const uint8_t*>memchr(p, 32, end - p)
        if stop == NULL:
            stop = end
        if stop > p and not add_key(keys, before, p, stop - p, number):
            return False
        p = stop + 1
    if with_tags and tags.size:
        before = 31 * (31 * before + 84) + 35  # TAG_KEY_PREFIX: T#
        return add_key(keys, before, tags.data, tags.size, ~number)
    return True


def key_entries(const uint8_t[::1] buffer not None, const uint8_t[::1] rows not None, *,
                bint with_tags=False):
    """Return the hash and the row of every key, native i32 each, in the order of the index."""
    cdef int64_t length = buffer.shape[0], i
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const Row* table = <const Row*>&rows[0] if rows.shape[0] else NULL
    cdef int64_t count = rows.shape[0] // <int64_t>sizeof(Row)
    cdef Bytes topic, last
    cdef uint32_t before = 35  # the hash of an empty topic and a separator
    cdef bint has_memory = True
    cdef Keys keys
    keys.hashes = NULL
    keys.count = keys.room = 0
    last.data = NULL
    last.size = 0
    try:
        with nogil:
            for i in range(count):
                if table[i].sys_flag & TRANSACTION_MASK == ROLLBACK:
                    continue
                topic = part_of(data, length, table[i].topic_position, table[i].topic_size)
                # Runs of one topic are the common case: it is hashed once.
                if topic.size != last.size or memcmp(topic.data, last.data, topic.size) != 0:
                    before = 31 * hash_bytes(0, topic.data, topic.size) + 35
                    last = topic
                has_memory = add_keys(
                    &keys, data, length, table + i, <int32_t>i, before, with_tags
                )
                if not has_memory:
                    break
        if not has_memory:
            raise MemoryError
        return (PyByteArray_FromStringAndSize(<char*>keys.hashes, 4 * keys.count),
                PyByteArray_FromStringAndSize(<char*>(keys.hashes + keys.room), 4 * keys.count))
    finally:
        free(keys.hashes)
