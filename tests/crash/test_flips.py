"""Every byte of a small store flipped, every boundary truncated.

ROCKETLAKE_FLIPS=all .venv/bin/python -m pytest tests/crash/test_flips.py    opens each for writing
"""

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import flip_store
import pytest
from flip_store import Byte

import rocketlake
from rocketlake import Message
from rocketlake.errors import RocketLakeError
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support import forks

pytestmark = pytest.mark.crash

DURABILITY = Path(__file__).resolve().parents[2] / "docs" / "durability.md"
ROW = re.compile(r"^\| ([a-zA-Z][^|]*) \| (\d+) of (\d+) \|", re.MULTILINE)
SEED = int(os.environ.get("ROCKETLAKE_CRASH_SEED", "5"))
TAKES_ALL = os.environ.get("ROCKETLAKE_FLIPS") == "all"
READ_EVERY, OPENED_EVERY = (1, 1) if TAKES_ALL else (9, 40)
ONE = VerifyOptions(jobs=1)
KEYS = ("key-0", "key-1", "b", "late", "key-9")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The store without the whole-record checksum, and with it; nobody leaves a change in them."""
    place = tmp_path_factory.mktemp("flips")
    made = {with_crc: place / f"crc-{with_crc}" for with_crc in (False, True)}
    for with_crc, root in made.items():
        flip_store.write(root, with_crc=with_crc)
    return made


@contextmanager
def flipped(byte: Byte) -> Iterator[None]:
    with byte.path.open("r+b", buffering=0) as file:
        file.seek(byte.position)
        before = file.read(1)[0]
        _put(file.fileno(), byte.position, before ^ byte.mask)
        try:
            yield
        finally:
            _put(file.fileno(), byte.position, before)


def _put(descriptor: int, position: int, value: int) -> None:
    os.pwrite(descriptor, bytes([value]), position)


def is_reported(root: Path) -> bool:
    return not Verifier(root, ONE).run().is_sound


def documented() -> dict[str, tuple[int, int]]:
    """The table of docs/durability.md: bytes whose flip nothing shows, of bytes there are."""
    text = DURABILITY.read_text(encoding="utf-8")
    return {name.strip(): (int(lost), int(all_)) for name, lost, all_ in ROW.findall(text)}


# --- verify ------------------------------------------------------------------------------------


def test_flips_are_reported_but_for_those_of_the_table(stores: dict[bool, Path]):
    root = stores[False]
    assert not is_reported(root)
    unseen, total = count_unseen(root, flip_store.bytes_of(root))
    found = {name: (unseen[name], total[name]) for name in total if unseen[name]}
    assert found == documented()


def test_flips_of_records_with_their_own_checksum_are_all_reported(stores: dict[bool, Path]):
    root = stores[True]
    assert not is_reported(root)
    record = [byte for byte in flip_store.bytes_of(root) if byte.name.startswith("record: ")]
    assert len(record) > 900
    assert not count_unseen(root, record)[0]


def count_unseen(root: Path, flips: list[Byte]) -> tuple[Counter[str], Counter[str]]:
    unseen: Counter[str] = Counter()
    for byte in flips:
        with flipped(byte):
            unseen[byte.name] += not is_reported(root)
    return +unseen, Counter(byte.name for byte in flips)


# --- readers -----------------------------------------------------------------------------------


def bodies(store: rocketlake.Store | rocketlake.ReadOnlyStore) -> set[bytes]:
    """What every way to read returns."""
    found: set[bytes] = set()
    for topic in ("T", "SCHEDULE_TOPIC_XXXX"):
        for queue_id in (0, 1, 17):
            found |= {bytes(m.stored_body) for m in store.get(topic, queue_id, 0, 99).messages}
            columns = store.columns(topic, queue_id, 0).columns
            if columns is not None:
                found |= {bytes(m.stored_body) for m in columns.messages()}
    for key in KEYS:
        for topic in ("T", "SCHEDULE_TOPIC_XXXX"):
            found |= {bytes(message.stored_body) for message in store.query(topic, key)}
    return found


@pytest.mark.parametrize("with_crc", [False, True])
def test_flips_never_change_a_body_that_is_read(stores: dict[bool, Path], with_crc: bool):
    root = stores[with_crc]
    with rocketlake.open_store(root, read_only=True) as store:
        whole = bodies(store)
    assert len(whole) == 7
    flips = flip_store.bytes_of(root)
    seen, refused = Counter(), Counter()
    for byte in flips[SEED % READ_EVERY :: READ_EVERY]:
        with flipped(byte):
            try:
                with rocketlake.open_store(root, read_only=True) as store:
                    found = bodies(store)
            except RocketLakeError:
                refused[byte.name] += 1
                continue
            assert found <= whole, f"{byte}: {found - whole}"
            seen[len(found)] += 1
    assert seen[7] > 0
    assert seen[6] > 0, "no flip hid a message"
    assert not [name for name in refused if not name.endswith(".json")]


# --- opening for writing -----------------------------------------------------------------------


def open_and_use(root: Path, whole: set[bytes]) -> str:
    """Open a damaged store for writing; it works, or is refused with an error of ours."""
    try:
        with rocketlake.open_store(root, timer_wheel_enable=False) as store:
            assert bodies(store) <= whole
            receipt = store.put(Message(topic="T", body=b"new", keys=["new"]), queue_id=0)
            assert receipt.is_ok, receipt
            (message,) = store.query("T", "new")
            assert message.body == b"new"
        with rocketlake.open_store(root, timer_wheel_enable=False) as store:
            assert bodies(store) <= {*whole, b"new"}
            assert len(store.query("T", "new")) == 1
    except RocketLakeError as error:
        return f"refused: {error}"
    return "open"


@pytest.mark.parametrize("with_crc", [False, True])
def test_flips_do_not_keep_a_store_from_opening_or_are_named(
    stores: dict[bool, Path], tmp_path: Path, with_crc: bool
):
    root, copy = stores[with_crc], tmp_path / "store"
    with rocketlake.open_store(root, read_only=True) as store:
        whole = bodies(store)
    chosen = flip_store.bytes_of(root)[SEED % OPENED_EVERY :: OPENED_EVERY]

    def work(tell: forks.Tell) -> None:
        for byte in chosen:
            tell(f"{byte}")
            renew(root, copy)
            damaged = copy / byte.path.relative_to(root)
            data = bytearray(damaged.read_bytes())
            data[byte.position] ^= byte.mask
            damaged.write_bytes(data)
            tell(open_and_use(copy, whole))

    answers = ended_well(forks.run(work))
    assert len(answers) == len(chosen)
    assert answers.count("open") > 0


def ended_well(ended: forks.Ended) -> list[str]:
    """What was told of each damage; the last one if it ended the process."""
    assert ended.signal == 0, f"signal {ended.signal} at {ended.lines[-1]}"
    return ended.lines[1::2]


def renew(root: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)


# --- truncation --------------------------------------------------------------------------------


def cuts(root: Path) -> list[tuple[Path, int]]:
    """Every file cut at each boundary of what it holds, and in between."""
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        size, family = path.stat().st_size, path.relative_to(root).parts[0]
        match family:
            case "commitlog":
                bounds = flip_store.record_bounds(path.read_bytes(), int(path.name))
                places = {*bounds, *(bound + 50 for bound in bounds), size - 1}
            case "consumequeue":
                places = {*range(0, size, 20), *range(7, size, 20)}
            case "index":
                places = {0, 20, 40, 41, 50, 60, *range(60, size, 80), size - 1}
            case "checkpoint" | "config":
                places = {0, 8, size // 2, size - 1}
            case _:
                continue
        found += [(path, place) for place in sorted(places) if place < size]
    return found


def test_truncated_files_are_reported_or_cost_nothing(stores: dict[bool, Path], tmp_path: Path):
    """Some cuts take only what nothing uses, or what a start makes anew; verify may leave those."""
    root, copy = stores[False], tmp_path / "store"
    with rocketlake.open_store(root, read_only=True) as store:
        whole = bodies(store)
    chosen = cuts(root)
    if not TAKES_ALL:
        chosen = random.Random(SEED).sample(chosen, len(chosen) // 2)

    def work(tell: forks.Tell) -> None:
        for path, size in chosen:
            tell(f"{path} cut to {size}")
            renew(root, copy)
            damaged = copy / path.relative_to(root)
            os.truncate(damaged, size)
            is_seen, is_whole = True, False
            try:
                with rocketlake.open_store(copy, read_only=True) as store:
                    found = bodies(store)
                    assert found <= whole
                    is_whole = found == whole
                is_seen = is_reported(copy)
            except RocketLakeError:
                assert is_seen
            assert is_seen or is_whole, f"{path} cut to {size}: verify is content"
            tell(f"{is_seen} {open_and_use(copy, whole)}")

    answers = ended_well(forks.run(work))
    assert len(answers) == len(chosen)
    assert sum(answer.startswith("True") for answer in answers) > len(answers) // 2
    assert any(answer.endswith(" open") for answer in answers)
