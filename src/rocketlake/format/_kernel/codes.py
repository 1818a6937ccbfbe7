"""What the two kernels and their callers agree on: why a scan stopped, what it checks."""

from enum import IntEnum, IntFlag


class StopReason(IntEnum):
    """Why a scan ended, or what is wrong with one record."""

    OK = 0
    """Nothing is wrong (one record), or there was no more room for rows (a scan)."""
    END_OF_DATA = 1
    """The end was reached, or bytes that nobody has written yet."""
    END_OF_FILE = 2
    """The blank record that fills a file."""
    TORN = 3
    """The record reaches beyond the bytes there are."""
    BAD_MAGIC = 4
    """Neither a record nor a blank one begins here."""
    BAD_SIZE = 5
    """The lengths inside the record do not add up to its size."""
    BAD_CRC = 6
    """The body, or the whole record, does not have its checksum."""
    BAD_OFFSET = 7
    """The record says that it belongs to another place of the log."""


class Check(IntFlag):
    """What a scan checks beyond the shape of a record."""

    SHAPE = 0
    BODY_CRC = 1
    RECORD_CRC = 2
    """Where a record carries the whole-record checksum, it must be right."""
    RECORD_CRC_REQUIRED = 4
    """A record without the whole-record checksum is bad; the body's own is not looked at."""
    OFFSET = 8
