/* CRC-32 (IEEE 802.3, reflected), eight table look-ups per eight bytes, and, where the processor
 * multiplies without carry, 64 bytes per step.
 *
 * The carry-less way: a message is a polynomial M; M mod P does not change when 128 bits A, lying
 * D bits before other bits B, are replaced by A * (x^D mod P) added to B. So four lanes of 128
 * bits each jump 512 bits ahead until fewer than 64 bytes are left; the lanes are then folded
 * into one, whose 16 bytes go through the tables like any others. The multipliers are computed at
 * start from the polynomial alone. */
#ifndef ROCKETLAKE_CRC32_H
#define ROCKETLAKE_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define RL_HAVE_CLMUL 1
#include <immintrin.h>
#endif

#define RL_POLYNOMIAL 0xEDB88320u /* bit i is the coefficient of x^(31-i) */

static uint32_t rl_crc_table[8][256];

static uint32_t rl_crc_tables(uint32_t crc, const uint8_t *p, size_t n) {
    while (n && ((uintptr_t)p & 7)) {
        crc = (crc >> 8) ^ rl_crc_table[0][(crc ^ *p++) & 0xFF];
        n--;
    }
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= crc;
        crc = rl_crc_table[7][word & 0xFF] ^ rl_crc_table[6][(word >> 8) & 0xFF] ^
              rl_crc_table[5][(word >> 16) & 0xFF] ^ rl_crc_table[4][(word >> 24) & 0xFF] ^
              rl_crc_table[3][(word >> 32) & 0xFF] ^ rl_crc_table[2][(word >> 40) & 0xFF] ^
              rl_crc_table[1][(word >> 48) & 0xFF] ^ rl_crc_table[0][word >> 56];
    }
#endif
    while (n--) crc = (crc >> 8) ^ rl_crc_table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

#ifdef RL_HAVE_CLMUL

static int rl_crc_fast;
static uint64_t rl_fold_512[2], rl_fold_128[2];

/* x^bits mod P, reflected, as the 33-bit operand the multiplication wants. */
static uint64_t rl_power(unsigned bits) {
    uint32_t value = 0x80000000u; /* x^0 */
    while (bits--) value = (value >> 1) ^ (value & 1 ? RL_POLYNOMIAL : 0);
    return (uint64_t)value << 1;
}

__attribute__((target("pclmul,sse4.1")))
static __m128i rl_fold(__m128i lane, __m128i by, __m128i onto) {
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

__attribute__((target("pclmul,sse4.1")))
static uint32_t rl_crc_folded(uint32_t crc, const uint8_t *p, size_t n) {
    const __m128i *at = (const __m128i *)p;
    __m128i by = _mm_set_epi64x((long long)rl_fold_512[1], (long long)rl_fold_512[0]);
    __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(at + 1);
    __m128i c = _mm_loadu_si128(at + 2);
    __m128i d = _mm_loadu_si128(at + 3);
    uint8_t rest[16];
    for (at += 4, n -= 64; n >= 64; at += 4, n -= 64) {
        a = rl_fold(a, by, _mm_loadu_si128(at));
        b = rl_fold(b, by, _mm_loadu_si128(at + 1));
        c = rl_fold(c, by, _mm_loadu_si128(at + 2));
        d = rl_fold(d, by, _mm_loadu_si128(at + 3));
    }
    by = _mm_set_epi64x((long long)rl_fold_128[1], (long long)rl_fold_128[0]);
    a = rl_fold(a, by, b);
    a = rl_fold(a, by, c);
    a = rl_fold(a, by, d);
    for (; n >= 16; at++, n -= 16) a = rl_fold(a, by, _mm_loadu_si128(at));
    _mm_storeu_si128((__m128i *)rest, a);
    crc = rl_crc_tables(0, rest, 16);
    return rl_crc_tables(crc, (const uint8_t *)at, n);
}

#endif

/* Call once before rl_crc32. */
static void rl_crc32_start(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (value & 1 ? RL_POLYNOMIAL : 0);
        rl_crc_table[0][i] = value;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = rl_crc_table[k - 1][i];
            rl_crc_table[k][i] = (before >> 8) ^ rl_crc_table[0][before & 0xFF];
        }
#ifdef RL_HAVE_CLMUL
    /* The low half of a lane lies 64 bits further from its target than the high half. */
    rl_fold_512[0] = rl_power(512 + 32);
    rl_fold_512[1] = rl_power(512 - 32);
    rl_fold_128[0] = rl_power(128 + 32);
    rl_fold_128[1] = rl_power(128 - 32);
    rl_crc_fast = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static inline uint32_t rl_crc32(const uint8_t *p, size_t n) {
#ifdef RL_HAVE_CLMUL
    if (rl_crc_fast && n >= 64) return ~rl_crc_folded(0xFFFFFFFFu, p, n);
#endif
    return ~rl_crc_tables(0xFFFFFFFFu, p, n);
}

#endif
