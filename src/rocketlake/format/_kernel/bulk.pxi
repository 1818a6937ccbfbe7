# Rows -> staged records -> sealed records; included by native.pyx, the twin of pure/bulk.py.

cdef enum:
    BULK_DONE = 0
    BULK_FULL = 1
    BULK_BY_HAND = 2
    BULK_BAD = 3
    TAKES_TURN = -1
    BY_KEY = -2
    CRC_TEXT_SIZE = 20


cdef struct TopicRoute:
    const char* topic
    Py_ssize_t topic_size
    Shape shape


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
    cdef const uint8_t* text_data = &text_view[0] if text_end else NULL
    cdef int64_t born, total = 0, size
    cdef int32_t route
    cdef TopicRoute* known = NULL
    cdef uint8_t* p
    cdef list names = list(topics)
    cdef int64_t names_count = len(names)
    cdef const char* born_bytes = PyBytes_AS_STRING(born_host)
    cdef const char* store_bytes = PyBytes_AS_STRING(store_host)
    if body_places.shape[0] != count + 1 or text_places.shape[0] != count + 1:
        raise ValueError("places are one more than rows")
    if len(versions) != len(names):
        raise ValueError("each topic has a version")
    if rows.shape[1] < 4:
        raise IndexError("rows have four columns")
    born = to_i64(born_timestamp)
    known = <TopicRoute*>PyMem_Realloc(NULL, max(names_count, 1) * sizeof(TopicRoute))
    if known == NULL:
        raise MemoryError
    try:
        memset(known, 0, max(names_count, 1) * sizeof(TopicRoute))
        for i in range(count):
            route = rows[i, 0]
            if route < 0 or route >= names_count:
                raise ValueError(f"row {i} is of topic {route}, and there are {len(names)}")
            if not (0 <= body_places[i] <= body_places[i + 1] <= body_end
                    and 0 <= text_places[i] <= text_places[i + 1] <= text_end):
                raise ValueError(f"row {i} lies outside the buffer")
            if known[route].topic == NULL:
                learn_route(&known[route], <bytes?>names[route], born_host, store_host,
                           versions[route])
            size = text_room(text_data, text_places[i], text_places[i + 1], trailing, reserve_crc)
            total += record_size(&known[route].shape, known[route].topic_size,
                                 body_places[i + 1] - body_places[i], size)
        out = PyByteArray_FromStringAndSize(NULL, total)
        p = <uint8_t*>PyByteArray_AS_STRING(out)
        with nogil:
            for i in range(count):
                p = write_staged(
                    p, &known[rows[i, 0]], body_data + body_places[i],
                    body_places[i + 1] - body_places[i], text_data, text_places[i],
                    text_places[i + 1], &rows[i, 0], born, born_bytes, store_bytes, trailing,
                    reserve_crc)
        return out
    finally:
        PyMem_Free(known)


cdef int learn_route(TopicRoute* route, bytes topic, bytes born_host, bytes store_host,
                    object version) except -1:
    shape_of(topic, born_host, store_host, version, &route.shape)
    route.shape.sys_flag = flags_of(&route.shape, 0)
    route.topic_size = PyBytes_GET_SIZE(topic)
    route.topic = PyBytes_AS_STRING(topic)
    return 0


cdef int64_t text_room(const uint8_t* texts, int64_t start, int64_t end, bint trailing,
                       bint reserve_crc) noexcept nogil:
    """Return how many bytes of properties the record of a row has."""
    cdef int64_t size = end - start
    if size and not trailing:
        size -= 1
    if reserve_crc:
        if size and texts[start + size - 1] != 2:
            size += 1
        size += CRC_TEXT_SIZE
    return size


cdef uint8_t* write_staged(uint8_t* p, const TopicRoute* route, const uint8_t* body, int64_t body_size,
                           const uint8_t* texts, int64_t start, int64_t end,
                           const int32_t* row, int64_t born, const char* born_host,
                           const char* store_host, bint trailing,
                           bint reserve_crc) noexcept nogil:
    """Write one staged record; return where the next one goes."""
    cdef int64_t size = text_room(texts, start, end, trailing, reserve_crc)
    cdef int64_t plain = end - start
    cdef int64_t fixed = RECORD_FIXED_SIZE + route.shape.born_size + route.shape.store_size
    cdef uint8_t* begin = p
    if plain and not trailing:
        plain -= 1
    p = write_head(p, &route.shape,
                   fixed + 4 + body_size + route.shape.width + route.topic_size + 2 + size,
                   crc_of(body, body_size), row[1], row[3], born, born_host, store_host, 0, 0)
    p = write_body_topic(p, &route.shape, <const char*>body, body_size, route.topic,
                         route.topic_size, size)
    rl_store64(begin + 20, row[0])
    rl_store64(begin + 28, row[2])
    if plain:
        memcpy(p, texts + start, plain)
    p += plain
    if reserve_crc:
        if size - CRC_TEXT_SIZE > plain:
            p[0] = 2
            p += 1
        memcpy(p, b"__CRC32#\x010000000000\x02", CRC_TEXT_SIZE)
        p += CRC_TEXT_SIZE
    return p


cdef int look_at_staged(const uint8_t* p, int64_t left, const int64_t[:, ::1] routes,
                        bint with_crc, int64_t* size, int64_t* route,
                        int64_t* queue) noexcept nogil:
    """Tell whether a staged record may be appended; find its size, its route and its queue."""
    cdef int32_t magic
    cdef int64_t count, wanted
    if left < 8:
        return BULK_BAD
    size[0] = rl_load32(p)
    magic = rl_load32(p + 4)
    if size[0] < 8 or size[0] > left:
        return BULK_BAD
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return BULK_BY_HAND
    if size[0] < RECORD_MIN_SIZE:
        return BULK_BAD
    route[0] = rl_load64(p + 20)
    if route[0] < 0 or route[0] >= routes.shape[0]:
        return BULK_BAD
    count = routes[route[0], 1]
    if count == 0:
        return BULK_BY_HAND
    wanted = rl_load32(p + 12)
    if wanted == TAKES_TURN:
        wanted = routes[route[0], 2]
    elif wanted == BY_KEY:
        wanted = rl_load32(p + 32)
        if wanted < 0:
            wanted = -wanted
        wanted = wanted % count if count > 0 else -1
    queue[0] = wanted
    if wanted < 0 or wanted >= count:
        return BULK_BAD
    if with_crc and memcmp(p + size[0] - RECORD_CRC_SIZE, b"__CRC32#", 8) != 0:
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
        room = view.len - at - 8
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
                if rl_load32(p + 12) == TAKES_TURN:
                    routes[route, 2] = (queue + 1) % routes[route, 1]
                rl_store32(p + 12, <int32_t>queue)
                rl_store64(p + 20, offsets[first + queue])
                rl_store64(p + 28, rl_add64(place, done))
                rl_store64(p + BORN_HOST_AT + (20 if rl_load32(p + 36) & BORN_V6 else 8), now)
                if with_crc:
                    crc_digits(crc_of(p, size - RECORD_CRC_SIZE), p + size - 11)
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
