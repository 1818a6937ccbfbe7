"""Damage to a store directory: each kind changes one thing, and says what."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[random.Random, Path], str]
"""Changes a store and returns what was done; nothing if there was nothing to do it to."""


_MAGICS = (bytes.fromhex("daa320a7"), bytes.fromhex("daa320ab"))  # of a record, V1 and V2


def log_files(store: Path) -> list[Path]:
    """The files of the commit log, in order."""
    places = [path for path in store.iterdir() if path.name in {"commitlog", "cl-a", "cl-b"}]
    return sorted((file for place in places for file in place.glob("0*")), key=lambda f: f.name)


def used_log_files(store: Path) -> list[Path]:
    """Those that begin with a record."""
    return [path for path in log_files(store) if any(path.read_bytes()[:8])]


def queue_files(store: Path) -> list[Path]:
    """The files of all plain queues."""
    return sorted((store / "consumequeue").glob("*/*/0*"))


# --- bytes of the log ---------------------------------------------------------------------------


def flip(rng: random.Random, store: Path) -> str:
    """Flip a bit in one of the last two files of the log."""
    path = rng.choice(used_log_files(store)[-2:])
    data = bytearray(path.read_bytes())
    at = rng.randrange(_end(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"a bit of {path.name} at {at}"


def tear(rng: random.Random, store: Path) -> str:
    """Zero the log from somewhere in its last records on."""
    path = used_log_files(store)[-1]
    data = bytearray(path.read_bytes())
    end = _end(data)
    at = rng.randrange(max(end - 400, 0), end)
    data[at:] = bytes(len(data) - at)
    path.write_bytes(data)
    return f"{path.name} from {at} on"


def garbage(rng: random.Random, store: Path) -> str:
    """Write random bytes behind the end of the log."""
    path = used_log_files(store)[-1]
    data = bytearray(path.read_bytes())
    end = _end(data)
    more = rng.randbytes(60)[: len(data) - end]
    data[end : end + len(more)] = more
    path.write_bytes(data)
    return f"{path.name} at {end}"


# --- files of the log ---------------------------------------------------------------------------


def lose_log_file(rng: random.Random, store: Path) -> str:
    """Delete a file in the middle of the log."""
    middle = used_log_files(store)[1:-1]
    return _delete(rng.choice(middle)) if middle else ""


def shorten_log(rng: random.Random, store: Path) -> str:
    """Cut the last file of the log short."""
    path = used_log_files(store)[-1]
    size = rng.randrange(1, path.stat().st_size)
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path.name} to {size} bytes"


def empty_log_file(rng: random.Random, store: Path) -> str:
    """Add an empty file behind the log, as a full disk leaves it."""
    del rng
    last = log_files(store)[-1]
    path = last.with_name(f"{int(last.name) + last.stat().st_size:020d}")
    path.touch()
    return path.name


# --- queues -------------------------------------------------------------------------------------


def lose_queue(rng: random.Random, store: Path) -> str:
    """Delete the directory of one queue."""
    queues = sorted((store / "consumequeue").glob("*/*"))
    return _delete(rng.choice(queues)) if queues else ""


def lose_queues(rng: random.Random, store: Path) -> str:
    """Delete all plain queues."""
    del rng
    return _delete(store / "consumequeue")


def lose_queue_file(rng: random.Random, store: Path) -> str:
    """Delete a file in the middle of a queue."""
    places = {path.parent for path in queue_files(store)}
    middle = [path for place in sorted(places) for path in sorted(place.glob("0*"))[1:-1]]
    return _delete(rng.choice(middle)) if middle else ""


def cut_queue(rng: random.Random, store: Path) -> str:
    """Zero the units of a queue file from one on."""
    files = queue_files(store)
    if not files:
        return ""
    path = rng.choice(files[-3:])
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) // 20) * 20
    data[at:] = bytes(len(data) - at)
    path.write_bytes(data)
    return f"{path.relative_to(store)} from {at} on"


def empty_queue_file(rng: random.Random, store: Path) -> str:
    """Make a file of a queue empty."""
    files = queue_files(store)
    if not files:
        return ""
    path = rng.choice(files)
    path.write_bytes(b"")
    return str(path.relative_to(store))


# --- the rest -----------------------------------------------------------------------------------


def lose_index(rng: random.Random, store: Path) -> str:
    """Delete the index."""
    del rng
    return _delete(store / "index")


def lose_checkpoint(rng: random.Random, store: Path) -> str:
    """Delete the checkpoint."""
    del rng
    return _delete(store / "checkpoint")


def zero_checkpoint(rng: random.Random, store: Path) -> str:
    """Fill the checkpoint with zeros."""
    del rng
    path = store / "checkpoint"
    path.write_bytes(bytes(path.stat().st_size))
    return "all of it"


def foreign_files(rng: random.Random, store: Path) -> str:
    """Put files and directories there that no store has."""
    queues = sorted((store / "consumequeue").glob("*/*"))
    places = [store, store / "consumequeue", store / "index", log_files(store)[0].parent]
    place = rng.choice([*places, *queues[:1]])
    place.mkdir(parents=True, exist_ok=True)
    (place / "lost+found").mkdir()
    names = rng.sample(("README", ".swp", "00000000000000000000.gz"), 2)
    for name in names:
        (place / name).write_bytes(b"no part of the store\n")
    return f"lost+found, {', '.join(names)} in {place.relative_to(store)}"


def _end(data: bytearray) -> int:
    """Where the last record ends."""
    position = 0
    while (size := int.from_bytes(data[position : position + 4], "big")) > 0:
        if data[position + 4 : position + 8] not in _MAGICS:
            break
        position += size
    return position


def _delete(path: Path) -> str:
    if not path.exists():
        return ""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return path.name


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        *(flip, tear, garbage, lose_log_file, shorten_log, empty_log_file),
        *(lose_queue, lose_queues, lose_queue_file, cut_queue, empty_queue_file),
        *(lose_index, lose_checkpoint, zero_checkpoint, foreign_files),
    )
}
