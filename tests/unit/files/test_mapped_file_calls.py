"""Appending by calls to the system instead of through the map."""

import pytest
from file_fakes import SIZE

from rocketlake.errors import FileAccessError
from rocketlake.files.file_traits import LOG_FILES, QUEUE_FILES


@pytest.mark.parametrize("traits", [LOG_FILES, QUEUE_FILES])
def test_append_by_call_is_seen_like_any_other(make, path, traits):
    file = make(traits)
    file.append(b"abc")
    assert file.append_by_call(memoryview(b"defg"))
    file.append(b"h")
    assert path.read_bytes()[:9] == bytes(file.map()[:9]) == b"abcdefgh\0"
    assert not file.append_by_call(bytes(SIZE))
    assert file.wrote == 8


@pytest.mark.parametrize("traits", [LOG_FILES, QUEUE_FILES])
def test_what_a_failed_call_left_is_made_zeros_by_the_next_reserve(make, ops, path, traits):
    file = make(traits)
    file.append(b"abc")
    ops.faults["write"] = FileAccessError(str(path), "write failed")
    with pytest.raises(FileAccessError):
        file.append_by_call(b"defg")
    ops.faults.clear()
    with path.open("r+b") as half:  # the system may have written some of it
        half.seek(3)
        half.write(b"defg")
    assert file.wrote == 3
    file.reserve(1)
    file.append(b"h")
    assert path.read_bytes()[:8] == b"abch" + bytes(4)
