"""What no store can be faster than: copying the bytes, and bringing them to disk."""

import os
import time
from pathlib import Path

from rocketlake.files.ops import PosixFileOps


def copied_per_second(folder: Path, data: bytes, count: int, file_size: int) -> float:
    """Copy bytes one behind the other into a mapped file, its space allocated, its pages there."""
    writer = PosixFileOps().create(folder / "copied", file_size)
    memory = writer.map(file_size)
    view = memory.buffer
    size = len(data)
    memory.populate(0, min(count * size, file_size))
    at = 0
    begin = time.perf_counter()
    for _ in range(count):
        view[at : at + size] = data
        at += size
        if at + size > file_size:
            at = 0
    seconds = time.perf_counter() - begin
    memory.close()
    writer.close()
    return count / seconds


def synced_per_second(folder: Path, data: bytes, count: int, file_size: int) -> float:
    """Write bytes one behind the other, with an `fdatasync` after each."""
    path = folder / "synced"
    PosixFileOps().create(path, file_size).close()
    size = len(data)
    at = 0
    with path.open("r+b", buffering=0) as file:
        descriptor = file.fileno()
        begin = time.perf_counter()
        for _ in range(count):
            os.pwrite(descriptor, data, at)
            os.fdatasync(descriptor)
            at += size
            if at + size > file_size:
                at = 0
        seconds = time.perf_counter() - begin
    return count / seconds
