"""A store that is open: whoever wants to write to it is refused, whoever reads is welcome."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import StoreLockedError
from rocketlake.store.offline import OfflineStore
from support import command

OPEN = """
import sys
import rocketlake
try:
    rocketlake.open_store(sys.argv[1])
    print("open")
except rocketlake.StoreLockedError as error:
    print(error.holder)
"""


def opened_elsewhere(root: Path) -> str:
    """What another process gets to hear: who has the store, or that it is open there now."""
    ran = subprocess.run(
        [sys.executable, "-c", OPEN, str(root)], capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def refuse_second(*names: Path | str) -> None:
    for name in names:
        with pytest.raises(StoreLockedError, match="this process has it open already") as caught:
            rocketlake.open_store(name)
        assert caught.value.is_own


def test_second_open_is_refused_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root, link, deep = tmp_path / "store", tmp_path / "link", tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    link.symlink_to(root)
    monkeypatch.chdir(tmp_path)
    with rocketlake.open_store("store") as store:
        refuse_second("store", root, link, tmp_path / "a" / ".." / "store")
        monkeypatch.chdir(deep)
        refuse_second(Path("../../store"), Path("../../link"), root)
        assert store.put(Message(topic="T", body=b"after a change of directory")).is_ok
        assert opened_elsewhere(root) == str(os.getpid())
    monkeypatch.chdir(tmp_path)
    with rocketlake.open_store(link):
        refuse_second(root)


@pytest.mark.parametrize("log", [{}, {"store_path_commit_log": "log-a,log-b"}])
def test_store_of_a_relative_path_is_not_lost_with_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: dict[str, str]
):
    """Everything that is written after a change of directory goes to the same store."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    sizes = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 100}
    with rocketlake.open_store("store", **sizes, **log) as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        for number in range(100):
            assert store.put(Message(topic=f"T{number % 3}", body=bytes(200))).is_ok
        assert list(store.consumer("g", "T0", timeout=0))
    assert not list((tmp_path / "elsewhere").iterdir())
    monkeypatch.chdir(tmp_path)
    with rocketlake.open_store(tmp_path / "store", **log) as store:
        assert (
            sum(len(store.get(f"T{t}", q, 0).messages) for t in range(3) for q in range(4)) == 100
        )
        assert store.lag("g") == 0


def test_reader_goes_on_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with rocketlake.open_store("store") as store:
        store.put(Message(topic="T", body=b"one"), queue_id=0)
        with rocketlake.open_store("store", read_only=True) as reader:
            monkeypatch.chdir("/")
            store.put(Message(topic="T", body=b"two"), queue_id=0)
            assert [m.body for m in reader.get("T", 0, 0).messages] == [b"one", b"two"]
            assert [topic.name for topic in reader.topics()] == ["T"]


def test_readers_are_welcome_and_drop_nothing(tmp_path: Path):
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        store.put(Message(topic="T", body=b"one"), queue_id=0)
        for _ in range(3):
            with rocketlake.open_store(root, read_only=True) as reader:
                assert [message.body for message in reader.get("T", 0, 0).messages] == [b"one"]
            with OfflineStore(root) as view:
                assert view.traits.held_by == os.getpid()
        for words in (["info", root], ["dump", root]):
            assert command.run(*words).code == 0
        assert opened_elsewhere(root) == str(os.getpid()), "a reader took the lock away"
    assert opened_elsewhere(root) == "open"
