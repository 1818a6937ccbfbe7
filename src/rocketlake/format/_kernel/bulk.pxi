# Rows -> staged records -> sealed records; included by native.pyx, the twin of pure/bulk.py.

cdef enum:
    BULK_DONE = 0
    BULK_FULL = 1
    BULK_BY_HAND = 2
    BULK_BAD = 3
    TAKES_TURN = -1
    BY_KEY = -2


cdef struct StagedTopic:
    const char* name
    Py_ssize_t name_size
    Shape shape


cdef struct Staging:
    Head head  # what all rows share; the rest of it is set for each
    const uint8_t* texts
    bint trailing
    bint reserve_crc


def encode_rows(bodies, const int64_t[::1] body_places not None, texts,
                const int64_t[::1] text_places not None, const int32_t[:, ::1] rows not None,
                topics, versions, born_timestamp, bytes born_host not None,
                bytes store_host not None, bint trailing, bint reserve_crc):
    """Return staged records for rows."""
    cdef const uint8_t[::1] body_view = memoryview(bodies).cast("B")
    cdef const uint8_t[::1] text_view = memoryview(texts).cast("B")
    cdef int64_t count = rows.shape[0], i
    cdef int64_t body_end = body_view.shape[0], text_end = text_view.shape[0]
    cdef const uint8_t* body_data = &body_view[0] if body_end else NULL
    cdef int64_t total = 0, size
    cdef int32_t number
    cdef Staging staging
    cdef StagedTopic* known = NULL
    cdef uint8_t* p
    cdef list names = list(topics)
    cdef int64_t names_count = len(names)
    if body_places.shape[0] != count + 1 or text_places.shape[0] != count + 1:
        raise ValueError("places are one more than rows")
    if len(versions) != len(names):
        raise ValueError("each topic has a version")
    if rows.shape[1] < 4:
        raise IndexError("rows have four columns")
    staging.head.born_timestamp = to_i64(born_timestamp)
    staging.head.reconsume_times = 0
    staging.head.prepared = 0
    staging.head.born_host = PyBytes_AS_STRING(born_host)
    staging.head.store_host = PyBytes_AS_STRING(store_host)
    staging.texts = &text_view[0] if text_end else NULL
    staging.trailing = trailing
    staging.reserve_crc = reserve_crc
    known = <StagedTopic*>PyMem_Realloc(NULL, max(names_count, 1) * sizeof(StagedTopic))
    if known == NULL:
        raise MemoryError
    try:
        memset(known, 0, max(names_count, 1) * sizeof(StagedTopic))
        for i in range(count):
            number = rows[i, 0]
            if number < 0 or number >= names_count:
                raise ValueError(f"row {i} is of topic {number}, and there are {len(names)}")
            if not (0 <= body_places[i] <= body_places[i + 1] <= body_end
                    and 0 <= text_places[i] <= text_places[i + 1] <= text_end):
                raise ValueError(f"row {i} lies outside the buffer")
            if known[number].name == NULL:
                learn_topic(&known[number], <bytes?>names[number], born_host, store_host,
                            versions[number])
            size = properties_room(&staging, text_places[i], text_places[i + 1])
            total += record_size(&known[number].shape, known[number].name_size,
                                 body_places[i + 1] - body_places[i], size)
        out = PyByteArray_FromStringAndSize(NULL, total)
        p = <uint8_t*>PyByteArray_AS_STRING(out)
        with nogil:
            for i in range(count):
                p = write_staged(
                    p, &staging, &known[rows[i, 0]], &rows[i, 0], body_data + body_places[i],
                    body_places[i + 1] - body_places[i], text_places[i], text_places[i + 1])
        return out
    finally:
        PyMem_Free(known)


cdef int learn_topic(StagedTopic* topic, bytes name, bytes born_host, bytes store_host,
                     object version) except -1:
    shape_of(name, born_host, store_host, version, &topic.shape)
    topic.shape.sys_flag = flags_of(&topic.shape, 0)
    topic.name_size = PyBytes_GET_SIZE(name)
    topic.name = PyBytes_AS_STRING(name)
    return 0


cdef int64_t properties_room(const Staging* staging, int64_t start, int64_t end) noexcept nogil:
    """Return how many bytes of properties the record of a row has."""
    cdef int64_t size = end - start
    if size and not staging.trailing:
        size -= 1
    if staging.reserve_crc:
        if size and staging.texts[start + size - 1] != PROPERTY_END:
            size += 1
        size += RECORD_CRC_SIZE
    return size


