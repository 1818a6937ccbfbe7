"""IndexFileSet: rolling, repeats, look-ups, expiry, flushing."""

import threading
from datetime import UTC, datetime

import pytest
from index_makers import SMALL, START, IndexBench, KeyLog, found

from rocketlake.errors import DiskFullError, FileAccessError, FlushFailedError
from rocketlake.format.index import IndexHeader

TIMEOUT_S = 30


@pytest.fixture
def bench(tmp_path):
    with IndexBench(tmp_path) as made:
        yield made


# --- files -------------------------------------------------------------------------------------


def test_nothing_is_made_before_the_first_record(bench):
    bench.files.put(KeyLog().columns())
    assert bench.names() == []
    assert bench.files.end_physical_offset == bench.files.end_timestamp == 0
    assert found(bench.files, "a") == []


def test_first_record_makes_a_file_even_without_a_key(bench):
    log = KeyLog().add().add()
    log.index(bench.files)
    assert len(bench.names()) == 1
    assert bench.headers() == [IndexHeader(0, 0, 0, 0, 0, 0)]
    assert bench.files.mapped_size == SMALL.file_size


def test_file_is_named_by_local_time(bench):
    KeyLog().add().index(bench.files)
    moment = datetime.fromtimestamp(bench.clock.now_ms() / 1000, UTC).astimezone()
    assert bench.names() == [f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"]


def test_files_of_one_millisecond_have_different_names_in_order(bench):
    log = KeyLog()
    for number in range(10):
        log.add(f"k{number}", f"l{number}")
    log.index(bench.files)
    names = bench.names()
    assert len(names) == 5
    assert [file.path.name for file in bench.files.files] == names
    assert [header.begin_physical_offset for header in bench.headers()] == log.offsets[::2]


def test_file_made_when_the_clock_was_set_back_comes_last_all_the_same(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e")
    log.index(bench.files, last=1)
    first = bench.names()
    bench.clock.advance_ms(-3_600_000)
    log.index(bench.files, first=1)
    assert bench.names()[:1] == first
    assert bench.files.files[-1].path.name == bench.names()[1]


def test_full_file_is_followed_by_one_that_begins_with_its_end(bench):
    log = KeyLog().add("a", "b", "c").add("d", "e").add("f")
    log.index(bench.files)
    times, offsets = log.times, log.offsets
    one = IndexHeader(times[0], times[1], offsets[0], offsets[1], 4, 5)
    headers = bench.headers()
    assert (headers[0].begin_timestamp, headers[0].end_timestamp) == (times[0], times[1])
    assert headers[0].entry_count == one.entry_count
    two = headers[1]
    assert (two.begin_timestamp, two.end_timestamp) == (times[1], times[2])
    assert (two.begin_physical_offset, two.end_physical_offset) == (offsets[1], offsets[2])


@pytest.mark.parametrize(("keyless", "files"), [(0, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("batch", [None, 1])
def test_record_without_a_key_behind_a_full_file_makes_the_next(bench, keyless, files, batch):
    """As in IndexService#buildIndex, which asks for a file with room before it looks for keys."""
    log = KeyLog().add("a", "b", "c", "d")
    for _ in range(keyless):
        log.add()
    log.index(bench.files, batch=batch)
    assert len(bench.names()) == files
    if files == 2:
        time, offset = log.times[0], log.offsets[0]
        assert bench.headers()[1] == IndexHeader(time, time, offset, offset, 0, 0)


def test_record_with_more_keys_than_a_file_holds_spans_files(bench):
    keys = [f"k{n}" for n in range(11)]
    log = KeyLog().add("x").add(*keys).add("y")
    log.index(bench.files)
    assert [len(part) for part in bench.entries()] == [4, 4, 4, 1]
    for key in (*keys, "x", "y"):
        assert found(bench.files, key) == log.wanted(key)


def test_bytes_do_not_depend_on_how_records_come(tmp_path):
    log = KeyLog()
    for number in range(20):
        log.add(*[f"k{number % 3}", "x"][: number % 3], unique=f"u{number}" if number % 2 else None)
    written = []
    for batch in (None, 1, 7):
        bench = IndexBench(tmp_path / str(batch))
        log.index(bench.files, batch=batch)
        bench.files.close()
        written.append([(bench.path / name).read_bytes() for name in bench.names()])
    assert written[0] == written[1] == written[2]
    assert len(written[0]) == 8


# --- repeats -----------------------------------------------------------------------------------


def test_records_that_come_again_are_passed_over(bench):
    log = KeyLog().add("a").add("b", "c").add().add("d", unique="u")
    log.index(bench.files)
    before = bench.entries()
    log.index(bench.files)
    log.index(bench.files, first=2)
    log.index(bench.files, first=3)
    assert bench.entries() == before
    log.add("e")
    log.index(bench.files)
    assert bench.offsets_put() == [log.offsets[n] for n in (0, 1, 1, 3, 3, 4)]


def test_record_older_than_the_last_is_passed_over_inside_a_batch(bench):
    log = KeyLog().add("a").add("b").add("c")
    columns = log.columns()
    columns.rows = columns.rows[[0, 2, 1]]
    bench.files.put(columns)
    assert bench.offsets_put() == [log.offsets[0], log.offsets[2]]


@pytest.mark.parametrize("keys_before", range(1, 5))
def test_keys_of_the_last_record_that_are_missing_are_put_alone(bench, keys_before):
    """The disk was full when the second file was to be made."""
    log = KeyLog()
    log.add(*[f"a{n}" for n in range(keys_before)])
    log.add("b1", "b2", "b1", "b3", "b4", unique="u")
    bench.disk.allocations = 1
    with pytest.raises(DiskFullError):
        log.index(bench.files)
    assert len(bench.offsets_put()) == 4
    bench.disk.allocations = 100
    log.index(bench.files)
    log.index(bench.files)
    counts = [len(keys) for keys in log.keys]
    assert bench.offsets_put() == [log.offsets[0]] * counts[0] + [log.offsets[1]] * counts[1]
    for key in ("u", "b1", "b2", "b3", "b4"):
        assert found(bench.files, key) == [log.offsets[1]]


def test_last_record_of_a_full_file_is_not_put_again_after_the_file_behind_it_was_lost(bench):
    log = KeyLog().add("a", "b", "c").add("d", "e", "f").add("g")
    log.index(bench.files)
    bench.files.close()
    (bench.path / bench.names()[1]).unlink()
    files = bench.open(is_clean=False)
    assert files.rebuild_from == log.offsets[1]
    log.index(files, first=1)
    assert bench.offsets_put() == [log.offsets[n] for n in (0, 0, 0, 1, 1, 1, 2)]


# --- look-ups ----------------------------------------------------------------------------------


def test_records_with_a_key_are_found_newest_first_in_all_files(bench):
    log = KeyLog()
    for number in range(30):
        log.add(f"k{number % 4}", f"own{number}")
    log.index(bench.files, batch=5)
    for key in ("k0", "k1", "k2", "k3", "own0", "own17", "own29"):
        assert found(bench.files, key) == log.wanted(key)
    assert found(bench.files, "k4") == []
    assert found(bench.files, "k0", topic="U") == []


def test_record_is_named_once_even_if_it_has_a_key_twice(bench):
    log = KeyLog().add("x", "x", unique="x").add("x", unique="y")
    log.index(bench.files)
    assert found(bench.files, "x") == [log.offsets[1], log.offsets[0]]
    assert len(bench.offsets_put()) == 5


@pytest.mark.parametrize(
    ("begin", "end", "numbers"),
    [
        (0, 9, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (3, 6, [6, 5, 4, 3]),
        (6, 6, [6]),
        (9, 20, [9]),
        (10, 20, []),
        (-5, -1, []),
        (6, 3, []),
    ],
)
def test_range_of_time_is_kept_to_the_second(bench, begin, end, numbers):
    log = KeyLog()
    for number in range(10):
        log.add("k", time=START + 10_000 * number)
    log.index(bench.files)
    times = (START + 10_000 * begin, START + 10_000 * end)
    assert found(bench.files, "k", *times) == [log.offsets[number] for number in numbers]


def test_record_in_range_is_found_although_entries_keep_whole_seconds(bench):
    log = KeyLog()
    for time in (0, 999, 1001, 1999, 2500):
        log.add("k", time=START + time)
    log.index(bench.files)
    for number, time in enumerate(log.times):
        assert log.offsets[number] in found(bench.files, "k", time, time)


def test_first_record_of_a_later_file_is_found_at_its_own_time(bench):
    """Its entry was counted from the end of the file before, a minute earlier."""
    log = (
        KeyLog().add("a", "b", "c", "k").add("k", time=START + 60_000).add("k", time=START + 90_000)
    )
    log.index(bench.files)
    assert len(bench.names()) == 2
    assert found(bench.files, "k", START + 60_000, START + 60_000) == [log.offsets[1]]


def test_times_beyond_all_numbers_are_taken_for_ever(bench):
    log = KeyLog().add("k")
    log.index(bench.files)
    assert found(bench.files, "k", -(1 << 80), 1 << 80) == log.offsets


def test_look_up_goes_on_while_files_are_deleted(bench):
    log = KeyLog()
    for _ in range(40):
        log.add("k")
    log.index(bench.files)
    names = bench.files.offsets("T", "k")
    assert next(names) == log.offsets[39]
    assert bench.files.delete_expired(log.offsets[20]) == 5
    rest = list(names)
    assert rest[:19] == log.offsets[38:19:-1]
    assert set(rest) <= set(log.offsets)


def test_threads_look_up_and_delete_while_records_are_put(bench):
    log = KeyLog()
    for number in range(600):
        log.add("k", f"own{number}")
    wrong = []
    has_ended = threading.Event()

    def look():
        while not has_ended.is_set():
            offsets = found(bench.files, "k")
            if offsets != sorted(set(offsets), reverse=True):
                wrong.append(offsets)
            bench.files.delete_expired(bench.files.end_physical_offset // 2)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        log.index(bench.files, batch=100)
    finally:
        has_ended.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    offsets = found(bench.files, "k")
    assert offsets == log.wanted("k")[: len(offsets)]
    assert len(offsets) >= 250


# --- expiry ------------------------------------------------------------------------------------


def test_files_whose_records_are_gone_are_deleted_but_never_the_newest(bench):
    log = KeyLog()
    for number in range(8):
        log.add(f"a{number}", f"b{number}")
    log.index(bench.files)
    names = bench.names()
    assert len(names) == 4
    assert bench.files.delete_expired(log.offsets[1]) == 0
    assert bench.files.delete_expired(log.offsets[2]) == 1
    assert bench.names() == names[1:]
    assert bench.files.delete_expired(1 << 60) == 2
    assert bench.names() == names[3:]
    assert bench.files.delete_expired(1 << 60) == 0
    assert found(bench.files, "a7") == [log.offsets[7]]
    assert found(bench.files, "a0") == []


def test_deletion_pauses_between_files_and_can_be_ended(bench):
    log = KeyLog()
    for number in range(8):
        log.add(f"a{number}", f"b{number}")
    log.index(bench.files)
    pauses = []

    def wait(seconds):
        pauses.append(seconds)
        return len(pauses) == 1

    assert bench.files.delete_expired(1 << 60, wait, pause_ms=30) == 1
    assert bench.files.delete_expired(1 << 60, wait, pause_ms=30) == 2
    assert pauses == [0.03, 0.03]


def test_file_that_cannot_be_deleted_stays_in_use(bench, monkeypatch):
    log = KeyLog().add("a", "b", "c", "d").add("e")
    log.index(bench.files)

    def refuse(path):
        raise FileAccessError(str(path), "cannot remove")

    monkeypatch.setattr(bench.disk, "unlink", refuse)
    with pytest.raises(FileAccessError):
        bench.files.delete_expired(1 << 60)
    assert found(bench.files, "a") == log.wanted("a")


def test_destroy_removes_everything(bench):
    KeyLog().add("a", "b", "c", "d").add("e").index(bench.files)
    bench.files.destroy()
    assert not bench.path.exists()
    assert found(bench.files, "a") == []


# --- flushing ----------------------------------------------------------------------------------


def test_full_file_is_flushed_before_the_checkpoint_says_so(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e", "f", "g", "h").add("i")
    log.index(bench.files)
    names = bench.names()
    bench.disk.calls.clear()
    bench.checkpoint._on_flush = lambda: bench.disk.calls.append(("checkpoint",))
    bench.files.flush_full_files()
    assert [call for call in bench.disk.calls if call[0] != "open"] == [
        ("sync", names[0]),
        ("sync", names[1]),
        ("sync_dir", "index"),
        ("checkpoint",),
    ]
    assert bench.checkpoint.flushed == [log.times[1]]
    bench.files.flush_full_files()
    assert bench.checkpoint.flushed == [log.times[1]]


def test_flush_covers_the_newest_file_too_and_leaves_it_out_of_the_checkpoint(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e")
    log.index(bench.files)
    bench.files.flush()
    assert {name for kind, name in bench.disk.names("sync")} == set(bench.names())
    assert bench.checkpoint.index_timestamp == log.times[0]


def test_full_file_is_flushed_in_the_background(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e")
    has_flushed = threading.Event()
    bench.checkpoint._on_flush = has_flushed.set
    bench.files.start()
    log.index(bench.files)
    assert has_flushed.wait(TIMEOUT_S)
    assert bench.checkpoint.index_timestamp == log.times[0]
    bench.files.close()


def test_failed_flush_is_final_and_told_at_every_later_one(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e", "f", "g", "h").add("i")
    log.index(bench.files, last=2)
    fault = FlushFailedError("index", "flush failed")
    bench.disk.faults["sync"] = fault
    with pytest.raises(FlushFailedError):
        bench.files.flush_full_files()
    bench.disk.faults.clear()
    log.index(bench.files, first=2)
    assert bench.files.failure is fault
    for flush in (bench.files.flush_full_files, bench.files.flush, bench.files.close):
        with pytest.raises(FlushFailedError):
            flush()
    assert bench.checkpoint.flushed == []
    assert bench.files.files == ()


def test_flush_that_may_be_tried_again_is(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e")
    log.index(bench.files)
    bench.disk.faults["sync"] = FileAccessError("index", "interrupted")
    with pytest.raises(FileAccessError):
        bench.files.flush_full_files()
    bench.disk.faults.clear()
    bench.files.flush_full_files()
    assert bench.checkpoint.flushed == [log.times[0]]


def test_close_flushes_what_is_left_and_a_second_one_does_nothing(bench):
    log = KeyLog().add("a", "b", "c", "d").add("e")
    log.index(bench.files)
    bench.files.start()
    bench.files.close()
    bench.files.close()
    assert {name for kind, name in bench.disk.names("sync")} == set(bench.names())
    assert bench.checkpoint.flushed == [log.times[0]]
    assert found(bench.files, "a") == []
