# Messages -> sealed records, straight into a file's memory; included by native.pyx, the twin of
# pure/appending.py.

cdef struct Fixed:
    Shape shape
    int32_t queue_id
    int64_t born_timestamp
    int32_t reconsume_times
    int64_t prepared
    const char* born_host
    const char* store_host
    bint trailing
    bint reserve_crc


cdef int fixed_of(tuple envelope, bytes topic, Fixed* fixed) except -1:
    """Read an envelope; the tuple keeps the hosts alive."""
    queue_id, sys_flag, born_timestamp, born_host, store_host, reconsume_times, prepared, \
        version, trailing, reserve_crc = envelope
    shape_of(topic, born_host, store_host, version, &fixed.shape)
    fixed.queue_id = to_i32(queue_id)
    fixed.shape.sys_flag = flags_of(&fixed.shape, sys_flag)
    fixed.born_timestamp = to_i64(born_timestamp)
    fixed.reconsume_times = to_i32(reconsume_times)
    fixed.prepared = to_i64(prepared)
    fixed.born_host = PyBytes_AS_STRING(born_host)
    fixed.store_host = PyBytes_AS_STRING(store_host)
    fixed.trailing = trailing
    fixed.reserve_crc = reserve_crc
    return 0


cdef int64_t append_one(uint8_t* p, int64_t room, object message, bytes topic, Fixed* fixed,
                        Text* properties, const int64_t* places) except -1:
    """Write one sealed record if it fits; return its size either way."""
    cdef int64_t size
    cdef int32_t flag
    cdef uint8_t* start = p
    value = message.body
    cdef bytes body = value if type(value) is bytes else bytes(value)
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
    properties.size = 0
    write_message_properties(properties, message, fixed.trailing)
    if fixed.reserve_crc:
        write_crc_room(properties)
    size = record_size(&fixed.shape, PyBytes_GET_SIZE(topic), body_size, properties.size)
    flag = to_i32(message.flag)
    if size > room:
        return size
    p = write_head(p, &fixed.shape, size,
                   crc_of(<const uint8_t*>PyBytes_AS_STRING(body), body_size), fixed.queue_id,
                   flag, fixed.born_timestamp, fixed.born_host, fixed.store_host,
                   fixed.reconsume_times, fixed.prepared)
    p = write_body_topic(p, &fixed.shape, PyBytes_AS_STRING(body), body_size,
                         PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic), properties.size)
    memcpy(p, properties.data, properties.size)
    rl_store64(start + 20, places[0])
    rl_store64(start + 28, places[1])
    rl_store64(start + BORN_HOST_AT + fixed.shape.born_size, places[2])
    if fixed.reserve_crc:
        crc_digits(crc_of(start, size - RECORD_CRC_SIZE), start + size - 11)
    return size


def append(uint8_t[::1] buffer not None, at_, message, bytes topic not None,
           tuple envelope not None, queue_offset, physical_offset, store_timestamp):
    """Write a sealed record at a position; return its size, negative if it does not fit."""
    cdef int64_t at = to_i64(at_), size
    cdef int64_t places[3]
    cdef Fixed fixed
    cdef Text properties
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"position {at} lies outside the buffer")
    fixed_of(envelope, topic, &fixed)
    places[0] = to_i64(queue_offset)
    places[1] = to_i64(physical_offset)
    places[2] = to_i64(store_timestamp)
    text_start(&properties)
    try:
        size = append_one((&buffer[0] if buffer.shape[0] else NULL) + at,
                          buffer.shape[0] - at - 8, message, topic, &fixed, &properties, places)
    finally:
        PyMem_Free(properties.data)
    return size if size <= buffer.shape[0] - at - 8 else -size


def append_batch(uint8_t[::1] buffer not None, at_, messages, bytes topic not None,
                 tuple envelope not None, queue_offset, physical_offset, store_timestamp):
    """Write sealed records behind each other; return their sizes, or their sum negative."""
    cdef int64_t at = to_i64(at_), size, total = 0, room
    cdef int64_t places[3]
    cdef Fixed fixed
    cdef Text properties
    cdef list sizes = []
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"position {at} lies outside the buffer")
    fixed_of(envelope, topic, &fixed)
    places[0] = to_i64(queue_offset)
    places[1] = to_i64(physical_offset)
    places[2] = to_i64(store_timestamp)
    room = buffer.shape[0] - at - 8
    text_start(&properties)
    try:
        for message in messages:
            size = append_one((&buffer[0] if buffer.shape[0] else NULL) + at + min(total, room),
                              room - total, message, topic, &fixed, &properties, places)
            total += size
            places[0] = rl_add64(places[0], 1)
            places[1] = rl_add64(places[1], size)
            sizes.append(size)
    finally:
        PyMem_Free(properties.data)
    return sizes if total <= room else -total
