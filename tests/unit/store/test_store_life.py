"""OpenSettings and closing: lock, mark, threads, forks, programs that forget to close."""

import os
import subprocess
import sys
import threading

import pytest
from store_bench import open_engine, read, request

from rocketlake.errors import FileSizeError, StoreClosedError, StoreLockedError
from rocketlake.store.api import GetRequest, PutStatus
from rocketlake.store.dispatch import dispatcher as dispatch


def our_threads(before=()):
    found = [thread for thread in threading.enumerate() if thread not in before]
    return [thread.name for thread in found if "rocketlake" in thread.name]


def test_no_thread_outlives_close(tmp_path):
    before = threading.enumerate()  # what other tests have left, and the system not yet ended
    store = open_engine(tmp_path, flush_disk_type="SYNC_FLUSH")
    assert our_threads(before)
    store.close()
    assert our_threads(before) == []


def test_second_close_does_nothing(tmp_path):
    store = open_engine(tmp_path)
    store.close()
    store.close()
    assert not store.is_open


def test_mark_is_there_while_a_store_is_open(tmp_path):
    store = open_engine(tmp_path)
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    store.close()
    assert not (tmp_path / "abort").exists()


def test_second_open_is_refused_until_the_first_is_closed(tmp_path):
    store = open_engine(tmp_path)
    with pytest.raises(StoreLockedError, match="this process"):
        open_engine(tmp_path)
    assert store.put(request()).is_ok
    store.close()
    open_engine(tmp_path).close()


def test_failed_start_gives_the_lock_back(tmp_path):
    open_engine(tmp_path).close()
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    wrong = tmp_path / "commitlog" / f"{0:020}"
    wrong.write_bytes(bytes(100))
    with pytest.raises(FileSizeError):
        open_engine(tmp_path)
    wrong.unlink()
    with open_engine(tmp_path) as store:
        assert store.put(request()).is_ok


def test_reads_of_a_closed_store_raise(tmp_path):
    store = open_engine(tmp_path)
    store.close()
    with pytest.raises(StoreClosedError, match="closed"):
        store.get(GetRequest(topic="T", queue_id=0, offset=0))


def test_what_was_put_is_there_after_reopening(tmp_path):
    with open_engine(tmp_path) as store:
        receipts = [store.put(request(body=str(i).encode(), queue_id=i % 3)) for i in range(500)]
    with open_engine(tmp_path) as store:
        assert store.recovery.is_clean
        assert store.recovery.redispatched == 0
        bodies = [m.body for q in range(3) for m in read(store, queue_id=q)]
        assert sorted(bodies, key=int) == [str(i).encode() for i in range(500)]
        assert store.put(request(queue_id=0)).queue_offset == receipts[-2].queue_offset + 1


KILLED = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from store_bench import open_engine, request
store = open_engine(Path({store!r}), flush_disk_type={mode!r})
for i in range(300):
    assert store.put(request(body=str(i).encode())).is_ok
{end}
"""


def run_program(store, end, mode="ASYNC_FLUSH"):
    code = KILLED.format(path=sys.path, store=str(store), mode=mode, end=end)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_killed_program_loses_nothing_it_was_told_is_stored(tmp_path, mode):
    done = run_program(tmp_path, "os.kill(os.getpid(), 9)", mode)
    assert done.returncode == -9, done.stderr
    assert (tmp_path / "abort").exists()
    with open_engine(tmp_path) as store:
        assert not store.recovery.is_clean
        assert [message.body for message in read(store)] == [str(i).encode() for i in range(300)]
        assert store.put(request()).queue_offset == 300


@pytest.mark.parametrize(
    ("end", "code"),
    [("pass", 0), ("raise RuntimeError", 1), ("raise KeyboardInterrupt", -2), ("sys.exit(3)", 3)],
)
def test_program_that_forgets_to_close_leaves_a_clean_store(tmp_path, end, code):
    done = run_program(tmp_path, end)
    assert done.returncode in (code, 130 if code == -2 else code), done.stderr
    assert not (tmp_path / "abort").exists()
    with open_engine(tmp_path) as store:
        assert store.recovery.is_clean
        assert len(read(store)) == 300


def test_fork_cannot_put_and_closes_nothing(tmp_path):
    end = """
child = os.fork()
if child == 0:
    receipt = store.put(request(body=b"child"))
    print(receipt.status, receipt.reason, flush=True)
    store.close()
    os._exit(0 if not receipt.is_ok else 1)
_, status = os.waitpid(child, 0)
assert status == 0
assert store.put(request(body=b"parent")).is_ok
assert Path({store!r}, "abort").exists()
store.close()
""".replace("{store!r}", repr(str(tmp_path)))
    done = run_program(tmp_path, end)
    assert done.returncode == 0, done.stderr
    assert "SERVICE_NOT_AVAILABLE the process forked" in done.stdout
    with open_engine(tmp_path) as store:
        assert store.recovery.is_clean
        assert [message.body for message in read(store)][300:] == [b"parent"]


def test_get_sees_what_was_put_before_in_every_mode(tmp_path):
    modes = [
        {"flush_disk_type": "SYNC_FLUSH"},
        {"flush_disk_type": "ASYNC_FLUSH"},
        {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
        {
            "flush_disk_type": "SYNC_FLUSH",
            "transient_store_pool_enable": True,
            "transient_store_pool_size": 3,
        },
    ]
    for number, options in enumerate(modes):
        with open_engine(tmp_path / str(number), **options) as store:
            for i in range(200):
                assert store.put(request(wait=i % 2 == 0)).status is PutStatus.PUT_OK
                assert len(read(store, offset=i)) == 1, (options, i)


def test_idle_store_sleeps_until_something_is_put(tmp_path):
    arrived = threading.Event()

    class Listener:
        def arrived(self, arrivals):
            arrived.set()

    with open_engine(tmp_path) as store:
        store.add_listener(Listener())
        dispatcher = store.dispatcher
        for _ in range(100):
            dispatcher.run_once()
        assert dispatcher.pause_s() == dispatch._IDLE_LOOK_S
        assert dispatcher.is_idle
        store.put(request())
        assert arrived.wait(10)


def test_flush_reaches_what_is_in_write_buffers(tmp_path):
    with open_engine(tmp_path, transient_store_pool_enable=True) as store:
        store.put(request(body=b"1"))
        store.flush()
        assert store.log.files.flushed_where == store.log.wrote_where
    with open_engine(tmp_path) as store:
        assert [message.body for message in read(store)] == [b"1"]
