"""Sealed records straight into a file's memory: frames, append, append_batch, the tail of a log.

The contract is in `_kernel/pure/appending.py` and `tail.py`. A size is positive when the records
were written, negative when they do not fit, and 0 when a message does not qualify for a guarded
frame.
"""

from typing import TYPE_CHECKING

from rocketlake.format._kernel.chooser import KERNEL as _KERNEL

if TYPE_CHECKING:
    from rocketlake.format._kernel.pure.appending import RecordFrame
    from rocketlake.format._kernel.pure.field_append import PropertyEdits
    from rocketlake.format._kernel.pure.tail import LogTail
else:
    RecordFrame = _KERNEL.RecordFrame
    PropertyEdits = _KERNEL.PropertyEdits
    LogTail = _KERNEL.LogTail

__all__ = [
    "LogTail",
    "PropertyEdits",
    "RecordFrame",
    "append",
    "append_batch",
    "append_fields",
    "are_inert",
    "set_together",
]

append = _KERNEL.append
append_batch = _KERNEL.append_batch
append_fields = _KERNEL.append_fields
are_inert = _KERNEL.are_inert
set_together = _KERNEL.set_together
