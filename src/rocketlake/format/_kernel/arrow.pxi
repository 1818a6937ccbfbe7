# Rows -> the buffers of Arrow columns; included by native.pyx, the twin of pure/arrow.py.
#
# 1. Before each row every buffer has room for the most that the row can need. One that has not
#    is made larger, to what all rows will need if they go on like those before: memory that is
#    only claimed costs time too, when it is given back.
# 2. The loop goes over the rows once, and over each property string once. No object is made for
#    a row, but for property strings with a name twice or very many names.

cdef enum:
    COL_TOPIC = 1
    COL_MSG_ID = 2
    COL_UNIQUE_KEY = 4
    COL_KEYS = 8
    COL_TAGS = 16
    COL_BODY = 32
    COL_PROPERTIES = 64
    COL_BORN_HOST = 128
    COL_STORE_HOST = 256
    COL_ALL = 511
    COL_FROM_PROPERTIES = 4 | 8 | 16 | 64
    COL_FROM_HOSTS = 2 | 128 | 256
    ROWS_MAX = 1 << 24
    GROWTH_MAX = 3
    HOST_TEXT_MAX = 56
    NAMES_MAX = 64  # more are not compared one by one
    FIRST_ROOM = 4096

cdef extern from "Python.h":
    PyObject* RL_NEW_BYTES "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size)
    char* RL_BYTES_DATA "PyBytes_AS_STRING"(PyObject* data)
    int RL_RESIZE "_PyBytes_Resize"(PyObject** data, Py_ssize_t size) except -1
    void Py_XDECREF(PyObject* value)

cdef struct Arena:
    PyObject* owner  # bytes that no other code has seen
    uint8_t* data
    int64_t room
    int64_t most  # room that does for all rows, whatever they hold

cdef struct Texts:
    Arena ends  # where each value ends, the first one a zero
    Arena arena
    int32_t* offsets
    uint8_t* data
    int64_t count
    int64_t size

cdef struct Bits:
    Arena arena
    bint is_missing  # at least one is

cdef struct HostText:
    int raw_size
    uint8_t raw[20]
    int size
    uint8_t text[HOST_TEXT_MAX]
    uint8_t hex[40]

cdef struct Columns:
    int wanted
    Texts topic, msg_id, unique_key, key, tags, body, name, value, born_host, store_host
    Arena key_lists, property_lists
    Bits has_unique_key, has_tags


def arrow_columns(const uint8_t[::1] buffer not None, const uint8_t[::1] rows not None, wanted):
    """Return the buffers of the wanted columns, lowest bit first."""
    cdef int64_t length = buffer.shape[0], i
    cdef int64_t count = rows.shape[0] // <int64_t>sizeof(Row)
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const Row* table = <const Row*>&rows[0] if rows.shape[0] else NULL
    cdef Columns columns
    memset(&columns, 0, sizeof(Columns))
    columns.wanted = wanted & COL_ALL
    for i in range(count):
        if not row_inside(table + i, length):
            raise ValueError(f"row {i} lies outside the buffer")
    try:
        make_columns(&columns, table, count)
        with nogil:
            fill_columns(&columns, data, table, count)
        return take_columns(&columns, count)
    finally:
        free_columns(&columns)


# --- memory ------------------------------------------------------------------------------------

