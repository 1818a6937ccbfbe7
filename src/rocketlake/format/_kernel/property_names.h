/* The names of properties that the kernel acts on, as in model/properties.py: their only place in
 * the compiled kernel.
 */
#ifndef ROCKETLAKE_PROPERTY_NAMES_H
#define ROCKETLAKE_PROPERTY_NAMES_H

#include <string.h>

#define RL_TAGS "TAGS"
#define RL_KEYS "KEYS"
#define RL_UNIQUE_KEY "UNIQ_KEY"
#define RL_WAIT "WAIT"
#define RL_DELAY "DELAY"
#define RL_TIMER_PREFIX "TIMER_"
#define RL_INNER_PREFIX "INNER_"
#define RL_INNER_NUM "INNER_NUM"
#define RL_INNER_BASE "INNER_BASE"
#define RL_MULTI_DISPATCH "INNER_MULTI_DISPATCH"
#define RL_MULTI_QUEUE_OFFSET "INNER_MULTI_QUEUE_OFFSET"
#define RL_RECORD_CRC "__CRC32#"

/* Whether `size` bytes at `name` are, or begin with, one of the names above. */
#define RL_BEGINS(name, size, text) \
    ((size_t)(size) >= sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)
#define RL_IS(name, size, text) ((size_t)(size) == sizeof(text) - 1 && RL_BEGINS(name, size, text))

/* The property that ends a record with its own checksum, before the digits are known. */
#define RL_RECORD_CRC_ROOM RL_RECORD_CRC "\001" "0000000000" "\002"

#endif
