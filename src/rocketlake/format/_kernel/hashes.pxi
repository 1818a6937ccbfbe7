# Hashes of texts; included by native.pyx, the twin of model/hashes.py.

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
