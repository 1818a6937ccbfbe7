# Numbers of the format, under their names in format/layout.py; included by native.pyx.

cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    MAGIC_BLANK = -875286124
    RECORD_MAGIC_AT = 4
    RECORD_BODY_CRC_AT = 8
    RECORD_QUEUE_ID_AT = 12
    RECORD_FLAG_AT = 16
    RECORD_QUEUE_OFFSET_AT = 20
    RECORD_PHYSICAL_OFFSET_AT = 28
    RECORD_SYS_FLAG_AT = 36
    RECORD_BORN_TIMESTAMP_AT = 40
    RECORD_BORN_HOST_AT = 48
    HOST_V4_SIZE = 8
    HOST_V6_SIZE = 20
    RECORD_FIXED_SIZE = 68
    RECORD_MIN_SIZE = 91
    RECORD_CRC_SIZE = 20
    RECORD_CRC_DIGITS_AT = 9
    BLANK_HEADER_SIZE = 8
    PROPERTY_NAME_END = 1
    PROPERTY_END = 2
    MAX_I8 = 127
    MAX_I16 = 32767
    MAX_I32 = 2147483647
    UNIT_SIZE = 20
    UNIT_RECORD_SIZE_AT = 8
    UNIT_TAGS_CODE_AT = 12
    BATCH_UNIT_SIZE = 46
    BATCH_UNIT_BASE_OFFSET_AT = 28
    BATCH_UNIT_COUNT_AT = 36
    INDEX_HEADER_SIZE = 40
    INDEX_END_TIMESTAMP_AT = 8
    INDEX_BEGIN_OFFSET_AT = 16
    INDEX_END_OFFSET_AT = 24
    INDEX_SLOT_COUNT_AT = 32
    INDEX_ENTRY_COUNT_AT = 36
    INDEX_SLOT_SIZE = 4
    INDEX_ENTRY_SIZE = 20
    ENTRY_OFFSET_AT = 4
    ENTRY_TIME_DIFF_AT = 12
    ENTRY_PREVIOUS_AT = 16

cdef int64_t EXT_ADDRESS_MAX = -2147483649LL

cdef enum:
    BORN_V6 = 0x10  # bits of the system flag: hosts of 20 bytes
    STORE_V6 = 0x20


cdef inline int born_size_of(int32_t sys_flag) noexcept nogil:
    return HOST_V6_SIZE if sys_flag & BORN_V6 else HOST_V4_SIZE


cdef inline int store_size_of(int32_t sys_flag) noexcept nogil:
    return HOST_V6_SIZE if sys_flag & STORE_V6 else HOST_V4_SIZE


cdef inline int store_timestamp_at(int32_t sys_flag) noexcept nogil:
    return RECORD_BORN_HOST_AT + born_size_of(sys_flag)


cdef enum:  # codes.StopReason
    OK = 0
    END_OF_DATA = 1
    END_OF_FILE = 2
    TORN = 3
    BAD_MAGIC = 4
    BAD_SIZE = 5
    BAD_CRC = 6
    BAD_OFFSET = 7

cdef enum:  # codes.Check
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
    "RECORD_MAGIC_AT": RECORD_MAGIC_AT,
    "RECORD_BODY_CRC_AT": RECORD_BODY_CRC_AT,
    "RECORD_QUEUE_ID_AT": RECORD_QUEUE_ID_AT,
    "RECORD_FLAG_AT": RECORD_FLAG_AT,
    "RECORD_QUEUE_OFFSET_AT": RECORD_QUEUE_OFFSET_AT,
    "RECORD_PHYSICAL_OFFSET_AT": RECORD_PHYSICAL_OFFSET_AT,
    "RECORD_SYS_FLAG_AT": RECORD_SYS_FLAG_AT,
    "RECORD_BORN_TIMESTAMP_AT": RECORD_BORN_TIMESTAMP_AT,
    "RECORD_BORN_HOST_AT": RECORD_BORN_HOST_AT,
    "HOST_V4_SIZE": HOST_V4_SIZE,
    "HOST_V6_SIZE": HOST_V6_SIZE,
    "RECORD_FIXED_SIZE": RECORD_FIXED_SIZE,
    "RECORD_MIN_SIZE": RECORD_MIN_SIZE,
    "RECORD_CRC_SIZE": RECORD_CRC_SIZE,
    "RECORD_CRC_DIGITS_AT": RECORD_CRC_DIGITS_AT,
    "BLANK_HEADER_SIZE": BLANK_HEADER_SIZE,
    "PROPERTY_NAME_END": PROPERTY_NAME_END,
    "PROPERTY_END": PROPERTY_END,
    "UNIT_SIZE": UNIT_SIZE,
    "UNIT_RECORD_SIZE_AT": UNIT_RECORD_SIZE_AT,
    "UNIT_TAGS_CODE_AT": UNIT_TAGS_CODE_AT,
    "BATCH_UNIT_SIZE": BATCH_UNIT_SIZE,
    "BATCH_UNIT_BASE_OFFSET_AT": BATCH_UNIT_BASE_OFFSET_AT,
    "BATCH_UNIT_COUNT_AT": BATCH_UNIT_COUNT_AT,
    "EXT_ADDRESS_MAX": EXT_ADDRESS_MAX,
    "INDEX_HEADER_SIZE": INDEX_HEADER_SIZE,
    "INDEX_END_TIMESTAMP_AT": INDEX_END_TIMESTAMP_AT,
    "INDEX_BEGIN_OFFSET_AT": INDEX_BEGIN_OFFSET_AT,
    "INDEX_END_OFFSET_AT": INDEX_END_OFFSET_AT,
    "INDEX_SLOT_COUNT_AT": INDEX_SLOT_COUNT_AT,
    "INDEX_ENTRY_COUNT_AT": INDEX_ENTRY_COUNT_AT,
    "INDEX_SLOT_SIZE": INDEX_SLOT_SIZE,
    "INDEX_ENTRY_SIZE": INDEX_ENTRY_SIZE,
    "ENTRY_OFFSET_AT": ENTRY_OFFSET_AT,
    "ENTRY_TIME_DIFF_AT": ENTRY_TIME_DIFF_AT,
    "ENTRY_PREVIOUS_AT": ENTRY_PREVIOUS_AT,
    "ROW_SIZE": <int>sizeof(Row),
}
