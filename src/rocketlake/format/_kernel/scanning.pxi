# Log bytes -> rows; included by native.pyx, the twin of pure/scanning.py.

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


cdef inline int parse_head(const uint8_t* data, int64_t length, const int64_t* claim,
                           Row* row) noexcept nogil:
    """Look at size, magic and place alone; the row gets its position and size."""
    cdef int64_t position = claim[0], size = claim[1]
    cdef int reason
    if size < RECORD_MIN_SIZE:
        return BAD_SIZE
    if position < 0 or position > length - size:
        return TORN
    reason = probe(data, position, position + size)
    if reason != OK:
        return reason
    if rl_load64(data + position + RECORD_PHYSICAL_OFFSET_AT) != claim[2]:
        return BAD_OFFSET
    if rl_load32(data + position) != size:
        return BAD_SIZE
    row.position = position
    row.size = <int32_t>size
    return OK


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
    if left < BLANK_HEADER_SIZE:
        while position < end:
            if data[position]:
                return TORN
            position += 1
        return END_OF_DATA
    size = rl_load32(data + position)
    magic = rl_load32(data + position + RECORD_MAGIC_AT)
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
    cdef int32_t sys_flag = rl_load32(p + RECORD_SYS_FLAG_AT)
    cdef int64_t limit = size
    cdef int64_t at = store_timestamp_at(sys_flag)
    cdef int64_t store_host_size = store_size_of(sys_flag)
    cdef int width = 1 if rl_load32(p + RECORD_MAGIC_AT) == MAGIC_V1 else 2
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
    row.body_crc = rl_load32(p + RECORD_BODY_CRC_AT)
    row.queue_id = rl_load32(p + RECORD_QUEUE_ID_AT)
    row.flag = rl_load32(p + RECORD_FLAG_AT)
    row.queue_offset = rl_load64(p + RECORD_QUEUE_OFFSET_AT)
    row.physical_offset = rl_load64(p + RECORD_PHYSICAL_OFFSET_AT)
    row.born_timestamp = rl_load64(p + RECORD_BORN_TIMESTAMP_AT)
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
    if (not RL_BEGINS(trailer, RECORD_CRC_SIZE, RL_RECORD_CRC)
            or trailer[RECORD_CRC_DIGITS_AT - 1] != PROPERTY_NAME_END
            or trailer[RECORD_CRC_SIZE - 1] != PROPERTY_END):
        return -1
    crc_digits(crc_of(start, row.size - RECORD_CRC_SIZE), digits)
    return memcmp(trailer + RECORD_CRC_DIGITS_AT, digits, 10) == 0


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
