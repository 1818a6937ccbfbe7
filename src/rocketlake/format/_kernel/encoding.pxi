# Values -> records; included by native.pyx, the twin of pure/encoding.py.

cdef struct Shape:
    int32_t sys_flag  # set last: numbers are checked after lengths
    int64_t born_size
    int64_t store_size
    int width
    int32_t magic


cdef int32_t to_i32(object value) except? -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number > MAX_I32 or number < -2147483648LL:
        raise ValueError("a number does not fit into its field of the record")
    return <int32_t>number


cdef int64_t to_i64(object value) except? -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        raise ValueError("a number does not fit into its field of the record")
    return number


cdef int shape_of(bytes topic, bytes born_host, bytes store_host, object version,
                  Shape* shape) except -1:
    cdef Py_ssize_t limit
    for host in (born_host, store_host):
        if len(host) != HOST_V4_SIZE and len(host) != HOST_V6_SIZE:
            raise ValueError(f"a host has 8 or 20 bytes, not {len(host)}")
    shape.born_size = PyBytes_GET_SIZE(born_host)
    shape.store_size = PyBytes_GET_SIZE(store_host)
    if version != 1 and version != 2:
        raise ValueError(f"a record has version 1 or 2, not {version}")
    limit = MAX_I8 if version == 1 else MAX_I16
    if PyBytes_GET_SIZE(topic) > limit:
        raise ValueError(
            f"topic of {PyBytes_GET_SIZE(topic)} bytes; version {version} holds {limit}")
    shape.width = version
    shape.magic = MAGIC_V1 if version == 1 else MAGIC_V2
    return 0


cdef int32_t flags_of(const Shape* shape, object sys_flag) except? -1:
    """Return the system flag with the bits of the hosts."""
    cdef object flags = sys_flag & ~(BORN_V6 | STORE_V6)
    if shape.born_size == HOST_V6_SIZE:
        flags |= BORN_V6
    if shape.store_size == HOST_V6_SIZE:
        flags |= STORE_V6
    return to_i32(flags)


cdef int64_t record_size(const Shape* shape, int64_t topic, int64_t body,
                         int64_t properties) except -1:
    cdef int64_t size
    if properties > MAX_I16:
        raise ValueError(f"properties of {properties} bytes; a record holds 32767")
    if body > MAX_I32 - 131072:
        raise ValueError(f"body of {body} bytes is larger than the format allows")
    size = RECORD_FIXED_SIZE + shape.born_size + shape.store_size
    size += 4 + body + shape.width + topic + 2 + properties
    if size > MAX_I32:
        raise ValueError(f"record of {size} bytes is larger than the format allows")
    return size


cdef struct Head:
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    int64_t prepared
    const char* born_host
    const char* store_host


cdef uint8_t* write_head(uint8_t* p, const Shape* shape, int64_t size,
                         const Head* head) noexcept nogil:
    """Write everything before the body's length; return where it goes."""
    rl_store32(p, <int32_t>size)
    rl_store32(p + RECORD_MAGIC_AT, shape.magic)
    rl_store32(p + RECORD_BODY_CRC_AT, head.body_crc)
    rl_store32(p + RECORD_QUEUE_ID_AT, head.queue_id)
    rl_store32(p + RECORD_FLAG_AT, head.flag)
    memset(p + RECORD_QUEUE_OFFSET_AT, 0, 16)  # both offsets are for the seal
    rl_store32(p + RECORD_SYS_FLAG_AT, shape.sys_flag)
    rl_store64(p + RECORD_BORN_TIMESTAMP_AT, head.born_timestamp)
    p += RECORD_BORN_HOST_AT
    memcpy(p, head.born_host, shape.born_size)
    p += shape.born_size
    memset(p, 0, 8)
    p += 8
    memcpy(p, head.store_host, shape.store_size)
    p += shape.store_size
    rl_store32(p, head.reconsume_times)
    rl_store64(p + 4, head.prepared)
    return p + 12


cdef uint8_t* write_body_topic(uint8_t* p, const Shape* shape, const char* body,
                               int64_t body_size, const char* topic, int64_t topic_size,
                               int64_t properties_size) noexcept nogil:
    """Write body, topic and the length of the properties; return where these go."""
    rl_store32(p, <int32_t>body_size)
    memcpy(p + 4, body, body_size)
    p += 4 + body_size
    if shape.width == 1:
        p[0] = <uint8_t>topic_size
    else:
        rl_store16(p, <int16_t>topic_size)
    p += shape.width
    memcpy(p, topic, topic_size)
    p += topic_size
    rl_store16(p, <int16_t>properties_size)
    return p + 2


