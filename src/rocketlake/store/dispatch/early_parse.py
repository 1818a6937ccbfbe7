"""ParsedEarly: records that are parsed while the disk still writes them.

With SYNC_FLUSH a record may be read once it is on the disk. The append wakes an idle dispatch
thread before that. The thread parses the record then, which shortens the time from the flush to the
reader.
"""

from typing import Final

from msgspec import Struct

from rocketlake.format.record import Check, scan
from rocketlake.store.dispatch.placement import Records
from rocketlake.store.log.commit_log import CommitLog

# Why: parsing early helps a reader that waits for one message. More bytes mean many puts at a time,
# whose flush covers records that are not in the log yet.
_SIZE_MAX: Final = 16 << 10


class ParsedEarly(Struct, frozen=True):
    """A copy of the records of one range of the log."""

    start: int
    end: int
    records: Records

    def covers(self, start: int, end: int) -> bool:
        """Tell whether these are the first records of a range, and end inside it."""
        return self.start == start and self.end <= end


def parse_early(log: CommitLog, start: int) -> ParsedEarly | None:
    """Parse what is appended behind an offset; None if there is nothing, or too much.

    The bytes are copied, so that no file is held. Nothing that is found here may be shown before
    `CommitLog.confirm_offset` has passed its end, or after the log was cut.
    """
    size = log.max_offset - start
    if not 0 < size <= _SIZE_MAX:
        return None
    held = log.slice(start)
    if held is None:
        return None
    with held:
        copy = bytes(held.view[: min(held.size, size)])
    found = scan(copy, base_offset=start, checks=Check.OFFSET)
    if not len(found.columns):
        return None
    return ParsedEarly(start, start + found.position, Records(found.columns))
