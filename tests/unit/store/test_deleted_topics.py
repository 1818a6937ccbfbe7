"""Topics that are deleted stay deleted, whatever becomes of queues and log."""

import shutil

import pytest
from store_bench import open_engine, read, request

from rocketlake import failpoint
from rocketlake.errors import DiskFullError, StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store import deleted_topics
from rocketlake.store.deleted_topics import DeletedTopics, DeletedTopicsFile
from rocketlake.store.log.queue_offsets import QueueOffsets
from rocketlake.store.offline.view import OfflineStore

LIGHT = "%LMQ%l"
LIGHT_ON = {"enable_lmq": True, "enable_multi_dispatch": True}


class _CrashError(Exception):
    pass


def _crash():
    raise _CrashError


def put(store, topic, *bodies, **message):
    return [store.put(request(topic, body, **message)).queue_offset for body in bodies]


def bodies(store, topic="T"):
    return [message.body for message in read(store, topic)]


def leave_unclean(store, root, *, without_queues=True):
    """Close a store so that it looks as after a power cut."""
    store.close()
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    if without_queues:
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
        shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)


# --- the table -----------------------------------------------------------------------------------


def test_table_is_read_as_it_was_written(tmp_path):
    file = DeletedTopicsFile(PosixFileOps(), tmp_path)
    file.load()
    assert file.topics == DeletedTopics()
    file.add("T", 100)
    file.add("%RETRY%ä", 9_000_000_000)
    file.add("T", 200)
    assert deleted_topics.load(PosixFileOps(), tmp_path) == file.topics
    assert (file.topics.ends, file.topics.limit) == (
        {"T": 200, "%RETRY%ä": 9_000_000_000},
        9_000_000_000,
    )
    assert (tmp_path / "config" / "deletedTopics.json").read_text() == (
        '{\n\t"logEndTable":{\n\t\t"%RETRY%ä":9000000000,\n\t\t"T":200\n\t}\n}'
    )


def test_records_are_told_apart_by_the_end_of_the_log():
    deleted = DeletedTopics.of({"T": 100, "U": 300})
    assert [deleted.is_earlier("T", at) for at in (-1, 0, 99, 100, 200)] == [
        *(False, True, True, False, False)
    ]
    assert deleted.is_earlier("U", 200)
    assert not deleted.is_earlier("Other", 0)


def test_entries_go_with_the_log(tmp_path):
    file = DeletedTopicsFile(PosixFileOps(), tmp_path)
    file.add("T", 100)
    file.add("U", 300)
    assert file.lower_to(200) == ["U"]
    assert file.topics.ends == {"T": 100, "U": 200}
    file.forget_expired(99)
    assert file.topics.ends == {"T": 100, "U": 200}
    file.forget_expired(100)
    assert deleted_topics.load(PosixFileOps(), tmp_path).ends == {"U": 200}


def test_copy_of_the_table_is_used(tmp_path):
    file = DeletedTopicsFile(PosixFileOps(), tmp_path)
    file.add("T", 100)
    file.add("U", 300)
    (tmp_path / "config" / "deletedTopics.json").write_bytes(b"")
    assert deleted_topics.load(PosixFileOps(), tmp_path).ends == {"T": 100}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"logEndTable":{"T":"x"}}', '{"logEndTable":{"T":-1}}']
)
def test_table_that_cannot_be_read_is_refused_and_named(tmp_path, text):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "deletedTopics.json").write_text(text)
    with pytest.raises(StoreError, match=r"deletedTopics\.json"):
        open_engine(tmp_path)


# --- after a crash -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_late", [True, False])
def test_topic_made_again_has_only_its_new_messages_when_queues_are_lost(tmp_path, is_late):
    store = open_engine(tmp_path)
    put(store, "T", b"a", b"b", b"c")
    put(store, "Other", b"o")
    assert store.drop_topic("T") == 1
    if is_late:
        put(store, "Other", *[bytes(4000)] * 8)  # the new life is in another file of the log
    assert put(store, "T", b"d", b"e") == [0, 1]
    leave_unclean(store, tmp_path)
    with OfflineStore(tmp_path) as view:
        assert view.queues[QueueKey("T", 0)].max_offset == 2
    with open_engine(tmp_path) as store:
        assert bodies(store) == [b"d", b"e"]
        assert bodies(store, "Other")[0] == b"o"
        assert put(store, "T", b"f") == [2]


