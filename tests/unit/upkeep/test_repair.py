"""repair: what verify finds is mended, the messages stay, and a crash in between does no harm."""

import os
import shutil
import struct

import pytest

from rocketlake.errors import StoreLockedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.upkeep.repair.repairer import Repairer
from rocketlake.upkeep.verify.verifier import Verifier
from support import command
from support.engine import open_engine, request
from support.manual_clock import ManualClock
from support.store_builder import StoreBuilder

SIZE = 2048


@pytest.fixture
def builder(tmp_path):
    made = StoreBuilder(tmp_path / "store", log_file_size=SIZE, index_shape=(10, 30))
    for number in range(30):
        made.record("T", number % 2, f"body {number}".encode(), tags="A", keys=[f"k{number}"])
        made.record("U", 0, b"u", keys=["same"] if number % 3 == 0 else ())
    return made


def messages(root):
    with OfflineStore(root) as store:
        return [
            (key, int(place["queue_offset"]), message.body)
            for key in store.queues
            for batch in store.messages(key)
            for place, message in zip(batch.places, batch.columns.messages(), strict=True)
        ]


def repaired(root, what="all", **parts):
    """Repair a store; return the plan's words and the last summary."""
    repairer = Repairer(lambda: OfflineStore(root), root, what=what, jobs=1, **parts)
    repairer.start()
    try:
        repairer.finish_interrupted()
        summary, plan = repairer.verify()
        assert not summary.is_sound
        repairer.act(plan)
        return list(plan.texts()), repairer.verify()[0]
    finally:
        repairer.close()


def change(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def damage_unit(builder):
    builder.unit("U", 0, 17, QueueUnit(81, 120, 0)).write()


def damage_queue(builder):
    builder.lose_queue("T", 1).write()


def damage_tail(builder):
    builder.lose_units("T", 0, 5).write()


def damage_index(builder):
    builder.write()
    change(builder.index_path(), 40 + 40 + 5 * 20 + 4, struct.pack(">q", 5))


def damage_index_files(builder):
    builder.write()
    builder.index_path(0).unlink()


def damage_end(builder):
    builder.overwrite(builder.end + 50, b"garbage").write()


def damage_blank(builder):
    end = next(p for p in reversed(builder.placed) if p.physical_offset < SIZE).end
    builder.overwrite(end, struct.pack(">i", 77)).write()


def damage_lost_blank(builder):
    end = next(p for p in reversed(builder.placed) if p.physical_offset < SIZE).end
    builder.overwrite(end, bytes(8)).write()


def damage_checkpoint(builder):
    builder.checkpoint(1 << 50, 1, 1).write()


def damage_table(builder):
    good = '{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}'
    builder.file("config/topics.json", "{broken").file("config/topics.json.bak", good).write()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (damage_unit, "queue U/0 is built anew from the log"),
        (damage_queue, "queue T/1 is built anew from the log"),
        (damage_tail, "queue T/0 is built anew from the log"),
        (damage_index, "the index is built anew from the log"),
        (damage_index_files, "the index is built anew from the log"),
        (damage_end, "become zeros"),
        (damage_blank, "the blank record is written anew"),
        (damage_lost_blank, "a blank record is written behind the file's last record"),
        (damage_checkpoint, "the checkpoint is set back"),
        (damage_table, "topics.json is restored from topics.json.bak"),
    ],
)
def test_each_damage_is_mended_and_the_messages_stay(builder, damage, text):
    before = messages(builder.write())
    damage(builder)
    texts, summary = repaired(builder.root)
    assert len(texts) == 1
    assert text in texts[0]
    assert summary.is_sound
    assert summary.pending.not_dispatched == summary.pending.keys_to_index == 0
    assert messages(builder.root) == before
    with OfflineStore(builder.root) as store:
        found = store.find(KeyQuery(topic="U", key="same"))
        assert [message.queue_offset for message in found] == list(range(0, 30, 3))
        assert store.coverage.notes == []
    assert not (builder.root / "abort").exists()


def test_queues_are_the_bytes_that_were_there(builder):
    builder.write()
    queue = builder.root / "consumequeue" / "U" / "0"
    before = {path.name: path.read_bytes() for path in queue.iterdir()}
    damage_unit(builder)
    damaged = {path.name: path.read_bytes() for path in queue.iterdir()}
    repaired(builder.root)
    assert {path.name: path.read_bytes() for path in queue.iterdir()} == before
    (kept,) = (builder.root / "repair").glob("*/old/consumequeue/U/0")
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == damaged


def test_only_queues_or_only_the_index(builder):
    damage_unit(builder)
    change(builder.index_path(), 40 + 40 + 5 * 20 + 4, struct.pack(">q", 5))
    texts, summary = repaired(builder.root, what="queues")
    assert texts == ["queue U/0 is built anew from the log"]
    assert not summary.is_sound
    texts, summary = repaired(builder.root, what="index")
    assert texts == ["the index is built anew from the log"]
    assert summary.is_sound


def test_a_record_cannot_be_given_back(builder):
    builder.flip_body(7).write()
    repairer = Repairer(lambda: OfflineStore(builder.root), builder.root, jobs=1)
    repairer.start()
    try:
        _, plan = repairer.verify()
    finally:
        repairer.close()
    assert plan.is_empty
    assert [fault.position for fault in plan.hopeless] == [builder.placed[7].physical_offset]


