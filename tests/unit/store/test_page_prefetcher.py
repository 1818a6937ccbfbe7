"""PagePrefetcher: pages ahead of the appender, flushed ahead too where puts are."""

import pytest

from rocketlake.errors import FlushFailedError
from rocketlake.store.log.page_prefetcher import AHEAD_BYTES, SYNCED_AHEAD_BYTES, PagePrefetcher


class FakeFile:
    def __init__(self):
        self.calls = []
        self.error = None

    def populate_ahead(self, count):
        self.calls.append(("populate", count))
        return True

    def sync(self):
        self.calls.append("sync")
        if self.error is not None:
            raise self.error

    def munlock(self):
        self.calls.append("munlock")


class FakeFiles:
    def __init__(self, *files):
        self.files = files

    def last_file(self):
        return self.files[-1] if self.files else None


@pytest.fixture
def file():
    return FakeFile()


def test_pages_are_brought_into_memory(file):
    PagePrefetcher(FakeFiles(file)).run_once()
    assert file.calls == [("populate", AHEAD_BYTES)]


def test_pages_of_synced_files_are_on_the_disk_before_they_are_used(file):
    PagePrefetcher(FakeFiles(file), on_failed=lambda _: None).run_once()
    assert file.calls == [("populate", SYNCED_AHEAD_BYTES), "sync"]


def test_failed_flush_ahead_is_told(file):
    told = []
    file.error = FlushFailedError("log", "EIO")
    PagePrefetcher(FakeFiles(file), on_failed=told.append).run_once()
    assert told == [file.error]


def test_full_file_is_let_out_of_memory(file):
    full = FakeFile()
    prefetcher = PagePrefetcher(FakeFiles(full, file))
    prefetcher.roll(full)
    prefetcher.run_once()
    assert full.calls == ["munlock"]


def test_log_without_files_needs_nothing():
    PagePrefetcher(FakeFiles()).run_once()
