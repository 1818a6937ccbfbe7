"""Files that are written: space, zeros, flushes, names, and what the machine's refusals become."""

import errno
import os

import pytest

from rocketlake.errors import DiskFullError, FileAccessError, FlushFailedError, StoreNotFoundError
from rocketlake.files import descriptor as descriptor_module
from rocketlake.files.ops import DiskUsage, PosixFileOps

BLOCK = 4096


@pytest.fixture
def ops():
    return PosixFileOps()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f"


def fail_with(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def space(path):
    return path.stat().st_blocks * 512


# --- creating --------------------------------------------------------------------------------


def test_new_file_has_its_length_and_its_space(ops, path):
    writer = ops.create(path, 10 * BLOCK)
    assert (path.stat().st_size, space(path)) == (10 * BLOCK, 10 * BLOCK)
    assert writer.read(0, 10 * BLOCK) == bytes(10 * BLOCK)
    writer.close()


def test_sparse_file_has_its_length_and_no_space(ops, path):
    ops.create(path, 10 * BLOCK, is_sparse=True).close()
    assert (path.stat().st_size, space(path)) == (10 * BLOCK, 0)


def test_empty_file_can_be_made(ops, path):
    ops.create(path, 0).close()
    assert path.stat().st_size == 0


def test_file_that_exists_is_not_made_again(ops, path):
    path.write_bytes(b"precious")
    with pytest.raises(FileAccessError, match=r"/f: cannot create: File exists"):
        ops.create(path, 10)
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_named_with_its_numbers_and_leaves_nothing(ops, path, monkeypatch, number):
    monkeypatch.setattr(os, "posix_fallocate", fail_with(number))
    with pytest.raises(DiskFullError) as caught:
        ops.create(path, 12_345)
    free = ops.disk_usage(path.parent).free
    assert caught.value.path == str(path)
    assert caught.value.wanted == 12_345
    assert caught.value.free == pytest.approx(free, rel=0.2)
    assert "12345 bytes wanted" in str(caught.value)
    assert caught.value.retriable
    assert isinstance(caught.value.__cause__, OSError)
    assert list(path.parent.iterdir()) == []


def test_full_disk_whose_room_nobody_can_tell(ops, path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", fail_with(errno.ENOSPC))
    monkeypatch.setattr(os, "statvfs", fail_with(errno.EACCES))
    with pytest.raises(DiskFullError, match="an unknown number free"):
        ops.create(path, 1)


def test_other_failure_of_allocating_leaves_nothing(ops, path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", fail_with(errno.EIO))
    with pytest.raises(FileAccessError, match="cannot allocate: Input/output error") as caught:
        ops.create(path, 10)
    assert not isinstance(caught.value, DiskFullError)
    assert list(path.parent.iterdir()) == []


def test_interrupted_creation_leaves_nothing(ops, path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "posix_fallocate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ops.create(path, 10)
    assert list(path.parent.iterdir()) == []


def test_space_without_the_call_for_it(ops, path, monkeypatch):
    """Some file systems have no fallocate: a byte of each block is written, and none is changed."""
    monkeypatch.setattr(os, "posix_fallocate", fail_with(errno.EOPNOTSUPP))
    ops.create(path, 10 * BLOCK).close()
    assert (path.stat().st_size, space(path)) == (10 * BLOCK, 10 * BLOCK)
    writer = ops.open_writer(path)
    writer.write(0, b"\xff" * 10 * BLOCK)
    writer.allocate(0, 10 * BLOCK)
    assert writer.read(0, 10 * BLOCK) == b"\xff" * 10 * BLOCK
    writer.close()


def test_creating_where_there_is_no_directory_says_so(ops, tmp_path):
    with pytest.raises(FileAccessError, match="No such file or directory"):
        ops.create(tmp_path / "no" / "f", 1)


# --- reading and writing -----------------------------------------------------------------------


def test_what_is_written_is_read(ops, path):
    writer = ops.create(path, 10)
    writer.write(3, b"abc")
    writer.write(6, bytearray(b"de"))
    writer.write(8, memoryview(b"xfx")[1:2])
    assert writer.read(0, 100) == b"\0\0\0abcdef\0"
    writer.close()


def test_short_writes_are_continued(ops, path, monkeypatch):
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:2], at))
    writer = ops.create(path, 0)
    writer.write(1, b"abcdefg")
    assert path.read_bytes() == b"\0abcdefg"
    writer.close()


def test_write_to_a_full_disk_names_what_is_left_to_write(ops, path, monkeypatch):
    whole = os.pwrite

    def write_three_bytes_in_all(descriptor, data, at):
        return whole(descriptor, data[:3], at) if at == 0 else fail_with(errno.ENOSPC)()

    monkeypatch.setattr(os, "pwrite", write_three_bytes_in_all)
    writer = ops.create(path, 10)
    with pytest.raises(DiskFullError) as caught:
        writer.write(0, b"abcdef")
    assert caught.value.wanted == 3
    writer.close()


def test_write_that_fails_names_the_place(ops, path, monkeypatch):
    writer = ops.create(path, 10)
    monkeypatch.setattr(os, "pwrite", fail_with(errno.EIO))
    with pytest.raises(FileAccessError, match=r"/f: cannot write at 7: Input/output error"):
        writer.write(7, b"a")
    writer.close()


def test_read_that_fails_names_the_place(ops, path, monkeypatch):
    path.write_bytes(b"abc")
    reader = ops.open_reader(path)
    monkeypatch.setattr(os, "pread", fail_with(errno.EIO))
    with pytest.raises(FileAccessError, match=r"/f: cannot read at 1: Input/output error"):
        reader.read(1, 1)
    reader.close()


def test_opening_for_writing_what_is_not_there_says_so(ops, path):
    with pytest.raises(FileAccessError, match=r"/f: cannot open for writing: No such file"):
        ops.open_writer(path)


def test_file_is_cut_and_lengthened(ops, path):
    path.write_bytes(b"abcdef")
    writer = ops.open_writer(path)
    writer.truncate(2)
    writer.truncate(4)
    assert path.read_bytes() == b"ab\0\0"
    writer.close()


def test_length_that_cannot_be_set_says_so(ops, path, monkeypatch):
    monkeypatch.setattr(os, "ftruncate", fail_with(errno.EFBIG))
    with pytest.raises(FileAccessError, match="cannot set its size: File too large"):
        ops.create(path, 1 << 60)
    assert not path.exists()


# --- files that are whole from the start --------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux'")
def test_file_has_no_name_before_it_has_its_length(ops, path, monkeypatch):
    """A process killed in between would leave an empty file, which RocketMQ refuses."""
    seen = []
    truncate = os.ftruncate

    def watched(descriptor, size):
        seen.append(path.exists())
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", watched)
    ops.create(path, 3 * BLOCK).close()
    assert seen == [False]
    assert (path.stat().st_size, space(path)) == (3 * BLOCK, 3 * BLOCK)


@pytest.mark.parametrize("name", ["open", "link"])
def test_file_is_made_where_one_without_a_name_cannot_be(ops, path, monkeypatch, name):
    real = getattr(os, name)

    def refuse(first, *args, **rest):
        if name == "link" or first == path.parent:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real(first, *args, **rest)

    monkeypatch.setattr(os, name, refuse)
    ops.create(path, 3 * BLOCK).close()
    assert (path.stat().st_size, space(path)) == (3 * BLOCK, 3 * BLOCK)
    assert list(path.parent.iterdir()) == [path]


def test_file_that_is_there_is_not_replaced(ops, path):
    path.write_bytes(b"old")
    with pytest.raises(FileAccessError, match="File exists"):
        ops.create(path, BLOCK)
    assert path.read_bytes() == b"old"


# --- zeros -------------------------------------------------------------------------------------


def test_range_is_made_zeros_and_its_space_stays(ops, path):
    writer = ops.create(path, 8 * BLOCK)
    writer.write(0, b"\xff" * 8 * BLOCK)
    assert writer.zero(BLOCK + 10, 3 * BLOCK)
    want = b"\xff" * (BLOCK + 10) + bytes(3 * BLOCK) + b"\xff" * (4 * BLOCK - 10)
    assert writer.read(0, 8 * BLOCK) == want
    assert space(path) == 8 * BLOCK
    writer.close()


def test_zeros_are_not_written_again(ops, path, monkeypatch):
    writer = ops.create(path, 8 * BLOCK)
    writer.write(0, b"abc" + bytes(BLOCK))
    monkeypatch.setattr(os, "pwrite", fail_with(errno.EIO))
    assert not writer.zero(3, 8 * BLOCK - 3)
    writer.close()


def test_zeros_take_no_space_in_a_hole(ops, path):
    writer = ops.create(path, 100 * BLOCK, is_sparse=True)
    writer.write(50 * BLOCK, b"x")
    assert writer.zero(0, 100 * BLOCK)
    assert writer.read(50 * BLOCK, 1) == b"\0"
    assert space(path) == BLOCK
    writer.close()


def test_space_that_was_never_written_is_not_read_through(ops, path, monkeypatch):
    """Reading brings more into memory than was asked for, which then looks like written."""
    size = 64 << 20
    writer = ops.create(path, size)
    writer.write(0, b"x" * BLOCK)
    writer.sync()
    asked = []
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: asked.append(args[1]) or read(*args))
    assert writer.zero(10, size - 10)
    assert sum(asked) <= 4 << 20
    writer.close()


