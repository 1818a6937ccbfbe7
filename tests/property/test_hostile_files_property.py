"""Index files, tables and timer files with any bytes: reading and verifying them always ends."""

import json
import shutil
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketlake
from rocketlake import Message
from rocketlake.delay.timer_log import TimerLog
from rocketlake.errors import CorruptRecordError, RocketLakeError
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import layout
from rocketlake.format.index import find_slots, lookup, walk
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.verify.index_guess import guess_slots
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support.manual_clock import ManualClock

LIMIT_S = 10
SLOTS, ENTRIES = 20, 80
SIZES = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": ENTRIES,
}
NUMBERS = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from([0, 1, 2, ENTRIES - 1, ENTRIES, ENTRIES + 1, -1, (1 << 31) - 1]),
)
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), NUMBERS), min_size=1, max_size=30)

pytestmark = pytest.mark.usefixtures("alarm")


class TooLongError(BaseException):
    """An example takes too long; nothing on the way handles this."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, end)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def limited() -> Iterator[None]:
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)


def changed(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Replace words of a file; the header and the first ones are met most often."""
    out = bytearray(data)
    words = len(out) // 4
    for place, number in changes:
        struct.pack_into(">i", out, place % words * 4, number)
    return bytes(out)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "store"
    with rocketlake.open_store(root, SIZES) as store:
        for number in range(120):
            store.put(Message(topic="T", body=b"x", keys=[f"k{number % 7}"]), queue_id=0)
    return root


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, header=st.lists(NUMBERS, max_size=2), number=st.integers(0, 1))
def test_changed_index_is_read_and_verified_in_time(
    made: Path, tmp_path: Path, changes: list[tuple[int, int]], header: list[int], number: int
):
    root = tmp_path / "store"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(made, root)
    path = sorted((root / "index").iterdir())[number]
    data = bytearray(changed(path.read_bytes(), changes))
    for at, value in zip((36, 32), header, strict=False):
        struct.pack_into(">i", data, at, value)
    path.write_bytes(data)
    with limited(), OfflineStore(root) as view:
        view.find(KeyQuery(topic="T", key="k1"))
        Verifier(view, VerifyOptions(jobs=1)).run()


@settings(max_examples=200, deadline=None)
@given(
    changes=CHANGES, slots=st.integers(-3, 3 * SLOTS), hash_=NUMBERS, count=NUMBERS, fill=NUMBERS
)
def test_walks_of_any_index_end(
    changes: list[tuple[int, int]], slots: int, hash_: int, count: int, fill: int
):
    size = layout.INDEX_HEADER_SIZE + 4 * SLOTS + 20 * ENTRIES
    data = bytearray(changed(struct.pack(">i", fill) * (size // 4), changes))
    struct.pack_into(">i", data, 36, count)
    # Fewer slots than the file was made with leave room for more entries.
    room = (size - layout.INDEX_HEADER_SIZE - 4 * max(slots, 0)) // 20
    found = bytearray(8 * room)
    with limited():
        assert len(lookup(bytes(data), slots, hash_, -(1 << 62), 1 << 62, 1 << 62)) <= room
        done, _ = walk(bytes(data), slots, hash_, 0, -(1 << 62), 1 << 62, found)
        assert done <= room
        find_slots(bytes(data))
        guess_slots(bytes(data))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(min_size=200, max_size=2000), last=st.integers(-1, 3000))
def test_any_timer_log_is_walked_in_time(tmp_path: Path, data: bytes, last: int):
    directory = tmp_path / "timerlog"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / f"{0:020d}").write_bytes(data.ljust(2000, b"\0"))
    log = TimerLog(PosixFileOps(), ManualClock(), directory, 2000)
    with limited():
        log.load()
        assert sum(len(units) for _, units in log.walk(0)) <= 2000 // layout.TIMER_UNIT_SIZE
        with suppress(CorruptRecordError):
            assert len(log.chain(last)) <= 2000
        log.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    counts=st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3)), min_size=2),
    offset=st.integers(),
)
def test_any_number_in_a_table_is_read_in_time(
    made: Path, tmp_path: Path, counts: list[object], offset: int
):
    root = tmp_path / "store"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(made, root)
    config = {"topicName": "T", "readQueueNums": counts[0], "writeQueueNums": counts[1]}
    topics = {"topicConfigTable": {"T": config}}
    offsets = {"offsetTable": {"T@g": {str(offset): offset, "0": offset}}}
    for name, table in (("topics", topics), ("consumerOffset", offsets)):
        (root / "config" / f"{name}.json").write_text(json.dumps(table))
        (root / "config" / f"{name}.json.bak").unlink(missing_ok=True)
    with limited():
        try:
            with rocketlake.open_store(root, read_only=True) as store:
                store.topics()
                store.get("T", 0, 0)
        except RocketLakeError:
            pass
