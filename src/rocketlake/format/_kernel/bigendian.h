/* Big-endian loads and stores at any address; the format's integers are all of this kind. */
#ifndef ROCKETLAKE_BIGENDIAN_H
#define ROCKETLAKE_BIGENDIAN_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define RL_SWAP16(x) (x)
#define RL_SWAP32(x) (x)
#define RL_SWAP64(x) (x)
#else
#define RL_SWAP16(x) __builtin_bswap16(x)
#define RL_SWAP32(x) __builtin_bswap32(x)
#define RL_SWAP64(x) __builtin_bswap64(x)
#endif

static inline int16_t rl_load16(const uint8_t *p) {
    uint16_t v; memcpy(&v, p, 2); return (int16_t)RL_SWAP16(v);
}
static inline int32_t rl_load32(const uint8_t *p) {
    uint32_t v; memcpy(&v, p, 4); return (int32_t)RL_SWAP32(v);
}
static inline int64_t rl_load64(const uint8_t *p) {
    uint64_t v; memcpy(&v, p, 8); return (int64_t)RL_SWAP64(v);
}
static inline void rl_store16(uint8_t *p, int16_t x) {
    uint16_t v = RL_SWAP16((uint16_t)x); memcpy(p, &v, 2);
}
static inline void rl_store32(uint8_t *p, int32_t x) {
    uint32_t v = RL_SWAP32((uint32_t)x); memcpy(p, &v, 4);
}
static inline void rl_store64(uint8_t *p, int64_t x) {
    uint64_t v = RL_SWAP64((uint64_t)x); memcpy(p, &v, 8);
}

/* Java's long arithmetic wraps; C's signed arithmetic must not. */
static inline int64_t rl_add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t rl_sub64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* Who sees a store made behind the first fence sees, behind the second, all stores made before. */
static inline void rl_publish(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void rl_observe(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void rl_prefetch(const uint8_t *p) { __builtin_prefetch(p, 1, 3); }

#endif
