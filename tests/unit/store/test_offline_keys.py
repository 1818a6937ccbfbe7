"""Messages by key: through the index, and by scanning where it cannot be trusted."""

import os

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import index as index_format
from rocketlake.model.flags import TransactionType
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.options import ReadOptions
from support.reading import findings
from support.store_builder import BEGIN_MS, StoreBuilder


@pytest.fixture
def builder(tmp_path):
    """An index file has 10 slots and room for 39 keys."""
    return StoreBuilder(tmp_path, log_file_size=4000, index_shape=(10, 40))


def find(store, key, topic="T", **rest):
    return [m.stored_body for m in store.find(KeyQuery(topic=topic, key=key, **rest))]


def keyed(builder, count, **rest):
    for number in range(count):
        builder.record(body=b"%d" % number, keys=[f"k{number}", "all"], **rest)
    return builder


def test_clean_store_is_searched_through_its_index(builder):
    with OfflineStore(keyed(builder, 30).write()) as store:
        assert find(store, "k7") == [b"7"]
        assert find(store, "all") == [b"%d" % n for n in range(30)]
        assert find(store, "none") == []
        assert find(store, "k7", "Other") == []
        assert len(store.coverage.files) == 2
        assert store.coverage.notes == []
        assert store.damage.count == 0


def test_unique_key_is_a_key(builder):
    builder.record(properties={"UNIQ_KEY": "C0A8"}, keys=["a"], body=b"x")
    with OfflineStore(builder.write()) as store:
        assert find(store, "C0A8") == [b"x"]
        assert find(store, "a") == [b"x"]


def test_newest_come_first_into_a_limit(builder):
    with OfflineStore(keyed(builder, 30).write()) as store:
        assert find(store, "all", limit=3) == [b"27", b"28", b"29"]
        assert find(store, "all", limit=0) == []
        # 15 records' keys are in the newer file: the limit reaches into the older one.
        assert find(store, "all", limit=25) == [b"%d" % n for n in range(5, 30)]


def test_times_limit_the_answer(builder):
    with OfflineStore(keyed(builder, 30).write()) as store:
        begin, end = BEGIN_MS + 11, BEGIN_MS + 13
        assert find(store, "all", begin=begin, end=end) == [b"10", b"11", b"12"]
        assert find(store, "all", begin=end + 1000) == []


def test_colliding_keys_are_told_apart(builder):
    """`Aa` and `BB` have the same hash in Java."""
    assert index_format.key_hash("T", "Aa") == index_format.key_hash("T", "BB")
    builder.record(body=b"a", keys=["Aa"]).record(body=b"b", keys=["BB"])
    with OfflineStore(builder.write()) as store:
        assert find(store, "Aa") == [b"a"]
        assert find(store, "BB") == [b"b"]


def test_key_without_a_topic_is_scanned_for(builder):
    builder.record("T", body=b"t", keys=["k"]).record("U", body=b"u", keys=["k"])
    with OfflineStore(builder.write()) as store:
        assert find(store, "k", topic=None) == [b"t", b"u"]


# --- where the index cannot be trusted -------------------------------------------------------


def test_lost_index_means_scanning_and_a_note(builder):
    with OfflineStore(keyed(builder, 30).lose_index().write()) as store:
        assert find(store, "k7") == [b"7"]
        assert find(store, "all", limit=2) == [b"28", b"29"]
        assert store.coverage.notes == ["there is no index: keys are found by scanning the log"]


def test_empty_log_needs_no_note(builder):
    with OfflineStore(builder.spare_file().write()) as store:
        assert find(store, "k") == []
        assert store.coverage.notes == []


def test_unclean_stop_means_scanning_what_the_checkpoint_does_not_cover(builder):
    keyed(builder, 30).unclean()
    full = index_format.IndexHeader.decode(builder._index[0])
    builder.checkpoint(BEGIN_MS, BEGIN_MS, full.end_timestamp)
    with OfflineStore(builder.write()) as store:
        assert [file.path.name for file in store.coverage.files] == [builder.index_path(0).name]
        assert store.coverage.scans == [(full.end_physical_offset, store.max_offset)]
        (note,) = store.coverage.notes
        assert note.startswith(f"{builder.index_path(1).name} may be incomplete")
        assert find(store, "all") == [b"%d" % n for n in range(30)]
        assert find(store, "k29") == [b"29"]


