# Messages -> sealed records, straight into a file's memory; included by native.pyx, the twin of
# pure/appending.py.

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

cdef enum:
    SCRATCH_SIZE = 512


cdef class RecordFrame:
    """What the records of one topic and queue share; made before the append lock is taken."""

    cdef Shape shape
    cdef int32_t queue_id
    cdef int32_t reconsume_times
    cdef int64_t prepared
    cdef int64_t body_max
    cdef int64_t record_max
    cdef int64_t batch_max
    cdef str topic_text
    cdef bint trailing
    cdef bint reserve_crc
    cdef bint is_guarded
    cdef bytes topic
    cdef bytes born_host
    cdef readonly bytes store_host

    def __init__(self, bytes topic not None, queue_id, sys_flag, bytes born_host not None,
                 bytes store_host not None, reconsume_times, prepared, version, bint trailing,
                 bint reserve_crc, body_max, record_max, batch_max, bint is_guarded):
        shape_of(topic, born_host, store_host, version, &self.shape)
        self.queue_id = to_i32(queue_id)
        to_i32(sys_flag)
        self.shape.sys_flag = flags_of(&self.shape, sys_flag)
        self.reconsume_times = to_i32(reconsume_times)
        self.prepared = to_i64(prepared)
        self.trailing = trailing
        self.reserve_crc = reserve_crc
        self.body_max = to_i64(body_max)
        self.record_max = to_i64(record_max)
        self.batch_max = to_i64(batch_max)
        self.topic_text = topic.decode("utf-8", "surrogateescape")
        self.is_guarded = is_guarded
        self.topic = topic
        self.born_host = born_host
        self.store_host = store_host


cdef bint is_plain(object message) except -1:
    """Tell whether a message asks for nothing but to be appended."""
    cdef Py_ssize_t size
    if field_of(message, DELAY_LEVEL) or field_of(message, DELIVER_AT) is not None:
        return False
    if not field_of(message, WAIT):
        return False
    properties = field_of(message, PROPERTIES)
    if properties:
        for name in properties:
            if is_reserved(PyUnicode_AsUTF8AndSize(name, &size), size):
                return False
    return True


cdef int64_t append_one(uint8_t* p, int64_t room, object message, RecordFrame frame,
                        Text* properties, const int64_t* places, int64_t born) except? -1:
    """Write one sealed record if it fits; return its size either way.

    0 if the frame is guarded and the message is not plain or too large.
    """
    cdef int64_t size
    cdef Head head
    cdef uint8_t* start = p
    if _known_type is None:
        learn_type(type(message))
    cdef bytes body = body_of(field_of(message, BODY))
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
    if frame.is_guarded and (body_size > frame.body_max or not is_plain(message)):
        return 0
    properties.size = 0
    write_message_properties(properties, message, frame.trailing)
    if frame.reserve_crc:
        write_crc_room(properties)
    if frame.is_guarded and properties.size > MAX_I16:
        return 0
    size = record_size(&frame.shape, PyBytes_GET_SIZE(frame.topic), body_size, properties.size)
    head.flag = to_i32(field_of(message, FLAG))
    if frame.is_guarded and size > frame.record_max:
        return 0
    if size > room:
        return size
    head.body_crc = crc_of(<const uint8_t*>PyBytes_AS_STRING(body), body_size)
    head.queue_id = frame.queue_id
    head.born_timestamp = born
    head.reconsume_times = frame.reconsume_times
    head.prepared = frame.prepared
    head.born_host = PyBytes_AS_STRING(frame.born_host)
    head.store_host = PyBytes_AS_STRING(frame.store_host)
    p = write_head(p, &frame.shape, size, &head)
    p = write_body_topic(p, &frame.shape, PyBytes_AS_STRING(body), body_size,
                         PyBytes_AS_STRING(frame.topic), PyBytes_GET_SIZE(frame.topic),
                         properties.size)
    memcpy(p, properties.data, properties.size)
    seal_record(start, size, &frame.shape, places, frame.reserve_crc)
    return size


