"""Jobs killed at every durable step, and run again: the same bytes as without the kill."""

import shutil
import subprocess
import sys
import textwrap

import pytest
from local_runner import LocalRunner

import rocketlake
from rocketlake import failpoint
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.message import Message
from rocketlake.spark.jobs.dispatch.job import DispatchJob
from rocketlake.spark.jobs.rebuild import plan_rebuild, run_rebuild
from rocketlake.store.dispatch.external_files import ExternalDispatch
from rocketlake.store.offline import OfflineStore
from support.manual_clock import ManualClock
from support.store_bytes import index_bytes, queue_bytes

SIZES = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 60,
}
MESSAGES = 300


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store as live dispatch wrote it, of several files of every family."""
    root = tmp_path_factory.mktemp("whole") / "store"
    with rocketlake.open_store(root, **SIZES) as store:
        store.create_topic("T", queues=3)
        for number in range(MESSAGES):
            store.put(
                Message(topic="T", body=b"x" * 100, tags=f"t{number % 7}", keys=[f"k{number}"]),
                queue_id=number % 3,
            )
    return root


@pytest.fixture(scope="module")
def wanted(whole):
    return made_of(whole)


def made_of(root):
    """Queues and index by their bytes; files without units are left out."""
    files = {**queue_bytes(root), **index_bytes(root)}
    return {name: data for name, data in files.items() if any(data)}


def without_queues(whole, place):
    root = shutil.copytree(whole, place)
    for family in ("consumequeue", "index"):
        shutil.rmtree(root / family)
    return root


class Ended(BaseException):
    """As if the process had ended: nothing that catches errors sees it."""


def end():
    raise Ended


def dispatch(root):
    return DispatchJob(LocalRunner(), root, part_bytes=3000, options=SIZES).run()


def rebuild(root):
    with OfflineStore(root) as store:
        plan = plan_rebuild(store, part_bytes=3000)
    return run_rebuild(LocalRunner(), plan, clock=ManualClock())


# A killed process, at one moment each; the failpoints of this process are enough for the others.
KILLS = [("roll.after", 5), ("create.after", 12), ("flush.before", 3), ("unabort.before", 0)]


def kill_at(point, passes, what, root):
    code = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from rocketlake import failpoint
        from test_killed_jobs import {what}
        from pathlib import Path
        failpoint.switch_on({point!r}, failpoint.kill, passes={passes})
        {what}(Path({str(root)!r}))
    """)
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_dispatch_goes_on_where_it_was_killed(whole, wanted, tmp_path):
    for number, (point, passes) in enumerate(KILLS):
        root = without_queues(whole, tmp_path / str(number))
        assert kill_at(point, passes, "dispatch", root) == -9, point
        dispatch(root)
        assert made_of(root) == wanted, point
        assert not (root / "abort").exists()


def test_rebuild_is_done_or_not(whole, wanted, tmp_path):
    for number, (point, passes) in enumerate([("roll.after", 5), ("unabort.before", 0)]):
        root = shutil.copytree(whole, tmp_path / str(number))
        assert kill_at(point, passes, "rebuild", root) == -9, point
        rebuild(root)
        assert made_of(root) == wanted, point
        assert not (root / "abort").exists()
        staged = [path for path in (root / "repair").rglob("staged") if path.is_dir()]
        assert not staged


@pytest.mark.parametrize("passes", range(0, 8, 2))
def test_following_goes_on_where_it_ended(wanted, whole, tmp_path, passes):
    """The job ends in the middle of a round while the writer lives on."""
    root = tmp_path / "store"
    job = DispatchJob(LocalRunner(), root, part_bytes=3000)
    with rocketlake.open_store(root, dispatch="external", **SIZES) as store:
        store.create_topic("T", queues=3)
        for number in range(MESSAGES):
            store.put(
                Message(topic="T", body=b"x" * 100, tags=f"t{number % 7}", keys=[f"k{number}"]),
                queue_id=number % 3,
            )
            if number == MESSAGES // 2:
                publish(store)
                trap = failpoint.switched_on("roll.after", end, passes=passes)
                with trap, pytest.raises(Ended):
                    job.run()
                left = ExternalDispatch(PosixFileOps(), root).progress()
                assert left.is_writing
                tear(root, left.where)
        publish(store)
        job.run()
        found = ExternalDispatch(PosixFileOps(), root).progress()
        assert (found.is_writing, found.where) == (False, store._engine.inner.log.max_offset)
        assert [store.max_offset("T", queue) for queue in range(3)] == [100, 100, 100]
    ours, theirs = queue_bytes(root), queue_bytes(whole)
    assert {n: d for n, d in ours.items() if any(d)} == {n: d for n, d in theirs.items() if any(d)}
    with rocketlake.open_store(root, **SIZES) as store:
        assert store.recovery.is_clean
        assert [len(store.query("T", f"k{number}")) for number in range(MESSAGES)] == [1] * MESSAGES


def tear(root, where):
    """Leave of what was not flushed what a kill, or a power cut, may leave of it."""
    for path in (root / "consumequeue").glob("*/*/0*"):
        units = bytearray(path.read_bytes())
        behind = [
            at
            for at in range(0, len(units), 20)
            if int.from_bytes(units[at + 8 : at + 12], "big")
            and int.from_bytes(units[at : at + 8], "big") >= where
        ]
        for at in behind:
            units[at + 16 : at + 20] = bytes(4)  # a tags code that was not written
        path.write_bytes(units)
    for path in sorted((root / "index").iterdir())[-1:]:
        data = bytearray(path.read_bytes())
        data[40 : 40 + 4 * 50] = bytes(4 * 50)  # slots that were not written
        path.write_bytes(data)


def publish(store):
    """Let everything that was put be dispatched."""
    store.flush()
    store._engine.inner.dispatcher.run_once()