def test_zeros_come_through_a_map_too(ops, path):
    writer = ops.create(path, 2 * BLOCK)
    mapped = writer.map(2 * BLOCK)
    mapped.buffer[:] = b"\xff" * 2 * BLOCK
    assert writer.zero(5, 2 * BLOCK - 5)
    assert bytes(mapped.buffer) == b"\xff" * 5 + bytes(2 * BLOCK - 5)
    mapped.close()
    writer.close()


def test_zeros_where_holes_cannot_be_told(ops, path, monkeypatch):
    writer = ops.create(path, 3 * BLOCK)
    writer.write(2 * BLOCK, b"abc")
    monkeypatch.setattr(os, "lseek", fail_with(errno.EINVAL))
    assert writer.zero(1, 3 * BLOCK - 1)
    assert writer.read(0, 3 * BLOCK) == bytes(3 * BLOCK)
    writer.close()


def test_long_range_of_zeros(ops, path, monkeypatch):
    monkeypatch.setattr(descriptor_module, "_CHUNK", 1000)
    writer = ops.create(path, 10_000)
    writer.write(0, bytes(range(1, 251)) * 40)
    assert writer.zero(1234, 7000)
    want = bytes(range(1, 251)) * 40
    assert writer.read(0, 10_000) == want[:1234] + bytes(7000) + want[8234:]
    writer.close()


