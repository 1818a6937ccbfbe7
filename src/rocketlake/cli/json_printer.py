"""Printing found messages as JSON lines."""

import sys

import numpy as np

from rocketlake.cli.lines import BodyForm, ExtLine, Line, encode, lines_of
from rocketlake.cli.message_search import Found
from rocketlake.format.queue_unit import is_ext_address
from rocketlake.model.flags import COMPRESSED
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore


class JsonPrinter:
    """Writes JSON lines."""

    def __init__(self, view: OfflineStore, form: BodyForm) -> None:
        self._view = view
        self._form = form

    def write(self, found: Found) -> None:
        """Write a line for each message."""
        if self._is_plain(found):
            codes = np.array(found.tags_codes, np.int64)
            with_body = self._form is BodyForm.BASE64
            sys.stdout.buffer.write(found.columns.json_lines(codes, with_body=with_body))
            return
        lines = lines_of(found.columns, found.tags_codes, self._form)
        self._add_rare(lines, found)
        sys.stdout.buffer.write(encode(lines))

    def _is_plain(self, found: Found) -> bool:
        """Tell whether no message needs more than the record itself says, in the usual form."""
        if self._form not in (BodyForm.BASE64, BodyForm.NONE) or found.queued is not None:
            return False
        if (found.columns["sys_flag"] & COMPRESSED).any() and self._form is BodyForm.BASE64:
            return False
        return (
            not is_ext_address(min(found.tags_codes, default=0))
            and max(found.batch_sizes, default=1) == 1
            and bool((found.columns["queue_offset"] == np.array(found.queue_offsets)).all())
        )

    def finish(self) -> None:
        """Write what is buffered."""
        sys.stdout.flush()

    def _add_rare(self, lines: list[Line], found: Found) -> None:
        """Add the rare fields: another queue offset, a batch, an extension unit."""
        offsets = np.array(found.queue_offsets, np.int64)
        sizes = np.array(found.batch_sizes, np.int64)
        for index in np.flatnonzero((offsets != found.columns["queue_offset"]) | (sizes != 1)):
            lines[index].cq_offset = int(offsets[index])
            lines[index].batch_num = int(sizes[index])
        if found.tags_codes and is_ext_address(min(found.tags_codes)):
            for line in lines:
                if is_ext_address(line.tags_code):
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
