"""A closed book is neither changed nor written: its file may belong to another process by then."""

import threading

import pytest

from rocketlake.clock import SystemClock
from rocketlake.errors import FileAccessError, StoreClosedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata import book as book_module
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.groups import GroupBook, SubscriptionGroup
from rocketlake.metadata.offsets import OffsetBook
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.topics import TopicConfig

CHANGES = {
    OffsetBook: lambda book, number: book.commit("t", "g", 0, number),
    TopicBook: lambda book, number: book.update(
        TopicConfig(name=f"t{number}", read_queue_count=1, write_queue_count=1)
    ),
    GroupBook: lambda book, number: book.create(SubscriptionGroup(name=f"g{number}")),
}


@pytest.fixture
def place(tmp_path):
    return TableLocation(PosixFileOps(), SystemClock(), tmp_path)


@pytest.mark.parametrize("kind", CHANGES)
def test_closed_book_has_its_last_change_and_takes_no_more(place, kind):
    book = kind.load(place)
    CHANGES[kind](book, 1)
    book.close()
    before = book.path.read_bytes()
    with pytest.raises(StoreClosedError, match=book.path.name):
        CHANGES[kind](book, 2)
    with pytest.raises(StoreClosedError, match="belongs to a store that is closed"):
        book.persist()
    book.close()
    assert book.path.read_bytes() == before


def test_removal_of_offsets_is_refused_once_closed(place):
    book = OffsetBook.load(place)
    book.commit("t", "g", 0, 1)
    book.close()
    for change in (lambda: book.clone("g", "h", "t"), lambda: book.remove_topic("t")):
        with pytest.raises(StoreClosedError):
            change()


def test_close_that_was_interrupted_can_be_repeated(place, monkeypatch):
    book = OffsetBook.load(place)
    book.commit("t", "g", 0, 1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(book_module, "write_table", interrupt)
        with pytest.raises(KeyboardInterrupt):
            book.close()
    assert not book.path.exists()
    book.close()
    assert OffsetBook.load(place).get("t", "g", 0) == 1


def test_close_that_failed_leaves_the_file_alone_from_then_on(place, monkeypatch):
    book = OffsetBook.load(place)
    book.commit("t", "g", 0, 1)

    def fail(*_: object) -> None:
        raise FileAccessError("table", "no")

    with monkeypatch.context() as patch:
        patch.setattr(book_module, "write_table", fail)
        with pytest.raises(FileAccessError):
            book.close()
    book.close()
    assert not book.path.exists()


def test_change_that_meets_the_last_write_is_in_the_file_or_refused(place, monkeypatch):
    """Whatever a caller was told is true: no change is taken and then left out."""
    book = OffsetBook.load(place)
    book.commit("t", "g", 0, 1)
    write = book_module.write_table
    refused = []

    def change() -> None:
        try:
            book.commit("t", "g", 0, 2)
        except StoreClosedError as error:
            refused.append(error)

    def write_late(*args: object) -> None:
        other = threading.Thread(target=change)
        other.start()
        other.join()
        write(*args)

    monkeypatch.setattr(book_module, "write_table", write_late)
    book.close()
    assert len(refused) == 1
    assert OffsetBook.load(place).get("t", "g", 0) == 1
