"""The power-cut laboratory below the file system.

python tests/crash/blocks/power_cut_lab.py --images 1000 --seed 7     several devices and modes
python tests/crash/blocks/power_cut_lab.py --again DIR                the images of a failed device

A workload runs on a file system whose block writes are logged. Images of the device are cut from
that log, each is mounted and its store is opened and judged. The order of block writes depends on
the machine, so a seed repeats the steps of a workload but not its log: the log of a device whose
images fail is kept, and `--again` judges its images as they were.
"""

import argparse
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from block_images import Cut, choose_cuts, images
from block_judge import judge
from block_log import Disk, Entry, Flush, Write, read_block_log
from block_promises import Acked, AnyEvent, Failed, promises_at, read_events
from block_workload import MODES, STEPS, Task, forget_syncs, work
from logged_device import SIZES, LoggedDevice, Mounted, lacking, own_mounts, unmount
from msgspec import Struct, field, json, structs

KINDS = ("ext4", "xfs")
COUNT = 400
WORKS_S = 180.0
_MEMORY = Path("/dev/shm")


class Plan(Struct, frozen=True):
    """One device."""

    seed: str
    kind: str
    mode: str
    steps: int
    images: int
    without: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    """Block entries before the workload, and when it ended."""


class Report(Struct):
    """What a run saw."""

    devices: int = 0
    images: int = 0
    writes: int = 0
    flushes: int = 0
    acknowledged: int = 0
    checked: int = 0
    """Promises held against images: messages, delayed ones, ends of queues."""
    fates: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        fates = ", ".join(f"{name} {count}" for name, count in sorted(self.fates.items()))
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        return (
            f"{self.devices} devices, {self.writes} block writes, {self.flushes} flushes,"
            f" {self.acknowledged} puts acknowledged\n"
            f"{self.images} images ({kinds}; {fates}), {self.checked} promises checked,"
            f" {len(self.failures)} images failed"
        )


class PowerCutLab:
    """Runs devices one after the other; images of a device in several processes."""

    def __init__(self, place: Path, processes: int, *, syncs: bool) -> None:
        self._place = place
        self._syncs = syncs
        self._processes = processes
        self.report = Report()

    def run_device(self, number: int, plan: Plan) -> None:
        """Run a workload on a new device and judge its images."""
        place = self._place / f"device-{number}-{plan.kind}-{plan.mode}"
        first, last = self._record(place, plan)
        plan = structs.replace(plan, first=first, last=last)
        (place / "plan.json").write_bytes(json.encode(plan))
        if self.judge_device(place):
            shutil.rmtree(place)

    def judge_device(self, place: Path, only: str | None = None) -> bool:
        """Judge the images of a device whose log is there; return whether all are well."""
        plan = json.decode((place / "plan.json").read_bytes(), type=Plan)
        entries = read_block_log(place)[: plan.last]
        events = read_events((place / "events.json").read_bytes())
        self._count(entries, events)
        cuts = choose_cuts(entries, plan.first, plan.images, random.Random(f"{plan.seed}/cuts"))
        cuts = [cut for cut in cuts if only in {None, str(cut)}]
        failed = [e.text for e in events if isinstance(e, Failed)]
        for cut, text in self._judge_all(place, plan, entries, events, cuts):
            failed.append(
                f"image {cut}: {text}\nagain: python tests/crash/blocks/power_cut_lab.py"
                f" --again {place} --image {cut}"
            )
        self.report.failures += [f"{place.name}, seed {plan.seed}: {text}" for text in failed]
        return not failed

    def _record(self, place: Path, plan: Plan) -> tuple[int, int]:
        with LoggedDevice(place, plan.kind) as device:
            first = device.counter.now()
            task = Task(
                plan.seed, plan.mode, device.root / "store", place, plan.steps, plan.without
            )
            child = os.fork()
            if child == 0:
                if not self._syncs:
                    forget_syncs()
                work(task)
            _wait(child, WORKS_S)
            last = device.counter.now()
        return first, last

    def _judge_all(
        self,
        place: Path,
        plan: Plan,
        entries: list[Entry],
        events: list[AnyEvent],
        cuts: list[Cut],
    ) -> Iterator[tuple[Cut, str]]:
        is_sync = plan.mode == "sync"
        free = [place / f"slot-{number}" for number in range(self._processes)]
        running: dict[int, tuple[Cut, Path]] = {}
        for cut, disk in images(Disk.load(place / "base.image"), entries, cuts):
            if not free:
                yield from self._reap(running, free)
            slot = free.pop()
            promises = promises_at(cut.at, events, is_sync=is_sync)
            self.report.checked += len(promises.places) + len(promises.late) + len(promises.ends)
            self.report.images += 1
            for counts, key in ((self.report.fates, cut.fate), (self.report.kinds, plan.kind)):
                counts[key] = counts.get(key, 0) + 1
            child = os.fork()
            if child == 0:
                _judge_image(slot, disk, plan, promises)
            running[child] = cut, slot
        while running:
            yield from self._reap(running, free)

    def _reap(
        self, running: dict[int, tuple[Cut, Path]], free: list[Path]
    ) -> Iterator[tuple[Cut, str]]:
        child, status = os.wait()
        cut, slot = running.pop(child)
        text = (slot / "failure").read_text(encoding="utf-8") if status else ""
        if (slot / "mounted").is_mount():
            unmount(slot / "mounted")
        shutil.rmtree(slot)
        free.append(slot)
        if status:
            yield cut, text or f"the judge ended with {status}"

    def _count(self, entries: list[Entry], events: list[AnyEvent]) -> None:
        report = self.report
        counts = Counter(type(entry) for entry in entries)
        report.devices += 1
        report.writes += counts[Write]
        report.flushes += counts[Flush]
        report.acknowledged += sum(isinstance(event, Acked) for event in events)