def test_unclean_stop_with_an_index_behind_finds_everything(builder):
    """The last ten records never reached the index."""
    keyed(builder, 20)
    for number in range(20, 30):
        builder.record(body=b"%d" % number, keys=[f"k{number}", "all"], dispatched=False)
    with OfflineStore(builder.unclean().checkpoint(0, 0, 0).write()) as store:
        assert find(store, "all") == [b"%d" % n for n in range(30)]
        assert store.coverage.files == []


def test_tail_that_is_not_dispatched_is_scanned_in_a_clean_store(builder):
    keyed(builder, 20).record(body=b"late", keys=["all"], dispatched=False)
    with OfflineStore(builder.write()) as store:
        assert find(store, "all")[-1] == b"late"
        assert store.coverage.notes == []


class HeldOps(PosixFileOps):
    """Files of the machine, as if a broker held the store."""

    def lock_holder(self, path):
        return 4711


def test_running_store_is_searched_through_its_index(builder):
    keyed(builder, 30).record(body=b"new", keys=["all"], dispatched=False).unclean()
    with OfflineStore(builder.write(), ops=HeldOps()) as store:
        assert len(store.coverage.files) == 2
        assert find(store, "all")[-2:] == [b"29", b"new"]


def test_shape_that_is_not_proven_means_scanning_and_a_note(builder):
    """A broken chain fits no slot count; the option makes it readable."""
    root = keyed(builder, 15).write()
    break_chain(builder.index_path(0))
    with OfflineStore(root) as store:
        assert [file.slots for file in store.index_files] == [None]
        (note,) = store.coverage.notes
        assert "the slot count of" in note
        assert "give maxHashSlotNum" in note
        assert find(store, "all") == [b"%d" % n for n in range(15)]
    with OfflineStore(root, options=ReadOptions(max_hash_slot_num=10)) as store:
        assert [file.slots for file in store.index_files] == [10]
        assert store.coverage.notes == []


def break_chain(path, number=2):
    """Let an entry continue with one that never was its predecessor."""
    data = bytearray(path.read_bytes())
    at = index_format.entry_position(10, number)
    entry = index_format.IndexEntry.decode(data, at)
    wrong = index_format.IndexEntry(entry.key_hash, entry.physical_offset, entry.time_diff_s, 39)
    data[at : at + 20] = wrong.encode()
    path.write_bytes(data)


def test_newest_come_first_where_only_old_parts_are_scanned(builder):
    """The older of two files is scanned, the newer searched: a limit still wants the newest."""
    root = keyed(builder, 30).write()
    break_chain(builder.index_path(0))
    with OfflineStore(root) as store:
        assert [file.slots for file in store.index_files] == [None, 10]
        assert find(store, "all") == [b"%d" % n for n in range(30)]
        assert find(store, "all", limit=3) == [b"27", b"28", b"29"]


def test_record_whose_keys_lie_in_two_files_is_scanned_for(builder):
    """39 keys fit: the 20th record has its first key in one file, its second in the next."""
    root = keyed(builder, 30).write()
    headers = [index_format.IndexHeader.decode(data) for data in builder._index]
    assert headers[0].end_physical_offset == headers[1].begin_physical_offset
    break_chain(builder.index_path(0))
    with OfflineStore(root) as store:
        assert find(store, "k19") == [b"19"]


def test_file_made_in_advance_does_not_hide_the_one_before(builder):
    """A new file without entries begins where the one before ends."""
    keyed(builder, 19).record(body=b"19", keys=["k19"])
    builder._index.append(builder._new_index())
    root = builder.write()
    break_chain(builder.index_path(0))
    with OfflineStore(root) as store:
        assert find(store, "k19") == [b"19"]


@pytest.mark.parametrize("slots", [9, 11, 1 << 40])
def test_given_slot_count_that_does_not_fit_is_not_taken(builder, slots):
    options = ReadOptions(max_hash_slot_num=slots)
    with OfflineStore(keyed(builder, 15).write(), options=options) as store:
        assert [file.slots for file in store.index_files] == [10]
        assert find(store, "k3") == [b"3"]


