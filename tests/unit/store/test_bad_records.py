"""A record that is bad costs that record: dispatch and readers go on behind it."""

import struct

import pytest

from rocketlake.format import layout
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore
from support.engine import open_engine, request
from support.reading import offsets

T = QueueKey("T", 0)
LOST_SIZE = 1  # of the unit that keeps the place of a lost message
FILE = 65_536
COUNT, BAD = 12, 5
SIZES = {"mapped_file_size_commit_log": FILE, "mapped_file_size_consume_queue": 2000}
DAMAGES = {
    "body length": (84, struct.pack(">i", 1 << 20)),
    "topic length": (88 + 40, b"\x7f"),
    "size too small": (0, struct.pack(">i", 100)),
    "size too large": (0, struct.pack(">i", 1 << 24)),
    "magic": (4, b"\xff"),
    "physical offset": (layout.RECORD_PHYSICAL_OFFSET_AT, struct.pack(">q", 1)),
}
ROLES = ("ASYNC_MASTER", "SLAVE")


def records(root, count=COUNT):
    """The bytes of a log with messages of one queue, and where each begins."""
    with open_engine(root, **SIZES) as store:
        places = [store.put(request("T", 0, b"%40d" % n, keys=["k"])) for n in range(count)]
        end = store.log.wrote_where
    (file,) = [path for path in (root / "commitlog").iterdir() if int(path.name) == 0]
    return bytearray(file.read_bytes()[:end]), [place.physical_offset for place in places]


def damaged(data, place, damage):
    at, change = DAMAGES[damage]
    assert data[place + at : place + at + len(change)] != change
    data[place + at : place + at + len(change)] = change
    return bytes(data)


def append(store, data):
    """Have bytes in the log that no put has made, whatever the role."""
    with store.log.pause():
        assert store.log.files.last_file(create_at=0).append(data)
    store.log.note_readable()


def units(store):
    low, high = store.queue_bounds(T)
    found = store.queue_units(T, low, high - low)
    return {
        low + number: int(unit["physical_offset"])
        for number, unit in enumerate(found)
        if unit["size"] > LOST_SIZE
    }


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_dispatch_goes_on_behind_it(tmp_path, role, damage):
    """Each message behind it has its own queue offset, on a primary and on a replica."""
    data, places = records(tmp_path / "source")
    data = damaged(data, places[BAD], damage)
    with open_engine(tmp_path / "store", broker_role=role, **SIZES) as store:
        append(store, data)
        store.catch_up()
        wanted = {number: place for number, place in enumerate(places) if number != BAD}
        assert units(store) == wanted
        assert store.dispatcher.behind_bytes == 0


@pytest.mark.parametrize("role", ROLES)
def test_last_record_of_the_log(tmp_path, role):
    """Nothing behind it says that its size is right but the end of the log."""
    data, places = records(tmp_path / "source")
    data = damaged(data, places[-1], "body length")
    with open_engine(tmp_path / "store", broker_role=role, **SIZES) as store:
        append(store, data)
        store.catch_up()
        assert units(store) == dict(enumerate(places[:-1]))
        assert store.dispatcher.behind_bytes == 0


def test_size_that_leads_to_no_record_is_not_believed(tmp_path):
    """The next record keeps its number although a part of the file is passed over."""
    data, places = records(tmp_path / "source")
    data[places[BAD] : places[BAD] + 4] = struct.pack(">i", 100)
    data = damaged(data, places[BAD], "body length")
    with open_engine(tmp_path / "store", **SIZES) as store:
        append(store, bytes(data))
        store.catch_up()
        assert units(store) == dict(enumerate(places[:BAD]))


@pytest.mark.parametrize("damage", DAMAGES)
def test_reader_and_start_go_on_behind_it(tmp_path, damage):
    """A killed store whose queues have nothing yet: the view shows what a start makes of it."""
    data, places = records(tmp_path / "source")
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    first = damaged(data, places[BAD], damage).ljust(FILE - 8, b"\0")
    first = first[: len(data)] + struct.pack(">ii", FILE - len(data), layout.MAGIC_BLANK)
    (root / "commitlog" / f"{0:020d}").write_bytes(first.ljust(FILE, b"\0"))
    second, more = records(tmp_path / "more", 3)
    for number, place in enumerate(more):
        at = place + layout.RECORD_PHYSICAL_OFFSET_AT
        second[at - 8 : at + 8] = struct.pack(">qq", COUNT + number, FILE + place)
    (root / "commitlog" / f"{FILE:020d}").write_bytes(bytes(second).ljust(FILE, b"\0"))
    (root / "abort").touch()
    # RocketMQ 5.5 has written it: damage before the second file does not end the log.
    page = Checkpoint(queue_physical_offset=FILE)
    (root / "checkpoint").write_bytes(page.encode())
    wanted = [number for number in range(COUNT + 3) if number != BAD]
    with OfflineStore(root) as view:
        assert offsets(view) == wanted
        assert view.damage.count > 0
    with open_engine(root, **SIZES) as store:
        assert list(units(store)) == wanted
    with OfflineStore(root) as view:
        assert offsets(view) == wanted