cdef int make_columns(Columns* out, const Row* table, int64_t count) except -1:
    """Have buffers: those of a known size with that, the others with some room to begin with."""
    cdef int64_t bodies = 0, topics = 0, properties = 0, ids = 0, i
    cdef int wanted = out.wanted
    for i in range(count):
        bodies += table[i].body_size
        topics += table[i].topic_size
        properties += table[i].properties_size
        ids += 56 if table[i].sys_flag & STORE_V6 else 32
    bodies = bodies if wanted & COL_BODY else 0
    topics = topics if wanted & COL_TOPIC else 0
    properties = properties if wanted & COL_FROM_PROPERTIES else 0
    if (count > ROWS_MAX or bodies > MAX_I32 or GROWTH_MAX * topics > MAX_I32
            or GROWTH_MAX * properties > MAX_I32):
        raise ValueError("the rows may hold more than a column of 2 GiB can: take fewer")
    if wanted & COL_TOPIC:
        # Behind the last row there is what it would need if it were no UTF-8.
        make_texts(&out.topic, count, topics + 256, GROWTH_MAX * topics)
    if wanted & COL_MSG_ID:
        make_texts(&out.msg_id, count, ids, ids)
    if wanted & COL_UNIQUE_KEY:
        make_texts(&out.unique_key, count, FIRST_ROOM, GROWTH_MAX * properties)
        make_bits(&out.has_unique_key, count)
    if wanted & COL_KEYS:
        make_arena(&out.key_lists, 4 * (count + 1))
        make_texts(&out.key, count + 128, FIRST_ROOM, GROWTH_MAX * properties)
        out.key.ends.most = 4 * (properties // 2 + count + 1)
    if wanted & COL_TAGS:
        make_texts(&out.tags, count, FIRST_ROOM, GROWTH_MAX * properties)
        make_bits(&out.has_tags, count)
    if wanted & COL_BODY:
        make_texts(&out.body, count, bodies, bodies)
    if wanted & COL_PROPERTIES:
        make_arena(&out.property_lists, 4 * (count + 1))
        make_texts(&out.name, count, FIRST_ROOM, GROWTH_MAX * properties)
        make_texts(&out.value, count, FIRST_ROOM, GROWTH_MAX * properties)
        out.name.ends.most = out.value.ends.most = 4 * (properties // 4 + count + 1)
    if wanted & COL_BORN_HOST:
        make_texts(&out.born_host, count, FIRST_ROOM, HOST_TEXT_MAX * count)
    if wanted & COL_STORE_HOST:
        make_texts(&out.store_host, count, FIRST_ROOM, HOST_TEXT_MAX * count)
    return 0


cdef int make_arena(Arena* arena, int64_t size) except -1:
    # One more: bytes of no size are shared by all.
    arena.owner = RL_NEW_BYTES(NULL, size + 1)
    if arena.owner == NULL:
        raise MemoryError
    arena.data = <uint8_t*>RL_BYTES_DATA(arena.owner)
    arena.room = arena.most = size
    return 0


cdef int make_texts(Texts* texts, int64_t count, int64_t size, int64_t most) except -1:
    """Have room for so many values and bytes; the bytes will never be more than `most`."""
    make_arena(&texts.ends, 4 * (count + 1))
    make_arena(&texts.arena, size)
    texts.arena.most = most
    texts.offsets = <int32_t*>texts.ends.data
    texts.offsets[0] = 0
    texts.data = texts.arena.data
    return 0


cdef int make_bits(Bits* bits, int64_t count) except -1:
    make_arena(&bits.arena, (count + 7) // 8)
    memset(bits.arena.data, 0, (count + 7) // 8)
    return 0


cdef inline int have_room(Texts* texts, int64_t values, int64_t size, int64_t row,
                          int64_t count) except -1 nogil:
    """Have room for so many more values and bytes; the row is the next one of so many."""
    if texts.arena.room - texts.size < size:
        grow_arena(&texts.arena, texts.size, size, row, count)
        texts.data = texts.arena.data
    if texts.ends.room - 4 * (texts.count + 1) < 4 * values:
        grow_arena(&texts.ends, 4 * (texts.count + 1), 4 * values, row, count)
        texts.offsets = <int32_t*>texts.ends.data
    return 0


cdef int grow_arena(Arena* arena, int64_t used, int64_t more, int64_t row,
                    int64_t count) except -1 with gil:
    """Make room for more, and for what the rows that are left will need by all appearances."""
    cdef Arena larger
    cdef int64_t likely = <int64_t>(1.1 * used * count / (row + 1))
    likely = min(max(likely, 2 * used), arena.most)
    make_arena(&larger, max(likely, used + more))
    larger.most = arena.most
    memcpy(larger.data, arena.data, used)
    Py_XDECREF(arena.owner)
    arena[0] = larger
    return 0


cdef bytes take_arena(Arena* arena, int64_t size):
    """Cut the bytes to their size and hand them over."""
    cdef PyObject* owner = arena.owner
    arena.owner = NULL  # what fails to be cut is gone
    RL_RESIZE(&owner, size)
    taken = <object>owner
    Py_XDECREF(owner)
    return taken


cdef tuple take_texts(Texts* texts):
    return (take_arena(&texts.ends, 4 * (texts.count + 1)),
            take_arena(&texts.arena, texts.size))


cdef bytes take_bits(Bits* bits, int64_t count):
    return take_arena(&bits.arena, (count + 7) // 8 if bits.is_missing else 0)


cdef list take_columns(Columns* out, int64_t count):
    cdef list found = []
    cdef int wanted = out.wanted
    if wanted & COL_TOPIC:
        found.append((b"", *take_texts(&out.topic)))
    if wanted & COL_MSG_ID:
        found.append((b"", *take_texts(&out.msg_id)))
    if wanted & COL_UNIQUE_KEY:
        found.append((take_bits(&out.has_unique_key, count), *take_texts(&out.unique_key)))
    if wanted & COL_KEYS:
        found.append((take_arena(&out.key_lists, 4 * (count + 1)), *take_texts(&out.key)))
    if wanted & COL_TAGS:
        found.append((take_bits(&out.has_tags, count), *take_texts(&out.tags)))
    if wanted & COL_BODY:
        found.append((b"", *take_texts(&out.body)))
    if wanted & COL_PROPERTIES:
        found.append((take_arena(&out.property_lists, 4 * (count + 1)),
                      *take_texts(&out.name), *take_texts(&out.value)))
    if wanted & COL_BORN_HOST:
        found.append((b"", *take_texts(&out.born_host)))
    if wanted & COL_STORE_HOST:
        found.append((b"", *take_texts(&out.store_host)))
    return found


cdef void free_texts(Texts* texts) noexcept:
    Py_XDECREF(texts.ends.owner)
    Py_XDECREF(texts.arena.owner)


cdef void free_columns(Columns* out) noexcept:
    """Give back what was not handed over."""
    free_texts(&out.topic)
    free_texts(&out.msg_id)
    free_texts(&out.unique_key)
    free_texts(&out.key)
    free_texts(&out.tags)
    free_texts(&out.body)
    free_texts(&out.name)
    free_texts(&out.value)
    free_texts(&out.born_host)
    free_texts(&out.store_host)
    Py_XDECREF(out.key_lists.owner)
    Py_XDECREF(out.property_lists.owner)
    Py_XDECREF(out.has_unique_key.arena.owner)
    Py_XDECREF(out.has_tags.arena.owner)


# --- the loop ----------------------------------------------------------------------------------

cdef int fill_columns(Columns* out, const uint8_t* data, const Row* table,
                      int64_t count) except -1 nogil:
    cdef HostText born, store
    cdef const Row* row
    cdef int wanted = out.wanted
    cdef int64_t i
    born.raw_size = store.raw_size = 0
    if wanted & COL_KEYS:
        (<int32_t*>out.key_lists.data)[0] = 0
    if wanted & COL_PROPERTIES:
        (<int32_t*>out.property_lists.data)[0] = 0
    for i in range(count):
        row = table + i
        if wanted & COL_TOPIC:
            have_room(&out.topic, 1, GROWTH_MAX * <int64_t>row.topic_size, i, count)
            add_text(&out.topic, data + row.topic_position, row.topic_size)
        if wanted & COL_BODY:
            add_bytes(&out.body, data + row.body_position, row.body_size)
        if wanted & COL_FROM_HOSTS:
            have_host_room(out, i, count)
            add_hosts(out, data + row.position + RECORD_BORN_HOST_AT, row, &born, &store)
        if wanted & COL_FROM_PROPERTIES:
            have_property_room(out, row.properties_size, i, count)
            add_properties(out, data + row.properties_position, row.properties_size, i)
    return 0


cdef inline int have_host_room(Columns* out, int64_t row, int64_t count) except -1 nogil:
    if out.wanted & COL_BORN_HOST:
        have_room(&out.born_host, 1, HOST_TEXT_MAX, row, count)
    if out.wanted & COL_STORE_HOST:
        have_room(&out.store_host, 1, HOST_TEXT_MAX, row, count)
    return 0


cdef inline int have_property_room(Columns* out, int64_t size, int64_t row,
                                   int64_t count) except -1 nogil:
    cdef int64_t most = GROWTH_MAX * size
    if out.wanted & COL_UNIQUE_KEY:
        have_room(&out.unique_key, 1, most, row, count)
    if out.wanted & COL_TAGS:
        have_room(&out.tags, 1, most, row, count)
    if out.wanted & COL_KEYS:
        have_room(&out.key, size // 2 + 1, most, row, count)  # a key is a letter and a blank
    if out.wanted & COL_PROPERTIES:
        have_room(&out.name, size // 4 + 1, most, row, count)  # a letter, a letter, two marks
        have_room(&out.value, size // 4 + 1, most, row, count)
    return 0


cdef inline void end_text(Texts* texts, int64_t size) noexcept nogil:
    """End a value; so many bytes of it were written behind the last one."""
    texts.size += size
    texts.count += 1
    texts.offsets[texts.count] = <int32_t>texts.size


cdef inline void add_bytes(Texts* texts, const uint8_t* data, int64_t size) noexcept nogil:
    if size:
        memcpy(texts.data + texts.size, data, size)
    end_text(texts, size)


cdef inline void add_text(Texts* texts, const uint8_t* data, int64_t size) noexcept nogil:
    """Add bytes as UTF-8."""
    if copy_ascii(texts.data + texts.size, data, size):
        end_text(texts, size)
    else:
        end_text(texts, copy_utf8(texts.data + texts.size, data, size))


cdef inline bint copy_ascii(uint8_t* to, const uint8_t* p, int64_t size) noexcept nogil:
    """Copy bytes; False, and anything may have been written, if one is not ASCII."""
    cdef uint64_t eight, seen = 0
    cdef uint32_t four
    cdef int64_t i = 0
    if size >= 8:
        while i < size - 8:
            memcpy(&eight, p + i, 8)
            memcpy(to + i, &eight, 8)
            seen |= eight
            i += 8
        # The last eight, some of them for the second time.
        memcpy(&eight, p + size - 8, 8)
        memcpy(to + size - 8, &eight, 8)
        return not (seen | eight) & 0x8080808080808080ULL
    if size >= 4:
        memcpy(&four, p, 4)
        memcpy(to, &four, 4)
        seen = four
        memcpy(&four, p + size - 4, 4)
        memcpy(to + size - 4, &four, 4)
        return not (seen | four) & 0x80808080ULL
    while i < size:
        to[i] = p[i]
        seen |= p[i]
        i += 1
    return not seen & 0x80


cdef int64_t copy_utf8(uint8_t* to, const uint8_t* p, int64_t size) noexcept nogil:
    """Write bytes as UTF-8, U+FFFD for what is none; return how many were written."""
    cdef const uint8_t* end = p + size
    cdef uint8_t* begin = to
    cdef uint32_t c
    while p < end:
        if p[0] < 0x80:
            to[0] = p[0]
            to += 1
            p += 1
            continue
        c = next_character(&p, end)
        if c < 0x800:
            to[0] = <uint8_t>(0xC0 | c >> 6)
            to += 1
        else:
            if c < 0x10000:
                to[0] = <uint8_t>(0xE0 | c >> 12)
                to += 1
            else:
                to[0] = <uint8_t>(0xF0 | c >> 18)
                to[1] = <uint8_t>(0x80 | (c >> 12 & 0x3F))
                to += 2
            to[0] = <uint8_t>(0x80 | (c >> 6 & 0x3F))
            to += 1
        to[0] = <uint8_t>(0x80 | (c & 0x3F))
        to += 1
    return to - begin


# --- hosts and ids -----------------------------------------------------------------------------

cdef inline void add_hosts(Columns* out, const uint8_t* host, const Row* row, HostText* born,
                           HostText* store) noexcept nogil:
    """Add what is made of the two hosts; those of the record before are usually the same."""
    cdef int born_size = born_size_of(row.sys_flag)
    cdef int store_size = store_size_of(row.sys_flag)
    cdef uint8_t* to
    if out.wanted & COL_BORN_HOST:
        if born.raw_size != born_size or memcmp(born.raw, host, born_size) != 0:
            spell_host(born, host, born_size)
        add_bytes(&out.born_host, born.text, born.size)
    if not out.wanted & (COL_STORE_HOST | COL_MSG_ID):
        return
    host += born_size + 8
    if store.raw_size != store_size or memcmp(store.raw, host, store_size) != 0:
        spell_host(store, host, store_size)
    if out.wanted & COL_STORE_HOST:
        add_bytes(&out.store_host, store.text, store.size)
    if out.wanted & COL_MSG_ID:
        to = out.msg_id.data + out.msg_id.size
        memcpy(to, store.hex, 2 * store_size)
        spell_number(to + 2 * store_size, row.physical_offset)
        end_text(&out.msg_id, 2 * store_size + 16)


cdef inline void spell_hex(uint8_t* to, const uint8_t* data, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[2 * i] = HEX_UPPER[data[i] >> 4]
        to[2 * i + 1] = HEX_UPPER[data[i] & 15]


cdef inline void spell_number(uint8_t* to, int64_t value) noexcept nogil:
    cdef uint8_t bytes_[8]
    rl_store64(bytes_, value)
    spell_hex(to, bytes_, 8)


cdef void spell_host(HostText* out, const uint8_t* host, int size) noexcept nogil:
    """Spell address and port; IPv6 in eight groups, none left out."""
    cdef uint8_t* p = out.text
    cdef int i, value, shift
    out.raw_size = size
    memcpy(out.raw, host, size)
    spell_hex(out.hex, host, size)
    if size == HOST_V4_SIZE:
        for i in range(4):
            p = spell_decimal(p, host[i])
            p[0] = 46 if i < 3 else 58
            p += 1
    else:
        p[0] = 91
        p += 1
        for i in range(8):
            value = host[2 * i] << 8 | host[2 * i + 1]
            shift = 12
            while shift and not value >> shift:
                shift -= 4
            while shift >= 0:
                p[0] = HEX_LOWER[value >> shift & 15]
                p += 1
                shift -= 4
            p[0] = 58 if i < 7 else 93
            p += 1
        p[0] = 58
        p += 1
    out.size = <int>(spell_decimal(p, rl_load32(host + size - 4)) - out.text)


cdef uint8_t* spell_decimal(uint8_t* to, int64_t value) noexcept nogil:
    """Write a number of 32 bits; return the end of it."""
    cdef uint8_t digits[12]
    cdef int at = 12
    if value < 0:
        to[0] = 45
        to += 1
        value = -value
    while True:
        at -= 1
        digits[at] = <uint8_t>(48 + value % 10)
        value //= 10
        if value == 0:
            break
    memcpy(to, digits + at, 12 - at)
    return to + 12 - at


# --- properties --------------------------------------------------------------------------------

cdef inline int add_properties(Columns* out, const uint8_t* data, int64_t size,
                               int64_t row) except -1 nogil:
    """Add all that is made of a property string."""
    cdef Bytes rest, name, value, tags, keys, unique
    cdef int wanted = out.wanted
    cdef int64_t first = out.name.count
    cdef uint64_t seen = 0
    cdef bint is_plain = wanted & COL_PROPERTIES
    rest.data = data
    rest.size = size
    tags.data = keys.data = unique.data = NULL
    tags.size = keys.size = unique.size = 0
    while next_property(&rest, &name, &value):
        if name.size == 4:
            if RL_IS(name.data, name.size, RL_TAGS):
                tags = value
            elif RL_IS(name.data, name.size, RL_KEYS):
                keys = value
        elif RL_IS(name.data, name.size, RL_UNIQUE_KEY):
            unique = value
        if is_plain:
            add_text(&out.name, name.data, name.size)
            add_text(&out.value, value.data, value.size)
            is_plain = is_new_name(&out.name, first, &seen)
    if wanted & COL_PROPERTIES:
        if not is_plain:
            add_odd_properties(out, data, size, first)
        (<int32_t*>out.property_lists.data)[row + 1] = <int32_t>out.name.count
    if wanted & COL_TAGS:
        add_optional(&out.tags, &out.has_tags, &tags, row)
    if wanted & COL_UNIQUE_KEY:
        add_optional(&out.unique_key, &out.has_unique_key, &unique, row)
    if wanted & COL_KEYS:
        if keys.size:
            add_words(&out.key, keys.data, keys.size)
        (<int32_t*>out.key_lists.data)[row + 1] = <int32_t>out.key.count
    return 0


cdef inline void add_optional(Texts* texts, Bits* has, const Bytes* value,
                              int64_t row) noexcept nogil:
    if value.size:
        add_text(texts, value.data, value.size)
        has.arena.data[row >> 3] |= <uint8_t>(1 << (row & 7))
    else:
        end_text(texts, 0)
        has.is_missing = True


cdef inline void add_words(Texts* texts, const uint8_t* p, int64_t size) noexcept nogil:
    """Cut at blanks, as can be done before decoding; empty ones are left out."""
    cdef const uint8_t* end = p + size
    cdef const uint8_t* stop
    while p < end:
        stop = <const uint8_t*>memchr(p, 32, end - p)
        if stop == NULL:
            stop = end
        if stop > p:
            add_text(texts, p, stop - p)
        p = stop + 1


cdef inline bint is_new_name(const Texts* names, int64_t first, uint64_t* seen) noexcept nogil:
    """Tell whether the last name is none of those before it, as they are written.

    `seen` has a bit for what names begin with, end with and are long: most are told apart by it.
    """
    cdef int64_t last = names.count - 1
    cdef int64_t begin = names.offsets[last], size = names.size - begin, k
    cdef const uint8_t* name = names.data + begin
    cdef uint64_t bit = <uint64_t>1 << ((name[0] + 5 * name[size - 1] + 11 * size) & 63)
    if not seen[0] & bit:
        seen[0] |= bit
        return last - first < NAMES_MAX
    for k in range(first, last):
        begin = names.offsets[k]
        if names.offsets[k + 1] - begin == size and memcmp(names.data + begin, name, size) == 0:
            return False
    return last - first < NAMES_MAX


cdef int add_odd_properties(Columns* out, const uint8_t* data, int64_t size,
                            int64_t first) except -1 with gil:
    """Add the properties of a row anew, by way of a map."""
    cdef Py_ssize_t text_size
    cdef const char* text
    out.name.count = out.value.count = first
    out.name.size = out.name.offsets[first]
    out.value.size = out.value.offsets[first]
    for name, value in decode_properties(PyBytes_FromStringAndSize(<const char*>data, size)).items():
        text = PyUnicode_AsUTF8AndSize(name, &text_size)
        add_bytes(&out.name, <const uint8_t*>text, text_size)
        text = PyUnicode_AsUTF8AndSize(value, &text_size)
        add_bytes(&out.value, <const uint8_t*>text, text_size)
    return 0
