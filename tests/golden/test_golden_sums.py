"""The golden data is what was recorded, and reading leaves it so."""

import io
import tarfile

import pytest

from rocketlake.store.offline import Boundary, KeyQuery, OfflineStore
from support import command
from support.golden import case_names, sha256, snapshot, unpack


def test_every_case_of_the_readme_is_there():
    # 24 rows of the table: 24 of 5.3.3, 19 of 4.9.7, 8 of 4.6.0.
    prefixes = [name.split("-")[0] for name in case_names()]
    assert {prefix: prefixes.count(prefix) for prefix in prefixes} == {
        "v4": 19,
        "v46": 8,
        "v5": 24,
        "v55": 13,
    }


def test_case_files_have_their_sums(golden):
    sums = golden.case.manifest["case_files"]
    assert {name: sha256(golden.case.path / name) for name in sums} == sums
    present = {path.name for path in golden.case.path.iterdir()}
    assert present - {"manifest.toml"} == set(sums)


def test_unpacked_store_is_the_one_that_was_packed(golden):
    files = {
        path: (size, mtime_ns // 1_000_000, content)
        for path, (size, mtime_ns, content) in snapshot(golden.root).items()
        if content != "directory"
    }
    assert files == {
        line["path"]: (line["size"], line["mtime_ms"], line["sha256"])
        for line in golden.case.manifest["store_files"]
    }


def test_reading_changes_nothing(golden):
    before = snapshot(golden.root)
    with OfflineStore(golden.root) as store:
        read = 0
        for key in store.queues:
            read += sum(len(batch.columns) for batch in store.messages(key))
            store.offset_by_time(key, 0)
            store.offset_by_time(key, 1 << 60, Boundary.UPPER)
            store.nearest_offset_by_time(key, 0)
            store.time_bounds(key)
        walked = sum(len(batch.columns) for batch in store.walk())
        for topic in ("T", None):
            for _ in store.find(KeyQuery(topic=topic, key="k")):
                pass
    assert read > 0 or golden.case.missing
    assert walked > 0
    for arguments in (["info", "--json"], ["dump"], ["dump", "--log", "--json"]):
        ran = command.run(arguments[0], golden.root, *arguments[1:])
        assert ran.code in (0, 1), ran.err
    assert snapshot(golden.root) == before


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out"])
def test_archive_with_a_path_outside_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="leads outside"):
        unpack(tmp_path / "a.tar", tmp_path / "in")


def test_archive_with_a_link_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("link")
        member.type = tarfile.SYMTYPE
        member.linkname = "elsewhere"
        archive.addfile(member)
    with pytest.raises(ValueError, match="is no file"):
        unpack(tmp_path / "a.tar", tmp_path / "in")
