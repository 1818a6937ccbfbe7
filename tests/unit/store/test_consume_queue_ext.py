"""Extension units: putting, reading, and how they follow their queue."""

import numpy as np
import pytest
from queue_makers import (
    KEY,
    SIZE,
    CountingOps,
    bounds,
    columns,
    files,
    offsets,
    open_set,
    put,
    reopen,
    run,
)

from rocketlake.files.file_traits import QUEUE_FILES
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.format import layout
from rocketlake.format.queue_unit import ExtUnit, ext_address, is_ext_address
from rocketlake.store.queue.ext import ConsumeQueueExt
from support.manual_clock import ManualClock

BITS = bytes(range(14))
UNIT = 34  # bytes of a unit with these bits
TIME = 1_700_000_000_000


@pytest.fixture
def open_ext(tmp_path):
    made = []

    def open_ext(file_size=1024, ops=None):
        ops = ops or CountingOps()
        maker = MappedFileMaker(ops, ManualClock(), QUEUE_FILES)
        place = tmp_path / "ext"
        queue = MappedFileQueue(ops, ManualClock(), maker, place, file_size=file_size)
        made.append(ConsumeQueueExt(ops, queue))
        made[-1].load()
        return made[-1]

    yield open_ext
    for ext in made:
        ext.close()


@pytest.fixture
def place(tmp_path):
    return tmp_path / "ext"


def unit(number, bitmap=BITS):
    return ExtUnit(number, TIME + number, bitmap)


def fill(ext, count, first=0):
    return [ext.put(unit(number)) for number in range(first, first + count)]


# --- the files -----------------------------------------------------------------------------------


def test_units_are_found_by_their_address(open_ext):
    ext = open_ext()
    addresses = fill(ext, 40)
    assert addresses[0] == layout.EXT_ADDRESS_BASE
    assert all(is_ext_address(address) for address in addresses)
    assert [ext.get(address) for address in addresses] == [unit(number) for number in range(40)]


def test_file_that_has_no_room_ends_with_a_mark(open_ext, place):
    """30 units of 34 bytes leave 4: the 31st goes to the next file, as in a store of 5.3.3."""
    ext = open_ext()
    addresses = fill(ext, 30)
    first = place / f"{0:020d}"
    assert first.read_bytes()[1020:] == bytes(4), "nothing came after"
    addresses += fill(ext, 1, first=30)
    assert addresses[30] == ext_address(1024)
    assert first.read_bytes()[1020:] == b"\xff\xff\0\0"
    assert (ext.min_address, ext.max_address) == (ext_address(0), ext_address(1024 + UNIT))


@pytest.mark.parametrize(("bits", "is_last"), [(990, True), (991, False)])
def test_four_bytes_stay_free_at_the_end(open_ext, bits, is_last):
    ext = open_ext(file_size=1034)
    ext.put(ExtUnit(1, 2))
    second = ext.put(ExtUnit(3, 4, bytes(bits)))
    assert (second == ext_address(20)) == is_last
    assert ext.get(second) == ExtUnit(3, 4, bytes(bits))


def test_unit_that_fits_nowhere_has_no_address(open_ext, place):
    ext = open_ext(file_size=100)
    assert ext.put(ExtUnit(1, 2, bytes(77))) is None
    assert not place.exists(), "no file is spoilt for it"
    assert ext.put(ExtUnit(1, 2, bytes(76))) == ext_address(0)
    ext.destroy()
    ext = open_ext(file_size=1 << 20)
    assert ext.put(ExtUnit(1, 2, bytes(layout.MAX_I16 - 19))) is None
    assert ext.put(ExtUnit(1, 2, bytes(layout.MAX_I16 - 20))) == ext_address(0)


@pytest.mark.parametrize("address", [0, 5, -1, -(2**31), ext_address(17), ext_address(5000)])
def test_address_that_leads_nowhere(open_ext, address):
    ext = open_ext()
    fill(ext, 3)
    assert ext.get(address) is None