cdef void seal_record(uint8_t* start, int64_t size, const Shape* shape, const int64_t* places,
                      bint with_crc) noexcept nogil:
    """Write what only the append knows: queue offset, physical offset, store time."""
    rl_store64(start + RECORD_QUEUE_OFFSET_AT, places[0])
    rl_store64(start + RECORD_PHYSICAL_OFFSET_AT, places[1])
    rl_store64(start + RECORD_BORN_HOST_AT + shape.born_size, places[2])
    if with_crc:
        write_record_crc(start, size)


cdef int64_t position_in(Py_buffer* view, object at_) except -1:
    cdef int64_t at = to_i64(at_)
    if at < 0 or at > view.len:
        raise ValueError(f"position {at} lies outside the buffer")
    return at


def append(buffer, at_, message, RecordFrame frame not None, born_timestamp, queue_offset,
           physical_offset, store_timestamp):
    """Write a sealed record at a position; return its size, negative if it does not fit."""
    cdef int64_t at, size, room, born
    cdef int64_t places[3]
    cdef Text properties
    cdef uint8_t scratch[SCRATCH_SIZE]
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    text_start(&properties)
    properties.data = scratch
    properties.room = SCRATCH_SIZE
    properties.is_lent = True
    try:
        at = position_in(&view, at_)
        born = to_i64(born_timestamp)
        places[0] = to_i64(queue_offset)
        places[1] = to_i64(physical_offset)
        places[2] = to_i64(store_timestamp)
        room = view.len - at - BLANK_HEADER_SIZE
        size = append_one(<uint8_t*>view.buf + at, room, message, frame, &properties, places,
                          born)
        return size if size <= room or size == 0 else -size
    finally:
        text_free(&properties)
        PyBuffer_Release(&view)


def append_batch(buffer, at_, messages, RecordFrame frame not None, born_timestamp,
                 queue_offset, physical_offset, store_timestamp):
    """Write sealed records behind each other; return their sizes, or their sum negative."""
    cdef int64_t at, size, room, born, head, total = 0
    cdef int64_t places[3]
    cdef Text properties
    cdef uint8_t scratch[SCRATCH_SIZE]
    cdef Py_buffer view
    cdef uint8_t* p
    cdef list sizes = []
    cdef bint is_kept = False
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    text_start(&properties)
    properties.data = scratch
    properties.room = SCRATCH_SIZE
    properties.is_lent = True
    try:
        at = position_in(&view, at_)
        born = to_i64(born_timestamp)
        places[0] = to_i64(queue_offset)
        places[1] = to_i64(physical_offset)
        places[2] = to_i64(store_timestamp)
        room = view.len - at - BLANK_HEADER_SIZE
        p = <uint8_t*>view.buf + at
        head = 0
        for message in messages:
            if frame.is_guarded:
                topic = field_of(message, TOPIC)
                if topic is not frame.topic_text and topic != frame.topic_text:
                    return 0
            size = append_one(p + min(total, max(room, 0)), room - total, message, frame,
                              &properties, places, born)
            if size == 0:
                return 0
            if frame.is_guarded and total + size > frame.batch_max:
                total += size  # it was written, and goes with the others
                return 0
            if total == 0 and size <= room:
                # The first record gets its head last: until then no reader takes what is behind
                # it for records.
                memcpy(&head, p, 8)
                memset(p, 0, 8)
            total += size
            places[0] = rl_add64(places[0], 1)
            places[1] = rl_add64(places[1], size)
            sizes.append(size)
        is_kept = total <= room
        if is_kept and total:
            memcpy(p, &head, 8)
        return sizes if is_kept else -total
    finally:
        if not is_kept and total > 0 and room > 0:
            memset(<uint8_t*>view.buf + at, 0, min(total, room))
        text_free(&properties)
        PyBuffer_Release(&view)
