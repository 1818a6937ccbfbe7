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

cdef extern from "memory_calls.h" nogil:
    void* memcpy "rl_memcpy" (void* to, const void* source, size_t size)
    void* memset "rl_memset" (void* to, int value, size_t size)
    int memcmp "rl_memcmp" (const void* one, const void* other, size_t size)
    void* memchr "rl_memchr" (const void* data, int value, size_t size)

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

include "scan.pxi"


# --- encode, seal ------------------------------------------------------------------------------

include "encode.pxi"


# --- properties --------------------------------------------------------------------------------

include "properties.pxi"


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
include "field_append.pxi"
include "tail.pxi"
include "bulk.pxi"


# --- messages ----------------------------------------------------------------------------------

include "message.pxi"
include "reading.pxi"


# --- dispatch ----------------------------------------------------------------------------------

include "dispatch.pxi"


# --- Arrow columns -----------------------------------------------------------------------------

include "arrow.pxi"
