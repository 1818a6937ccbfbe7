"""Names of the properties the store itself reads or writes."""

from typing import Final

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
RECORD_CRC: Final = "__CRC32#"

KEY_SEPARATOR: Final = " "
MULTI_SEPARATOR: Final = ","