def test_queues_that_a_deletion_left_are_removed(tmp_path):
    store = open_engine(tmp_path)
    put(store, "T", *(b"%d" % n for n in range(50)))  # several files
    put(store, "Other", b"o")
    store.catch_up()
    shutil.copytree(tmp_path / "consumequeue", tmp_path / "before")
    store.drop_topic("T")
    assert not (tmp_path / "consumequeue" / "T").exists()
    put(store, "T", b"d")
    leave_unclean(store, tmp_path)
    (tmp_path / "before").rename(tmp_path / "consumequeue")
    with OfflineStore(tmp_path) as view:
        assert view.queues[QueueKey("T", 0)].max_offset == 1
    with open_engine(tmp_path) as store:
        assert bodies(store) == [b"d"]
        assert any("T/0" in note for note in store.recovery.notes)


@pytest.mark.parametrize("passes", range(3))
@pytest.mark.parametrize("point", ["delete.before", "delete.after"])
def test_crash_while_queue_files_are_removed_leaves_no_message(tmp_path, point, passes):
    store = open_engine(tmp_path)
    put(store, "T", *(b"%d" % n for n in range(50)))
    put(store, "Other", b"o")
    store.catch_up()
    with (
        failpoint.switched_on(point, _crash, passes=passes),
        pytest.raises(_CrashError),
    ):
        store.drop_topic("T")
    leave_unclean(store, tmp_path, without_queues=False)
    with open_engine(tmp_path) as store:
        assert bodies(store) == []
        assert bodies(store, "Other") == [b"o"]
        assert put(store, "T", b"d") == [0]
        assert bodies(store) == [b"d"]


def test_deletion_that_cannot_be_written_down_leaves_the_topic(tmp_path, monkeypatch):
    with open_engine(tmp_path) as store:
        put(store, "T", b"a")

        def fail(*_):
            raise DiskFullError("config", 10, 0)

        with monkeypatch.context() as patch:
            patch.setattr(deleted_topics, "write_table", fail)
            with pytest.raises(DiskFullError):
                store.drop_topic("T")
        assert put(store, "T", b"b") == [1]
        assert bodies(store) == [b"a", b"b"]


def test_log_is_flushed_before_the_table_speaks_of_it(tmp_path, monkeypatch):
    with open_engine(tmp_path) as store:
        put(store, "T", b"a")
        seen = []
        add = store.parts.deleted.add
        monkeypatch.setattr(
            store.parts.deleted,
            "add",
            lambda topic, end: seen.append((end, store.log.files.flushed_where)) or add(topic, end),
        )
        store.drop_topic("T")
        ((end, flushed),) = seen
        assert end == flushed == store.log.wrote_where


def test_entry_behind_the_end_of_the_log_is_lowered_before_a_put(tmp_path):
    """The log lost its end: new records lie below the old end, and belong to the new life."""
    with open_engine(tmp_path) as store:
        put(store, "T", b"a")
    DeletedTopicsFile(PosixFileOps(), tmp_path).add("T", 10_000)
    store = open_engine(tmp_path)
    assert any("T" in note for note in store.recovery.notes)
    assert put(store, "T", b"b") == [0]
    leave_unclean(store, tmp_path)
    with open_engine(tmp_path) as store:
        assert bodies(store) == [b"b"]


def test_new_log_has_no_deleted_topics(tmp_path):
    with open_engine(tmp_path) as store:
        put(store, "T", b"a")
        store.drop_topic("T")
    shutil.rmtree(tmp_path / "commitlog")
    store = open_engine(tmp_path)
    put(store, "T", b"b")
    leave_unclean(store, tmp_path)
    with open_engine(tmp_path) as store:
        assert bodies(store) == [b"b"]


def test_entries_go_when_the_log_has_expired(tmp_path):
    with open_engine(tmp_path) as store:
        put(store, "T", b"a")
        store.drop_topic("T")
        put(store, "Other", *[bytes(4000)] * 8)
        assert store.parts.deleted.topics.ends
        assert store.delete_expired(force=True).files
        assert not deleted_topics.load(PosixFileOps(), tmp_path).ends