def test_given_slot_count_that_is_wrong_is_refused_or_overruled(builder):
    """15 slots fit the size as well (4 x 5 = 20), but the chains prove 10."""
    options = ReadOptions(max_hash_slot_num=15)
    try:
        with OfflineStore(keyed(builder, 15).write(), options=options) as store:
            found = [find(store, f"k{number}") for number in range(15)]
    except ConfigError:
        return
    assert found == [[b"%d" % number] for number in range(15)], "messages are lost in silence"


# --- scanning --------------------------------------------------------------------------------


def test_key_in_a_body_or_topic_is_no_key(builder):
    builder.record("k7", body=b"k7")
    builder.record(body=b"k7 k7", keys=["x"])
    builder.record(body=b"yes", keys=["k7"])
    builder.record(body=b"k7", properties={"note": "k7"})
    builder.record(body=b"k7")
    with OfflineStore(builder.lose_index().write()) as store:
        assert find(store, "k7") == [b"yes"]
        assert find(store, "k7", topic="k7") == []


def test_key_that_is_part_of_another_is_no_key(builder):
    builder.record(body=b"no", keys=["k77"]).record(body=b"yes", keys=["k77", "k7"])
    with OfflineStore(builder.lose_index().write()) as store:
        assert find(store, "k7") == [b"yes"]
        assert find(store, "7") == []
        assert find(store, "k77") == [b"no", b"yes"]


@pytest.mark.parametrize("key", ["键", "ключ", "🚀"])
def test_keys_of_any_script_are_scanned_for(builder, key):
    builder.record(body=b"yes", keys=[key]).record(body=key.encode())
    with OfflineStore(builder.lose_index().write()) as store:
        assert find(store, key) == [b"yes"]


@pytest.mark.parametrize("indexed", [True, False])
def test_empty_key_finds_nothing(builder, indexed):
    builder.records(3)
    if not indexed:
        builder.lose_index()
    with OfflineStore(builder.write()) as store:
        assert find(store, "") == []


@pytest.mark.parametrize("indexed", [True, False])
def test_rolled_back_message_is_not_found(builder, indexed):
    builder.record(body=b"half", keys=["k"], sys_flag=TransactionType.PREPARED)
    builder.record(body=b"back", keys=["k"], sys_flag=TransactionType.ROLLBACK)
    builder.record(body=b"done", keys=["k"], sys_flag=TransactionType.COMMIT)
    if not indexed:
        builder.lose_index()
    with OfflineStore(builder.write()) as store:
        assert find(store, "k") == [b"half", b"done"]


def test_damage_met_while_scanning_is_told(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000)
    root = keyed(builder, 30).lose_index().flip_body(3).write()
    with OfflineStore(root) as store:
        assert find(store, "all") == [b"%d" % n for n in range(30) if n != 3]
        assert [place for _, place, _ in findings(store)] == [builder.placed[3].physical_offset]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep", [8, 60, 91])
def test_torn_end_is_no_damage_of_a_search(builder, indexed, clean, keep):
    """What lies behind the end of the log is not looked at."""
    keyed(builder, 5).torn_record(keep, KEYS="all")
    if not indexed:
        builder.lose_index()
    if not clean:
        builder.unclean()
    with OfflineStore(builder.write()) as store:
        assert len(find(store, "all")) == 5
        assert len(find(store, "all", topic=None)) == 5
        assert store.damage.count == 0


def test_record_behind_the_end_is_not_found(builder):
    """The log is cut before a bad record; a good one behind it is told, and not returned."""
    keyed(builder, 5).flip_body(3).lose_index()
    with OfflineStore(builder.write()) as store:
        assert find(store, "all") == [b"0", b"1", b"2"]
        assert store.damage.count == 1


def test_progress_of_a_scan_adds_up(builder):
    seen = []
    with OfflineStore(keyed(builder, 30).lose_index().write()) as store:
        _ = store.coverage
        store.on_progress = seen.append
        find(store, "all")
    assert sum(seen) == sum(place.size for place in builder.placed)


# --- damaged index files ---------------------------------------------------------------------


def test_damaged_record_behind_an_entry_is_told_and_left_out(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000, index_shape=(10, 400))
    root = keyed(builder, 30).flip_body(3).write()
    with OfflineStore(root) as store:
        assert find(store, "all") == [b"%d" % n for n in range(30) if n != 3]
        assert find(store, "k3") == []
        assert store.damage.count == 1


