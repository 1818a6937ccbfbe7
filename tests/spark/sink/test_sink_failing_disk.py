"""A disk that fails while rows are staged or appended: nothing is lost, nothing comes twice."""

from pathlib import Path

import pytest

from rocketlake.errors import FileAccessError, FlushFailedError, StoreError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.ops import PosixFileOps
from rocketlake.spark.sink import staging
from support.sink_kit import Sink, assert_sound, bodies, leftovers, numbered, once, stream


class FailingOnce:
    """An open file whose first sync fails."""

    def __init__(self, inner, synced):
        self._inner = inner
        self._synced = synced

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def sync(self):
        self._synced.append(1)
        if len(self._synced) == 1:
            raise FlushFailedError("staged", "flush failed")
        self._inner.sync()


def test_sync_that_fails_in_the_background_fails_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of a failed write once: the last sync would succeed."""
    synced = []

    class Ops(PosixFileOps):
        def create(self, path, size, *, is_sparse=False):
            return FailingOnce(super().create(path, size, is_sparse=is_sparse), synced)

    monkeypatch.setattr(staging, "_SYNC_STEP", 10)
    footer = staging.Footer(
        partition=0, rows=1, shape=Sink(tmp_path / "s").plan.shape, topics=[], pieces=[]
    )
    with staging.StageWriter(Ops(), tmp_path / "a" / "b", 0) as writer:
        writer.add(b"x" * 20, 1)
        with pytest.raises(FlushFailedError):
            writer.finish(footer)
    assert len(synced) == 1
    assert not any(path.is_file() for path in (tmp_path / "a").rglob("*"))


def test_task_that_fails_leaves_the_folder_to_other_tasks(tmp_path: Path) -> None:
    """A task may make its file at the moment in which another one fails."""
    folder = tmp_path / "staging" / "run"
    failing = staging.StageWriter(PosixFileOps(), folder, 0)

    class Ops(PosixFileOps):
        def create(self, path, size, *, is_sparse=False):
            failing.__exit__(StoreError, StoreError("a bad row"), None)
            return super().create(path, size, is_sparse=is_sparse)

    with staging.StageWriter(Ops(), folder, 1):
        assert [path.suffix for path in folder.iterdir()] == [".part"]


def test_append_that_fails_midway_is_finished_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(tmp_path / "s")
    files = sink.stage(stream(0), numbered(0, 50), numbered(50, 100))
    append, calls = MappedFile.write_behind, []

    def fail_halfway(file, data):
        calls.append(len(data))
        if len(calls) == 2:
            with file.path.open("r+b") as half:  # some of it came to the disk
                half.seek(file.wrote)
                half.write(data[: len(data) - 7])
            file.allocated, file._owes_zeros = file.wrote, True
            raise FileAccessError(str(file.path), "cannot write")
        return append(file, data)

    monkeypatch.setattr(MappedFile, "write_behind", fail_halfway)
    with pytest.raises(StoreError, match="is not in the store as a whole: rows were appended in"):
        sink.committer.commit(stream(0), files)
    monkeypatch.undo()
    # Whole records that came to the disk count, as after a crash; they are not appended again.
    assert once(range(50)) <= bodies(tmp_path / "s") < once(range(100))
    sink.committer.commit(stream(0), files)
    assert bodies(tmp_path / "s") == once(range(100))
    assert leftovers(tmp_path / "s") == []
    assert_sound(tmp_path / "s")
