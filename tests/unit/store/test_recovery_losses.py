"""Queues and index files that went away while the store was closed, quiet ones too."""

import shutil

import pytest
from store_bench import open_engine, read, request

from rocketlake import failpoint
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.inventory import Inventory, InventoryFile, QueueBounds, find_losses

QUIET = 70  # messages of a queue of which the end of the log has none
UNITS = 20  # of a queue file
NEVER = lambda _: False  # noqa: E731 - a rule that a test hands in


class _CrashError(Exception):
    pass


def _crash():
    raise _CrashError


@pytest.fixture
def root(tmp_path):
    """A closed store with a quiet queue and several index files."""
    with open_engine(tmp_path, max_index_num=100) as store:
        for number in range(QUIET):
            store.put(request("U", str(number).encode(), keys=[f"u{number}"]))
        for number in range(400):
            store.put(request("T", b"x" * 200, keys=[f"t{number}"] if number < 300 else []))
        store.catch_up()
        assert len(store.log.files.files) > 3
        assert len(store.index.files) == 4
    return tmp_path


def _files(place):
    return sorted(place.iterdir())


def _queue(root):
    return root / "consumequeue" / "U" / "0"


def _zero_tail(root):
    path = _files(_queue(root))[-1]
    path.write_bytes(path.read_bytes()[:40] + bytes(UNITS * 20 - 40))


LOSSES = {
    "all queues": lambda root: shutil.rmtree(root / "consumequeue"),
    "a topic": lambda root: shutil.rmtree(root / "consumequeue" / "U"),
    "a queue": lambda root: shutil.rmtree(_queue(root)),
    "its files": lambda root: [path.unlink() for path in _files(_queue(root))],
    "its first file": lambda root: _files(_queue(root))[0].unlink(),
    "a file in the middle": lambda root: _files(_queue(root))[1].unlink(),
    "its last file": lambda root: _files(_queue(root))[-1].unlink(),
    "its last units": _zero_tail,
    "an empty last file": lambda root: _files(_queue(root))[-1].write_bytes(b""),
}


def _assert_whole(store):
    assert [m.body for m in read(store, "U")] == [str(n).encode() for n in range(QUIET)]
    assert store.queue_bounds(QueueKey("U", 0)) == (0, QUIET)
    assert store.put(request("U", b"new")).queue_offset == QUIET
    assert [m.body for m in read(store, "U", offset=QUIET)] == [b"new"]
    assert len(read(store, "T")) == 400


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_what_a_queue_lost_is_back_before_the_next_put(root, loss, is_clean):
    LOSSES[loss](root)
    if not is_clean:
        (root / "abort").touch()
    with open_engine(root, max_index_num=100) as store:
        assert store.recovery.dispatched_from == 0
        if is_clean and loss != "all queues":
            assert any("1 queues have lost units" in note for note in store.recovery.notes)
        _assert_whole(store)
    with open_engine(root, max_index_num=100) as store:
        assert (store.recovery.redispatched, store.recovery.notes) == (0, ())


def test_queue_without_a_file_in_the_middle_is_made_anew_without_an_inventory(root):
    """RocketMQ closed the store: nothing but the files tells."""
    (root / "inventory.json").unlink()
    LOSSES["a file in the middle"](root)
    with open_engine(root, max_index_num=100) as store:
        _assert_whole(store)


@pytest.mark.parametrize("has_inventory", [True, False])
@pytest.mark.parametrize("passes", range(3))
def test_crash_while_a_queue_is_given_up_forgets_nothing(root, passes, has_inventory):
    if not has_inventory:
        (root / "inventory.json").unlink()
    LOSSES["a file in the middle"](root)
    with (
        failpoint.switched_on("delete.after", _crash, passes=passes),
        pytest.raises(_CrashError),
    ):
        open_engine(root, max_index_num=100)
    with open_engine(root, max_index_num=100) as store:
        _assert_whole(store)


def test_nothing_is_missed_in_a_store_that_lost_nothing(root):
    with open_engine(root, max_index_num=100) as store:
        assert (store.recovery.dispatched_from, store.recovery.notes) == (None, ())


@pytest.mark.parametrize("is_clean", [True, False])
def test_dropped_topic_does_not_come_back(root, is_clean):
    """Its messages lie before the first one of its new life, and have the same numbers."""
    with open_engine(root, max_index_num=100) as store:
        assert store.drop_topic("U") == 1
        store.put(request("U", b"again"))
    if not is_clean:
        (root / "abort").touch()
    with open_engine(root, max_index_num=100) as store:
        assert [m.body for m in read(store, "U")] == [b"again"]


def test_inventory_of_a_crash_in_a_dropped_topic_is_gone(root):
    with open_engine(root, max_index_num=100) as store:
        assert (root / "inventory.json").exists()
        store.drop_topic("U")
        assert not (root / "inventory.json").exists()


@pytest.mark.parametrize("text", [b"", b"{", b'{"log_min": "x"}', b"[1]"])
def test_inventory_that_nobody_can_read_is_not_used(root, text):
    (root / "inventory.json").write_bytes(text)
    with open_engine(root, max_index_num=100) as store:
        assert store.recovery.notes == ()


# --- the index -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", [0, -2, -1])
def test_keys_of_a_lost_index_file_are_indexed_again(root, number, is_clean):
    _files(root / "index")[number].unlink()
    if not is_clean:
        (root / "abort").touch()
    with open_engine(root, max_index_num=100) as store:
        for key in ("u0", "u69"):
            found = store.query(KeyQuery(topic="U", key=key)).messages
            assert [m.keys for m in found] == [[key]]
        for offset in range(0, 300, 7):
            found = store.query(KeyQuery(topic="T", key=f"t{offset}")).messages
            assert [m.queue_offset for m in found] == [offset]


# --- the rules -----------------------------------------------------------------------------------

BEFORE = QueueBounds(0, 10, 1000)


@pytest.mark.parametrize(
    ("now", "log", "found"),
    [
        (BEFORE, (0, 5000), ([], [])),
        (QueueBounds(0, 12, 2000), (0, 5000), ([], [])),
        (None, (0, 5000), (["T"], [])),
        (QueueBounds(0, 0, -1), (0, 5000), (["T"], [])),
        (QueueBounds(0, 9, 900), (0, 5000), ([], ["T"])),
        (QueueBounds(5, 10, 1000), (0, 5000), (["T"], [])),
        (QueueBounds(5, 10, 1000), (400, 5000), ([], [])),  # the first ones have expired
        (None, (1000, 5000), ([], [])),  # all have
        (None, (0, 4999), ([], [])),  # the log itself was cut
    ],
)
def test_what_counts_as_lost(now, log, found):
    key = QueueKey("T", 0)
    then = Inventory.of((0, 5000), {key: BEFORE}, {})
    losses = find_losses(then, {} if now is None else {key: now}, log, NEVER)
    assert ([k.topic for k in losses.absent], [k.topic for k in losses.short]) == found


def test_queue_of_a_deleted_topic_is_not_lost():
    then = Inventory.of((0, 5000), {QueueKey("T", 0): BEFORE}, {})
    assert find_losses(then, {}, (0, 5000), lambda topic: topic == "T").absent == []


def test_inventory_is_read_as_it_was_saved(tmp_path):
    file = InventoryFile(PosixFileOps(), tmp_path)
    assert file.load() is None
    saved = Inventory.of((3, 5000), {QueueKey("%LMQ%ä", 7): BEFORE}, {"20200101000000000": 9})
    file.save(saved)
    assert file.load() == saved
    file.remove()
    assert file.load() is None
