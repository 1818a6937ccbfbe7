"""An index that has to be built from far back: the start does not wait, a query does."""

import shutil

import pytest
from store_bench import open_engine, read, request

from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.index import catch_up as index_catch_up
from rocketlake.store.index.catch_up import IndexCatchUp
from rocketlake.store.recovery import recovery


@pytest.fixture
def idle(monkeypatch):
    """All keys are left for later, and are indexed only when a query waits for them."""
    run_once = IndexCatchUp.run_once
    monkeypatch.setattr(recovery, "_INDEXED_AT_ONCE", 0)
    monkeypatch.setattr(
        IndexCatchUp, "run_once", lambda self: run_once(self) if self._gates else None
    )


def _open(path):
    return open_engine(path, max_index_num=1000)


def _fill(path, count=300):
    with _open(path) as store:
        for number in range(count):
            store.put(request(body=b"x" * 200, keys=[f"k{number}"]))
    (path / "abort").touch()
    return path


def _found(store, key):
    return [m.queue_offset for m in store.query(KeyQuery(topic="T", key=key)).messages]


def test_start_leaves_many_keys_for_later(tmp_path, idle):
    store = _open(_fill(tmp_path))
    assert store.recovery.indexed_from == 0
    assert store.parts.index_catch_up.behind_bytes == store.recovery.log_end
    assert len(read(store)) == 300
    store.put(request(keys=["new"]))
    assert store.index.end_physical_offset == 0  # the order of the log is kept
    assert _found(store, "k0") == [0]
    assert _found(store, "k299") == [299]
    assert _found(store, "new") == [300]
    store.put(request(keys=["newer"]))
    assert _found(store, "newer") == [301]
    store.close()
    assert not (tmp_path / "abort").exists()
    with _open(tmp_path) as store:
        assert store.recovery.notes == ()
        assert [_found(store, f"k{n}") for n in range(300)] == [[n] for n in range(300)]


def test_keys_are_brought_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "_INDEXED_AT_ONCE", 0)
    monkeypatch.setattr(index_catch_up, "_WINDOW", 4096)
    with _open(_fill(tmp_path)) as store:
        catch_up = store.parts.index_catch_up
        catch_up.close()  # waits for the run in progress, and does the rest
        assert (catch_up.where, catch_up.behind_bytes) == (None, 0)
        assert sorted(store.index.offsets("T", "k17")) == [
            message.physical_offset for message in read(store)[17:18]
        ]


def test_few_keys_are_brought_at_once(tmp_path):
    with _open(_fill(tmp_path)) as store:
        assert (store.recovery.indexed_from, store.recovery.dispatched_from) == (None, 0)
        assert store.parts.index_catch_up.where is None


def test_store_closed_before_its_index_is_complete_is_not_clean(tmp_path, idle, monkeypatch):
    monkeypatch.setattr(index_catch_up, "_AT_CLOSE_MAX", 0)
    store = _open(_fill(tmp_path))
    store.put(request(keys=["new"]))
    store.close()
    assert (tmp_path / "abort").exists()
    with _open(tmp_path) as store:
        assert (_found(store, "k150"), _found(store, "new")) == ([150], [300])


def test_lost_index_is_built_anew_in_a_clean_store(tmp_path, idle):
    (_fill(tmp_path) / "abort").unlink()
    shutil.rmtree(tmp_path / "index")
    with _open(tmp_path) as store:
        assert store.recovery.is_clean
        assert store.recovery.indexed_from == 0
        assert _found(store, "k77") == [77]


def test_what_expired_meanwhile_is_passed_over(tmp_path, idle):
    with _open(_fill(tmp_path)) as store:
        first = store.log.files.files[0]
        store.log.files.delete_before(first.base_offset + first.size)
        assert _found(store, "k0") == []
        assert _found(store, "k299") == [299]


def test_batches_larger_than_a_window_are_indexed(tmp_path, idle, monkeypatch):
    monkeypatch.setattr(index_catch_up, "_WINDOW", 256)
    with _open(tmp_path) as store:
        for number in range(8):
            store.put(request(body=b"x" * 5000, keys=[f"k{number}"]))
    (tmp_path / "abort").touch()
    with _open(tmp_path) as store:
        assert store.recovery.indexed_from == 0
        assert [_found(store, f"k{n}") for n in range(8)] == [[n] for n in range(8)]
