"""What a cut takes of good records is saved first: where, what, once, and not at all costs."""

import json

import pytest
from recovery_fakes import SIZE, bench_of, name

from rocketlake import failpoint
from rocketlake.errors import DiskFullError, StoreError
from rocketlake.files.ops import PosixFileOps
from support.store_builder import StoreBuilder


class _CrashError(Exception):
    pass


def _crash():
    raise _CrashError


class FullOps(PosixFileOps):
    """A disk that has no room for what is saved."""

    is_full = True

    def create(self, path, size, *, is_sparse=False):
        if self.is_full and "salvage" in path.parts and path.suffix:
            super().create(path, size, is_sparse=is_sparse).close()
            raise DiskFullError(str(path), size, 0)
        return super().create(path, size, is_sparse=is_sparse)


@pytest.fixture
def builder(tmp_path):
    """Three files of ten short records; the fourth of the second file is bad."""
    builder = StoreBuilder(tmp_path, log_file_size=SIZE).records(25).unclean().checkpoint(0, 0, 0)
    return builder.flip_body(13)


def _saved(root):
    """The saved bytes by their directories and names; descriptions by their directories."""
    found = {
        place.name: {path.name: path.read_bytes() for path in sorted(place.iterdir())}
        for place in sorted((root / "salvage").iterdir())
    }
    described = {place: json.loads(files.pop("salvage.json")) for place, files in found.items()}
    return found, described


def test_bytes_behind_a_bad_record_are_saved_and_named(builder):
    bench = bench_of(builder)
    before = bench.log_bytes()
    end = builder.placed[13].physical_offset
    last = builder.placed[-1].end
    report = bench.recover()
    cut = last - 2 - end  # the last record ends with two zeros, which are saved all the same
    assert (report.log_end, report.cut_bytes) == (end, cut)
    (place, files), *others = _saved(bench.root)[0].items()
    assert not others
    assert place == "20231114T221320000"  # the time of the clock, in UTC
    assert files == {
        name(end): before[name(SIZE)][end - SIZE :],
        name(2 * SIZE): before[name(2 * SIZE)][: last + 6 - 2 * SIZE],
    }
    described = _saved(bench.root)[1][place]
    assert described.pop("made_by").startswith("rocketlake ")
    assert described == {
        "reason": "a record does not have its checksum",
        "cut_at": end,
        "path": str(bench.root / "commitlog" / name(SIZE)),
        "position": end - SIZE,
        "bytes": cut,
        "first_record": builder.placed[14].physical_offset,
    }
    (note,) = [text for text in report.notes if "saved in" in text]
    assert f"{bench.root / 'salvage' / place}; `rocketlake salvage {bench.root}`" in note


def test_files_behind_zeros_are_saved(builder):
    """The bad record may be gone altogether: a file of records follows zeros."""
    end = builder.placed[13].physical_offset
    builder.overwrite(end, bytes(2 * SIZE - end))
    report = bench_of(builder).recover()
    assert report.log_end == end
    (files,) = _saved(builder.root)[0].values()
    assert files[name(2 * SIZE)]


def test_records_behind_a_lost_page_are_saved(tmp_path):
    """A power cut may take a page of one file and leave the next."""
    builder = StoreBuilder(tmp_path, log_file_size=SIZE).records(8).unclean().checkpoint(0, 0, 0)
    lost = builder.placed[3]
    builder.overwrite(lost.physical_offset, bytes(lost.size))
    report = bench_of(builder).recover()
    assert report.log_end == lost.physical_offset
    assert _saved(tmp_path)[1]["20231114T221320000"]["first_record"] == lost.end


def test_torn_end_is_not_saved(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=SIZE).records(5).unclean()
    builder.overwrite(builder.end, b"\x00\x00\x00\x64\xda\xa3")
    report = bench_of(builder).recover()
    assert report.cut_bytes == 6
    assert not (tmp_path / "salvage").exists()


@pytest.mark.parametrize(
    "point", [f"{s}.{w}" for s in ("salvage", "delete", "truncate") for w in ("before", "after")]
)
def test_cut_that_a_crash_interrupts_is_saved_once(builder, point):
    bench = bench_of(builder)
    whole = bench.log_bytes()
    with failpoint.switched_on(point, _crash), pytest.raises(_CrashError):
        bench.recover()
    report = bench.recover()
    assert report.log_end == builder.placed[13].physical_offset
    (files,) = _saved(bench.root)[0].values()
    end = builder.placed[13].physical_offset
    assert files[name(end)] == whole[name(SIZE)][end - SIZE :]
    assert files[name(2 * SIZE)].rstrip(b"\0") == whole[name(2 * SIZE)].rstrip(b"\0")
    assert bench.recover().cut_bytes == 0


def test_what_a_crash_left_of_a_saving_goes(builder):
    left = builder.root / "salvage" / "20200101T000000000"
    left.mkdir(parents=True)
    (left / name(0)).write_bytes(b"half")
    (left / "salvage.json.tmp").write_bytes(b"{")
    bench = bench_of(builder)
    bench.recover()
    assert len(_saved(bench.root)[0]) == 1
    assert not left.exists()


def test_other_bytes_of_the_same_place_are_saved_too(builder):
    bench = bench_of(builder)
    bench.recover()
    builder.overwrite(builder.placed[20].physical_offset + 92, b"0ther")
    builder.write()
    bench.recover(is_clean=False)
    assert len(_saved(bench.root)[0]) == 2


def test_nothing_is_cut_that_cannot_be_saved(builder):
    ops = FullOps()
    bench = bench_of(builder, ops=ops)
    before = bench.log_bytes()
    with pytest.raises(StoreError, match=r"at 282: .* no space left .* Nothing was changed"):
        bench.recover()
    assert bench.log_bytes() == before
    assert list((bench.root / "salvage").iterdir()) == []
    ops.is_full = False
    assert bench.recover().cut_bytes
    assert len(_saved(bench.root)[0]) == 1
