import pytest

from rocketlake.delay.timer_wheel import TimerWheel
from rocketlake.errors import FileSizeError
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import layout
from rocketlake.format.timer import WheelSlot

NOW = 1_800_000_000_000
TURN_MS = layout.WHEEL_SLOTS * 1000
SIZE = layout.WHEEL_SLOTS * layout.WHEEL_SLOT_SIZE


@pytest.fixture
def wheel(tmp_path):
    found = TimerWheel(PosixFileOps(), tmp_path / "timerwheel", 1000)
    found.open()
    yield found
    found.close()


def put(wheel, time, position, *, is_delete=False, is_first=False):
    wheel.put(time, position=position, is_delete=is_delete, is_first=is_first)


def reopened(tmp_path):
    found = TimerWheel(PosixFileOps(), tmp_path / "timerwheel", 1000)
    found.open()
    return found


def test_file_is_full_of_holes(wheel, tmp_path):
    put(wheel, NOW, 0)
    wheel.flush()
    found = (tmp_path / "timerwheel").stat()
    assert found.st_size == SIZE
    assert found.st_blocks * 512 < 1 << 20


def test_slot_grows_by_units(wheel):
    assert wheel.slot(NOW) is None
    put(wheel, NOW, 52)
    put(wheel, NOW, 104)
    put(wheel, NOW, 156, is_delete=True)
    assert wheel.slot(NOW) == WheelSlot(NOW // 1000, 52, 156, 1, 0)
    assert wheel.slot(NOW + 999) == wheel.slot(NOW)
    assert wheel.slot(NOW + 1000) is None
    put(wheel, NOW, 208, is_first=True)
    assert wheel.slot(NOW) == WheelSlot(NOW // 1000, 208, 208, 1, 0)


def test_slot_of_an_earlier_turn_is_none(wheel):
    put(wheel, NOW, 52)
    assert wheel.slot(NOW + TURN_MS) is None
    put(wheel, NOW + TURN_MS, 104)
    assert wheel.slot(NOW) is None
    assert wheel.slot(NOW + TURN_MS).first_position == 104


def test_slots_are_in_the_file_after_a_flush(wheel, tmp_path):
    put(wheel, NOW, 52)
    other = reopened(tmp_path)
    assert other.slot(NOW) is None
    wheel.flush()
    assert other.slot(NOW) == wheel.slot(NOW)
    assert wheel._changed == {}
    wheel.flush()
    put(wheel, NOW, 104)
    assert wheel.slot(NOW).count == 2
    assert other.slot(NOW).count == 1
    other.close()


def test_slots_due_are_told_in_order_from_file_and_memory(wheel):
    for step in (5, 3, 1):
        put(wheel, NOW + step * 1000, step)
    wheel.flush()
    put(wheel, NOW + 3000, 30)
    put(wheel, NOW + 2000, 20)
    put(wheel, NOW - 1000, 10)
    found = wheel.due_from(NOW + 1000)
    assert [int(time) - NOW // 1000 for time in found["time"]] == [1, 2, 3, 5]
    assert found["last_position"].tolist() == [1, 20, 30, 5]
    assert wheel.due_from(NOW + 6000).tolist() == []


def test_precision_is_the_unit_of_slots(tmp_path):
    wheel = TimerWheel(PosixFileOps(), tmp_path / "w", 100)
    wheel.open()
    put(wheel, NOW + 100, 1)
    assert wheel.slot(NOW + 100).time == NOW // 100 + 1
    assert wheel.slot(NOW) is None
    wheel.close()


def test_file_of_another_size_is_refused_and_an_empty_one_is_made_anew(tmp_path):
    path = tmp_path / "timerwheel"
    path.write_bytes(b"x")
    with pytest.raises(FileSizeError):
        reopened(tmp_path)
    path.write_bytes(b"")
    wheel = TimerWheel(PosixFileOps(), path, 1000)
    assert not wheel.exists
    wheel.open()
    assert wheel.exists
    wheel.destroy()
    assert not path.exists()
