# Property strings <-> maps, and the text they are built in; included by native.pyx, the twin of
# pure/properties.py.

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
    out.data[out.size] = PROPERTY_NAME_END
    memcpy(out.data + out.size + 1, value_data, value_size)
    out.size += value_size + 1
    out.data[out.size] = PROPERTY_END
    out.size += 1
    return 0


cdef inline bint has_separator(const char* data, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        if data[i] == PROPERTY_NAME_END or data[i] == PROPERTY_END:
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
        stop = <const char*>memchr(p, PROPERTY_END, end - p)
        if stop == NULL:
            stop = end
        split = <const char*>memchr(p, PROPERTY_NAME_END, stop - p)
        if split != NULL and split > p and split + 1 < stop:
            name = PyUnicode_DecodeUTF8(p, split - p, "replace")
            found[name] = PyUnicode_DecodeUTF8(split + 1, stop - split - 1, "replace")
        p = stop + 1
    return found