cdef uint8_t* write_staged(uint8_t* p, Staging* staging, const StagedTopic* topic,
                           const int32_t* row, const uint8_t* body, int64_t body_size,
                           int64_t start, int64_t end) noexcept nogil:
    """Write one staged record; return where the next one goes."""
    cdef const Shape* shape = &topic.shape
    cdef int64_t size = properties_room(staging, start, end)
    cdef int64_t plain = end - start
    cdef int64_t fixed = RECORD_FIXED_SIZE + shape.born_size + shape.store_size + shape.width + 6
    cdef uint8_t* begin = p
    if plain and not staging.trailing:
        plain -= 1
    staging.head.body_crc = crc_of(body, body_size)
    staging.head.queue_id = row[1]
    staging.head.flag = row[3]
    p = write_head(p, shape, fixed + body_size + topic.name_size + size, &staging.head)
    p = write_body_topic(p, shape, <const char*>body, body_size, topic.name, topic.name_size, size)
    rl_store64(begin + RECORD_QUEUE_OFFSET_AT, row[0])
    rl_store64(begin + RECORD_PHYSICAL_OFFSET_AT, row[2])
    if plain:
        memcpy(p, staging.texts + start, plain)
    p += plain
    if staging.reserve_crc:
        if size - RECORD_CRC_SIZE > plain:
            p[0] = PROPERTY_END
            p += 1
        memcpy(p, RL_RECORD_CRC_ROOM, RECORD_CRC_SIZE)
        p += RECORD_CRC_SIZE
    return p


cdef int look_at_staged(const uint8_t* p, int64_t left, const int64_t[:, ::1] routes,
                        bint with_crc, int64_t* size, int64_t* route,
                        int64_t* queue) noexcept nogil:
    """Tell whether a staged record may be appended; find its size, its route and its queue."""
    cdef int32_t magic
    cdef int64_t count, wanted
    if left < BLANK_HEADER_SIZE:
        return BULK_BAD
    size[0] = rl_load32(p)
    magic = rl_load32(p + RECORD_MAGIC_AT)
    if size[0] < BLANK_HEADER_SIZE or size[0] > left:
        return BULK_BAD
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return BULK_BY_HAND
    if size[0] < RECORD_MIN_SIZE:
        return BULK_BAD
    route[0] = rl_load64(p + RECORD_QUEUE_OFFSET_AT)
    if route[0] < 0 or route[0] >= routes.shape[0]:
        return BULK_BAD
    count = routes[route[0], 1]
    if count == 0:
        return BULK_BY_HAND
    wanted = rl_load32(p + RECORD_QUEUE_ID_AT)
    if wanted == TAKES_TURN:
        wanted = routes[route[0], 2]
    elif wanted == BY_KEY:
        wanted = rl_load32(p + RECORD_PHYSICAL_OFFSET_AT + 4)
        if wanted < 0:
            wanted = -wanted
        wanted = wanted % count if count > 0 else -1
    queue[0] = wanted
    if wanted < 0 or wanted >= count:
        return BULK_BAD
    if with_crc and not RL_BEGINS(
            p + size[0] - RECORD_CRC_SIZE, RECORD_CRC_SIZE, RL_RECORD_CRC):
        return BULK_BAD
    return BULK_DONE


def append_rows(buffer, at_, const uint8_t[::1] records not None, position_,
                int64_t[:, ::1] routes not None, int64_t[::1] offsets not None,
                physical_offset_, store_timestamp_, bint with_crc):
    """Copy staged records into a file's memory and seal them, until something ends it."""
    cdef int64_t at, position = to_i64(position_), place = to_i64(physical_offset_)
    cdef int64_t now, room, count = 0, done = 0, size = 0, route = 0, queue = 0, first
    cdef int64_t head = 0
    cdef int64_t end = records.shape[0], slots = offsets.shape[0]
    cdef const uint8_t* source = &records[0] if end else NULL
    cdef uint8_t* p
    cdef uint8_t* begin
    cdef int stop = BULK_DONE
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        at = position_in(&view, at_)
        if position < 0 or position > end:
            raise ValueError(f"position {position} lies outside the records")
        if routes.shape[1] < 4:
            raise IndexError("routes have four columns")
        now = to_i64(store_timestamp_)
        room = view.len - at - BLANK_HEADER_SIZE
        begin = <uint8_t*>view.buf + at
        with nogil:
            while position < end:
                stop = look_at_staged(source + position, end - position, routes, with_crc, &size,
                                      &route, &queue)
                if stop != BULK_DONE:
                    break
                first = routes[route, 0]
                if first > slots or first + queue < 0 or first + queue >= slots:
                    stop = BULK_BAD
                    break
                if size > room - done:
                    stop = BULK_FULL
                    break
                p = begin + done
                memcpy(p, source + position, size)
                if rl_load32(p + RECORD_QUEUE_ID_AT) == TAKES_TURN:
                    routes[route, 2] = (queue + 1) % routes[route, 1]
                rl_store32(p + RECORD_QUEUE_ID_AT, <int32_t>queue)
                rl_store64(p + RECORD_QUEUE_OFFSET_AT, offsets[first + queue])
                rl_store64(p + RECORD_PHYSICAL_OFFSET_AT, rl_add64(place, done))
                rl_store64(p + store_timestamp_at(rl_load32(p + RECORD_SYS_FLAG_AT)), now)
                if with_crc:
                    write_record_crc(p, size)
                if done == 0:
                    # The first record gets its head last: until then no reader takes what is
                    # behind it for records.
                    memcpy(&head, p, 8)
                    memset(p, 0, 8)
                offsets[first + queue] = rl_add64(offsets[first + queue], 1)
                routes[route, 3] = rl_add64(routes[route, 3], size)
                position += size
                done += size
                count += 1
            if done:
                memcpy(begin, &head, 8)
        return stop, count, position, done
    finally:
        PyBuffer_Release(&view)
