"""Where the log ends: torn records, bad checksums, stale bytes, and where the walk starts."""

import pytest

from rocketlake.format import layout
from rocketlake.format.record import StopReason
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import ReadOptions
from support.reading import bodies, bounds, findings, walked
from support.store_builder import BEGIN_MS, StoreBuilder

NAME = "{:020d}".format


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=2000)


# --- torn ends -------------------------------------------------------------------------------


def test_end_torn_at_every_byte(builder):
    """Written in part, the rest zero: it is left out, silently, as a start would cut it off."""
    builder.records(3).unclean()
    end = builder.end
    # 68 fixed, 2 hosts of 8, 4 + body, 1 + topic, 2 + properties "a\\x01b\\x02".
    size = 68 + 16 + 4 + 4 + 1 + 1 + 2 + 4
    properties = size - 4
    for keep in range(size):
        builder.overwrite(end, bytes(size)).torn_record(keep, a="b")
        with OfflineStore(builder.write()) as store:
            if keep < properties:
                assert (keep, store.max_offset) == (keep, end)
                assert bodies(store) == [b"0", b"1", b"2"]
            else:
                # Compat: no checksum covers properties, so that a start takes the record as good.
                assert (keep, store.max_offset) == (keep, end + size)
            assert store.damage.count == 0


def test_whole_record_checksum_shows_a_tear_at_every_byte(tmp_path):
    """With the checksum over everything no torn record is taken as good."""
    builder = StoreBuilder(tmp_path, log_file_size=2000).unclean()
    builder.record(body=b"first", with_crc=True)
    end = builder.end
    builder.record(body=b"last", properties={"a": "b"}, with_crc=True, dispatched=False)
    whole = builder.placed[1]
    data = (builder.write() / "commitlog" / NAME(0)).read_bytes()[end : whole.end]
    options = ReadOptions(enabled_append_prop_crc=True, force_verify_prop_crc=True)
    for keep in range(len(data)):
        builder.overwrite(end, data[:keep].ljust(len(data), b"\0"))
        with OfflineStore(builder.write(), options=options) as store:
            assert (keep, store.max_offset) == (keep, end)
    builder.overwrite(end, data)
    with OfflineStore(builder.write(), options=options) as store:
        assert store.max_offset == whole.end


@pytest.mark.parametrize("clean", [True, False])
def test_torn_end_where_the_file_ends(tmp_path, clean):
    """The record would reach beyond the file."""
    builder = StoreBuilder(tmp_path, log_file_size=400).records(3)
    builder.torn_record(40, body=b"x" * 1000)
    if not clean:
        builder.unclean()
    with OfflineStore(builder.write()) as store:
        assert store.max_offset == builder.end
        assert store.tail.stop is not None
        assert store.tail.stop.reason == StopReason.TORN
        assert bodies(store) == [b"0", b"1", b"2"]
        assert store.damage.count == 0


def test_garbage_behind_the_end_is_left_out(builder):
    builder.records(3).overwrite(builder.end, b"\xa5" * 300)
    with OfflineStore(builder.write()) as store:
        assert store.max_offset == builder.end
        assert store.damage.count == 0
        assert len(walked(store)) == 3


def test_size_of_zero_or_less_ends_the_log(builder):
    builder.records(3)
    for size in (0, -1, -(1 << 31), 1, 90):
        head = size.to_bytes(4, "big", signed=True)
        head += layout.MAGIC_V1.to_bytes(4, "big", signed=True)
        builder.overwrite(builder.end, head + bytes(200))
        with OfflineStore(builder.write()) as store:
            assert (size, store.max_offset) == (size, builder.end)
            assert len(walked(store)) == 3


# --- bad checksums ---------------------------------------------------------------------------


def test_bad_checksum_at_the_end_is_a_torn_end(builder):
    builder.records(3).unclean().flip_body(2)
    with OfflineStore(builder.write()) as store:
        assert store.max_offset == builder.placed[2].physical_offset
        assert bodies(store) == [b"0", b"1"]
        assert bounds(store) == {"T/0": (0, 2)}
        assert store.damage.count == 0


