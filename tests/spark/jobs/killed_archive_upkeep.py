"""Drops and compacts archives in forks that are killed, one at each crash point.

Between the kill and the next run three readers look: one that planned before, one that plans now,
and one that lists the directory. Run by test_archive_upkeep_kills, as killed_archive is.
"""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from archive_parts import Row, archive_here, in_order, read_here
from archive_upkeep_parts import compact_here, many_small_files
from killed_archive import in_fork, keys_of, listed

from rocketlake import failpoint
from rocketlake.spark.jobs.archive.drop import drop_days
from rocketlake.spark.reading.batch_reader import make_reader
from rocketlake.spark.schema import MESSAGE_SCHEMA

BEFORE = "2026-01-01"
STAGES = ("archive_stage", "archive_move")  # a drop writes no file
RETIRED_LATER = {"grace_ms": 3_600_000}
RETIRED_AT_ONCE = {"grace_ms": 0}


def work_of(job: str, grace: dict[str, int]) -> Callable[[Path], object]:
    """Return what is done to an archive."""
    if job == "compact":
        return lambda target: compact_here(target, **grace)
    return lambda target: drop_days(target, BEFORE, **grace)


def plan_read(target: Path) -> Callable[[], list[Row]]:
    """Plan a read of the archive now, for later."""
    reader = make_reader({"archive": str(target), "topicPattern": ".*"}, MESSAGE_SCHEMA)
    parts = reader.partitions()
    return lambda: in_order(
        row for part in parts for batch in reader.read(part) for row in batch.to_pylist()
    )


def killed_run(target: Path, work: Callable[[Path], object], point: str, passes: int) -> None:
    """Work until the point is met."""
    failpoint.switch_on(point, failpoint.kill, passes=passes)
    work(target)


def check(place: Path, job: str, point: str, passes: int, say: int) -> None:
    """Kill a run, and compare what it left, and what the next run makes of it, with what was."""
    store, target = place / "broker-a", place / "archive"
    is_kept = not point.startswith("archive_purge")
    work = work_of(job, RETIRED_LATER if is_kept else RETIRED_AT_ONCE)
    whole = read_here(archive=target, topicPattern=".*")
    kept = [r for r in whole if f"{r['store_timestamp']:%Y-%m-%d}" >= BEFORE]
    after = whole if job == "compact" else kept
    read_before = plan_read(target)
    status = in_fork(killed_run, target, work, point, passes)
    read_between = plan_read(target)
    found = read_between()
    seen = listed(target)
    tests = {
        "a reader that planned before sees the same": not is_kept or read_before() == whole,
        "it is there as a whole or not at all": found in (whole, after),
        "a lister sees no message twice": len(seen) == len(set(seen)),
        "a lister sees no strangers": set(seen) <= set(keys_of(whole)),
    }
    archive_here(store, target)  # cleans up; nothing is new for it
    tests |= {
        "cleaning up changes nothing": read_here(archive=target, topicPattern=".*") == found,
        "a lister sees what a reader does": sorted(listed(target)) == sorted(keys_of(found)),
    }
    work(target)
    tests |= {
        "the next run finishes it": read_here(archive=target, topicPattern=".*") == after,
        "a lister sees all after that": sorted(listed(target)) == sorted(keys_of(after)),
        "a reader that planned between sees the same": not is_kept or read_between() == found,
        "_work is empty": [p.name for p in (target / "_work").iterdir()] == ["lock"],
        "_retired is empty": is_kept or not (target / "_retired").exists(),
    }
    faults = [f"not so: {name}" for name, is_so in tests.items() if not is_so]
    os.write(say, f"killed={os.WIFSIGNALED(status)} {'; '.join(faults) or 'fine'}".encode())


def points_of(job: str) -> list[str]:
    """Return the points that a job meets."""
    points = [p for p in failpoint.ARCHIVE_POINTS if "table" not in p]
    if job == "drop":
        points = [p for p in points if not p.startswith((*STAGES, "archive_settle"))]
    return [*points, *failpoint.ARCHIVE_UPKEEP_POINTS]


def main(root: Path) -> None:
    """Go through every point of both jobs; where files move one by one, at the first and later."""
    if in_fork(partial(many_small_files, runs=3, each=250), root / "first"):
        raise SystemExit("no archive")
    for job in ("drop", "compact"):
        for point in points_of(job):
            by_one = point.startswith(("archive_move", "archive_retire", "archive_purge"))
            for passes in (0, 1) if by_one else (0,):
                place = root / f"{job}-{point}-{passes}"
                shutil.copytree(root / "first", place)
                reading, writing = os.pipe()
                checked = in_fork(check, place, job, point, passes, writing)
                os.close(writing)
                said = os.read(reading, 4096).decode() or "no answer"
                os.close(reading)
                os.write(1, f"{job} {point} {passes} status={checked} {said}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
