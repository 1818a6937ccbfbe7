"""Records are parsed while the disk writes them, and shown once it has."""

import threading

import pytest
from store_bench import open_engine, read, request
from test_stuck_disk import StuckDisk

from rocketlake.model.queues import QueueKey
from rocketlake.store.dispatch import dispatcher as dispatch
from rocketlake.store.dispatch import early_parse as parsed_early

ARRIVES_S = 10


class Listener:
    def __init__(self):
        self.ends = []
        self.arrival = threading.Semaphore(0)

    def arrived(self, arrivals):
        self.ends += [arrival.next_offset for arrival in arrivals]
        self.arrival.release()


class Parsing:
    """Notes what the dispatch thread parses early, and what it parses when it can be read."""

    def __init__(self, monkeypatch):
        self.early = threading.Semaphore(0)
        self.scanned = []
        parse, scan = dispatch.parse_early, dispatch.scan

        def noting_parse(log, start):
            found = parse(log, start)
            if found is not None:
                self.early.release()
            return found

        def noting_scan(view, *bounds, base_offset, **rest):
            self.scanned.append(base_offset)
            return scan(view, *bounds, base_offset=base_offset, **rest)

        monkeypatch.setattr(dispatch, "parse_early", noting_parse)
        monkeypatch.setattr(dispatch, "scan", noting_scan)


@pytest.fixture
def disk(monkeypatch):
    return StuckDisk(monkeypatch)


@pytest.fixture
def parsing(monkeypatch):
    return Parsing(monkeypatch)


@pytest.fixture
def store(tmp_path, disk):
    store = open_engine(tmp_path, flush_disk_type="SYNC_FLUSH")
    assert store.put(request()).is_ok  # its files are made now
    store.catch_up()
    yield store
    disk.go_on.set()
    store.close()


def test_record_is_parsed_during_the_flush_and_shown_after_it(store, disk, parsing):
    listener = Listener()
    store.add_listener(listener)
    disk.is_stuck = True
    put = store.put_async(request(body=b"early", tags="a"))
    assert disk.has_come.wait(ARRIVES_S)
    assert parsing.early.acquire(timeout=ARRIVES_S)
    assert store.queues.find(QueueKey("T", 0)).max_offset == 1
    assert listener.ends == []
    disk.go_on.set()
    receipt = put.result(ARRIVES_S)
    assert listener.arrival.acquire(timeout=ARRIVES_S)
    assert listener.ends == [2]
    assert [message.body for message in read(store)] == [b"body", b"early"]
    assert receipt.physical_offset not in parsing.scanned


def test_log_that_may_have_been_cut_is_parsed_again(store, disk, parsing):
    disk.is_stuck = True
    put = store.put_async(request(body=b"early"))
    assert disk.has_come.wait(ARRIVES_S)
    assert parsing.early.acquire(timeout=ARRIVES_S)
    store.dispatcher.exclusively(lambda: None)  # as a truncation does its work
    assert parsing.early.acquire(timeout=ARRIVES_S)
    disk.go_on.set()
    assert put.result(ARRIVES_S).is_ok
    assert [message.body for message in read(store)] == [b"body", b"early"]


@pytest.mark.parametrize(("start", "end", "expected"), [(100, 300, True), (100, 299, False)])
def test_range_that_ends_inside_the_parsed_records_is_not_covered(start, end, expected):
    early = parsed_early.ParsedEarly(100, 300, None)
    assert early.covers(start, end) is expected
    assert not early.covers(start + 1, end)


def test_many_bytes_are_not_parsed_early(tmp_path):
    with open_engine(tmp_path) as store:
        start = store.log.wrote_where
        for _ in range(4):
            assert store.put(request(body=bytes(7000))).is_ok
        assert parsed_early.parse_early(store.log, start) is None
        assert parsed_early.parse_early(store.log, store.log.wrote_where) is None


def test_parsed_bytes_are_a_copy(tmp_path):
    with open_engine(tmp_path) as store:
        receipt = store.put(request(tags="t", keys=["k"]))
        early = parsed_early.parse_early(store.log, receipt.physical_offset)
        assert isinstance(early.records.columns.buffer, bytes)
        (message,) = early.records.columns.messages()
        assert (message.topic, message.tags, message.body) == ("T", "t", b"body")
        assert early.end == receipt.physical_offset + receipt.size
