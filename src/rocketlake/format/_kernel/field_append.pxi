# Fields of a send request -> a sealed record, straight into a file's memory; included by
# native.pyx, the twin of pure/field_append.py.

cdef enum:
    PLAIN_FLAGS = 0x0733  # compressed, several tags, hosts of IPv6, kind of the compression


cdef class PropertyEdits:
    """What a server changes in the properties of every message: what it sets, what it drops."""

    cdef readonly bytes suffix
    cdef readonly object names
    cdef list _names
    cdef uint64_t _sizes  # a bit for each size that a name has; the last for all larger ones

    def __init__(self, added, dropped):
        self.suffix = encode_properties(added, True)
        self.names = frozenset([name.encode() for name in (*added, *dropped)])
        self._names = list(self.names)
        self._sizes = 0
        for name in self._names:
            self._sizes |= <uint64_t>1 << min(len(name), 63)


cdef bint is_edited(PropertyEdits edits, const char* name, Py_ssize_t size):
    cdef bytes each
    if not edits._sizes >> min(size, <Py_ssize_t>63) & 1:
        return False
    for each in edits._names:
        if PyBytes_GET_SIZE(each) == size and memcmp(PyBytes_AS_STRING(each), name, size) == 0:
            return True
    return False


cdef int edit_properties(Text* out, const char* p, Py_ssize_t size, PropertyEdits edits,
                         bint trailing) except -1:
    """Copy a property string with a server's changes; 0 if the store has to look closer."""
    cdef const char* end = p + size
    cdef const char* kept = p  # what stays, up to here, is copied in one piece
    cdef const char* stop
    cdef const char* split
    while p < end:
        stop = <const char*>memchr(p, PROPERTY_END, end - p)
        if stop == NULL:
            stop = end
        split = <const char*>memchr(p, PROPERTY_NAME_END, stop - p)
        if split == NULL or split == p or split + 1 >= stop:
            return 0
        if memchr(split + 1, PROPERTY_NAME_END, stop - split - 1) != NULL:
            return 0
        if RL_IS(p, split - p, RL_WAIT):
            if stop - split != 5 or memcmp(split + 1, b"true", 4) != 0:
                return 0
        elif is_reserved(p, split - p):
            return 0
        if is_edited(edits, p, split - p):
            text_add(out, kept, p - kept)
            kept = min(stop + 1, end)
        p = stop + 1
    text_add(out, kept, end - kept)
    if size and (end - 1)[0] != PROPERTY_END and kept < end:
        text_add(out, b"\x02", 1)
    text_add(out, PyBytes_AS_STRING(edits.suffix), PyBytes_GET_SIZE(edits.suffix))
    if out.size and not trailing:
        out.size -= 1
    return 1


cdef enum:
    SENT_BODY, SENT_PROPERTIES, SENT_BORN_HOST, SENT_BORN, SENT_FLAG, SENT_SYS_FLAG
    SENT_RECONSUME, SENT_COUNT

cdef tuple _SENT_NAMES = (
    "body", "properties", "born_host", "born_timestamp", "flag", "sys_flag", "reconsume_times")
cdef object _sent_type = None
cdef Py_ssize_t _sent_at[SENT_COUNT]


cdef bint learn_sent_type(object kind) except -1:
    """Remember where a type keeps its fields, if it keeps all of them in slots of its own."""
    global _sent_type
    if not find_slots(kind, _SENT_NAMES, _sent_at):
        return False
    _sent_type = kind
    return True


cdef inline object sent_of(object fields, int which):
    """Return a field of a request."""
    cdef PyObject* value
    if type(fields) is _sent_type:
        value = (<PyObject**>((<char*><void*>fields) + _sent_at[which]))[0]
        if value != NULL:
            return <object>value
    return getattr(fields, <str>_SENT_NAMES[which])


cdef struct Fields:
    Head head  # flag, reconsume times, born timestamp and host of the request
    int64_t born_size
    const char* body
    int64_t body_size
    int32_t sys_flag


