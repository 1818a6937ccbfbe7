"""Memory calls of the compiled kernel: none gets a null pointer."""

import re
from pathlib import Path

import numpy as np
import pytest

import rocketlake.format._kernel as kernel
from rocketlake.format.dispatch import key_entries
from rocketlake.format.record import ROW_DTYPE, RecordColumns

FOLDER = Path(kernel.__file__).parent
SOURCES = sorted([*FOLDER.glob("*.pyx"), *FOLDER.glob("*.pxi")])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_kernel_takes_memory_calls_from_its_own_header(path: Path):
    """That header leaves out calls for empty ranges, whose address may be null."""
    assert not re.search(r"libc\.string|<string\.h>", path.read_text(encoding="utf-8"))


def test_rows_without_a_buffer_are_looked_at():
    """A row of zeros has an empty topic at the beginning of a buffer that has no address."""
    columns = RecordColumns(b"", np.zeros(3, ROW_DTYPE))
    codes, topics = columns.topics()
    assert (codes.tolist(), topics) == ([0, 0, 0], [""])
    hashes, rows = key_entries(columns)
    assert len(hashes) == len(rows) == 0
