"""A store whose queues a job writes: what its program sees, and who excludes whom."""

import subprocess
import sys
import textwrap

import pytest
from local_runner import LocalRunner

import rocketlake
from rocketlake.errors import ConfigError, StoreError, StoreLockedError, StoreNotFoundError
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.message import Message
from rocketlake.spark.jobs.dispatch.job import DispatchJob
from rocketlake.store.dispatch.external_files import ExternalDispatch
from support.store_bytes import queue_bytes

SIZES = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


def put(store, first, count):
    for number in range(first, first + count):
        store.put(
            Message(topic="T", body=b"x" * 100, tags=f"tag{number % 3}", keys=[f"k{number}"]),
            queue_id=number % 4,
        )


def used_bytes(root):
    """The queue files that have any unit."""
    return {name: data for name, data in queue_bytes(root).items() if any(data)}


def job(root, **options):
    return DispatchJob(LocalRunner(), root, **options)


@pytest.fixture
def writer(tmp_path):
    """A store in another process, which does what it is told, line by line."""
    with Writer(tmp_path / "store") as found:
        yield found


class Writer:
    """A program with an open store; a lock is a process's, so it must be another one."""

    def __init__(self, root, dispatch="external"):
        self.root = root
        code = textwrap.dedent(f"""
            import sys
            sys.path[:0] = {sys.path!r}
            import rocketlake
            from test_external_dispatch import SIZES, put
            with rocketlake.open_store({str(root)!r}, dispatch={dispatch!r}, **SIZES) as store:
                store.create_topic("T", queues=4)if store.topic("T") is None else None
                print("open", flush=True)
                for line in sys.stdin:
                    print(repr(eval(line)), flush=True)
        """)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "open\n"
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, expression):
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        return eval(self._process.stdout.readline())

    def put(self, first, count):
        self.ask(f"put(store, {first}, {count})")
        self.ask("store.flush()")
        # The dispatcher's thread says what is confirmed soon after.
        self.ask("[store._engine.inner.dispatcher.run_once()]")

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def close(self):
        if self._process.poll() is None:
            self._process.stdin.close()
            assert self._process.wait(30) == 0
        self._process.stdout.close()


@pytest.fixture
def plain(tmp_path):
    """The same messages in a store that dispatches by itself."""

    def write(count):
        root = tmp_path / "plain"
        with rocketlake.open_store(root, **SIZES) as store:
            store.create_topic("T", queues=4)
            put(store, 0, count)
        return root

    return write


def test_program_sees_what_it_put_before_and_after_the_job(writer, plain):
    writer.put(0, 50)
    question = "[m.keys for m in store.get('T', 1, 0).messages][:3]"
    assert writer.ask(question) == [["k1"], ["k5"], ["k9"]]
    assert writer.ask("[store.max_offset('T', q) for q in range(4)]") == [13, 13, 12, 12]
    assert not used_bytes(writer.root)
    found = job(writer.root).run()
    assert (found.records, found.keys) == (50, 100)  # each has a key and a tag
    writer.put(50, 50)
    assert writer.ask("[m.keys for m in store.get('T', 1, 12).messages][:2]") == [["k49"], ["k53"]]
    assert writer.ask("len(store.query('T', 'k3'))") == 1
    assert writer.ask("len(store.query('T', 'k77'))") == 1
    assert job(writer.root).run().records == 50
    writer.close()
    assert not (writer.root / "abort").exists(), "all was dispatched: a clean stop"
    assert sorted(used_bytes(writer.root)) == sorted(used_bytes(plain(100)))
    with rocketlake.open_store(writer.root, **SIZES) as store:
        assert store.recovery.is_clean
        assert store.recovery.redispatched == 0
        assert len(store.query("T", "k99")) == 1


def test_consumer_is_woken(writer):
    writer.ask("[globals().update(c=store.consumer('G', 'T', timeout=20))]")
    writer.put(0, 3)
    assert sorted(writer.ask("[next(c).keys[0] for _ in range(3)]")) == ["k0", "k1", "k2"]


def test_next_start_dispatches_what_was_left(writer):
    writer.put(0, 30)
    job(writer.root).run()
    writer.put(30, 30)
    writer.close()
    assert (writer.root / "abort").exists(), "queues lack something"
    with rocketlake.open_store(writer.root, **SIZES) as store:
        assert [store.max_offset("T", q) for q in range(4)] == [15, 15, 15, 15]
        assert len(store.query("T", "k59")) == 1