def test_last_record_is_cut_as_a_start_would_cut_it(builder):
    before = messages(builder.write())
    texts, summary = repaired(builder.flip_body(59).write())
    assert "behind the end of the log become zeros" in texts[0]
    assert summary.is_sound
    assert messages(builder.root) == before[:-1]
    (kept,) = (builder.root / "repair").glob("*/old/commitlog/*")
    assert kept.read_bytes().startswith(struct.pack(">i", builder.placed[59].size))


def test_damaged_record_before_a_blank_one_stays(builder):
    last = max(n for n, place in enumerate(builder.placed) if place.physical_offset < SIZE)
    builder.flip_body(last).write()
    verifier = Verifier(builder.root)
    assert verifier.run().findings == 1
    assert "records go on at" in verifier.ledger.faults[0].reason


def test_numbers_stay_where_a_record_cannot_be_read(builder):
    before = messages(builder.write())
    lost = builder.placed[9]
    builder.flip_body(9).unit("U", 0, 20, QueueUnit(81, 120, 0)).write()
    _, summary = repaired(builder.root)
    assert summary.findings == 1
    left = [m for m in before if (m[0].topic, m[1]) != (lost.topic, lost.queue_offset)]
    assert messages(builder.root) == left
    # Without its old unit, too.
    builder.lose_queue("U", 0).write()
    _, summary = repaired(builder.root)
    assert summary.findings == 1
    assert messages(builder.root) == left


def test_topic_made_again_is_built_from_its_second_life(tmp_path):
    builder = StoreBuilder(tmp_path / "store")
    builder.records(5, dispatched=False)
    for number in range(3):
        builder.record(body=b"new", queue_offset=number)
    before = messages(builder.write())
    builder.unit("T", 0, 1, QueueUnit(81, 120, 0)).write()
    assert repaired(builder.root)[1].is_sound
    assert messages(builder.root) == before


def test_queue_without_messages_in_the_log_keeps_its_numbers(tmp_path):
    builder = StoreBuilder(tmp_path / "store", log_file_size=1000)
    builder.records(3).roll().record("U")
    builder.expire(1).unit("T", 0, 1, QueueUnit(1 << 40, 100, 0))
    root = builder.write()
    _, summary = repaired(root)
    assert not summary.is_sound
    assert builder.queue_path("T", 0).exists()


def test_a_store_that_is_open_is_refused(builder):
    damage_unit(builder)
    lock = StoreLock(PosixFileOps(), builder.root)
    lock.acquire()
    try:
        repairer = Repairer(lambda: OfflineStore(builder.root), builder.root)
        with pytest.raises(StoreLockedError):
            repairer.start()
    finally:
        lock.release()


class CrashError(Exception):
    """The process ends here."""


class CrashingOps(PosixFileOps):
    """Ends the process at the n-th change of a name."""

    def __init__(self, left):
        self.left = left

    def rename(self, source, target):
        self._step()
        super().rename(source, target)

    def unlink(self, path):
        self._step()
        return super().unlink(path)

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise CrashError


def test_crash_at_every_step_leaves_a_store_that_can_be_repaired(builder, tmp_path):
    before = messages(builder.write())
    damage_unit(builder)
    damage_queue(builder)
    change(builder.index_path(), 40 + 40 + 5 * 20 + 4, struct.pack(">q", 5))
    crashes = 0
    while True:
        root = shutil.copytree(builder.root, tmp_path / f"copy{crashes}")
        ops = CrashingOps(crashes)
        repairer = Repairer(lambda root=root: OfflineStore(root), root, jobs=1, ops=ops)
        repairer.start()
        try:
            _, plan = repairer.verify()
            repairer.act(plan)
        except CrashError:
            crashes += 1
        else:
            break
        finally:
            repairer.close()
        again = Repairer(lambda root=root: OfflineStore(root), root, jobs=1)
        again.start()
        try:
            again.finish_interrupted()
            summary, plan = again.verify()
            if not summary.is_sound:
                again.act(plan)
                assert again.verify()[0].is_sound
        finally:
            again.close()
        assert messages(root) == before
        shutil.rmtree(root)
    assert crashes > 8


def test_repaired_store_opens_and_takes_messages(tmp_path):
    root = tmp_path / "store"
    with open_engine(root, ManualClock()) as store:
        for number in range(40):
            store.put(request("T", number % 3, str(number).encode(), keys=[f"k{number}"]))
    before = messages(root)
    for path in sorted(root.glob("consumequeue/T/*/*")):
        change(path, 5, b"\xff")
    shutil.rmtree(root / "consumequeue" / "T" / "2")
    assert repaired(root)[1].is_sound
    assert messages(root) == before
    with open_engine(root, ManualClock()) as store:
        store.put(request("T", 2, b"more"))
    assert Verifier(root).run().is_sound
    assert len(messages(root)) == 41


def test_log_file_larger_than_a_blank_record_can_say_is_left_alone(tmp_path):
    root = StoreBuilder(tmp_path / "store").records(5).write()
    (path,) = (root / "commitlog").iterdir()
    os.truncate(path, (1 << 32) + 4096)  # sparse
    assert command.run("repair", root, "--dry-run").code in {0, 1}
