"""Images have what was flushed, and a part of the rest; promises count from their stamp on."""

import random

from block_images import FATES, choose_cuts, images, make_cut, survivors
from block_log import SECTOR, Disk, Flush, Write
from block_promises import Acked, Dropping, Expired, Expiring, Flushed, promises_at

SIZE = 1 << 18


def content(disk, tmp_path):
    disk.save(tmp_path / "image", SIZE)
    return (tmp_path / "image").read_bytes()


def sectors(*numbers):
    return b"".join(bytes([number]) * SECTOR for number in numbers)


ENTRIES = [
    Write(0, sectors(1, 2)),
    Flush(),
    Write(0, sectors(3)),
    Write(SECTOR, sectors(4, 5)),
    Write(1 << 17, sectors(6)),
    Flush(),
]


def test_flushed_writes_are_there_and_pending_ones_as_the_fate_says(tmp_path):
    wanted = {
        "none": sectors(1, 2, 0),
        "all": sectors(3, 4, 5),
        "last": sectors(1, 2, 0),
    }
    for fate, start in wanted.items():
        cut = make_cut(ENTRIES, 5, fate, 0)
        assert (cut.flush, cut.at) == (2, 5)
        ((_, image),) = images(Disk(), ENTRIES, [cut])
        data = content(image, tmp_path)
        assert data.startswith(start)
        assert data[1 << 17] == (0 if fate == "none" else 6)


def test_cut_behind_a_flush_leaves_nothing_to_chance(tmp_path):
    cut = make_cut(ENTRIES, 6, "torn", 77)
    assert (cut.flush, cut.at, cut.fate, cut.number) == (6, 6, "all", 0)
    ((_, image),) = images(Disk(), ENTRIES, [cut])
    assert content(image, tmp_path).startswith(sectors(3, 4, 5))


def test_images_do_not_leave_anything_in_those_behind_them(tmp_path):
    cuts = [make_cut(ENTRIES, 5, "all", 0), make_cut(ENTRIES, 5, "none", 0)]
    found = [content(image, tmp_path)[0] for _, image in images(Disk(), ENTRIES, cuts)]
    assert found == [3, 1]


def test_torn_writes_keep_whole_sectors(tmp_path):
    pending = [Write(0, sectors(*range(1, 9)))]
    outcomes = set()
    for number in range(60):
        kept = [*survivors(pending, make_cut([*pending, Flush()], 1, "torn", number))]
        for offset, data in kept:
            assert offset % SECTOR == 0
            assert len(data) in {SECTOR, 8 * SECTOR}
        outcomes.add(tuple(offset for offset, _ in kept))
    assert len(outcomes) > 20


def test_cuts_are_many_and_of_every_fate():
    entries = [*ENTRIES[2:5] * 30, Flush()] * 4
    cuts = choose_cuts(entries, 10, 150, random.Random(1))
    assert len(cuts) == 150
    assert {cut.fate for cut in cuts} == {*FATES}
    assert min(cut.at for cut in cuts) >= 10
    assert cuts == choose_cuts(entries, 10, 150, random.Random(1))


# --- promises -----------------------------------------------------------------------------------


def acked(at, name, queue_offset, offset, topic="T"):
    return Acked(
        at=at, names=[name], topic=topic, queue_id=0, queue_offset=queue_offset, offset=offset
    )


EVENTS = [
    acked(3, "a", 0, 0),
    acked(5, "b", 1, 100),
    Flushed(at=9, progress=[("T", 0, 1)]),
    acked(9, "late", -1, 200),
    Expiring(at=12),
    Expired(at=15, floor=100),
    Dropping(at=20, topic="T"),
]


def test_sync_promises_count_from_the_acknowledgement_on():
    assert promises_at(2, EVENTS, is_sync=True).places == {}
    assert promises_at(5, EVENTS, is_sync=True).places == {("T", 0, 0): "a", ("T", 0, 1): "b"}


def test_async_promises_count_from_the_flush_on():
    found = promises_at(8, EVENTS, is_sync=False)
    assert (found.places, found.saved) == ({}, {})
    assert found.known == {("T", 0, 0): "a", ("T", 0, 1): "b"}
    found = promises_at(9, EVENTS, is_sync=False)
    assert (len(found.places), found.saved, found.late) == (2, {("T", 0): 1}, {})


def test_deleted_messages_are_not_promised_but_their_offsets_stay_given():
    found = promises_at(13, EVENTS, is_sync=True)  # the deletion is under way
    assert (found.places, found.late, found.ends) == ({}, {}, {("T", 0): 2})
    found = promises_at(15, EVENTS, is_sync=True)
    assert (found.places, found.late) == ({("T", 0, 1): "b"}, {"late": "T"})
    assert promises_at(20, EVENTS, is_sync=True).ends == {}
