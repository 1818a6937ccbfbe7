"""verify, rebuild and dispatch through Spark: their functions, commands, and custom dispatchers."""

import shutil

import pytest

import rocketlake
from rocketlake.errors import StoreLockedError, StoreNotFoundError
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.message import Message
from rocketlake.spark import jobs
from rocketlake.spark.jobs.tasks import map_on, seeing
from rocketlake.store.dispatch.external_files import ExternalDispatch
from rocketlake.upkeep.verify.verifier import Verifier
from support.command import run
from support.store_bytes import index_bytes, queue_bytes

SIZES = {
    "mapped_file_size_commit_log": 32 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 100,
}
MESSAGES = 400


def fill(store, first, count):
    for number in range(first, first + count):
        message = Message(topic="T", body=b"b" * 100, tags=f"t{number % 5}", keys=[f"k{number}"])
        store.put(message, queue_id=number % 2)


@pytest.fixture
def root(tmp_path):
    with rocketlake.open_store(tmp_path / "store", **SIZES) as store:
        store.create_topic("T", queues=2)
        fill(store, 0, MESSAGES)
    return tmp_path / "store"


def made_of(root):
    files = {**queue_bytes(root), **index_bytes(root)}
    return {name: data for name, data in files.items() if any(data)}


def test_verify_finds_the_same_as_in_threads(spark, root):
    path = root / "consumequeue" / "T" / "0" / "00000000000000000400"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    here = Verifier(root)
    wanted = here.run()
    report = jobs.verify(spark, root)
    assert report.summary == wanted
    assert report.faults == here.ledger.faults
    assert wanted.findings > 0
    rows = report.findings(spark).groupBy("kind").count().collect()
    assert {row["kind"]: row["count"] for row in rows} == wanted.kinds
    assert "check index, log, queues, tables" in jobs.verify(None, root, dry_run=True).lines()[0]
    ran = run("verify", str(root), "--master", "local[2]", "--json")
    assert ran.code == 1
    assert ran.json["summary"]["findings"] == wanted.findings


def test_rebuild_as_a_command(spark, root):
    before = made_of(root)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    planned = run("rebuild", str(root), "--dry-run")
    assert planned.code == 0
    assert "in place of 1 queues of 1 topics" in planned.out
    assert not (root / "repair").exists()
    ran = run("rebuild", str(root), "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["records"], ran.json["units"]) == (MESSAGES, MESSAGES)
    assert ran.json["keys"] == 2 * MESSAGES  # each has a key and a tag
    assert made_of(root) == before
    with rocketlake.open_store(root) as store:
        assert store.recovery.redispatched == 0
        assert (store.recovery.is_clean, store.recovery.notes) == (True, ())
    del spark


def test_dispatch_as_a_command(spark, root):
    before = made_of(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    planned = run("dispatch", str(root), "--dry-run")
    assert (planned.code, "bytes of log" in planned.out) == (0, True)
    sizes = '{"mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50, "maxIndexNum": 100}'
    ran = run("dispatch", str(root), "--options", sizes, "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["records"], ran.json["keys"]) == (MESSAGES, 2 * MESSAGES)
    assert made_of(root) == before
    assert "nothing is left to do" in run("dispatch", str(root), "--dry-run").out
    del spark


def test_custom_dispatchers_get_each_record_once(spark, root, tmp_path):
    table = tmp_path / "side"
    seen = []

    def side_table(frame, records):
        seen.append(records)
        frame.select("queue_id", "queue_offset", "tags").write.mode("overwrite").parquet(
            str(table / records.name)
        )
        if len(seen) == 1:
            raise KeyboardInterrupt  # in the middle: what was written may be half of it

    with pytest.raises(KeyboardInterrupt):
        jobs.dispatch(spark, root, functions={"side": side_table})
    with rocketlake.open_store(root) as store:
        fill(store, MESSAGES, 10)
    jobs.dispatch(spark, root, functions={"side": side_table})
    assert [records.begin for records in seen] == [0, 0, seen[0].end]
    assert seen[0] == seen[1]
    jobs.dispatch(spark, root, functions={"side": side_table})
    assert len(seen) == 3, "nothing is given twice"
    found = spark.read.parquet(*(str(path) for path in table.iterdir()))
    assert found.count() == found.distinct().count() == MESSAGES + 10
    assert not ExternalDispatch(PosixFileOps(), root).progress().pending


def test_a_store_in_use_and_no_store(spark, root, tmp_path):
    with rocketlake.open_store(root):
        for action in (jobs.rebuild, jobs.dispatch):
            with pytest.raises(StoreLockedError, match=r"has it open"):
                action(spark, root)
        assert run("rebuild", str(root)).code == 2
        assert jobs.verify(spark, root).summary.is_sound
    for action in (jobs.rebuild, jobs.dispatch, jobs.verify):
        with pytest.raises(StoreNotFoundError, match="no store at"):
            action(spark, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_executor_that_does_not_see_the_store_says_so(spark, tmp_path):
    with pytest.raises(StoreNotFoundError, match=r"executor on \S+ cannot see .*gone"):
        map_on(spark, seeing(tmp_path / "gone", len), ["a", "b"])
