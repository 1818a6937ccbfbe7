"""Files of the log that are not as they should be: of the wrong size, missing, empty."""

import pytest
from store_bench import open_engine, read, request

from rocketlake.errors import FileSizeError
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore

SIZE = 16 << 10
KEY = QueueKey("T", 0)


@pytest.fixture
def root(tmp_path):
    """A closed store whose log has at least five files."""
    with open_engine(tmp_path) as store:
        for number in range(300):
            store.put(request("T", str(number).encode() + b" " * 200, keys=[f"k{number}"]))
        assert len(store.log.files.files) >= 5
    return tmp_path


def _log(root):
    return sorted((root / "commitlog").iterdir())


def _numbers(messages):
    return [int(message.body) for message in messages]


def _stored(view):
    return [message for batch in view.messages(KEY) for message in batch.columns.messages()]


def _content(root):
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


# --- the wrong size ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, SIZE - 1, SIZE + 1, 2 * SIZE])
@pytest.mark.parametrize("number", [0, 2, -1])
def test_log_file_of_the_wrong_size_refuses_writing_and_changes_nothing(root, number, size):
    path = _log(root)[number]
    data = path.read_bytes()
    path.write_bytes((data * 2)[:size])
    before = _content(root)
    with pytest.raises(FileSizeError) as caught:
        open_engine(root)
    assert str(path) in str(caught.value)
    assert f"has {size} bytes" in str(caught.value)
    assert f"have {SIZE}. Nothing was changed. Put the whole file back" in str(caught.value)
    assert _content(root) == before
    path.write_bytes(data)
    with open_engine(root) as store:
        assert _numbers(read(store)) == list(range(300))


def test_read_only_view_reads_the_other_files(root):
    path = _log(root)[2]
    path.write_bytes(path.read_bytes()[:5000])
    with OfflineStore(root) as view:
        found = _numbers(_stored(view))
    lost = set(range(300)) - set(found)
    assert lost
    assert min(lost) > 50  # behind what is left of the third file
    assert max(lost) < 250
    assert found == sorted(found)


@pytest.mark.parametrize(("family", "text"), [("consumequeue", "repair"), ("index", "Remove")])
def test_queue_or_index_file_of_the_wrong_size_says_what_helps(root, family, text):
    path = sorted(path for path in (root / family).rglob("*") if path.is_file())[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileSizeError, match=f"has 100 bytes.*{text}"):
        open_engine(root)


# --- a hole --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", [1, -2])
def test_missing_file_in_the_middle_takes_only_its_own_messages(root, number, is_clean):
    with OfflineStore(root) as view:
        places = {int(m.body): m.physical_offset for m in _stored(view)}
    path = _log(root)[number]
    base = int(path.name)
    left = [n for n, place in places.items() if not base <= place < base + SIZE]
    path.unlink()
    for again in range(2):
        if not is_clean:
            (root / "abort").touch()
        with open_engine(root) as store:
            (note,) = [text for text in store.recovery.notes if "the log goes on" in text]
            assert f"the log goes on at {base + SIZE}" in note
            assert store.recovery.cut_bytes == 0
            messages = read(store)
            assert _numbers(messages)[: len(left)] == left
            assert [m.queue_offset for m in messages[: len(left)]] == left
            assert store.put(request("T", b"1000")).queue_offset == 300 + again
            assert _numbers(read(store, offset=300 + again)) == [1000]


def test_hole_and_the_queue_lost_leave_each_message_its_offset(root):
    path = _log(root)[1]
    path.unlink()
    with open_engine(root) as store:
        before = [(m.queue_offset, m.body) for m in read(store)]
    for file in sorted((root / "consumequeue" / "T" / "0").iterdir()):
        file.unlink()
    with open_engine(root) as store:
        assert [(m.queue_offset, m.body) for m in read(store)] == before
        assert [m.queue_offset for m in read(store, offset=290)] == list(range(290, 300))
        assert store.put(request("T", b"1000")).queue_offset == 300


# --- empty files ---------------------------------------------------------------------------------


def test_empty_last_files_go(root):
    last = _log(root)[-1]
    for step in (1, 2):
        (last.parent / f"{int(last.name) + step * SIZE:020d}").touch()
    with open_engine(root) as store:
        assert (store.recovery.cut_bytes, store.recovery.notes) == (0, ())
        assert _numbers(read(store)) == list(range(300))


def test_empty_file_in_the_middle_refuses(root):
    _log(root)[1].write_bytes(b"")
    with pytest.raises(FileSizeError, match="has 0 bytes"):
        open_engine(root)