def test_writer_that_opens_again_goes_on_counting(writer):
    writer.put(0, 30)
    writer.kill()
    with Writer(writer.root) as again:
        assert again.ask("[store.max_offset('T', q) for q in range(4)]") == [8, 8, 7, 7]
        again.put(30, 30)
        assert again.ask("[m.queue_offset for m in store.get('T', 2, 6).messages]")[0] == 6
        assert job(writer.root).run().records == 60
        assert again.ask("[store.max_offset('T', q) for q in range(4)]") == [15, 15, 15, 15]


def test_job_settles_a_store_that_nobody_has_open(writer):
    writer.put(0, 30)
    writer.kill()
    found = job(writer.root).run()
    assert (found.records, found.where) == (30, found.where)
    assert not (writer.root / "abort").exists()
    with rocketlake.open_store(writer.root, **SIZES) as store:
        assert store.recovery.redispatched == 0


def test_job_follows_as_long_as_it_runs(writer):
    following = job(writer.root)
    rounds = []

    class Runner(LocalRunner):
        def run(self, shape, parts, rules):
            yield from super().run(shape, parts, rules)
            rounds.append(shape.end)
            if len(rounds) < 3:
                writer.put(10 * len(rounds), 10)
            else:
                following.stop()

    following._runner = Runner()
    writer.put(0, 10)
    report = following.run(once=False, poll_s=0.01)
    assert (report.rounds, report.records) == (3, 30)
    assert rounds == sorted(set(rounds))


def test_who_excludes_whom(writer, tmp_path):
    writer.put(0, 10)
    with pytest.raises(StoreLockedError, match=f"process {writer.pid} has it open"):
        rocketlake.open_store(writer.root, **SIZES)
    external = ExternalDispatch(PosixFileOps(), writer.root)
    lock = external.job_lock()
    lock.acquire()
    try:
        with pytest.raises(StoreLockedError, match="another dispatch job runs"):
            job(writer.root).run()
    finally:
        lock.release()
    with (
        Writer(tmp_path / "own", "internal") as own,
        pytest.raises(StoreLockedError, match=rf"process {own.pid} .* dispatches by itself"),
    ):
        job(own.root).run()
    assert not (tmp_path / "own" / "consumequeue" / "T" / "9").exists()


def test_start_waits_for_no_job_in_the_middle_of_its_work(tmp_path):
    root = tmp_path / "store"
    rocketlake.open_store(root, dispatch="external", **SIZES).close()
    lock = ExternalDispatch(PosixFileOps(), root).dispatch_lock()
    lock.acquire()
    try:
        with pytest.raises(StoreLockedError, match=r'stop it first, or open .*"external"'):
            rocketlake.open_store(root, **SIZES)
    finally:
        lock.release()
    rocketlake.open_store(root, **SIZES).close()


def test_bad_input(writer, tmp_path):
    with pytest.raises(ConfigError, match="'internal' or 'external'"):
        rocketlake.open_store(tmp_path / "x", dispatch="spark")
    with pytest.raises(StoreNotFoundError, match="no store at"):
        job(tmp_path / "nowhere").run()
    assert not (tmp_path / "nowhere").exists()
    writer.put(0, 1)
    text = writer.ask("[store.delete_topic('T')] if 0 else repr(type(store._engine).__name__)")
    assert "ExternalDispatchEngine" in text


def test_topic_cannot_be_deleted_meanwhile(tmp_path):
    with rocketlake.open_store(tmp_path, dispatch="external", **SIZES) as store:
        store.create_topic("T", queues=1)
        with pytest.raises(StoreError, match='open it without dispatch="external"'):
            store.delete_topic("T")


def test_delayed_messages_are_delivered(tmp_path):
    options = {**SIZES, "message_delay_level": "1s"}
    with rocketlake.open_store(tmp_path, dispatch="external", **options) as store:
        store.create_topic("T", queues=1)
        store.put(Message(topic="T", body=b"late", delay_level=1))
        consumer = store.consumer("G", "T", timeout=20)
        assert next(consumer).body == b"late"