# --- flushing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_failed_flush_is_told_from_every_other_failure(ops, path, monkeypatch, number):
    writer = ops.create(path, 10)
    writer.sync()
    monkeypatch.setattr(os, "fdatasync", fail_with(number))
    with pytest.raises(FlushFailedError, match=os.strerror(number)) as caught:
        writer.sync()
    assert not isinstance(caught.value, DiskFullError)
    assert not caught.value.retriable
    writer.close()


def test_failed_flush_of_a_directory(ops, tmp_path, monkeypatch):
    ops.sync_dir(tmp_path)
    monkeypatch.setattr(os, "fsync", fail_with(errno.EIO))
    with pytest.raises(FlushFailedError, match="Input/output error"):
        ops.sync_dir(tmp_path)


def test_directory_that_needs_no_flush(ops, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail_with(errno.EINVAL))
    ops.sync_dir(tmp_path)


def test_flush_of_no_directory_fails(ops, tmp_path):
    with pytest.raises(FlushFailedError):
        ops.sync_dir(tmp_path / "gone")


# --- names -------------------------------------------------------------------------------------


def test_rename_takes_the_place_of_another(ops, tmp_path):
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    ops.rename(tmp_path / "new", tmp_path / "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"new"


def test_rename_of_nothing_says_so(ops, tmp_path):
    with pytest.raises(FileAccessError, match=r"/gone: cannot rename to f: No such file"):
        ops.rename(tmp_path / "gone", tmp_path / "f")


def test_second_name(ops, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    assert ops.link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"a"
    assert ops.identity(tmp_path / "a") == ops.identity(tmp_path / "b") is not None
    assert not ops.link(tmp_path / "a", tmp_path / "b"), "the name is taken"


def test_removing_tells_whether_it_was_there(ops, path):
    path.write_bytes(b"")
    assert ops.unlink(path)
    assert not ops.unlink(path)


def test_what_cannot_be_removed_says_so(ops, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "unlink", fail_with(errno.EACCES))
    with pytest.raises(FileAccessError, match=r"/f: cannot remove: Permission denied"):
        ops.unlink(tmp_path / "f")


def test_directories_are_made_and_their_parents_flushed(tmp_path):
    flushed = []

    class Ops(PosixFileOps):
        def sync_dir(self, path):
            flushed.append(path)

    Ops().mkdirs(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert flushed == [tmp_path, tmp_path / "a"]
    Ops().mkdirs(tmp_path / "a" / "b")
    assert len(flushed) == 2


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_file_in_the_way_of_a_directory(ops, tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileAccessError, match="cannot make the directory"):
        ops.mkdirs(tmp_path / name)


def test_only_empty_directories_are_removed(ops, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(b"")
    assert not ops.rmdir(tmp_path / "a")
    assert not ops.rmdir(tmp_path / "gone")
    ops.unlink(tmp_path / "a" / "f")
    assert ops.rmdir(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_directory_that_cannot_be_removed_says_so(ops, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "rmdir", fail_with(errno.EBUSY))
    with pytest.raises(FileAccessError, match="cannot remove: Device or resource busy"):
        ops.rmdir(tmp_path)


def test_identity_of_nothing(ops, tmp_path, monkeypatch):
    assert ops.identity(tmp_path / "gone") is None
    monkeypatch.setattr(descriptor_module.Path, "stat", fail_with(errno.EACCES))
    with pytest.raises(StoreNotFoundError, match="Permission denied"):
        ops.identity(tmp_path)


# --- how full a disk is ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "free", "ratio"),
    [
        *((0, 100, 0.0), (1, 99, 0.01), (1, 999, 0.01), (750, 250, 0.75), (7501, 2499, 0.76)),
        *((100, 0, 1.0), (0, 0, 1.0)),
    ],
)
def test_ratio_is_rounded_up_to_full_per_cents(used, free, ratio):
    """The reserve of root counts neither as used nor as free."""
    assert DiskUsage(10_000_000, used, free).ratio == ratio


def test_usage_of_the_disk(ops, tmp_path):
    usage = ops.disk_usage(tmp_path)
    found = os.statvfs(tmp_path)
    assert usage.total == found.f_blocks * found.f_frsize
    assert 0 < usage.used < usage.total
    assert 0 < usage.free < usage.total
    assert 0 < usage.ratio <= 1


def test_usage_of_no_disk(ops, tmp_path):
    with pytest.raises(FileAccessError, match="No such file"):
        ops.disk_usage(tmp_path / "gone")


def test_directories_that_need_not_last_are_not_waited_for(tmp_path):
    class Ops(PosixFileOps):
        def sync_dir(self, path):
            raise AssertionError(path)

    Ops().mkdirs(tmp_path / "a" / "b", is_durable=False)
    assert (tmp_path / "a" / "b").is_dir()