@pytest.mark.parametrize("clean", [True, False])
def test_bad_checksum_in_the_middle_cuts_and_is_told(builder, clean):
    builder.records(5).flip_body(2)
    if not clean:
        builder.unclean()
    with OfflineStore(builder.write()) as store:
        place = builder.placed[2]
        assert store.max_offset == place.physical_offset
        assert bodies(store) == [b"0", b"1"]
        assert bounds(store) == {"T/0": (0, 2)}
        assert walked(store) == [p.physical_offset for p in builder.placed[:2]]
        assert findings(store) == [
            (
                NAME(0),
                place.physical_offset,
                "a record does not have its checksum; the log is cut here as a start would cut "
                f"it, and good records from {place.end} on are left out",
            )
        ]


def test_bad_checksum_before_the_last_file_of_a_clean_store_is_skipped(tmp_path):
    """A clean start does not look there; the one record is left out and told."""
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30).flip_body(3)
    with OfflineStore(builder.write()) as store:
        assert store.max_offset == builder.end
        assert bodies(store) == [b"%d" % n for n in range(30) if n != 3]
        text = "a record does not have its checksum; message 3 of T/0 is left out"
        assert findings(store) == [(NAME(0), builder.placed[3].physical_offset, text)]
        assert len(walked(store)) == 29
        assert store.damage.count == 1, "the same place is told once"


def test_several_bad_records_one_behind_the_other(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30)
    for number in (3, 4, 5):
        builder.flip_body(number)
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"%d" % n for n in range(30) if n not in (3, 4, 5)]
        assert len(walked(store)) == 27
        assert store.damage.count == 3


def test_bad_last_record_before_the_blank_one(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30)
    last = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 1000) - 1
    with OfflineStore(builder.flip_body(last).write()) as store:
        assert bodies(store) == [b"%d" % n for n in range(30) if n != last]
        assert len(walked(store)) == 29
        assert [place for _, place, _ in findings(store)] == [builder.placed[last].physical_offset]


def test_broken_size_loses_one_record(tmp_path):
    """The lengths inside the record tell where the next one begins."""
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30)
    builder.overwrite(builder.placed[3].physical_offset, b"\x7f\xff\xff\xff")
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"%d" % n for n in range(30) if n != 3]
        assert walked(store) == [p.physical_offset for p in builder.placed if p.queue_offset != 3]


def test_broken_lengths_lose_the_rest_of_their_file_in_a_walk_only(tmp_path):
    """A walk cannot go on behind them in the file; queues know where the other records are."""
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(30)
    builder.overwrite(builder.placed[3].physical_offset, b"\x7f\xff\xff\xff")
    builder.overwrite(builder.placed[3].physical_offset + 84, b"\x7f\xff\xff\xff")
    later = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 1000)
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"%d" % n for n in range(30) if n != 3]
        assert walked(store) == [
            p.physical_offset for n, p in enumerate(builder.placed) if n < 3 or n >= later
        ]


def test_without_the_checksum_check_the_record_is_good(builder):
    builder.records(3).flip_body(1)
    with OfflineStore(builder.write(), options=ReadOptions(check_crc_on_recover=False)) as store:
        assert len(bodies(store)) == 3
        assert store.damage.count == 0


def test_whole_record_checksum_is_checked_when_asked_for(tmp_path):
    """A changed queue id passes the body's checksum, not that of the record."""
    builder = StoreBuilder(tmp_path, log_file_size=2000)
    for _ in range(3):
        builder.record(with_crc=True)
    at = builder.placed[1].physical_offset + layout.RECORD_FLAG_AT
    root = builder.flip(at).write()
    with OfflineStore(root) as store:
        assert len(bodies(store)) == 3
    with OfflineStore(root, options=ReadOptions(enabled_append_prop_crc=True)) as store:
        assert store.max_offset == builder.placed[1].physical_offset
        assert "good records from" in findings(store)[0][2] if bodies(store) else False


def test_record_without_the_required_checksum_ends_the_log(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=2000).record(with_crc=True).record()
    options = ReadOptions(force_verify_prop_crc=True)
    with OfflineStore(builder.write(), options=options) as store:
        assert store.max_offset == builder.placed[1].physical_offset


# --- stale bytes -----------------------------------------------------------------------------


