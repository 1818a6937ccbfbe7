"""The bytes of a store in the form in which two stores are compared.

    bytes_of(ours, log_dirs) == bytes_of(golden.root, golden.log_dirs)

1. A file of the log goes by its directory and name; the filler behind the 8 bytes of a blank
   record is left out, and so are files made in advance (all zero, behind the last one).
2. A queue file goes by its path in the store.
3. An index file goes by its number: its name is the time at which it was made.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketlake.format import layout, names
from rocketlake.format.record import StopReason, scan
from support.golden import GoldenCase, Line

QUEUE_FAMILIES = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE, names.CONSUME_QUEUE_EXT)

Files = dict[str, bytes]


def log_bytes(dirs: Sequence[Path]) -> Files:
    """The files of a commit log by `directory/name`, without filler and files made in advance."""
    paths = sorted((path for place in dirs for path in place.iterdir()), key=lambda path: path.name)
    found = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in paths}
    for name in reversed(list(found)):
        if any(found[name]):
            break
        del found[name]
    return {name: without_filler(data) for name, data in found.items()}


def without_filler(data: bytes) -> bytes:
    """A file of the log, with zeros behind the header of its blank record."""
    ended = scan(data, checks=0, rows_max=1 << 30)
    if ended.reason != StopReason.END_OF_FILE:
        return data
    return data[: ended.position + layout.BLANK_HEADER_SIZE].ljust(len(data), b"\0")


def queue_bytes(root: Path) -> Files:
    """The files of all queues by their paths: plain ones, of batches, and extensions."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for family in QUEUE_FAMILIES
        for path in sorted((root / family).rglob("*"))
        if path.is_file()
    }


def index_bytes(root: Path) -> Files:
    """The index files by their numbers, the oldest being 0."""
    paths = sorted((root / names.INDEX).iterdir()) if (root / names.INDEX).exists() else []
    return {f"index {number}": path.read_bytes() for number, path in enumerate(paths)}


def bytes_of(root: Path, log_dirs: Sequence[Path]) -> Files:
    """Log, queues and index of a store."""
    return {**log_bytes(log_dirs), **queue_bytes(root), **index_bytes(root)}


def damaged(files: Files, case: GoldenCase) -> Files:
    """Do to a store what was done to the golden one after it was written."""
    found = dict(files)
    for damage in case.spec.get("damage", ()):
        if damage["op"] == "delete":
            gone = damage["file"]
            found = {name: data for name, data in found.items() if not name.startswith(gone)}
            continue
        offset = _place(damage, case.puts[damage["put"]])
        base = offset - offset % damage["fileSize"]
        name = f"{names.COMMIT_LOG}/{names.offset_name(base)}"
        found[name] = _changed(found[name], offset - base, damage)
    return found


def _place(damage: Line, answer: Line) -> int:
    begin: int = answer["wroteOffset"] + damage.get("plus", 0)
    return begin + answer["wroteBytes"] if damage.get("from") == "end" else begin


def _changed(data: bytes, at: int, damage: Line) -> bytes:
    match damage["op"]:
        case "flip":
            return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        case "zero":
            return data[:at].ljust(len(data), b"\0")
        case "overwrite":
            new = bytes.fromhex(damage["hex"])
            return data[:at] + new + data[at + len(new) :]
        case other:
            raise ValueError(f"no such damage: {other}")


def differences(ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> list[str]:
    """Say which files only one side has, and where those of both differ first."""
    found = [f"only RocketMQ has {name}" for name in theirs if name not in ours]
    found += [f"only we have {name}" for name in ours if name not in theirs]
    for name in ours.keys() & theirs.keys():
        mine, yours = ours[name], theirs[name]
        if len(mine) != len(yours):
            found.append(f"{name}: {len(mine)} bytes, RocketMQ has {len(yours)}")
        elif mine != yours:
            at = next(i for i in range(len(mine)) if mine[i] != yours[i])
            count = sum(a != b for a, b in zip(mine, yours, strict=True))
            around = slice(max(at - 8, 0), at + 24)
            found.append(
                f"{name} differs in {count} bytes, first at {at}:"
                f" ours {mine[around].hex(' ')}, RocketMQ's {yours[around].hex(' ')}"
            )
    return sorted(found)
