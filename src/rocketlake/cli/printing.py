"""Printing found messages as JSON lines."""

import sys

import numpy as np

from rocketlake.cli.lines import BodyForm, ExtLine, Line, encode, lines_of
from rocketlake.cli.select import Found
from rocketlake.format.queue_unit import is_ext_address
from rocketlake.format.record import RecordColumns
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore


def first_of(found: Found, count: int) -> Found:
    """Return at most so many of the messages."""
    if len(found.columns) <= count:
        return found
    return Found(
        RecordColumns(found.columns.buffer, found.columns.rows[:count]),
        found.tags_codes[:count],
        found.queue_offsets[:count],
        found.batch_sizes[:count],
        found.queued[:count] if found.queued is not None else None,
    )


class JsonPrinter:
    """Writes JSON lines."""

    def __init__(self, view: OfflineStore, form: BodyForm) -> None:
        self._view = view
        self._form = form

    def write(self, found: Found) -> None:
        """Write a line for each message."""
        lines = list(lines_of(found.columns, found.tags_codes, self._form))
        self._add_rare(lines, found)
        sys.stdout.buffer.write(encode(lines))

    def _add_rare(self, lines: list[Line], found: Found) -> None:
        """Add what few messages have: another queue offset, a batch, an extension unit."""
        offsets = np.array(found.queue_offsets, np.int64)
        sizes = np.array(found.batch_sizes, np.int64)
        for index in np.flatnonzero((offsets != found.columns["queue_offset"]) | (sizes != 1)):
            lines[index].cq_offset = int(offsets[index])
            lines[index].batch_num = int(sizes[index])
        for line, code in zip(lines, found.tags_codes, strict=True):
            if is_ext_address(code):
                self._add_ext(line)
        if found.queued is not None:
            for line, queued in zip(lines, found.queued, strict=True):
                line.queued = queued

    def _add_ext(self, line: Line) -> None:
        unit = self._view.ext_unit(QueueKey(line.topic, line.queue_id), line.tags_code)
        if unit is not None:
            bitmap = unit.bitmap.hex() if unit.bitmap else None
            line.ext = ExtLine(unit.size, unit.tags_code, unit.store_timestamp, bitmap)
            if self._view.traits.is_5x:
                # Compat: 5.x hands out the code of the extension, 4.x the address.
                line.tags_code = unit.tags_code
