"""Every magic number, field offset and unit size; no code.

The tables are in docs/formats; names are the same there.
"""

from typing import Final

# --- commit-log record (docs/formats/commitlog.md) ---------------------------------------------

MAGIC_V1: Final = -626843481  # DAA320A7: topic length is one signed byte
MAGIC_V2: Final = -626843477  # DAA320AB: topic length is two bytes
MAGIC_BLANK: Final = -875286124  # CBD43194: filler at the end of a file

RECORD_TOTAL_SIZE_AT: Final = 0  # i32
RECORD_MAGIC_AT: Final = 4  # i32
RECORD_BODY_CRC_AT: Final = 8  # i32
RECORD_QUEUE_ID_AT: Final = 12  # i32
RECORD_FLAG_AT: Final = 16  # i32
RECORD_QUEUE_OFFSET_AT: Final = 20  # i64
RECORD_PHYSICAL_OFFSET_AT: Final = 28  # i64
RECORD_SYS_FLAG_AT: Final = 36  # i32
RECORD_BORN_TIMESTAMP_AT: Final = 40  # i64
RECORD_BORN_HOST_AT: Final = 48  # 8 or 20 bytes; everything behind it moves with its size

HOST_V4_SIZE: Final = 8  # 4 address bytes and an i32 port
HOST_V6_SIZE: Final = 20  # 16 address bytes and an i32 port
RECORD_FIXED_SIZE: Final = 68  # all fields of fixed size but the hosts and the three lengths
RECORD_MIN_SIZE: Final = 91  # V1, IPv4 hosts, nothing in body, topic and properties

BLANK_HEADER_SIZE: Final = 8  # i32 rest of the file, i32 MAGIC_BLANK

CRC_MASK: Final = 0x7FFFFFFF  # checksums are kept without their top bit

# Whole-record checksum: the last property, `__CRC32#` 0x01 ten digits 0x02, lowest digit first.
RECORD_CRC_SIZE: Final = 20
RECORD_CRC_NAME: Final = b"__CRC32#"
RECORD_CRC_DIGITS_AT: Final = 9  # behind the name and its end

PROPERTY_NAME_END: Final = 0x01
PROPERTY_END: Final = 0x02

MAX_I8: Final = 127
MAX_I16: Final = 32767
MAX_I32: Final = 2147483647
MAX_I64: Final = 9223372036854775807

# One parsed record as the kernel writes it: native byte order, no padding.
#   9 x i64: position physical_offset queue_offset born_timestamp store_timestamp
#            prepared_transaction_offset body_position topic_position properties_position
#   7 x i32: size body_crc queue_id flag sys_flag reconsume_times body_size
#   2 x i16: topic_size properties_size
ROW_FORMAT: Final = "=9q7i2h"
ROW_SIZE: Final = 104

# --- client batch (docs/formats/commitlog.md, "Batches") ---------------------------------------

BATCH_ENTRY_FIXED_SIZE: Final = 22  # size, magic, crc, flag, body length, property length

# --- consume queue (docs/formats/consumequeue.md) ----------------------------------------------

UNIT_SIZE: Final = 20  # i64 physical_offset, i32 size, i64 tags_code
UNIT_RECORD_SIZE_AT: Final = 8
UNIT_TAGS_CODE_AT: Final = 12
PREFILL_SIZE: Final = MAX_I32  # size field of a unit that stands for a message never held
BATCH_UNIT_SIZE: Final = 46  # begins as a unit
BATCH_UNIT_BASE_OFFSET_AT: Final = 28  # i64
BATCH_UNIT_COUNT_AT: Final = 36  # i16
EXT_UNIT_FIXED_SIZE: Final = 20  # i16 size, i64 tags_code, i64 store_timestamp, i16 bitmap_size
EXT_END_MARK_SIZE: Final = 4  # kept free at a file's end for the i16 -1 mark
EXT_ADDRESS_BASE: Final = -9223372036854775808
EXT_ADDRESS_MAX: Final = -2147483649  # a tags_code up to here is an extension address

# --- index (docs/formats/index.md) -------------------------------------------------------------

INDEX_HEADER_SIZE: Final = 40  # begins with the i64 begin timestamp
INDEX_END_TIMESTAMP_AT: Final = 8  # i64
INDEX_BEGIN_OFFSET_AT: Final = 16  # i64
INDEX_END_OFFSET_AT: Final = 24  # i64
INDEX_SLOT_COUNT_AT: Final = 32  # i32: slots in use
INDEX_ENTRY_COUNT_AT: Final = 36  # i32
INDEX_SLOT_SIZE: Final = 4
INDEX_ENTRY_SIZE: Final = 20  # begins with the i32 hash of the key
ENTRY_OFFSET_AT: Final = 4  # i64 physical offset
ENTRY_TIME_DIFF_AT: Final = 12  # i32 seconds
ENTRY_PREVIOUS_AT: Final = 16  # i32 number of the entry before in the slot's chain

# --- checkpoint, timer (docs/formats/checkpoint.md, timer.md) ----------------------------------

CHECKPOINT_SIZE: Final = 4096
TIMER_UNIT_SIZE: Final = 52
TIMER_BLANK_SIZE: Final = 16  # i32 rest, i64 0, i32 MAGIC_BLANK
WHEEL_SLOT_SIZE: Final = 32
WHEEL_SLOTS: Final = 2 * 604_800

# --- sizes a store has by default -------------------------------------------------------------

DEFAULT_LOG_FILE_SIZE: Final = 1 << 30
DEFAULT_QUEUE_FILE_SIZE: Final = 300_000 * UNIT_SIZE
DEFAULT_BATCH_QUEUE_FILE_SIZE: Final = 300_000 * BATCH_UNIT_SIZE
DEFAULT_EXT_FILE_SIZE: Final = 48 << 20
DEFAULT_INDEX_SLOTS: Final = 5_000_000
DEFAULT_INDEX_ENTRIES: Final = 20_000_000
DEFAULT_TIMER_LOG_FILE_SIZE: Final = 100 << 20
