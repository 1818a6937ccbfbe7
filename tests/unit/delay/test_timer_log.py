import pytest

from rocketlake.delay.timer_log import TimerLog
from rocketlake.errors import CorruptRecordError, FileSizeError
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import layout
from rocketlake.format.timer import TimerUnit

UNIT = layout.TIMER_UNIT_SIZE
FILE_SIZE = 3 * UNIT + 30  # three units and the filler


def unit(number, previous=-1):
    return TimerUnit(
        previous_position=previous, magic=1, write_time=1000, delay=number,
        physical_offset=100 * number, record_size=100, topic_hash=7,
    )  # fmt: skip


@pytest.fixture
def make(tmp_path, clock):
    def make_(file_size=FILE_SIZE):
        return TimerLog(PosixFileOps(), clock, tmp_path / "timerlog", file_size)

    return make_


def fill(log, count):
    positions = []
    for number in range(count):
        positions.append(log.append(unit(number, positions[-1] if positions else -1)))
    return positions


def numbers(log, start=0):
    return [
        (position + row * UNIT, int(found["delay"]))
        for position, units in log.walk(start)
        for row, found in enumerate(units)
    ]


def test_nothing_is_made_before_the_first_unit(make, tmp_path):
    log = make()
    log.load()
    assert (log.end, log.min_position) == (0, 0)
    assert log.last_unit() is None
    assert not (tmp_path / "timerlog").exists()


def test_file_ends_with_a_filler(make, tmp_path):
    log = make()
    positions = fill(log, 4)
    assert positions == [0, UNIT, 2 * UNIT, FILE_SIZE]
    data = (tmp_path / "timerlog" / "00000000000000000000").read_bytes()
    assert data[3 * UNIT :] == bytes.fromhex("0000001e0000000000000000cbd43194") + bytes(14)
    assert log.unit_at(FILE_SIZE) == unit(3, 2 * UNIT)
    assert log.unit_at(3 * UNIT) is None
    assert log.unit_at(10 * FILE_SIZE) is None


def test_file_takes_space_only_for_what_is_in_it(make, tmp_path):
    log = make(layout.DEFAULT_TIMER_LOG_FILE_SIZE)
    log.append(unit(1))
    found = (tmp_path / "timerlog" / "00000000000000000000").stat()
    assert found.st_size == layout.DEFAULT_TIMER_LOG_FILE_SIZE
    assert found.st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("count", range(9))
def test_walk_finds_all_units_and_the_end(make, count):
    log = make()
    positions = fill(log, count)
    end = log.end
    log.flush()
    assert log.flushed_where == end
    log.close()
    again = make()
    again.load()
    assert numbers(again) == list(zip(positions, range(count), strict=True))
    again.truncate(positions[-1] + UNIT if positions else 0)
    assert again.last_unit() == (unit(count - 1, [-1, *positions][-2]) if count else None)
    for start, position in enumerate(positions):
        assert len(numbers(again, position)) == count - start
    assert again.append(unit(count)) == (make_position(count))


def make_position(number):
    return number // 3 * FILE_SIZE + number % 3 * UNIT


def test_walk_tells_that_a_file_is_full(make):
    log = make()
    fill(log, 4)
    runs = [(position, len(units)) for position, units in log.walk(0)]
    assert (FILE_SIZE, 0) in runs
    assert runs[-2:] == [(FILE_SIZE, 1), (FILE_SIZE + UNIT, 0)]


def test_walk_ends_at_a_broken_unit(make, tmp_path):
    log = make()
    fill(log, 5)
    log.flush()
    log.close()
    path = tmp_path / "timerlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[2 * UNIT + 3] = 51
    path.write_bytes(data)
    again = make()
    again.load()
    assert [number for _, number in numbers(again)] == [0, 1]


def test_walk_from_between_two_units_begins_at_the_file(make):
    log = make()
    fill(log, 5)
    assert [number for _, number in numbers(log, FILE_SIZE + 7)] == [3, 4]
    assert [number for _, number in numbers(log, 99 * FILE_SIZE)] == [3, 4]


def test_chain_is_read_oldest_first_across_files(make):
    log = make()
    positions = fill(log, 5)
    assert [found.delay for found in log.chain(positions[-1])] == [0, 1, 2, 3, 4]
    assert log.chain(-1) == []


def test_chain_that_leads_nowhere_or_forward_is_damaged(make):
    log = make()
    log.append(unit(1, previous=0))
    with pytest.raises(CorruptRecordError, match="forward"):
        log.chain(0)
    with pytest.raises(CorruptRecordError, match="no unit"):
        log.chain(2 * UNIT)


def test_expired_files_go_but_the_last(make, tmp_path):
    log = make()
    positions = fill(log, 9)  # records at 0, 100, ... 800; files hold three each
    assert log.delete_expired(200) == 0
    assert log.delete_expired(201) == 1
    assert log.min_position == FILE_SIZE
    assert [found.delay for found in log.chain(positions[-1])] == [3, 4, 5, 6, 7, 8]
    assert log.delete_expired(10_000) == 1
    assert len(list((tmp_path / "timerlog").iterdir())) == 1
    log.destroy()
    assert not (tmp_path / "timerlog").exists()


def test_sizes_that_cannot_be_are_refused(make):
    with pytest.raises(ValueError, match="mappedFileSizeTimerLog"):
        make(67)
    log = make()
    fill(log, 1)
    log.close()
    with pytest.raises(FileSizeError):
        make(FILE_SIZE + 1).load()