def test_expired_records_are_not_found_and_no_damage(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000, index_shape=(10, 400))
    root = keyed(builder, 30).expire(1).write()
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 1000)
    with OfflineStore(root) as store:
        assert find(store, "all") == [b"%d" % n for n in range(first, 30)]
        assert find(store, "k1") == []
        assert store.damage.count == 0


def test_chain_that_goes_in_a_circle_ends(builder):
    root = keyed(builder, 15).write()
    path = builder.index_path(0)
    data = bytearray(path.read_bytes())
    for number in range(1, 31):
        at = index_format.entry_position(10, number)
        entry = index_format.IndexEntry.decode(data, at)
        circle = 30 if number == 1 else number - 1
        data[at : at + 20] = index_format.IndexEntry(
            entry.key_hash, entry.physical_offset, entry.time_diff_s, circle
        ).encode()
    path.write_bytes(data)
    with OfflineStore(root, options=ReadOptions(max_hash_slot_num=10)) as store:
        assert find(store, "all") == [b"%d" % n for n in range(15)]
        assert [reason for _, _, reason in findings(store)] == ["a chain of the index does not end"]


@pytest.mark.parametrize("number", [-1, 1 << 30, -(1 << 31)])
def test_slot_that_points_outside_ends_the_search(builder, number):
    root = keyed(builder, 5).write()
    path = builder.index_path(0)
    data = bytearray(path.read_bytes())
    for slot in range(10):
        data[40 + slot * 4 : 44 + slot * 4] = number.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    with OfflineStore(root, options=ReadOptions(max_hash_slot_num=10)) as store:
        assert find(store, "k1") == []


@pytest.mark.parametrize("offset", [-1, 1 << 50, -(1 << 63), (1 << 63) - 1, 7])
def test_entry_that_points_to_no_record_is_left_out(builder, offset):
    root = keyed(builder, 5).write()
    path = builder.index_path(0)
    data = bytearray(path.read_bytes())
    for number in range(1, 11):
        at = index_format.entry_position(10, number)
        data[at + 4 : at + 12] = offset.to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    with OfflineStore(root, options=ReadOptions(max_hash_slot_num=10)) as store:
        assert find(store, "k1") == []


@pytest.mark.parametrize("size", [0, 39, 40, 41, 60, 800])
def test_index_file_cut_short_is_scanned_for(builder, size):
    root = keyed(builder, 15).write()
    os.truncate(builder.index_path(0), size)
    with OfflineStore(root) as store:
        assert find(store, "k3") == [b"3"]


def test_index_file_of_zeros_is_an_index_without_keys(builder):
    """As 4.x leaves it when no record has a key; what lies behind it is scanned."""
    root = builder.records(3).write()
    with OfflineStore(root) as store:
        assert [file.header.entries_used for file in store.index_files] == [0]
        assert find(store, "k") == []
        assert store.coverage.notes == []


def test_index_file_of_garbage_is_scanned_for(builder):
    root = keyed(builder, 15).write()
    path = builder.index_path(0)
    path.write_bytes(bytes(range(256)) * 3 + bytes(path.stat().st_size - 768))
    with OfflineStore(root) as store:
        assert find(store, "k3") == [b"3"]


def test_record_behind_the_end_of_the_log_is_not_found(builder):
    """The index still names it, and its bytes are good; but the log was cut before it."""
    root = keyed(builder, 15).flip_body(3).write()
    with OfflineStore(root) as store:
        assert find(store, "k2") == [b"2"]
        assert find(store, "k7") == []
        assert store.message_at(builder.placed[7].physical_offset) is None


def test_a_scan_behind_the_index_begins_with_a_record(tmp_path):
    # The newest key lies further back than what is scanned behind the index in any case.
    with rocketlake.open_store(tmp_path / "s", mapped_file_size_commit_log=64 << 20) as store:
        store.put(Message(topic="T", body=b"first", keys=["k"]))
        for _ in range(60):
            store.put(Message(topic="T", body=bytes(100_001)))
        store.put(Message(topic="U", body=b"last"))
    with OfflineStore(tmp_path / "s") as view:
        begins = {begin for begin, _ in view.coverage.scans}
        starts = {int(o) for chunk in view.walk() for o in chunk.columns["physical_offset"]}
        assert begins <= starts
        assert [m.body for m in view.find(KeyQuery(topic="T", key="k"))] == [b"first"]
        assert view.damage.findings == []
