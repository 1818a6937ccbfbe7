# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""Cython twin of `pure`: same names, same arguments, same answers.

1. `pure` is the specification; a difference is a bug here.
2. Loops over many records run without the interpreter lock and touch only buffers and integers.
3. Every read is checked against the end of the buffer.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    int PyUnicode_KIND(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    object PyUnicode_FromObject(object text)
    uint32_t PyUnicode_READ(int kind, void* data, Py_ssize_t index)

cdef extern from "bigendian.h" nogil:
    int16_t rl_load16(const uint8_t* p)
    int32_t rl_load32(const uint8_t* p)
    int64_t rl_load64(const uint8_t* p)
    void rl_store16(uint8_t* p, int16_t x)
    void rl_store32(uint8_t* p, int32_t x)
    void rl_store64(uint8_t* p, int64_t x)
    int64_t rl_add64(int64_t a, int64_t b)
    int64_t rl_sub64(int64_t a, int64_t b)

cdef extern from "crc32.h" nogil:
    void rl_crc32_start()
    uint32_t rl_crc32(const uint8_t* p, size_t n)

rl_crc32_start()

NAME = "native"

cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    MAGIC_BLANK = -875286124
    BORN_HOST_AT = 48
    RECORD_FIXED_SIZE = 68
    RECORD_MIN_SIZE = 91
    RECORD_CRC_SIZE = 20
    UNIT_SIZE = 20
    INDEX_HEADER_SIZE = 40
    INDEX_SLOT_SIZE = 4
    INDEX_ENTRY_SIZE = 20
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    MAX_I8 = 127
    MAX_I16 = 32767
    MAX_I32 = 2147483647

cdef int64_t EXT_ADDRESS_MAX = -2147483649LL

cdef enum:
    OK = 0
    END_OF_DATA = 1
    END_OF_FILE = 2
    TORN = 3
    BAD_MAGIC = 4
    BAD_SIZE = 5
    BAD_CRC = 6
    BAD_OFFSET = 7

cdef enum:
    CHECK_BODY_CRC = 1
    CHECK_RECORD_CRC = 2
    CHECK_RECORD_CRC_REQUIRED = 4
    CHECK_OFFSET = 8

cdef packed struct Row:
    int64_t position
    int64_t physical_offset
    int64_t queue_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_transaction_offset
    int64_t body_position
    int64_t topic_position
    int64_t properties_position
    int32_t size
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t body_size
    int16_t topic_size
    int16_t properties_size

# What this module was compiled with; the chooser compares it with format.layout.
LAYOUT = {
    "MAGIC_V1": MAGIC_V1,
    "MAGIC_V2": MAGIC_V2,
    "MAGIC_BLANK": MAGIC_BLANK,
    "RECORD_BORN_HOST_AT": BORN_HOST_AT,
    "RECORD_FIXED_SIZE": RECORD_FIXED_SIZE,
    "RECORD_MIN_SIZE": RECORD_MIN_SIZE,
    "RECORD_CRC_SIZE": RECORD_CRC_SIZE,
    "UNIT_SIZE": UNIT_SIZE,
    "EXT_ADDRESS_MAX": EXT_ADDRESS_MAX,
    "INDEX_HEADER_SIZE": INDEX_HEADER_SIZE,
    "INDEX_SLOT_SIZE": INDEX_SLOT_SIZE,
    "INDEX_ENTRY_SIZE": INDEX_ENTRY_SIZE,
    "ROW_SIZE": <int>sizeof(Row),
}


# --- scan --------------------------------------------------------------------------------------

def scan(const uint8_t[::1] buffer not None, start_, end_, base_offset_, int checks,
         uint8_t[::1] rows not None):
    """Parse records from `start` until something ends it; return count, reason and position."""
    cdef int64_t start = to_i64(start_), end = to_i64(end_), base_offset = to_i64(base_offset_)
    cdef int64_t length = buffer.shape[0]
    cdef int64_t capacity = rows.shape[0] // <int64_t>sizeof(Row)
    cdef int64_t count = 0, position = start
    cdef int reason = OK
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef Row* out = <Row*>&rows[0] if rows.shape[0] else NULL
    if start < 0:
        raise ValueError(f"a scan starts at 0 or later, not at {start}")
    if end > length:
        end = length
    with nogil:
        while count < capacity:
            reason = parse(data, position, end, base_offset, checks, out + count)
            if reason != OK:
                break
            position += out[count].size
            count += 1
    return count, reason, position


def scan_at(const uint8_t[::1] buffer not None, places, int checks, uint8_t[::1] rows not None,
            uint8_t[::1] reasons not None):
    """Parse the records at given places; return how many of them are good."""
    cdef const uint8_t[::1] wanted = memoryview(places).cast("B")
    cdef int64_t length = buffer.shape[0]
    cdef int64_t count = wanted.shape[0] // 24
    cdef int64_t i, good = 0
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const uint8_t* place = &wanted[0] if wanted.shape[0] else NULL
    cdef uint8_t* why = &reasons[0] if reasons.shape[0] else NULL
    cdef Row* out = <Row*>&rows[0] if rows.shape[0] else NULL
    cdef int64_t claim[3]
    cdef int reason
    count = min(count, rows.shape[0] // <int64_t>sizeof(Row))
    count = min(count, reasons.shape[0])
    with nogil:
        for i in range(count):
            memcpy(claim, place + 24 * i, 24)
            reason = parse_claimed(data, length, claim, checks, out + i)
            why[i] = <uint8_t>reason
            if reason == OK:
                good += 1
            else:
                memset(out + i, 0, sizeof(Row))
    return good


cdef int parse_claimed(const uint8_t* data, int64_t length, const int64_t* claim, int checks,
                       Row* row) noexcept nogil:
    cdef int64_t position = claim[0], size = claim[1]
    cdef int reason
    if size < RECORD_MIN_SIZE:
        return BAD_SIZE
    if position < 0 or position > length - size:
        return TORN
    reason = parse(data, position, position + size, rl_sub64(claim[2], position), checks, row)
    if reason == OK and row.size != size:
        return BAD_SIZE
    return reason


cdef inline int parse(const uint8_t* data, int64_t position, int64_t end, int64_t base_offset,
                      int checks, Row* row) noexcept nogil:
    cdef int reason = probe(data, position, end)
    if reason != OK:
        return reason
    if not fields(data, position, row):
        return BAD_SIZE
    if checks & CHECK_OFFSET and row.physical_offset != rl_add64(base_offset, position):
        return BAD_OFFSET
    if checks and not checksums_hold(data, row, checks):
        return BAD_CRC
    return OK


cdef inline int probe(const uint8_t* data, int64_t position, int64_t end) noexcept nogil:
    cdef int64_t left
    cdef int32_t size, magic
    if end <= position:
        return END_OF_DATA
    left = end - position
    if left < 8:
        while position < end:
            if data[position]:
                return TORN
            position += 1
        return END_OF_DATA
    size = rl_load32(data + position)
    magic = rl_load32(data + position + 4)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        if magic == MAGIC_BLANK:
            return END_OF_FILE
        if magic == 0 and size == 0:
            return END_OF_DATA
        return BAD_MAGIC
    if size < RECORD_MIN_SIZE:
        return BAD_SIZE
    return TORN if size > left else OK


cdef inline bint fields(const uint8_t* data, int64_t position, Row* row) noexcept nogil:
    cdef const uint8_t* p = data + position
    cdef int32_t size = rl_load32(p)
    cdef int32_t sys_flag = rl_load32(p + 36)
    cdef int64_t limit = size
    cdef int64_t at = BORN_HOST_AT + (20 if sys_flag & BORN_V6 else 8)
    cdef int64_t store_host_size = 20 if sys_flag & STORE_V6 else 8
    cdef int width = 1 if rl_load32(p + 4) == MAGIC_V1 else 2
    cdef int32_t body_size
    cdef int topic_size, properties_size
    if at + 8 + store_host_size + 16 > limit:
        return False
    row.store_timestamp = rl_load64(p + at)
    at += 8 + store_host_size
    row.reconsume_times = rl_load32(p + at)
    row.prepared_transaction_offset = rl_load64(p + at + 4)
    body_size = rl_load32(p + at + 12)
    at += 16
    if body_size < 0 or at + body_size + width > limit:
        return False
    row.body_position = position + at
    row.body_size = body_size
    at += body_size
    topic_size = <signed char>p[at] if width == 1 else rl_load16(p + at)
    at += width
    if topic_size < 0 or at + topic_size + 2 > limit:
        return False
    row.topic_position = position + at
    row.topic_size = <int16_t>topic_size
    at += topic_size
    properties_size = rl_load16(p + at)
    at += 2
    if properties_size < 0 or at + properties_size != limit:
        return False
    row.properties_position = position + at
    row.properties_size = <int16_t>properties_size
    row.position = position
    row.size = size
    row.sys_flag = sys_flag
    row.body_crc = rl_load32(p + 8)
    row.queue_id = rl_load32(p + 12)
    row.flag = rl_load32(p + 16)
    row.queue_offset = rl_load64(p + 20)
    row.physical_offset = rl_load64(p + 28)
    row.born_timestamp = rl_load64(p + 40)
    return True


cdef bint checksums_hold(const uint8_t* data, const Row* row, int checks) noexcept nogil:
    cdef int verdict
    if checks & (CHECK_RECORD_CRC | CHECK_RECORD_CRC_REQUIRED):
        verdict = record_crc_holds(data, row)
        if verdict >= 0:
            return verdict
        if checks & CHECK_RECORD_CRC_REQUIRED:
            return False
    if checks & CHECK_BODY_CRC and row.body_size:
        return crc_of(data + row.body_position, row.body_size) == row.body_crc
    return True


cdef int record_crc_holds(const uint8_t* data, const Row* row) noexcept nogil:
    """Compare the whole-record checksum; -1 if the record carries none."""
    cdef const uint8_t* start = data + row.position
    cdef const uint8_t* trailer = start + row.size - RECORD_CRC_SIZE
    cdef uint8_t digits[10]
    if row.properties_size < RECORD_CRC_SIZE:
        return -1
    if memcmp(trailer, b"__CRC32#\x01", 9) != 0 or trailer[19] != 2:
        return -1
    crc_digits(crc_of(start, row.size - RECORD_CRC_SIZE), digits)
    return memcmp(trailer + 9, digits, 10) == 0


cdef inline int32_t crc_of(const uint8_t* data, int64_t size) noexcept nogil:
    return <int32_t>(rl_crc32(data, size) & 0x7FFFFFFF)


cdef void crc_digits(int32_t crc, uint8_t* out) noexcept nogil:
    cdef int i
    for i in range(10):
        out[i] = 48 + crc % 10
        crc //= 10


def crc31(const uint8_t[::1] buffer not None):
    """Return CRC-32 without its top bit."""
    cdef int64_t size = buffer.shape[0]
    cdef const uint8_t* data = &buffer[0] if size else NULL
    cdef int32_t crc
    with nogil:
        crc = crc_of(data, size)
    return crc


# --- topics of a scan --------------------------------------------------------------------------

def intern_topics(const uint8_t[::1] buffer not None, const uint8_t[::1] rows not None,
                  int64_t count, codes):
    """Number the distinct topics of scanned rows; write each row's number as a native i32."""
    cdef uint8_t[::1] numbers_out = memoryview(codes).cast("B")
    cdef int64_t length = buffer.shape[0]
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const Row* table = <const Row*>&rows[0] if rows.shape[0] else NULL
    cdef int32_t* out = <int32_t*>&numbers_out[0] if numbers_out.shape[0] else NULL
    cdef int64_t i, position, size
    cdef int64_t last_position = 0, last_size = -1
    cdef int32_t last_code = -1
    cdef dict numbers = {}
    count = min(count, rows.shape[0] // <int64_t>sizeof(Row))
    count = min(count, numbers_out.shape[0] // 4)
    for i in range(count):
        position = table[i].topic_position
        size = table[i].topic_size
        if position < 0 or size < 0 or position > length - size:
            position = size = 0
        # Runs of one topic are the common case: no object is made for them.
        if size != last_size or memcmp(data + position, data + last_position, size) != 0:
            topic = PyBytes_FromStringAndSize(<const char*>data + position, size)
            last_code = numbers.setdefault(topic, len(numbers))
            last_position = position
            last_size = size
        out[i] = last_code
    return list(numbers)


# --- encode, seal ------------------------------------------------------------------------------

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
        if len(host) != 8 and len(host) != 20:
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
    if shape.born_size == 20:
        flags |= BORN_V6
    if shape.store_size == 20:
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


cdef uint8_t* write_head(uint8_t* p, const Shape* shape, int64_t size, int32_t crc,
                         int32_t queue_id, int32_t flag, int64_t born_timestamp,
                         const char* born_host, const char* store_host,
                         int32_t reconsume_times, int64_t prepared) noexcept nogil:
    """Write everything before the body's length; return where it goes."""
    rl_store32(p, <int32_t>size)
    rl_store32(p + 4, shape.magic)
    rl_store32(p + 8, crc)
    rl_store32(p + 12, queue_id)
    rl_store32(p + 16, flag)
    memset(p + 20, 0, 16)
    rl_store32(p + 36, shape.sys_flag)
    rl_store64(p + 40, born_timestamp)
    p += BORN_HOST_AT
    memcpy(p, born_host, shape.born_size)
    p += shape.born_size
    memset(p, 0, 8)
    p += 8
    memcpy(p, store_host, shape.store_size)
    p += shape.store_size
    rl_store32(p, reconsume_times)
    rl_store64(p + 4, prepared)
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
    cdef int32_t crc
    cdef uint8_t* p
    shape_of(topic, born_host, store_host, version, &shape)
    if reserve_crc:
        properties = with_crc_room(properties)
    size = record_size(&shape, PyBytes_GET_SIZE(topic), body_size, PyBytes_GET_SIZE(properties))
    shape.sys_flag = flags_of(&shape, sys_flag)
    crc = crc_of(<const uint8_t*>plain, body_size)
    record = PyByteArray_FromStringAndSize(NULL, size)
    p = write_head(
        <uint8_t*>PyByteArray_AS_STRING(record), &shape, size, crc, to_i32(queue_id),
        to_i32(flag), to_i64(born_timestamp), PyBytes_AS_STRING(born_host),
        PyBytes_AS_STRING(store_host), to_i32(reconsume_times),
        to_i64(prepared_transaction_offset))
    p = write_body_topic(p, &shape, plain, body_size, PyBytes_AS_STRING(topic),
                         PyBytes_GET_SIZE(topic), PyBytes_GET_SIZE(properties))
    memcpy(p, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
    return record


cdef bytes with_crc_room(bytes properties):
    if properties and not properties.endswith(b"\x02"):
        properties = properties + b"\x02"
    return properties + b"__CRC32#\x01" + b"0" * 10 + b"\x02"


def encode_batch(messages, bytes topic not None, queue_id, sys_flag, born_timestamp,
                 bytes born_host not None, bytes store_host not None, version, bint trailing,
                 bint reserve_crc):
    """Encode messages of one topic and queue behind each other; return bytes and sizes."""
    cdef Shape shape
    cdef Text out
    cdef Text properties
    cdef list sizes = []
    cdef int64_t size, start, born
    cdef int32_t queue
    cdef Py_ssize_t body_size
    cdef const char* plain
    cdef uint8_t* p
    cdef bytes body
    shape_of(topic, born_host, store_host, version, &shape)
    queue = to_i32(queue_id)
    shape.sys_flag = flags_of(&shape, sys_flag)
    born = to_i64(born_timestamp)
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
            p = write_head(
                out.data + start, &shape, size, crc_of(<const uint8_t*>plain, body_size), queue,
                to_i32(message.flag), born, PyBytes_AS_STRING(born_host),
                PyBytes_AS_STRING(store_host), 0, 0)
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
    if out.size and out.data[out.size - 1] != 2:
        text_add(out, b"\x02", 1)
    text_add(out, b"__CRC32#\x01", 9)
    text_add(out, b"0000000000\x02", 11)
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
    rl_store64(p + 20, queue_offset)
    rl_store64(p + 28, physical_offset)
    rl_store64(p + BORN_HOST_AT + (20 if row.sys_flag & BORN_V6 else 8), store_timestamp)
    if with_crc:
        trailer = p + row.size - RECORD_CRC_SIZE
        if row.properties_size < RECORD_CRC_SIZE or memcmp(trailer, b"__CRC32#", 8) != 0:
            raise ValueError(f"record at position {position} has no room for its checksum")
        crc_digits(crc_of(p, row.size - RECORD_CRC_SIZE), trailer + 9)
    return row.size


# --- properties --------------------------------------------------------------------------------

cdef struct Text:
    uint8_t* data
    int64_t size
    int64_t room
    bint is_lent  # the memory is the caller's, who does not want it freed


cdef void text_start(Text* text) noexcept:
    text.data = NULL
    text.size = 0
    text.room = 0
    text.is_lent = False


cdef void text_free(Text* text) noexcept:
    if not text.is_lent:
        PyMem_Free(text.data)


cdef int text_grow(Text* text, int64_t more) except -1:
    cdef int64_t room
    cdef uint8_t* data
    if text.size + more > text.room:
        room = 2 * text.room + more + 256
        data = <uint8_t*>PyMem_Realloc(NULL if text.is_lent else text.data, room)
        if data == NULL:
            raise MemoryError
        if text.is_lent:
            memcpy(data, text.data, text.size)
            text.is_lent = False
        text.data = data
        text.room = room
    return 0


cdef int text_add(Text* text, const char* data, int64_t size) except -1:
    text_grow(text, size)
    memcpy(text.data + text.size, data, size)
    text.size += size
    return 0


cdef int write_property(Text* out, object name, object value) except -1:
    """Append a property that ends with its separator."""
    cdef Py_ssize_t name_size, value_size
    cdef const char* name_data = PyUnicode_AsUTF8AndSize(name, &name_size)
    cdef const char* value_data
    if name_size == 0:
        raise ValueError("a property without a name")
    value_data = PyUnicode_AsUTF8AndSize(value, &value_size)
    if has_separator(name_data, name_size) or has_separator(value_data, value_size):
        raise ValueError(f"property {name!r} holds a separator character")
    text_grow(out, name_size + value_size + 2)
    memcpy(out.data + out.size, name_data, name_size)
    out.size += name_size
    out.data[out.size] = 1
    memcpy(out.data + out.size + 1, value_data, value_size)
    out.size += value_size + 1
    out.data[out.size] = 2
    out.size += 1
    return 0


cdef inline bint has_separator(const char* data, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        if data[i] == 1 or data[i] == 2:
            return True
    return False


cdef int write_properties(Text* out, object properties) except -1:
    cdef dict table
    if type(properties) is dict:
        table = properties
    else:
        table = dict(properties)
    for name, value in table.items():
        if value is not None:
            write_property(out, name, value)
    return 0


cdef str keys_text(object keys):
    """Join keys; one that would be written as several, or as its characters, is refused."""
    if isinstance(keys, str):
        raise TypeError("keys are a list of texts, not one text")
    cdef str text = " ".join(keys)
    if text.count(" ") != len(keys) - 1:
        raise ValueError("a key holds a blank, which separates keys")
    return text


cdef bytes body_of(object value):
    """Take the bytes of a body; bytes() would make some of a number or a list, too."""
    return value if type(value) is bytes else bytes(memoryview(value))


include "fields.pxi"


cdef int write_message_properties(Text* out, object message, bint trailing) except -1:
    properties = field_of(message, PROPERTIES)
    keys = field_of(message, KEYS)
    tags = field_of(message, TAGS)
    if type(properties) is not dict:
        properties = dict(properties)
    if properties:
        write_properties(out, properties)
    if keys and "KEYS" not in <dict>properties:
        write_property(out, "KEYS", keys_text(keys))
    if tags and "TAGS" not in <dict>properties:
        write_property(out, "TAGS", tags)
    if out.size and not trailing:
        out.size -= 1
    return 0


def encode_properties(properties, bint trailing):
    """Return the property string of a map; `trailing` ends the last property too."""
    cdef Text out
    text_start(&out)
    try:
        write_properties(&out, properties)
        if out.size and not trailing:
            out.size -= 1
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        PyMem_Free(out.data)


def message_properties(message, bint trailing):
    """Return the property string of a message: its properties, then KEYS and TAGS."""
    cdef Text out
    text_start(&out)
    try:
        write_message_properties(&out, message, trailing)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        PyMem_Free(out.data)


def decode_properties(data):
    """Return the map of a property string; what is not name and value is passed over."""
    cdef bytes text = data if type(data) is bytes else bytes(data)
    cdef const char* p = PyBytes_AS_STRING(text)
    cdef const char* end = p + PyBytes_GET_SIZE(text)
    cdef const char* stop
    cdef const char* split
    cdef dict found = {}
    while p < end:
        stop = <const char*>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        split = <const char*>memchr(p, 1, stop - p)
        if split != NULL and split > p and split + 1 < stop:
            name = PyUnicode_DecodeUTF8(p, split - p, "replace")
            found[name] = PyUnicode_DecodeUTF8(split + 1, stop - split - 1, "replace")
        p = stop + 1
    return found


# --- queue units -------------------------------------------------------------------------------

def filter_units(const uint8_t[::1] buffer not None, hashes, uint8_t[::1] keep not None):
    """Mark the units whose tags code has one of the hashes (native i32); return how many."""
    cdef const uint8_t[::1] wanted = memoryview(hashes).cast("B")
    cdef int64_t count = buffer.shape[0] // UNIT_SIZE
    cdef int64_t i, k, kept = 0, hash_count = wanted.shape[0] // 4
    cdef const uint8_t* p = &buffer[0] if buffer.shape[0] else NULL
    cdef const int32_t* table = <const int32_t*>&wanted[0] if wanted.shape[0] else NULL
    cdef uint8_t* out = &keep[0] if keep.shape[0] else NULL
    cdef int64_t code
    cdef bint hit
    count = min(count, keep.shape[0])
    with nogil:
        for i in range(count):
            code = rl_load64(p + i * UNIT_SIZE + 12)
            hit = code <= EXT_ADDRESS_MAX
            for k in range(hash_count):
                hit = hit or table[k] == <int32_t>code
            out[i] = hit
            kept += hit
    return kept


# --- hashes ------------------------------------------------------------------------------------

cdef uint32_t hash_on(uint32_t value, object text) except? 0xFFFFFFFF:
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef Py_ssize_t i
    cdef uint32_t unit
    for i in range(PyUnicode_GET_LENGTH(text)):
        unit = PyUnicode_READ(kind, data, i)
        if unit > 0xFFFF:
            unit -= 0x10000
            value = 31 * value + (0xD800 + (unit >> 10))
            unit = 0xDC00 + (unit & 0x3FF)
        value = 31 * value + unit
    return value


def java_hash(text):
    """Return Java's String.hashCode: over UTF-16 units, wrapped to a signed i32."""
    return <int32_t>hash_on(0, PyUnicode_FromObject(text))


def key_hash(topic, key):
    """Return the index hash of a key: never negative, -2**31 becomes 0."""
    cdef uint32_t before = hash_on(0, PyUnicode_FromObject(topic))
    cdef int64_t value = <int32_t>hash_on(31 * before + 35, PyUnicode_FromObject(key))
    if value < 0:
        value = -value
    return value if value <= MAX_I32 else 0


# --- index -------------------------------------------------------------------------------------

include "index.pxi"


# --- JSON lines ---------------------------------------------------------------------------------

include "lines.pxi"


# --- append ------------------------------------------------------------------------------------

include "append.pxi"
include "tail.pxi"


# --- messages ----------------------------------------------------------------------------------

include "message.pxi"
include "reading.pxi"


# --- dispatch ----------------------------------------------------------------------------------

include "dispatch.pxi"
