/* Whether bytes of a mapped file are in memory, or touching them would wait for the disk. */
#ifndef ROCKETLAKE_RESIDENT_H
#define ROCKETLAKE_RESIDENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define RL_PAGES_MAX 64 /* more than that are taken for absent: asking costs too much */

static int rl_is_resident(const uint8_t *p, int64_t n) {
    unsigned char pages[RL_PAGES_MAX];
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)p / size * size;
    size_t count;
    if (n <= 0) return 1;
    count = ((uintptr_t)p + (uintptr_t)n - begin + size - 1) / size;
    if (count > RL_PAGES_MAX) return 0;
    if (mincore((void *)begin, count * size, (void *)pages) != 0) return 1;
    while (count--) {
        if (!(pages[count] & 1)) return 0;
    }
    return 1;
}

#endif