cdef int64_t append_parts(uint8_t* start, int64_t room, RecordFrame frame, PropertyEdits edits,
                          Fields* fields, object properties, Text* text,
                          const int64_t* places) except? -1:
    """Write one sealed record if it fits; return its size either way, 0 for what is not plain."""
    cdef Shape shape = frame.shape
    cdef const char* raw
    cdef Py_ssize_t raw_size
    cdef int64_t size
    cdef uint8_t* p
    cdef const uint8_t* body
    if fields.sys_flag & ~PLAIN_FLAGS:
        return 0
    if type(properties) is str:
        raw = PyUnicode_AsUTF8AndSize(properties, &raw_size)
    elif type(properties) is bytes:
        raw = PyBytes_AS_STRING(properties)
        raw_size = PyBytes_GET_SIZE(properties)
    else:
        return 0
    if fields.body_size > frame.body_max:
        return 0
    if not edit_properties(text, raw, raw_size, edits, frame.trailing):
        return 0
    if frame.reserve_crc:
        write_crc_room(text)
    if text.size > MAX_I16:
        return 0
    if fields.born_size != HOST_V4_SIZE and fields.born_size != HOST_V6_SIZE:
        raise ValueError(f"a host has 8 or 20 bytes, not {fields.born_size}")
    shape.born_size = fields.born_size
    shape.sys_flag = fields.sys_flag & ~(BORN_V6 | STORE_V6)
    if shape.born_size == HOST_V6_SIZE:
        shape.sys_flag |= BORN_V6
    if shape.store_size == HOST_V6_SIZE:
        shape.sys_flag |= STORE_V6
    size = record_size(&shape, PyBytes_GET_SIZE(frame.topic), fields.body_size, text.size)
    if size > frame.record_max:
        return 0
    if size > room:
        return size
    fields.head.body_crc = 0  # of the copy, below
    fields.head.queue_id = frame.queue_id
    fields.head.prepared = frame.prepared
    fields.head.store_host = PyBytes_AS_STRING(frame.store_host)
    p = write_head(start, &shape, size, &fields.head)
    body = p + 4
    p = write_body_topic(p, &shape, fields.body, fields.body_size,
                         PyBytes_AS_STRING(frame.topic), PyBytes_GET_SIZE(frame.topic),
                         text.size)
    # Why of the copy: another thread may write into a body that is no bytes object meanwhile, and a
    # record with a wrong checksum would end the log at the next start.
    rl_store32(start + RECORD_BODY_CRC_AT, crc_of(body, fields.body_size))
    memcpy(p, text.data, text.size)
    seal_record(start, size, &shape, places, frame.reserve_crc)
    return size


cdef int64_t append_encoded(uint8_t* start, int64_t room, RecordFrame frame, PropertyEdits edits,
                            Fields* fields, object body, object properties,
                            const int64_t* places) except? -1:
    """As `append_parts`, with a body of any type that can be read without running code."""
    cdef Text text
    cdef uint8_t scratch[SCRATCH_SIZE]
    cdef Py_buffer view
    cdef bint has_view = False
    if type(body) is bytes:
        fields.body = PyBytes_AS_STRING(body)
        fields.body_size = PyBytes_GET_SIZE(body)
    elif type(body) is bytearray or type(body) is memoryview:
        if type(body) is memoryview and not body.c_contiguous:
            body = bytes(body)
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        has_view = True
        fields.body = <const char*>view.buf
        fields.body_size = view.len
    else:
        return 0
    text_start(&text)
    text.data = scratch
    text.room = SCRATCH_SIZE
    text.is_lent = True
    try:
        return append_parts(start, room, frame, edits, fields, properties, &text, places)
    finally:
        text_free(&text)
        if has_view:
            PyBuffer_Release(&view)


cdef int read_fields(Fields* fields, object sent, bytes born_host) except -1:
    fields.head.flag = to_i32(sent_of(sent, SENT_FLAG))
    fields.sys_flag = to_i32(sent_of(sent, SENT_SYS_FLAG))
    fields.head.born_timestamp = to_i64(sent_of(sent, SENT_BORN))
    fields.head.reconsume_times = to_i32(sent_of(sent, SENT_RECONSUME))
    fields.head.born_host = PyBytes_AS_STRING(born_host)
    fields.born_size = PyBytes_GET_SIZE(born_host)
    return 0


def append_fields(buffer, at_, fields, RecordFrame frame not None, PropertyEdits edits not None,
                  queue_offset, physical_offset, store_timestamp):
    """Write a sealed record at a position; return its size, negative if it does not fit."""
    cdef int64_t at, size, room
    cdef int64_t places[3]
    cdef Fields numbers
    cdef Py_buffer view
    cdef bytes born_host
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        at = position_in(&view, at_)
        places[0] = to_i64(queue_offset)
        places[1] = to_i64(physical_offset)
        places[2] = to_i64(store_timestamp)
        born_host = sent_of(fields, SENT_BORN_HOST)
        read_fields(&numbers, fields, born_host)
        room = view.len - at - BLANK_HEADER_SIZE
        size = append_encoded(<uint8_t*>view.buf + at, room, frame, edits, &numbers,
                              sent_of(fields, SENT_BODY), sent_of(fields, SENT_PROPERTIES), places)
        return size if size <= room or size == 0 else -size
    finally:
        PyBuffer_Release(&view)
