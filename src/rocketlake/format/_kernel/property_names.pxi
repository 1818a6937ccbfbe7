# Which property names the store acts on; included by native.pyx.

cdef extern from "property_names.h" nogil:
    const char* RL_TAGS
    const char* RL_KEYS
    const char* RL_UNIQUE_KEY
    const char* RL_WAIT
    const char* RL_DELAY
    const char* RL_TIMER_PREFIX
    const char* RL_INNER_PREFIX
    const char* RL_INNER_NUM
    const char* RL_INNER_BASE
    const char* RL_MULTI_DISPATCH
    const char* RL_MULTI_QUEUE_OFFSET
    const char* RL_RECORD_CRC
    const char* RL_RECORD_CRC_ROOM
    bint RL_IS(const void* name, int64_t size, const char* text)
    bint RL_BEGINS(const void* name, int64_t size, const char* text)


cdef inline bint is_reserved(const void* name, int64_t size) noexcept nogil:
    """Tell whether the store itself acts on a property of this name."""
    return (RL_BEGINS(name, size, RL_TIMER_PREFIX) or RL_BEGINS(name, size, RL_INNER_PREFIX)
            or RL_IS(name, size, RL_DELAY) or RL_IS(name, size, RL_WAIT)
            or RL_IS(name, size, RL_RECORD_CRC))


cdef inline bint is_special(const void* name, int64_t size) noexcept nogil:
    """Tell whether dispatch has to look closer at a record with a property of this name."""
    return (RL_IS(name, size, RL_DELAY) or RL_IS(name, size, RL_INNER_NUM)
            or RL_IS(name, size, RL_INNER_BASE) or RL_IS(name, size, RL_MULTI_DISPATCH)
            or RL_IS(name, size, RL_MULTI_QUEUE_OFFSET))
