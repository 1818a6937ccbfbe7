"""Index files found at a start: which are used, and that no key is lost with the others."""

import random

import pytest
from index_makers import SMALL, START, IndexBench, KeyLog, found

from rocketlake.errors import FileSizeError
from rocketlake.format.index import IndexHeader
from rocketlake.store.index.index_file import IndexShape
from rocketlake.store.index.loading import find_index_files

PAGE = 4096


@pytest.fixture
def bench(tmp_path):
    with IndexBench(tmp_path) as made:
        yield made


def filled(bench, count=10):
    """Two keys a record, so two records a file."""
    log = KeyLog()
    for number in range(count):
        log.add(f"k{number}", "all")
    log.index(bench.files)
    return log


def assert_complete(bench, files, log):
    """Every key is found, and is there once."""
    for number, keys in enumerate(log.keys):
        for key in keys:
            assert found(files, key) == log.wanted(key), (number, key)
    assert len(bench.offsets_put()) == log.entry_count
    assert bench.offsets_put() == sorted(bench.offsets_put())


# --- clean stops -------------------------------------------------------------------------------


def test_nothing_is_missing_after_a_clean_stop(bench):
    log = filled(bench, 5)
    bench.files.close()
    before = bench.entries()
    files = bench.open()
    assert files.rebuild_from is None
    assert bench.entries() == before
    assert files.end_physical_offset == log.offsets[-1]
    assert files.end_timestamp == log.times[-1]
    assert_complete(bench, files, log)


def test_index_is_gone_on_with_after_a_clean_stop(bench):
    log = filled(bench, 3)
    bench.files.close()
    log.add("k3", "all").add("k4", "all")
    files = bench.open()
    log.index(files)
    assert len(bench.names()) == 3
    assert_complete(bench, files, log)


def test_full_last_file_is_followed_by_another_and_counts_as_flushed(bench):
    log = filled(bench, 2)
    bench.files.close()
    files = bench.open()
    log.add("k2", "all")
    log.index(files)
    files.flush()
    assert bench.checkpoint.index_timestamp == log.times[1]
    assert_complete(bench, files, log)


def test_store_without_index_files_has_to_be_indexed_from_the_start(bench):
    assert bench.files.rebuild_from == 0
    assert bench.open(is_clean=False).rebuild_from == 0


def test_file_of_another_size_is_refused_with_both_sizes(bench):
    filled(bench, 1)
    bench.files.close()
    bench.shape = IndexShape(slots=7, entries=6)
    with pytest.raises(FileSizeError, match=r"168 bytes, .* have 188") as caught:
        bench.open()
    assert bench.names()[0] in str(caught.value)
    assert len(bench.names()) == 1


def test_what_is_no_index_file_is_left_alone(bench):
    log = filled(bench, 1)
    bench.files.close()
    (bench.path / "notes.txt").write_text("mine")
    (bench.path / "20240131235959124").mkdir()
    files = bench.open(is_clean=False)
    assert (bench.path / "notes.txt").exists()
    assert (bench.path / "20240131235959124").is_dir()
    assert files.rebuild_from == 0
    assert log.entry_count == 2


def test_file_of_no_length_is_removed(bench):
    filled(bench, 1)
    bench.files.close()
    (bench.path / "20990131235959123").touch()
    files = bench.open()
    assert len(bench.names()) == 1
    assert len(files.files) == 1


@pytest.mark.parametrize(
    "header",
    [
        IndexHeader(START, START, 0, 100, 4, 6),
        IndexHeader(START, START, -1, 100, 4, 5),
        IndexHeader(START, START, 200, 100, 4, 5),
    ],
)
def test_file_whose_header_cannot_be_true_is_built_again_with_all_behind_it(bench, header):
    log = filled(bench, 6)
    bench.files.close()
    second = bench.path / bench.names()[1]
    second.write_bytes(header.encode() + second.read_bytes()[40:])
    files = bench.open()
    assert len(files.files) == 1
    assert files.rebuild_from == log.offsets[1]
    log.index(files, first=log.number_from(files.rebuild_from))
    assert_complete(bench, files, log)


# --- unclean stops -----------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", range(6))
def test_only_flushed_files_are_used_after_an_unclean_stop(bench, flushed):
    log = filled(bench, 10)
    bench.files.close()
    bench.checkpoint.index_timestamp = log.times[2 * flushed - 1] if flushed else 0
    names = bench.names()
    files = bench.open(is_clean=False)
    # The last file is full, too: two records each.
    assert bench.names() == names[:flushed]
    assert files.rebuild_from == (log.offsets[2 * flushed - 1] if flushed else 0)
    log.index(files, first=log.number_from(files.rebuild_from))
    assert_complete(bench, files, log)