def encode(bytes topic not None, body, bytes properties not None, queue_id, flag, sys_flag,
           born_timestamp, bytes born_host not None, bytes store_host not None, reconsume_times,
           prepared_transaction_offset, version, bint reserve_crc):
    """Return a record whose queue offset, physical offset and store time are still zero."""
    cdef Shape shape
    cdef bytes body_bytes = body if type(body) is bytes else bytes(body)
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body_bytes)
    cdef const char* plain = PyBytes_AS_STRING(body_bytes)
    cdef int64_t size
    cdef Head head
    cdef uint8_t* p
    shape_of(topic, born_host, store_host, version, &shape)
    if reserve_crc:
        properties = with_crc_room(properties)
    size = record_size(&shape, PyBytes_GET_SIZE(topic), body_size, PyBytes_GET_SIZE(properties))
    shape.sys_flag = flags_of(&shape, sys_flag)
    head.body_crc = crc_of(<const uint8_t*>plain, body_size)
    head.queue_id = to_i32(queue_id)
    head.flag = to_i32(flag)
    head.born_timestamp = to_i64(born_timestamp)
    head.reconsume_times = to_i32(reconsume_times)
    head.prepared = to_i64(prepared_transaction_offset)
    head.born_host = PyBytes_AS_STRING(born_host)
    head.store_host = PyBytes_AS_STRING(store_host)
    record = PyByteArray_FromStringAndSize(NULL, size)
    p = write_head(<uint8_t*>PyByteArray_AS_STRING(record), &shape, size, &head)
    p = write_body_topic(p, &shape, plain, body_size, PyBytes_AS_STRING(topic),
                         PyBytes_GET_SIZE(topic), PyBytes_GET_SIZE(properties))
    memcpy(p, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
    return record


cdef bytes with_crc_room(bytes properties):
    if properties and not properties.endswith(b"\x02"):
        properties = properties + b"\x02"
    return properties + RL_RECORD_CRC_ROOM[:RECORD_CRC_SIZE]


def encode_batch(messages, bytes topic not None, queue_id, sys_flag, born_timestamp,
                 bytes born_host not None, bytes store_host not None, version, bint trailing,
                 bint reserve_crc):
    """Encode messages of one topic and queue behind each other; return bytes and sizes."""
    cdef Shape shape
    cdef Text out
    cdef Text properties
    cdef list sizes = []
    cdef int64_t size, start
    cdef Head head
    cdef Py_ssize_t body_size
    cdef const char* plain
    cdef uint8_t* p
    cdef bytes body
    shape_of(topic, born_host, store_host, version, &shape)
    head.queue_id = to_i32(queue_id)
    shape.sys_flag = flags_of(&shape, sys_flag)
    head.born_timestamp = to_i64(born_timestamp)
    head.reconsume_times = 0
    head.prepared = 0
    head.born_host = PyBytes_AS_STRING(born_host)
    head.store_host = PyBytes_AS_STRING(store_host)
    text_start(&out)
    text_start(&properties)
    try:
        for message in messages:
            body = body_of(message.body)
            body_size = PyBytes_GET_SIZE(body)
            plain = PyBytes_AS_STRING(body)
            properties.size = 0
            write_message_properties(&properties, message, trailing)
            if reserve_crc:
                write_crc_room(&properties)
            size = record_size(&shape, PyBytes_GET_SIZE(topic), body_size, properties.size)
            start = out.size
            text_grow(&out, size)
            head.body_crc = crc_of(<const uint8_t*>plain, body_size)
            head.flag = to_i32(message.flag)
            p = write_head(out.data + start, &shape, size, &head)
            p = write_body_topic(p, &shape, plain, body_size, PyBytes_AS_STRING(topic),
                                 PyBytes_GET_SIZE(topic), properties.size)
            memcpy(p, properties.data, properties.size)
            out.size = start + size
            sizes.append(size)
        return PyByteArray_FromStringAndSize(<char*>out.data, out.size), sizes
    finally:
        PyMem_Free(out.data)
        PyMem_Free(properties.data)


cdef int write_crc_room(Text* out) except -1:
    if out.size and out.data[out.size - 1] != PROPERTY_END:
        text_add(out, b"\x02", 1)
    text_add(out, RL_RECORD_CRC_ROOM, RECORD_CRC_SIZE)
    return 0


def seal(uint8_t[::1] record not None, position_, queue_offset_, physical_offset_,
         store_timestamp_, bint with_crc):
    """Write what only the append knows into an encoded record; return its size."""
    cdef int64_t position = to_i64(position_), queue_offset = to_i64(queue_offset_)
    cdef int64_t physical_offset = to_i64(physical_offset_)
    cdef int64_t store_timestamp = to_i64(store_timestamp_)
    cdef int64_t length = record.shape[0]
    cdef uint8_t* data = &record[0] if length else NULL
    cdef uint8_t* p
    cdef uint8_t* trailer
    cdef Row row
    if position < 0 or probe(data, position, length) != OK or not fields(data, position, &row):
        raise ValueError(f"no whole record at position {position}")
    p = data + position
    rl_store64(p + RECORD_QUEUE_OFFSET_AT, queue_offset)
    rl_store64(p + RECORD_PHYSICAL_OFFSET_AT, physical_offset)
    rl_store64(p + store_timestamp_at(row.sys_flag), store_timestamp)
    if with_crc:
        trailer = p + row.size - RECORD_CRC_SIZE
        if (row.properties_size < RECORD_CRC_SIZE
                or not RL_BEGINS(trailer, RECORD_CRC_SIZE, RL_RECORD_CRC)):
            raise ValueError(f"record at position {position} has no room for its checksum")
        write_record_crc(p, row.size)
    return row.size


cdef inline void write_record_crc(uint8_t* record, int64_t size) noexcept nogil:
    """Write the digits of the checksum that ends a record."""
    cdef int64_t covered = size - RECORD_CRC_SIZE
    crc_digits(crc_of(record, covered), record + covered + RECORD_CRC_DIGITS_AT)