def test_end_is_found_again(open_ext):
    for count in (1, 29, 30, 31, 60, 61):
        ext = open_ext()
        ext.destroy()
        addresses = fill(ext, count)
        ext.close()
        again = open_ext()
        again.recover()
        assert again.get(addresses[-1]) == unit(count - 1)
        assert again.max_address == addresses[-1] + UNIT
        assert again.put(unit(99)) == (
            addresses[-1] + UNIT if count % 30 else ext_address(count // 30 * 1024)
        )


def test_end_behind_units_of_many_sizes(open_ext):
    """More than one read, and units that a read cuts in two."""
    ext = open_ext(file_size=1 << 20)
    addresses = [ext.put(ExtUnit(n, n, bytes(n * 37 % 1500))) for n in range(600)]
    end = ext.max_address
    ext.close()
    again = open_ext(file_size=1 << 20)
    again.recover()
    assert again.max_address == end
    assert again.get(addresses[-1]) == ExtUnit(599, 599, bytes(599 * 37 % 1500))


@pytest.mark.parametrize("bad", [b"\0\0", b"\xff\xff", b"\x00\x13", b"\x7f\xff"])
def test_what_is_no_unit_ends_the_file(open_ext, place, bad):
    ext = open_ext()
    addresses = fill(ext, 10)
    ext.close()
    with (place / f"{0:020d}").open("r+b") as file:
        file.seek(7 * UNIT)
        file.write(bad)
    again = open_ext()
    again.recover()
    assert again.max_address == addresses[7]
    assert (place / f"{0:020d}").read_bytes()[7 * UNIT :] == bytes(1024 - 7 * UNIT)


def test_cut_behind_a_unit(open_ext):
    ext = open_ext()
    addresses = fill(ext, 70)
    ext.cut_behind(addresses[40])
    assert ext.max_address == addresses[40] + UNIT
    assert ext.get(addresses[41]) is None
    ext.cut_behind(addresses[50])
    assert ext.max_address == addresses[40] + UNIT, "there is no such unit"
    assert ext.put(unit(41)) == addresses[41]


def test_files_before_an_address_are_deleted(open_ext):
    ext = open_ext()
    addresses = fill(ext, 70)
    assert ext.delete_before(addresses[29]) == 0
    assert ext.delete_before(5) == 0, "no address"
    assert ext.delete_before(addresses[30]) == 1
    assert ext.min_address == ext_address(1024)
    assert ext.get(addresses[3]) is None
    assert ext.delete_before(ext.max_address) == 1, "the last one stays"


def test_flush_covers_all_files(open_ext):
    ext = open_ext()
    assert not ext.flush(0)
    fill(ext, 70)
    assert ext.flush(0)
    assert not ext.flush(0)


# --- beside a queue ------------------------------------------------------------------------------


def put_extended(queue, first, count, bits=BITS):
    units, numbers = run(first, count)
    queue.put_extended(units, numbers, numbers + TIME, [bits] * count)


def codes(queue):
    return [
        int(queue.units(n, 1)["tags_code"][0]) for n in range(queue.min_offset, queue.max_offset)
    ]


@pytest.fixture
def queue(tmp_path):
    queues = open_set(tmp_path, has_ext=True)
    yield queues.get_or_create(KEY)
    queues.close()


def test_units_hold_addresses_of_their_extensions(queue, tmp_path):
    put_extended(queue, 0, 25)
    assert offsets(queue) == list(range(0, 2500, SIZE))
    found = [queue.ext_unit(code) for code in codes(queue)]
    assert found == [unit(number) for number in range(25)]
    assert queue.mapped_size == 600 + 1024


def test_repeats_write_no_extension(queue):
    """The reference writes one each time; nothing ever points to it."""
    put_extended(queue, 0, 5)
    before = queue.ext.max_address
    put_extended(queue, 0, 5)
    assert queue.ext.max_address == before
    put_extended(queue, 3, 4)
    assert queue.ext.max_address == before + 2 * UNIT
    assert [queue.ext_unit(code).tags_code for code in codes(queue)] == list(range(7))


def test_extension_that_is_too_large_leaves_the_tags_code(queue):
    put_extended(queue, 0, 1)
    put_extended(queue, 1, 2, bits=bytes(2000))
    assert codes(queue)[1:] == [1, 2]
    put_extended(queue, 3, 1)
    assert is_ext_address(codes(queue)[3])


def test_no_space_for_an_extension_leaves_the_tags_code(tmp_path, caplog):
    ops = CountingOps()
    queue = open_set(tmp_path, ops, has_ext=True).get_or_create(KEY)
    put_extended(queue, 0, 1)
    queue.ext.destroy()
    ops.room = 0
    put_extended(queue, 1, 1)
    assert codes(queue)[1] == 1
    assert "extension not written" in caplog.text


def test_queue_without_extension_finds_none(tmp_path):
    queue = open_set(tmp_path).get_or_create(KEY)
    put(queue, 0, 1)
    assert queue.ext_unit(ext_address(0)) is None
    assert not (tmp_path / "consumequeue_ext").exists()


def test_extension_that_exists_is_read_though_no_new_one_is_written(queue, tmp_path):
    put_extended(queue, 0, 3)
    again = reopen(tmp_path, has_ext=False).find(KEY)
    put(again, 3, 1)
    assert [again.ext_unit(code) for code in codes(again)] == [unit(0), unit(1), unit(2), None]


def test_extension_is_cut_where_its_queue_ends(queue, tmp_path):
    put_extended(queue, 0, 25)
    end = codes(queue)[19] + UNIT
    again = reopen(tmp_path, has_ext=True).find(KEY)
    assert again.ext.max_address == queue.ext.max_address
    again.truncate(2000)
    assert again.ext.max_address == end
    put_extended(again, 20, 1)
    assert codes(again)[20] == end


def test_extension_units_without_a_queue_unit_are_dropped_at_the_start(queue, tmp_path):
    """A crash came between the two."""
    put_extended(queue, 0, 5)
    queue.ext.put(unit(5))
    again = reopen(tmp_path, has_ext=True).find(KEY)
    assert again.ext.max_address == codes(again)[4] + UNIT


def test_extension_of_a_queue_without_addresses_goes(queue, tmp_path):
    put_extended(queue, 0, 5)
    put(queue, 5, 2)
    again = reopen(tmp_path, has_ext=True).find(KEY)
    assert again.ext.max_address == codes(again)[4] + UNIT, "the last address, not the last unit"
    again.truncate(0)
    assert bounds(again) == (0, 0, -1)
    assert files(tmp_path, "consumequeue_ext") == {}
    put_extended(again, 0, 1)
    assert codes(again) == [ext_address(0)]


def test_extension_files_expire_with_their_queue(queue, tmp_path):
    put_extended(queue, 0, 70)
    assert len(files(tmp_path, "consumequeue_ext")) == 3
    queue.delete_expired(2900)
    assert list(files(tmp_path, "consumequeue_ext")) == [0, 1024, 2048]
    queue.delete_expired(3000)
    assert list(files(tmp_path, "consumequeue_ext")) == [1024, 2048]
    assert queue.ext_unit(codes(queue)[0]) == unit(30)


def test_flush_and_the_end_cover_the_extension(queue, tmp_path):
    put_extended(queue, 0, 1)
    assert queue.flush(0)
    assert not queue.flush(0)
    queue.ext.put(unit(1))
    assert queue.flush(0), "something moved, though not in the queue itself"
    queue.destroy()
    assert not (tmp_path / "consumequeue_ext/T/0").exists()


def test_units_behind_a_gap_keep_their_extensions(queue):
    put_extended(queue, 0, 2)
    units = columns((400, 100, 7), (500, 100, 8))
    queue.put_extended(units, np.array([4, 5]), np.array([TIME, TIME]), [b"", b""])
    found = codes(queue)
    assert found[2:4] == [0, 0], "places of messages that are lost"
    assert [queue.ext_unit(code).tags_code for code in found[:2] + found[4:]] == [0, 1, 7, 8]
