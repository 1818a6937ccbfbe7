"""A descriptor is closed once, and never under a thread that uses it."""

import os

from rocketlake.clock import SystemClock
from rocketlake.files import descriptor
from rocketlake.files.file_traits import LOG_FILES, FilePlace
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.ops import PosixFileOps


def test_descriptor_is_forgotten_before_it_is_closed(tmp_path, monkeypatch):
    """A second close that comes meanwhile would close the file that got the number."""
    (tmp_path / "f").write_bytes(b"x")
    reader = PosixFileOps().open_reader(tmp_path / "f")
    closed = []

    def close(number: int) -> None:
        closed.append(number)
        reader.close()  # as another thread does, while the system closes it

    monkeypatch.setattr(descriptor.os, "close", close)
    reader.close()
    monkeypatch.undo()
    assert len(closed) == 1
    os.close(closed[0])


def test_file_that_becomes_full_keeps_its_descriptor_for_who_uses_it(tmp_path):
    place = FilePlace(tmp_path / f"{0:020d}", 0, 8192)
    file = MappedFile(PosixFileOps(), SystemClock(), place, LOG_FILES)
    file.create()
    file.append(bytes(8192))
    with file._writer() as writer:
        file.flush(0)  # the last one: the file needs no descriptor any more
        assert not file._writers.is_open
        writer.sync()
        writer.write(0, b"y")
    assert bytes(file.map()[:1]) == b"y"
    file.shutdown(0)
