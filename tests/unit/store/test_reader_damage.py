"""Reads that meet what is gone or damaged: it is told, passed over and never returned."""

import pytest

from rocketlake.errors import FileAccessError
from rocketlake.format.queue_unit import PREFILL, QueueUnit
from rocketlake.store.api import GetStatus
from support.read_parts import ReadParts, ask, numbers, ten_messages

KINDS = ("get", "columns")


def bounds(result):
    return result.next_offset, result.min_offset, result.max_offset


@pytest.fixture
def parts(tmp_path):
    return ReadParts(tmp_path)


@pytest.fixture
def ten(tmp_path):
    return ten_messages(tmp_path)


# --- what is gone -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_an_expired_log_file_are_being_removed(ten, kind):
    in_first = sum(unit.physical_offset < 4096 for unit in ten.units)
    ten.log.expire()
    read = getattr(ten.reader(), kind)
    result = read(ask(0))
    assert (result.status, numbers(result)) == (GetStatus.FOUND, list(range(in_first, 10)))
    result = read(ask(0, 1, max_bytes=1))
    assert (result.status, result.next_offset) == (GetStatus.FOUND, in_first + 1)
    ten.log.expire()
    ten.log.last()
    result = read(ask(4))
    assert result.status is not GetStatus.FOUND
    assert result.next_offset == 10


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_removed_messages_says_so_and_goes_on_behind_them(ten, kind):
    in_first = sum(unit.physical_offset < 4096 for unit in ten.units)
    ten.log.expire()
    ten.queue("T").next_offset = in_first
    result = getattr(ten.reader(), kind)(ask(1))
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, in_first)
    assert list(result.corrupt) == []
    assert ten.stats.corrupt_count == 0


def test_full_read_does_not_pass_over_what_is_missing(ten):
    units = ten.units
    middle = next(i for i, unit in enumerate(units) if unit.physical_offset >= 4096)
    ten.log.files.files = ten.log.files.files[:1]
    last = ten.log.files.files[0]
    assert last.readable_end == 4096
    result = ten.reader().get(ask(0, middle))
    assert (len(result.messages), result.next_offset) == (middle, middle)


@pytest.mark.parametrize("kind", KINDS)
def test_file_that_is_going_away_counts_as_gone(ten, kind):
    ten.log.files.files[0].shutdown(1 << 40)
    in_first = sum(unit.physical_offset < 4096 for unit in ten.units)
    assert numbers(getattr(ten.reader(), kind)(ask(0))) == list(range(in_first, 10))


class StandIn:
    """A file of which some things are different."""

    def __init__(self, file, **different):
        self._file = file
        self._different = different

    def __getattr__(self, name):
        return self._different.get(name) or getattr(self._file, name)


def refuse(*_):
    raise FileAccessError("a file", "it cannot be opened")


@pytest.mark.parametrize("kind", KINDS)
def test_file_let_go_while_it_is_looked_at_is_held_and_read(ten, kind):
    """Its memory was given back between two lines: the second try holds it first."""
    gone = memoryview(b"")
    gone.release()
    for files in (ten.log.files, ten.queue("T").files):
        files.files = tuple(StandIn(file, map=lambda: gone) for file in files.files)
    assert numbers(getattr(ten.reader(), kind)(ask(0, 4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_file_deleted_before_it_was_mapped_counts_as_gone(ten, kind):
    first, second = ten.log.files.files
    in_first = sum(unit.physical_offset < 4096 for unit in ten.units)
    different = {"map": refuse, "slice": refuse}
    ten.log.files.files = (StandIn(first, last_modified_ms=int, **different), second)
    assert numbers(getattr(ten.reader(), kind)(ask(0))) == list(range(in_first, 10))
    ten.log.files.files = (StandIn(first, **different), second)
    with pytest.raises(FileAccessError, match="cannot be opened"):
        getattr(ten.reader(), kind)(ask(0))


@pytest.mark.parametrize("kind", KINDS)
def test_places_kept_for_messages_never_held_are_passed_over(parts, kind):
    queue = parts.queue("T")
    for _ in range(3):
        queue.append(PREFILL)
    parts.put(body=b"first")
    result = getattr(parts.reader(), kind)(ask(0))
    assert (numbers(result), result.next_offset) == ([3], 4)
    queue.next_offset = 3
    result = getattr(parts.reader(), kind)(ask(1))
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 3)
    assert list(result.corrupt) == []


# --- what is damaged ----------------------------------------------------------------------------


def test_damaged_record_is_listed_counted_and_never_returned(ten):
    bad = ten.units[3].physical_offset
    ten.log.flip(bad + 88)
    result = ten.reader().get(ask(0))
    assert numbers(result) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (corrupt,) = result.corrupt
    path = str(ten.log.files.files[0].path)
    assert (corrupt.path, corrupt.position, corrupt.queue_offset) == (path, bad, 3)
    assert "checksum" in corrupt.reason
    assert ten.stats.corrupt_count == 1
    assert bounds(result) == (10, 0, 10)


def test_columns_stop_before_a_damaged_record_and_the_next_read_lists_it(ten):
    ten.log.flip(ten.units[3].physical_offset + 88)
    reader = ten.reader()
    first = reader.columns(ask(0))
    assert (numbers(first), first.next_offset, list(first.corrupt)) == ([0, 1, 2], 3, [])
    second = reader.columns(ask(3, 2))
    assert numbers(second) == [4, 5]
    assert [unit.queue_offset for unit in second.corrupt] == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_damage_goes_on_behind_it(ten, kind):
    for unit in ten.units[8:]:
        ten.log.flip(unit.physical_offset + 4)
    result = getattr(ten.reader(), kind)(ask(8))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    assert [unit.queue_offset for unit in result.corrupt] == [8, 9]
    assert ten.stats.corrupt_count == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("offset", "size", "reason"),
    [
        (1 << 40, 100, "behind the end"),
        (-5, 100, "behind the end"),
        (3000, 200, "no record begins here"),
        (0, 50, "lengths"),
        (4000, 1000, "beyond the end"),
    ],
)
def test_unit_that_points_to_no_record_is_stepped_over(ten, kind, offset, size, reason):
    ten.queue("T").append(QueueUnit(offset, size, 0).encode())
    ten.put(body=b"behind")
    result = getattr(ten.reader(), kind)(ask(10))
    assert (numbers(result), result.next_offset) == ([11], 12)
    assert [unit.queue_offset for unit in result.corrupt] == [10]
    assert reason in result.corrupt[0].reason


def test_record_of_another_place_is_damage(parts):
    """A unit must lead to the record that says it lies there."""
    unit = parts.put(body=b"x" * 100)
    data = bytes(parts.log.last().buffer[: unit.size])
    parts.log.last().append(data)
    parts.queue("T").append(QueueUnit(unit.size, unit.size, 0).encode())
    result = parts.reader().get(ask(0))
    assert numbers(result) == [0]
    assert "another place" in result.corrupt[0].reason
