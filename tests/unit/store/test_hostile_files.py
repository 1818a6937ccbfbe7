"""Files crafted to cost time or memory: every command ends, and soon.

Each case runs in a fork that an alarm ends, with little memory.
"""

import json
import os
import resource
import shutil
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import RocketLakeError
from rocketlake.store.offline import OfflineStore
from support import command, forks

LIMIT_S = 20
MORE_MEMORY = 2 << 30
FILE_SIZE = 1 << 16
SIZES = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
INT_MAX = (1 << 31) - 1
FAR = 2000 * FILE_SIZE * 60_000_000_000

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "store"
    with rocketlake.open_store(root, SIZES) as store:
        for number in range(200):
            store.put(Message(topic="T", body=bytes(200), keys=[f"k{number % 7}"]), queue_id=0)
        store.put(Message(topic="T", body=b"later", delay_level=5))
        for _ in store.consumer("g", "T", timeout=0):
            pass
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def write(root: Path) -> None:
    with rocketlake.open_store(root, SIZES) as store:
        store.put(Message(topic="T", body=b"new", keys=["k1"]), queue_id=0)
        store.get("T", 0, 190)
        list(store.query("T", "k1"))
        store.lag("g")


def read(root: Path) -> None:
    with rocketlake.open_store(root, read_only=True) as store:
        store.get("T", 0, 150)
        list(store.query("T", "k1"))
    with OfflineStore(root) as view:
        for key in view.queues:
            for _ in view.messages(key):
                pass


def run_command(name: str) -> Damage:
    def run(root: Path) -> None:
        found = command.run(name, root)
        assert found.code in {0, 1, 2}, found

    return run


WAYS: dict[str, Damage] = {
    "read": read,
    **{name: run_command(name) for name in ("verify", "info", "dump", "repair")},
    "write": write,  # last: it may mend what the others have to bear
}


def memory_limit() -> int:
    """What the process has mapped already, which may be a lot beside other tests, and some more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize() + MORE_MEMORY


def check_all_ends(root: Path) -> None:
    """Every way of using the store ends in time: by doing its work, or with an error of ours."""
    for name, use in WAYS.items():

        def work(tell: forks.Tell, use: Damage = use) -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            resource.setrlimit(resource.RLIMIT_AS, (memory_limit(), -1))
            try:
                use(root)
            except RocketLakeError as error:
                tell(f"refused: {error}")

        assert forks.run(work).signal == 0, f"{name} did not end within {LIMIT_S} s"


# --- the index -------------------------------------------------------------------------------


def index_file(root: Path) -> Path:
    return next((root / "index").iterdir())


def count_everything(root: Path) -> None:
    with index_file(root).open("r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", INT_MAX))


def make_rings(root: Path) -> None:
    path = index_file(root)
    data = bytearray(path.read_bytes())
    (count,) = struct.unpack_from(">i", data, 36)
    for entry in range(1, count):
        at = 40 + 4 * SIZES["maxHashSlotNum"] + 20 * entry + 16
        struct.pack_into(">i", data, at, entry % (count - 1) + 1)
    path.write_bytes(data)


def fit_every_slot_count(root: Path) -> None:
    """One entry of hash 0 at offset 0: a file of zeros has as many possible shapes as words."""
    with index_file(root).open("r+b") as file:
        file.truncate(0)
        file.truncate(40 + 4 * 1_000_000 + 20 * 4_000_000)
        file.write(struct.pack(">qqqqiii", 1, 1, 0, 0, 1, 2, 1))


@pytest.mark.parametrize("damage", [count_everything, make_rings, fit_every_slot_count])
def test_index_that_claims_too_much(root: Path, damage: Damage):
    damage(root)
    check_all_ends(root)


def test_ring_in_an_index_with_a_count_beyond_its_file(root: Path):
    make_rings(root)
    count_everything(root)
    check_all_ends(root)


# --- names far away --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["commitlog", "consumequeue/T/0"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_file_whose_name_is_far_behind_the_others(root: Path, family: str, is_clean: bool):
    directory = root / family
    shutil.copy(min(directory.iterdir()), directory / f"{FAR:020d}")
    if not is_clean:
        (root / "abort").write_bytes(b"1")
    check_all_ends(root)


# --- the log ---------------------------------------------------------------------------------


def test_log_of_overlapping_records(root: Path):
    """Every 40 bytes a record begins that claims the rest of the file: the square of its size."""
    size = 16 << 20
    shutil.rmtree(root / "consumequeue")
    for path in (root / "commitlog").iterdir():
        path.unlink()
    data = bytearray(size)
    for at in range(0, size - 100, 40):
        struct.pack_into(">ii", data, at, size - at - 8, -626843481)
        struct.pack_into(">q", data, at + 28, at)
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    (root / "abort").write_bytes(b"1")
    check_all_ends(root)


# --- tables ----------------------------------------------------------------------------------


def test_topics_with_more_queues_than_memory(root: Path):
    path = root / "config" / "topics.json"
    table = json.loads(path.read_bytes())
    for config in table["topicConfigTable"].values():
        config["readQueueNums"] = config["writeQueueNums"] = INT_MAX
    path.write_text(json.dumps(table))
    check_all_ends(root)
    with rocketlake.open_store(root) as store:
        topic = store.topic("T")
        assert topic is not None
        assert topic.read_queue_count == 65_536
        assert store.put(Message(topic="T", body=b"x")).is_ok


@pytest.mark.parametrize("name", ["config/topics.json", "config/consumerOffset.json", "abort"])
def test_small_file_that_has_become_huge(root: Path, name: str):
    for path in (root / name, root / f"{name}.bak"):
        with path.open("wb") as file:
            file.truncate(1 << 40)
    check_all_ends(root)


# --- what is no regular file -----------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)  # a path of a socket is short
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("make", [make_fifo, make_socket, Path.mkdir])
def test_other_kind_of_file_in_place_of_any(made: Path, tmp_path: Path, make: Damage):
    paths = [path.relative_to(made) for path in sorted(made.rglob("*")) if path.is_file()]
    chosen = {path.parent: path for path in paths}  # one of each directory, and all of the root
    for path in sorted({*chosen.values(), *(p for p in paths if len(p.parts) == 1)}):
        root = Path(shutil.copytree(made, tmp_path / path.name))
        (root / path).unlink()
        make(root / path)
        check_all_ends(root)
        shutil.rmtree(root)


def test_file_that_is_a_symbolic_link_to_a_regular_one_is_used(root: Path, tmp_path: Path):
    table = root / "config" / "topics.json"
    shutil.move(table, tmp_path / "elsewhere.json")
    table.symlink_to(tmp_path / "elsewhere.json")
    with rocketlake.open_store(root, read_only=True) as store:
        assert [topic.name for topic in store.topics()] == ["T"]
