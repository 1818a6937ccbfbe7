/* memcpy and its kin for ranges that may be empty.
 *
 * Why: an empty buffer may have no address. The calls of the C library must not be given NULL, not
 * even with a size of 0: a compiler may take the pointer for valid from there on. With a constant
 * size the test below costs nothing.
 */
#ifndef ROCKETLAKE_MEMORY_CALLS_H
#define ROCKETLAKE_MEMORY_CALLS_H

#include <stddef.h>
#include <string.h>

static inline void *rl_memcpy(void *to, const void *from, size_t size) {
    return size ? memcpy(to, from, size) : to;
}

static inline void *rl_memset(void *to, int value, size_t size) {
    return size ? memset(to, value, size) : to;
}

static inline int rl_memcmp(const void *one, const void *other, size_t size) {
    return size ? memcmp(one, other, size) : 0;
}

static inline void *rl_memchr(const void *data, int value, size_t size) {
    return size ? (void *)memchr(data, value, size) : NULL;
}

#endif