def _judge_image(slot: Path, disk: Disk, plan: Plan, promises: object) -> None:
    """Run in a fork; never returns."""
    code = 1
    slot.mkdir()
    (slot / "failure").touch()
    try:
        disk.save(slot / "image", SIZES[plan.kind])
        with Mounted(plan.kind, slot / "image", slot / "mounted") as root:
            options = Task(plan.seed, plan.mode, root, slot, 0).options
            judge(root / "store", promises, options)
        code = 0
    except ExceptionGroup as group:
        text = "".join(f"\n  {_last_line(error)}" for error in group.exceptions)
        (slot / "failure").write_text(text, encoding="utf-8")
    except BaseException as error:  # noqa: BLE001 - all of it is told
        (slot / "failure").write_text(repr(error), encoding="utf-8")
    os._exit(code)


def _last_line(error: Exception) -> str:
    """Return what is wrong, without the frames that a fork adds."""
    return [line for line in str(error).splitlines() if line.strip()][-1]


def _wait(child: int, seconds: float) -> None:
    """Wait for a process; end it when it takes too long."""
    deadline_s = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise OSError(f"the workload did not end within {seconds} s")
        time.sleep(0.01)


def make_plans(
    seed: int, count: int, per_device: int, sorts: list[tuple[str, str]]
) -> Iterator[Plan]:
    """Go through sorts of devices, which are file systems and modes, until there are enough."""
    number = 0
    while count > 0:
        kind, mode = sorts[number % len(sorts)]
        yield Plan(f"{seed}/{number}", kind, mode, COUNT, min(per_device, count))
        count -= per_device
        number += 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="cut the power below the file system")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--per-device", type=int, default=34)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--place", type=Path, help="where devices are made; memory without it")
    parser.add_argument("--again", type=Path, help="judge the images of this device")
    parser.add_argument("--image", help="only this image of it")
    parser.add_argument("--kinds", default=",".join(KINDS), help="file systems")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--without", default="", help=f"steps to leave out: {', '.join(STEPS)}")
    parser.add_argument(
        "--without-sync", action="store_true", help="a store that syncs nothing: images must fail"
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON, on the last line")
    chosen = parser.parse_args(arguments)
    chosen.without = [*filter(None, chosen.without.split(","))]
    if unknown := {*chosen.without} - {*STEPS}:
        parser.error(f"unknown steps: {', '.join(sorted(unknown))}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Run and report; 1 if a promise was broken, 3 if this machine has no such device."""
    chosen = _parse(arguments)
    wanted = chosen.kinds.split(",")
    kinds = [kind for kind in wanted if not lacking(kind)]
    if not kinds:
        sys.stdout.write(f"a logged block device needs {lacking(wanted[0])}\n")
        return 3
    own_mounts()
    seed = random.SystemRandom().randrange(1 << 31) if chosen.seed is None else chosen.seed
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    place = chosen.place or chosen.again
    place = place or Path(tempfile.mkdtemp(prefix="rocketlake-cuts-", dir=memory))
    lab = PowerCutLab(place, chosen.processes, syncs=not chosen.without_sync)
    gc.freeze()
    if chosen.again:
        lab.judge_device(chosen.again, chosen.image)
    else:
        sys.stdout.write(f"seed {seed}, on {' and '.join(kinds)}, devices under {place}\n")
        sorts = [(kind, mode) for kind in kinds for mode in chosen.modes.split(",")]
        plans = make_plans(seed, chosen.images, chosen.per_device, sorts)
        for number, plan in enumerate(plans):
            lab.run_device(number, structs.replace(plan, without=tuple(chosen.without)))
            sys.stdout.write(f"{lab.report.images} images, {len(lab.report.failures)} failed\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join([*lab.report.failures, str(lab.report), ""]))
    if chosen.json:
        sys.stdout.write(json.encode(lab.report).decode() + "\n")
    if not lab.report.failures and not chosen.place and not chosen.again:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if lab.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
