"""Archives a growing store in forks that are killed, one at each crash point; tells what came out.

Run by test_archive_kills: forks are made before anything starts a thread. Each line on stdout is a
point, whether the fork died there, and what is wrong with what it left.
"""

import os
import shutil
import sys
from pathlib import Path

from archive_parts import GrowingStore, Row, archive_here, read_here

from rocketlake import failpoint

Key = tuple[str, int, int]


def keys_of(rows: list[Row]) -> list[Key]:
    """Name rows by their places."""
    return [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]


def listed(target: Path) -> list[Key]:
    """What a reader sees that knows nothing of the manifest."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - it may start threads

    found: list[Key] = []
    for path in target.rglob("*.parquet"):
        if not any(part.startswith("_") for part in path.relative_to(target).parts):
            topic = path.parent.parent.name.removeprefix("topic=")
            table = pq.read_table(path, columns=["queue_id", "queue_offset"], partitioning=None)
            found += [(topic, r["queue_id"], r["queue_offset"]) for r in table.to_pylist()]
    return found


def in_fork(work: object, *arguments: object) -> int:
    """Do something in a fork; return its status."""
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - a fork ends here, whatever it was
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def killed_run(store: Path, target: Path, point: str, passes: int) -> None:
    """Archive until the point is met."""
    failpoint.switch_on(point, failpoint.kill, passes=passes)
    archive_here(store, target)


def check(store: Path, target: Path, before: int, say: object) -> None:
    """Compare what a kill left, and what the next run makes of it, with the store."""
    whole = read_here(path=store, topicPattern=".*")
    faults = []
    if (target / "_manifest.json").exists():
        joined = read_here(path=store, archive=target, topicPattern=".*")
        if joined != whole:
            faults.append(f"joined {len(joined)} of {len(whole)}")
        alone = read_here(archive=target, topicPattern=".*")
        if len(alone) not in (before, len(whole)):
            faults.append(f"half visible: {len(alone)}")
    seen = listed(target)
    if len(seen) != len(set(seen)):
        faults.append("a lister sees messages twice")
    if not set(seen) <= set(keys_of(whole)):
        faults.append("a lister sees strangers")
    archive_here(store, target)
    if read_here(archive=target, topicPattern=".*") != whole:
        faults.append("the next run did not make it whole")
    if sorted(listed(target)) != sorted(keys_of(whole)):
        faults.append("a lister does not see all after the next run")
    if sorted(p.name for p in (target / "_work").iterdir()) != ["lock"]:
        faults.append("something is left in _work")
    os.write(int(str(say)), ("; ".join(faults) or "fine").encode())


def prepare(place: Path, earlier: int) -> None:
    """Make a store, and an archive of its first messages, if there are to be some."""
    store = GrowingStore(place / "broker-a", mapped_file_size_commit_log=1 << 18)
    if earlier:
        store.grow(earlier)
        archive_here(store.path, place / "archive")
    store.grow(200)


def runs_of(point: str) -> tuple[int, ...]:
    """How much is archived before: a first run differs only where files become visible."""
    return (0, 300) if point.startswith(("archive_commit", "archive_move")) else (300,)


def main(root: Path) -> None:
    """Go through every point, in a first run and in one that has files to rewrite."""
    for earlier in (0, 300):
        if in_fork(prepare, root / f"first-{earlier}", earlier):
            raise SystemExit("no store to archive")
    for number, point in enumerate(p for p in failpoint.ARCHIVE_POINTS if "table" not in p):
        for earlier in runs_of(point):
            place = root / f"{number}-{earlier}"
            shutil.copytree(root / f"first-{earlier}", place)
            store, target = place / "broker-a", place / "archive"
            reading, writing = os.pipe()
            passes = 1 if "move" in point else 0
            status = in_fork(killed_run, store, target, point, passes)
            checked = in_fork(check, store, target, earlier, writing)
            os.close(writing)
            said = os.read(reading, 4096).decode() or "no answer"
            os.close(reading)
            is_killed = os.WIFSIGNALED(status)
            os.write(1, f"{point} {earlier} killed={is_killed} status={checked} {said}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
