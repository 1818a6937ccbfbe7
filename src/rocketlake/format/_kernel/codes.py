"""What the two kernels and their callers agree on: stop reasons, checks, traits, columns."""

from enum import IntEnum, IntFlag


class StopReason(IntEnum):
    """Why a scan ended, or what is wrong with one record."""

    OK = 0
    """Nothing is wrong (one record), or there was no more room for rows (a scan)."""
    END_OF_DATA = 1
    """The end was reached, or bytes that were not written yet."""
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
    LOST_PAGE = 8
    """The last part of the record never reached the disk; no scan tells this, a start does."""


class Check(IntFlag):
    """What a scan checks beyond the shape of a record."""

    SHAPE = 0
    BODY_CRC = 1
    RECORD_CRC = 2
    """Where a record carries the whole-record checksum, it must be right."""
    RECORD_CRC_REQUIRED = 4
    """A record without the whole-record checksum is bad; the body's own is not looked at."""
    OFFSET = 8
    HEAD_ONLY = 16
    """In place of all others: size, magic and place. Only for ranges of records."""


class ReadStop(IntEnum):
    """Why reading the records of queue units ended."""

    END = 0
    """There are no more units, or the next one has a number that was not asked for."""
    FULL = 1
    """The next message would be one too many, or would have too many bytes."""
    OUTSIDE = 2
    """The next unit points to another part of the log."""
    DAMAGED = 3
    """The record of the next unit is not good; a stop reason says why."""


class BulkStop(IntEnum):
    """Why appending staged records ended."""

    DONE = 0
    """There are no more."""
    FULL = 1
    """The next one does not fit into the file."""
    BY_HAND = 2
    """The next one is to be put by the caller."""
    BAD = 3
    """What follows is no staged record, or wants a queue that is not there."""


class Trait(IntFlag):
    """What dispatch has to know about a record before it looks closer."""

    ENTERS_QUEUE = 1
    """Its queue gets a unit: no transaction, or one that was committed."""
    IS_INDEXED = 2
    """Its keys go into the index: everything but what was rolled back."""
    IS_SPECIAL = 4
    """It may be delayed, an inner batch or in several queues: its properties decide."""


class ArrowColumn(IntFlag):
    """The columns of `arrow_columns`; their buffers come in this order."""

    TOPIC = 1
    MSG_ID = 2
    UNIQUE_KEY = 4
    KEYS = 8
    TAGS = 16
    BODY = 32
    PROPERTIES = 64
    BORN_HOST = 128
    STORE_HOST = 256