# --- in a running store --------------------------------------------------------------------------


def test_put_that_meets_a_deletion_has_the_first_place_of_the_new_life(tmp_path, monkeypatch):
    """It found its queue before the deletion, and appends after it."""
    with open_engine(tmp_path) as store:
        message = Message(topic="T", body=b"x")
        store.put_plain(message, 0)
        store.put_plain(message, 0)
        append = store._putter._append_plain

        def drop_first(*arguments):
            monkeypatch.undo()
            store.drop_topic("T")
            return append(*arguments)

        monkeypatch.setattr(store._putter, "_append_plain", drop_first)
        assert store.put_plain(message, 0).queue_offset == 0
        assert store.put_plain(message, 0).queue_offset == 1
        assert [m.queue_offset for m in read(store)] == [0, 1]


def test_slots_of_a_topic_begin_at_0_and_stay_the_same():
    offsets = QueueOffsets()
    slot = offsets.slot("T", 1)
    slot.next_offset, slot.frame = 7, object()
    offsets.restart("T")
    assert offsets.slot("T", 1) is slot
    assert (slot.next_offset, slot.frame) == (0, None)


def test_records_that_were_not_dispatched_at_the_deletion_get_no_units(tmp_path):
    with open_engine(tmp_path, duplication_enable=True) as store:
        put(store, "T", b"a", b"b")
        store.drop_topic("T")
        put(store, "T", b"c")
        store.log.set_confirm_offset(store.log.wrote_where)
        assert bodies(store) == [b"c"]


def test_light_queue_keeps_messages_of_a_topic_that_was_deleted(tmp_path):
    properties = {"INNER_MULTI_DISPATCH": LIGHT}
    store = open_engine(tmp_path, **LIGHT_ON)
    put(store, "T", b"a", b"b", properties=properties)
    store.drop_topic("T")
    put(store, "T", b"c", properties=properties)
    leave_unclean(store, tmp_path)
    with OfflineStore(tmp_path) as view:
        assert view.queues[QueueKey(LIGHT, 0)].max_offset == 3
    with open_engine(tmp_path, **LIGHT_ON) as store:
        assert (bodies(store), bodies(store, LIGHT)) == ([b"c"], [b"a", b"b", b"c"])


def test_light_queue_that_is_deleted_begins_anew(tmp_path):
    properties = {"INNER_MULTI_DISPATCH": LIGHT}
    store = open_engine(tmp_path, **LIGHT_ON)
    put(store, "T", b"a", b"b", properties=properties)
    store.drop_topic(LIGHT)
    put(store, "T", b"c", properties=properties)
    leave_unclean(store, tmp_path)
    with open_engine(tmp_path, **LIGHT_ON) as store:
        assert (bodies(store), bodies(store, LIGHT)) == ([b"a", b"b", b"c"], [b"c"])


def test_view_of_a_store_in_use_sees_a_topic_made_again(tmp_path):
    with open_engine(tmp_path) as store:
        put(store, "T", b"a", b"b")
        store.catch_up()
        with OfflineStore(tmp_path) as view:
            assert view.queues[QueueKey("T", 0)].max_offset == 2
            store.drop_topic("T")
            put(store, "T", b"c")
            store.catch_up()
            assert view.refresh()
            (batch,) = view.messages(QueueKey("T", 0))
            assert [batch.columns.message(n).body for n in range(len(batch.columns))] == [b"c"]


def test_table_forgets_a_deletion_when_the_log_files_are_gone_for_good(tmp_path):
    """A power cut brought log files back, and messages of the deleted topic with them."""
    done = []

    class Noting(PosixFileOps):
        def sync_dir(self, path):
            done.append(path.name)
            super().sync_dir(path)

    log_dir = tmp_path / "commitlog"
    log_dir.mkdir()
    file = DeletedTopicsFile(Noting(), tmp_path, [log_dir, tmp_path / "not there"])
    file.add("T", 100)
    done.clear()
    file.forget_expired(99)
    assert done == []
    file.forget_expired(100)
    assert done[0] == "commitlog"
    assert "config" in done[1:], "the table is written behind it"
