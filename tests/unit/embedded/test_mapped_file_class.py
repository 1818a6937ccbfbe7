"""The class of the log's files: named by an option, MappedFile where it cannot be used."""

import pytest
from embedded_fakes import bodies

import rocketlake
from rocketlake import Message, PutFailedError, PutStatus
from rocketlake.errors import DiskFullError
from rocketlake.files.mapped_file import MappedFile

FILE_SIZE = 4096


class CountingFile(MappedFile):
    """Counts what is made and opened."""

    made = 0
    opened = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        type(self).opened += 1

    def create(self, write_buffer=None):
        super().create(write_buffer)
        type(self).made += 1


class Unmakeable(MappedFile):
    def __init__(self, *_arguments):
        raise RuntimeError("no device")


class HalfMade(MappedFile):
    def create(self, write_buffer=None):
        super().create(write_buffer)
        raise RuntimeError("no device")


class FullDevice(MappedFile):
    def create(self, write_buffer=None):
        raise DiskFullError(self.path, wanted=self.size, free=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store"


def fill(path, kind, **options) -> list[str]:
    """Put into two files, and return what can be read."""
    options = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_class": kind, **options}
    with rocketlake.open_store(path, **options) as store:
        for n in range(3):
            body = str(n).encode() * 1500
            store.put(Message(topic="orders", body=body), queue_id=0)
        found = bodies(store.get("orders", 0, 0).messages)
    return [body[:1] for body in found]


@pytest.mark.parametrize("buffers", [False, True])
def test_class_of_the_option_makes_and_opens_the_files_of_the_log(path, buffers):
    CountingFile.made = CountingFile.opened = 0
    kind = f"{__name__}.CountingFile"
    assert fill(path, kind, transient_store_pool_enable=buffers) == ["0", "1", "2"]
    files = len(list((path / "commitlog").iterdir()))
    assert CountingFile.made >= files == 2
    CountingFile.opened = 0
    with rocketlake.open_store(path, mapped_file_class=kind) as store:
        assert CountingFile.opened >= 2
        assert len(store.get("orders", 0, 0).messages) == 3


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no.such.File", "mappedFileClass: no.such.File cannot be loaded"),
        ("Nowhere", "mappedFileClass: Nowhere wanted a dotted path"),
        ("pathlib.Path", "mappedFileClass: pathlib.Path is no subclass of MappedFile"),
        (f"{__name__}.Unmakeable", "RuntimeError('no device')"),
        (f"{__name__}.HalfMade", "RuntimeError('no device')"),
    ],
)
@pytest.mark.parametrize("buffers", [False, True])
def test_class_that_cannot_be_used_is_named_and_the_default_takes_its_place(
    path, kind, words, buffers, caplog
):
    assert fill(path, kind, transient_store_pool_enable=buffers) == ["0", "1", "2"]
    assert words in caplog.text
    assert "MappedFile is used" in caplog.text or "MappedFile used" in caplog.text


def test_full_disk_is_one_for_every_class(path):
    with pytest.raises(PutFailedError) as caught:
        fill(path, f"{__name__}.FullDevice")
    assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
