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

include "layout.pxi"          # numbers of the format, what a row is
include "property_names.pxi"  # the names the store acts on
include "scanning.pxi"        # log bytes -> rows
include "encoding.pxi"        # values -> records; seal
include "fields.pxi"          # the fields of a message, read where its type keeps them
include "properties.pxi"      # property strings <-> maps
include "units.pxi"           # which units a tag filter may want
include "hashes.pxi"          # of topics and keys
include "indexing.pxi"        # index files: put, look up, walk
include "lines.pxi"           # rows -> JSON lines
include "appending.pxi"       # messages -> sealed records in a file's memory
include "field_append.pxi"    # fields of a send request -> the same
include "tail.pxi"            # LogTail: the append of a plain message, under the log's lock
include "bulk.pxi"            # rows -> staged records -> sealed records
include "message.pxi"         # StoredMessage; rows -> messages
include "reading.pxi"         # queue units -> messages or columns
include "dispatching.pxi"     # rows -> what dispatch needs
include "arrow.pxi"           # rows -> Arrow columns
