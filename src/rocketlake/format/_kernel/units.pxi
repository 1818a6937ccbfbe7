# Which queue units a tag filter may want; included by native.pyx, the twin of pure/units.py.

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
            code = rl_load64(p + i * UNIT_SIZE + UNIT_TAGS_CODE_AT)
            hit = code <= EXT_ADDRESS_MAX
            for k in range(hash_count):
                hit = hit or table[k] == <int32_t>code
            out[i] = hit
            kept += hit
    return kept
