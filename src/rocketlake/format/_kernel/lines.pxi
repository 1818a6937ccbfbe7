# Rows -> JSON lines; included by native.pyx, the twin of pure/lines.py.

cdef const char* HEX_LOWER = b"0123456789abcdef"
cdef const char* HEX_UPPER = b"0123456789ABCDEF"
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def json_lines(const uint8_t[::1] buffer not None, const uint8_t[::1] rows not None, tags_codes,
               bint with_body):
    """Return a JSON object and a line feed for each row."""
    cdef const uint8_t[::1] codes = memoryview(tags_codes).cast("B")
    cdef int64_t length = buffer.shape[0]
    cdef int64_t count = min(rows.shape[0] // <int64_t>sizeof(Row), codes.shape[0] // 8)
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const Row* table = <const Row*>&rows[0] if rows.shape[0] else NULL
    cdef const int64_t* code = <const int64_t*>&codes[0] if codes.shape[0] else NULL
    cdef int64_t i
    cdef Text out
    text_start(&out)
    try:
        for i in range(count):
            if not row_inside(table + i, length):
                raise ValueError(f"row {i} lies outside the buffer")
            write_line(&out, data, table + i, code[i], with_body)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        PyMem_Free(out.data)


cdef inline bint part_inside(int64_t at, int64_t size, int64_t length) noexcept:
    return size >= 0 and 0 <= at <= length - size


cdef bint row_inside(const Row* row, int64_t length) noexcept:
    cdef int64_t head = RECORD_BORN_HOST_AT + 8
    head += born_size_of(row.sys_flag)
    head += store_size_of(row.sys_flag)
    return (part_inside(row.position, head, length)
            and part_inside(row.body_position, row.body_size, length)
            and part_inside(row.topic_position, row.topic_size, length)
            and part_inside(row.properties_position, row.properties_size, length))


cdef int write_line(Text* out, const uint8_t* data, const Row* row, int64_t tags_code,
                    bint with_body) except -1:
    cdef int born_size = born_size_of(row.sys_flag)
    cdef int store_size = store_size_of(row.sys_flag)
    cdef const uint8_t* born_host = data + row.position + RECORD_BORN_HOST_AT
    cdef const uint8_t* store_host = born_host + born_size + 8
    text_grow(out, 768)
    text_add(out, b'{"topic":', 9)
    write_string(out, data + row.topic_position, row.topic_size)
    write_number(out, b',"queueId":', 11, row.queue_id)
    write_number(out, b',"queueOffset":', 15, row.queue_offset)
    write_number(out, b',"physicalOffset":', 18, row.physical_offset)
    write_number(out, b',"storeSize":', 13, row.size)
    write_number(out, b',"storeTimestamp":', 18, row.store_timestamp)
    write_number(out, b',"bornTimestamp":', 17, row.born_timestamp)
    text_add(out, b',"bornHost":"', 13)
    write_host(out, born_host, born_size)
    text_add(out, b'","storeHost":"', 15)
    write_host(out, store_host, store_size)
    text_add(out, b'","msgId":"', 11)
    write_hex(out, store_host, store_size)
    write_hex_number(out, row.physical_offset)
    write_number(out, b'","flag":', 9, row.flag)
    write_number(out, b',"sysFlag":', 11, row.sys_flag)
    write_number(out, b',"bodyCRC":', 11, row.body_crc)
    write_number(out, b',"reconsumeTimes":', 18, row.reconsume_times)
    write_number(out, b',"preparedTransactionOffset":', 29, row.prepared_transaction_offset)
    write_number(out, b',"tagsCode":', 12, tags_code)
    text_add(out, b',"properties":', 14)
    write_property_object(out, data + row.properties_position, row.properties_size)
    if with_body:
        text_add(out, b',"body":"', 9)
        write_base64(out, data + row.body_position, row.body_size)
        text_add(out, b'"', 1)
    text_add(out, b"}\n", 2)
    return 0


cdef int write_number(Text* out, const char* name, int size, int64_t value) except -1:
    cdef uint8_t digits[20]
    cdef int at = 20
    cdef uint64_t left = <uint64_t>value
    text_grow(out, size + 21)
    memcpy(out.data + out.size, name, size)
    out.size += size
    if value < 0:
        out.data[out.size] = 45
        out.size += 1
        left = <uint64_t>0 - left
    while True:
        at -= 1
        digits[at] = 48 + left % 10
        left //= 10
        if left == 0:
            break
    memcpy(out.data + out.size, digits + at, 20 - at)
    out.size += 20 - at
    return 0


cdef int write_decimal(Text* out, int64_t value) except -1:
    return write_number(out, b"", 0, value)


cdef int write_host(Text* out, const uint8_t* host, int size) except -1:
    """Spell address and port; IPv6 in eight groups, none left out."""
    cdef int i, value, shift
    cdef bint started
    if size == HOST_V4_SIZE:
        for i in range(4):
            if i:
                text_add(out, b".", 1)
            write_decimal(out, host[i])
    else:
        text_add(out, b"[", 1)
        for i in range(8):
            if i:
                text_add(out, b":", 1)
            value = host[2 * i] << 8 | host[2 * i + 1]
            started = False
            for shift in (12, 8, 4, 0):
                if started or shift == 0 or value >> shift:
                    text_add(out, HEX_LOWER + (value >> shift & 15), 1)
                    started = True
        text_add(out, b"]", 1)
    text_add(out, b":", 1)
    return write_decimal(out, rl_load32(host + size - 4))


cdef int write_hex(Text* out, const uint8_t* data, int size) except -1:
    cdef int i
    text_grow(out, 2 * size)
    for i in range(size):
        out.data[out.size] = HEX_UPPER[data[i] >> 4]
        out.data[out.size + 1] = HEX_UPPER[data[i] & 15]
        out.size += 2
    return 0


cdef int write_hex_number(Text* out, int64_t value) except -1:
    cdef uint8_t bytes_[8]
    rl_store64(bytes_, value)
    return write_hex(out, bytes_, 8)


cdef int write_base64(Text* out, const uint8_t* data, int64_t size) except -1:
    cdef int64_t whole = size - size % 3, i = 0
    cdef uint32_t three
    cdef uint8_t* p
    text_grow(out, (size + 2) // 3 * 4)
    p = out.data + out.size
    while i < whole:
        three = <uint32_t>data[i] << 16 | <uint32_t>data[i + 1] << 8 | data[i + 2]
        p[0] = BASE64[three >> 18]
        p[1] = BASE64[three >> 12 & 63]
        p[2] = BASE64[three >> 6 & 63]
        p[3] = BASE64[three & 63]
        p += 4
        i += 3
    if whole < size:
        three = <uint32_t>data[i] << 16
        if whole + 2 == size:
            three |= <uint32_t>data[i + 1] << 8
        p[0] = BASE64[three >> 18]
        p[1] = BASE64[three >> 12 & 63]
        p[2] = BASE64[three >> 6 & 63] if whole + 2 == size else 61
        p[3] = 61
        p += 4
    out.size = p - out.data
    return 0


cdef int write_string(Text* out, const uint8_t* data, int64_t size) except -1:
    """Write bytes as a JSON string; those that are no UTF-8 become U+FFFD."""
    cdef int64_t i
    cdef Py_ssize_t clean_size
    for i in range(size):
        if data[i] >= 0x80:
            text = PyUnicode_DecodeUTF8(<const char*>data, size, "replace")
            data = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &clean_size)
            return write_clean(out, data, clean_size)
    return write_clean(out, data, size)


cdef int write_clean(Text* out, const uint8_t* data, int64_t size) except -1:
    cdef int64_t i
    cdef uint8_t c
    text_grow(out, 6 * size + 2)
    out.data[out.size] = 34
    out.size += 1
    for i in range(size):
        c = data[i]
        if c >= 0x20 and c != 34 and c != 92:
            out.data[out.size] = c
            out.size += 1
        else:
            write_escape(out, c)
    out.data[out.size] = 34
    out.size += 1
    return 0


cdef void write_escape(Text* out, uint8_t c) noexcept:
    """Write one escaped character; there is room."""
    cdef uint8_t* p = out.data + out.size
    cdef uint8_t short_form = 0
    if c == 34 or c == 92:
        short_form = c
    elif c == 8:
        short_form = 98
    elif c == 9:
        short_form = 116
    elif c == 10:
        short_form = 110
    elif c == 12:
        short_form = 102
    elif c == 13:
        short_form = 114
    p[0] = 92
    if short_form:
        p[1] = short_form
        out.size += 2
        return
    memcpy(p + 1, b"u00", 3)
    p[4] = HEX_LOWER[c >> 4]
    p[5] = HEX_LOWER[c & 15]
    out.size += 6


cdef int write_property_object(Text* out, const uint8_t* data, int64_t size) except -1:
    """Write a property string as a JSON object; of a repeated name the last value counts."""
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef const uint8_t* stop
    cdef const uint8_t* split
    cdef int64_t start = out.size
    cdef int found = 0
    text_add(out, b"{", 1)
    while p < end:
        stop = <const uint8_t*>memchr(p, PROPERTY_END, end - p)
        if stop == NULL:
            stop = end
        split = <const uint8_t*>memchr(p, PROPERTY_NAME_END, stop - p)
        if split != NULL and split > p and split + 1 < stop:
            if found:
                if name_stands_before(data, p, split - p):
                    out.size = start
                    return write_slow_object(out, data, size)
                text_add(out, b",", 1)
            write_string(out, p, split - p)
            text_add(out, b":", 1)
            write_string(out, split + 1, stop - split - 1)
            found += 1
        p = stop + 1
    return text_add(out, b"}", 1)


cdef bint name_stands_before(const uint8_t* data, const uint8_t* name, int64_t size) noexcept:
    """Tell whether a property of this name may stand before it; a wrong yes is harmless."""
    cdef const uint8_t* p = data
    cdef const uint8_t* stop
    cdef int64_t i
    for i in range(size):
        if name[i] >= 0x80:
            return True  # two names may become one when bytes are replaced
    while p < name:
        if p + size < name and p[size] == 1 and memcmp(p, name, size) == 0:
            return True
        stop = <const uint8_t*>memchr(p, PROPERTY_END, name - p)
        if stop == NULL:
            return False
        p = stop + 1
    return False


cdef int write_slow_object(Text* out, const uint8_t* data, int64_t size) except -1:
    cdef Py_ssize_t text_size
    cdef const char* text
    cdef bint first = True
    text_add(out, b"{", 1)
    for name, value in decode_properties(PyBytes_FromStringAndSize(<const char*>data, size)).items():
        if not first:
            text_add(out, b",", 1)
        first = False
        text = PyUnicode_AsUTF8AndSize(name, &text_size)
        write_clean(out, <const uint8_t*>text, text_size)
        text_add(out, b":", 1)
        text = PyUnicode_AsUTF8AndSize(value, &text_size)
        write_clean(out, <const uint8_t*>text, text_size)
    return text_add(out, b"}", 1)