def test_record_of_another_place_ends_the_log(builder):
    """A file used again still holds records of its former life: each names its true place."""
    builder.records(3)
    root = builder.write()
    stale = (root / "commitlog" / NAME(0)).read_bytes()[: builder.placed[0].size]
    with OfflineStore(builder.overwrite(builder.end, stale).write()) as store:
        assert store.max_offset == builder.end
        assert store.tail.stop is not None
        assert store.tail.stop.reason == StopReason.BAD_OFFSET
        assert bodies(store) == [b"0", b"1", b"2"]
        assert store.damage.count == 0


def test_record_written_far_behind_the_end_is_told(builder):
    """Its own offset proves that it was written there: something before it was lost."""
    builder.records(3)
    torn_at = builder.end
    builder.torn_record(40)
    builder.end += 300
    builder.record(dispatched=False)
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"0", b"1", b"2"]
        assert store.max_offset == torn_at
        (finding,) = findings(store)
        assert finding[:2] == (NAME(0), torn_at)
        assert f"good records from {builder.placed[3].physical_offset} on" in finding[2]


# --- where the walk starts -------------------------------------------------------------------


def damaged_early(tmp_path, *checkpoint):
    """An unclean store of three files, the first of which has a bad record."""
    builder = StoreBuilder(tmp_path, log_file_size=1000)
    for number in range(25):
        builder.record(body=b"%d" % number, stored=BEGIN_MS + number * 1000)
    builder.flip_body(3).unclean()
    return builder.checkpoint(*checkpoint) if checkpoint else builder


def test_checkpoint_of_zero_starts_at_the_first_file(tmp_path):
    builder = damaged_early(tmp_path, 0, 0, 0)
    with OfflineStore(builder.write()) as store:
        assert store.tail.started_at == 0
        assert store.max_offset == builder.placed[3].physical_offset
        assert bodies(store) == [b"0", b"1", b"2"]


def test_checkpoint_starts_at_the_newest_file_not_younger(tmp_path):
    """10 records a file, a second apart; 3 s are taken off the checkpoint."""
    second = BEGIN_MS + 10_000
    for time, started_at in ((second + 2_999, 0), (second + 3_000, 1000), (second + 99_000, 2000)):
        builder = damaged_early(tmp_path / str(time), time, time, 0)
        assert builder.placed[10].physical_offset == 1000
        with OfflineStore(builder.write()) as store:
            assert store.tail.started_at == started_at
            assert (store.max_offset == builder.end) == (started_at > 0)


def test_older_of_the_two_times_counts(tmp_path):
    late = BEGIN_MS + 99_000
    for times in ((late, 0), (0, late)):
        with OfflineStore(damaged_early(tmp_path / str(times), *times, 0).write()) as store:
            assert store.tail.started_at == 0


def test_index_time_counts_only_in_index_safe_mode(tmp_path):
    late = BEGIN_MS + 99_000
    root = damaged_early(tmp_path, late, late, 0).write()
    with OfflineStore(root) as store:
        assert store.tail.started_at == 2000
    with OfflineStore(root, options=ReadOptions(message_index_safe=True)) as store:
        assert store.tail.started_at == 0


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"\xff" * 4096])
def test_broken_checkpoint_is_none(tmp_path, content):
    builder = damaged_early(tmp_path)
    root = builder.write()
    (root / "checkpoint").write_bytes(content)
    with OfflineStore(root) as store:
        assert store.tail.started_at == 0
    (root / "checkpoint").unlink()
    with OfflineStore(root) as store:
        assert store.checkpoint.physical_timestamp == 0
        assert store.tail.started_at == 0


def test_spare_file_is_not_where_the_walk_starts(tmp_path):
    builder = damaged_early(tmp_path, BEGIN_MS + 99_000, BEGIN_MS + 99_000, 0).spare_file()
    with OfflineStore(builder.write()) as store:
        assert store.tail.started_at == 2000
        assert store.max_offset == builder.end


def test_log_that_ends_with_a_blank_record_ends_before_it(tmp_path):
    """The filler at the very end is not counted."""
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(3)
    end = builder.end
    with OfflineStore(builder.roll().write()) as store:
        assert store.max_offset == end
        assert len(walked(store)) == 3
    with OfflineStore(builder.spare_file().write()) as store:
        assert store.max_offset == 1000  # the next file exists: its first byte is the end