def header(end, count=SMALL.entries):
    return IndexHeader(START, START + end, 0, 100, 1, count)


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ([], 0),
        ([header(9)], 1),
        ([header(10)], 1),
        ([header(11)], 0),
        ([header(9, count=4)], 0),  # never filled, so never flushed
        ([header(-START, count=0)], 0),  # no page of it reached the disk
        ([header(5), header(10), header(10, count=1)], 2),  # followed, and nothing put yet
        ([header(5), header(10), header(10)], 2),  # both may end then, one was flushed
        ([header(5), header(5), header(10)], 3),
        ([header(5), header(4), header(10)], 1),  # the clock was set back
        ([header(5), header(11), header(10)], 1),
    ],
)
def test_which_files_are_trusted_after_an_unclean_stop(tmp_path, headers, kept):
    bench = IndexBench(tmp_path)
    bench.path.mkdir()
    paths = []
    for number, each in enumerate(headers):
        paths.append(bench.path / f"{20240131235959123 + number}")
        paths[-1].write_bytes(each.encode().ljust(SMALL.file_size, b"\0"))
    seen = find_index_files(bench.disk, bench.path, SMALL, START + 10)
    assert [path for path, _ in seen.kept] == paths[:kept]
    assert seen.rejected == paths[kept:]


@pytest.mark.parametrize("lost", ["all", "cut"])
def test_checkpoint_does_not_speak_for_files_that_are_built_again(bench, lost):
    """A second crash, before the new files are flushed, would find them full and trust them."""
    log = filled(bench, 10)
    bench.files.close()
    assert bench.checkpoint.index_timestamp == log.times[7]
    if lost == "all":
        for name in bench.names():
            (bench.path / name).unlink()
    files = bench.open()
    if lost == "cut":
        files.truncate(log.offsets[5])
    last = {"all": 0, "cut": log.times[3]}[lost]
    assert bench.checkpoint.index_timestamp == last
    assert bench.checkpoint.flushed[-1] == last


def test_files_are_removed_newest_first(bench):
    """A crash in the middle leaves no gap."""
    filled(bench, 6)
    names = bench.names()
    bench.files.close()
    bench.checkpoint.index_timestamp = 0
    removed = []
    unlink = bench.disk.unlink
    bench.disk.unlink = lambda path: removed.append(path.name) or unlink(path)
    bench.open(is_clean=False)
    assert removed == names[::-1]


@pytest.mark.parametrize("steps", [(0, 1), (0, 0, 1), (-900, 300, 400)])
@pytest.mark.parametrize("seed", range(4))
def test_no_key_is_lost_whatever_pages_a_crash_leaves(tmp_path, seed, steps):
    """Of what was not flushed each page survives or not, also when the clock is set back."""
    rng = random.Random(seed)
    bench = IndexBench(tmp_path, IndexShape(slots=1500, entries=300))
    log = KeyLog()
    time = START
    for number in range(600):
        time += rng.choice(steps)
        log.add(*[f"k{number}", f"m{number % 7}", f"n{number}"][: rng.randrange(4)], time=time)
    for _ in range(rng.randrange(3)):
        log.index(bench.files, last=rng.randrange(1, 601), batch=100)
        bench.files.flush_full_files()
    log.index(bench.files, batch=500)
    unflushed = [*bench.files._unflushed, bench.files.files[-1]]
    for file in unflushed:
        lose_pages(file.path, rng)
    if rng.random() < 0.3:
        unflushed[-1].path.unlink()
    bench.open_sets.clear()  # it was killed
    files = bench.open(is_clean=False)
    log.index(files, first=log.number_from(files.rebuild_from), batch=200)
    assert_complete(bench, files, log)
    files.close()


def lose_pages(path, rng):
    data = bytearray(path.read_bytes())
    for start in range(0, len(data), PAGE):
        if rng.random() < 0.5:
            data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    path.write_bytes(data)


# --- a log that lost its end -------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 9])
def test_files_that_reach_behind_the_log_are_built_again(bench, number):
    log = filled(bench, 10)
    bench.files.close()
    files = bench.open()
    files.truncate(log.offsets[number])
    kept = number // 2
    assert len(bench.names()) == kept
    assert files.rebuild_from == (log.offsets[2 * kept - 1] if kept else 0)
    shorter = KeyLog()
    for n in range(number):
        shorter.add(f"k{n}", "all")
    shorter.add("new", "all").add("k1", "newer")  # where other records were
    shorter.index(files, first=shorter.number_from(files.rebuild_from))
    assert_complete(bench, files, shorter)


def test_log_that_lost_nothing_leaves_the_files_alone(bench):
    log = filled(bench, 5)
    bench.files.close()
    files = bench.open()
    files.truncate(len(log.data))
    assert files.rebuild_from is None
    assert len(bench.names()) == 3


def test_empty_log_leaves_a_file_without_keys_alone(bench):
    KeyLog().add().index(bench.files)
    bench.files.close()
    files = bench.open()
    files.truncate(0)
    assert len(bench.names()) == 1
