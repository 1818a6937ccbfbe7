"""The kill -9 laboratory: processes write to a store and are killed, again and again.

python tests/crash/killing/laboratory.py --cycles 100 --seed 7              three kinds of store
python tests/crash/killing/laboratory.py --seed 7 --store 3                 one store of a run again

One run goes through many stores, each of them through 25 processes. A process is a fork of this
one, which opens no store itself. It is killed when it has told so many acknowledged messages, at
some moment while it opens the store, or by itself at a crash point. The next one compares the
store with all that was promised, and goes on with it.
"""

import argparse
import gc
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ledger import Acked, AnyEvent, Closed, Done, Inspected, Ledger, Opened, Wrong, decode_event
from msgspec import Struct, field, json, structs
from worker import Task, work

from rocketlake import failpoint

CYCLES_PER_STORE = 25
MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {"flush_disk_type": "ASYNC_FLUSH"},
    "buffers": {
        "flush_disk_type": "ASYNC_FLUSH",
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 3,
    },
}
QUIET_S = 60.0
"""A process that tells nothing for so long hangs."""
_OPENING_S = 0.08
_LOSS = 0.05
_DERIVED = ("consumequeue", "index")
"""What can be made anew from the log; now and then one of them is gone at a start."""
_RARE_STEPS = ("abort", "unabort", "delete", "truncate")
_OPENING_STEPS = ("abort", "truncate", "delete")


class LabError(Exception):
    """A promise was broken; the text has the command that shows it again."""


class Report(Struct):
    """What a run saw."""

    cycles: int = 0
    acknowledged: int = 0
    consumed: int = 0
    inspected: int = 0
    killed_opening: int = 0
    closed: int = 0
    lost: int = 0
    lost_bytes: int = 0
    lost_max: int = 0
    appeared: int = 0
    split_batches: int = 0
    points: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        points = ", ".join(f"{name} {count}" for name, count in sorted(self.points.items()))
        return (
            f"{self.cycles} processes, {self.closed} of them closed their store,"
            f" {self.killed_opening} were killed while they opened it;"
            f" {self.inspected} comparisons\n"
            f"{self.acknowledged} puts acknowledged, {self.consumed} messages consumed;"
            f" {self.appeared} messages there that were not acknowledged,"
            f" {self.split_batches} batches of them in part\n"
            f"lost with write buffers: {self.lost} messages of {self.lost_bytes} bytes,"
            f" at most {self.lost_max} at once\n"
            f"killed at points: {points or 'none'}"
        )


class Laboratory:
    """Runs stores of one kind after another, and counts."""

    def __init__(self, place: Path, seed: int, modes: list[str]) -> None:
        self._place = place
        self._seed = seed
        self._modes = modes
        self.report = Report()

    def run(self, cycles: int) -> Report:
        """Go through so many processes."""
        number = 0
        while self.report.cycles < cycles:
            self.run_store(number, min(CYCLES_PER_STORE, cycles - self.report.cycles))
            number += 1
        return self.report

    def run_store(self, number: int, cycles: int = CYCLES_PER_STORE) -> None:
        """Go through the processes of one store.

        Raises:
            LabError: A promise was broken; the store is left as it is.
        """
        mode = self._modes[number % len(self._modes)]
        seed = f"{self._seed}/{number}/{mode}"
        root = self._place / f"store-{number}-{mode}"
        ledger = Ledger()
        options = make_options(seed, mode)
        later_ms = 0
        for cycle in range(cycles + 1):
            rng = random.Random(f"{seed}/plan/{cycle}")
            is_last = cycle == cycles
            later_ms += 3_600_000 if is_last else rng.randrange(900)
            task = make_task(rng, seed, root, cycle, options)
            task = structs.replace(task, later_ms=later_ms, is_last=is_last)
            if cycle % 2 and not is_last:
                visit = (number // len(self._modes) * CYCLES_PER_STORE + cycle) // 2
                points = points_of(mode)
                task = at_point(task, points[visit % len(points)], rng)
                if visit < len(points):
                    task = structs.replace(task, passes=0)
            if rng.random() < _LOSS:
                shutil.rmtree(root / rng.choice(_DERIVED), ignore_errors=True)
            try:
                self._run_process(task, ledger, rng)
            except LabError as error:
                raise LabError(
                    f"{error}\nstore {number} ({mode}), process {cycle}, at {root}\n"
                    f"{task}\nagain: python tests/crash/killing/laboratory.py"
                    f" --seed {self._seed} --modes {','.join(self._modes)} --store {number}"
                ) from None
            self.report.cycles += not is_last
        shutil.rmtree(root)

    def _run_process(self, task: Task, ledger: Ledger, rng: random.Random) -> None:
        ledger.begin(task.writers)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            work(task, ledger, writing)
        os.close(writing)
        wants_kill = task.point is None and not task.is_last
        ending = _Ending(child, reading, rng if wants_kill else None, task.puts)
        events = ending.events()
        os.close(reading)
        _, status = os.waitpid(child, 0)
        self._count(task, events, is_killed=os.WIFSIGNALED(status))
        for event in events:
            if isinstance(event, Wrong):
                raise LabError(event.text)
            if isinstance(event, Done):
                place = event.topic, event.queue_id, event.queue_offset
                if ledger.places.get(place, event.name) != event.name:
                    raise LabError(f"{place} was {ledger.places[place]}, consumed: {event.name}")
            ledger.note(task.cycle, event)
        ledger.end(task.cycle)
        if ending.is_hung:
            raise LabError(f"the process told nothing for {QUIET_S} s")
        is_expected = (
            os.WTERMSIG(status) == signal.SIGKILL if os.WIFSIGNALED(status) else status == 0
        )
        if not is_expected or (task.is_last and not isinstance(events[-1], Closed)):
            raise LabError(f"the process ended with status {status}")

    def _count(self, task: Task, events: list[AnyEvent], *, is_killed: bool) -> None:
        report = self.report
        report.acknowledged += sum(isinstance(event, Acked) for event in events)
        report.consumed += sum(isinstance(event, Done) for event in events)
        report.closed += any(isinstance(event, Closed) for event in events)
        report.killed_opening += not any(isinstance(event, Opened) for event in events)
        if task.point is not None and is_killed:
            report.points[task.point] = report.points.get(task.point, 0) + 1
        for event in events:
            if isinstance(event, Inspected):
                report.inspected += 1
                report.lost += len(event.lost)
                report.lost_bytes += event.lost_bytes
                report.lost_max = max(report.lost_max, len(event.lost))
                report.appeared += len(event.places)
                report.split_batches += event.split_batches


class _Ending:
    """Reads what a process tells, and kills it when its time has come."""

    def __init__(self, child: int, pipe: int, rng: random.Random | None, puts: int) -> None:
        self._child = child
        self._pipe = pipe
        self._is_killed = rng is None
        self._acks = -1
        self._opening_s = 0.0
        self.is_hung = False
        if rng is not None:
            if rng.random() < 0.15:
                self._opening_s = rng.uniform(0, _OPENING_S)
            else:
                self._acks = int(puts * rng.random() ** 2)

    def events(self) -> list[AnyEvent]:
        found: list[AnyEvent] = []
        acks, rest = 0, b""
        poll = select.poll()
        poll.register(self._pipe)
        begin_s = time.monotonic()
        while True:
            if not self._is_killed and self._acks < 0:
                left_s = begin_s + self._opening_s - time.monotonic()
                if left_s <= 0 or not poll.poll(left_s * 1000):
                    self._kill()
                    continue
            elif not poll.poll(QUIET_S * 1000):
                self.is_hung = True
                self._kill()
            data = os.read(self._pipe, 1 << 16)
            if not data:
                return found
            *lines, rest = (rest + data).split(b"\n")
            found += map(decode_event, lines)
            acks += sum(line.startswith(b'["acked"') for line in lines)
            if not self._is_killed and (acks >= self._acks >= 0) and found:
                self._kill()

    def _kill(self) -> None:
        self._is_killed = True
        os.kill(self._child, signal.SIGKILL)


def make_options(seed: str, mode: str) -> dict[str, Any]:
    """Options of a store: small files and short intervals, so that much happens in little time."""
    rng = random.Random(f"{seed}/options")
    return {
        "mapped_file_size_commit_log": rng.choice((16 << 10, 64 << 10)),
        "mapped_file_size_consume_queue": rng.choice((400, 4000)),
        "max_hash_slot_num": 40,
        "max_index_num": rng.choice((60, 1000)),
        "flush_interval_commit_log": 5,
        "flush_commit_log_thorough_interval": rng.choice((5, 1000)),
        "commit_interval_commit_log": rng.choice((2, 20)),
        "commit_commit_log_thorough_interval": 5,
        "flush_interval_consume_queue": 5,
        "flush_consume_queue_thorough_interval": rng.choice((10, 1000)),
        "flush_consumer_offset_interval": 5,
        "flush_delay_offset_interval": 5,
        "timer_wheel_enable": rng.random() < 0.4,
        "timer_flush_interval_ms": 5,
        "timer_precision_ms": 100,
        "enabled_append_prop_crc": rng.random() < 0.3,
        **MODES[mode],
    }


def points_of(mode: str) -> list[str]:
    """The crash points that a killed process of a store of this kind can meet."""
    # A kill tears no record apart from those behind it: there is nothing to salvage.
    left_out = ("salvage.",) if mode == "buffers" else ("salvage.", "commit.")
    return [point for point in failpoint.POINTS if not point.startswith(left_out)]


def make_task(
    rng: random.Random, seed: str, root: Path, cycle: int, options: dict[str, Any]
) -> Task:
    """Decide what a process does and how it ends."""
    return Task(
        seed=seed,
        root=root,
        cycle=cycle,
        options=options,
        later_ms=0,
        writers=rng.choice((1, 1, 3)),
        puts=rng.choice((20, 60, 120)),
    )


def at_point(task: Task, point: str, rng: random.Random) -> Task:
    """Have the process end itself at a crash point."""
    passes = 0 if point.startswith(_RARE_STEPS) else rng.choice((0, 0, 0, 1, 3, 10))
    return structs.replace(
        task,
        point=point,
        passes=passes,
        is_early=point.startswith(_OPENING_STEPS) or rng.random() < 0.3,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run and report; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="kill processes that write to a store")
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--store", type=int, help="only this store of the run")
    parser.add_argument("--json", action="store_true", help="the report as JSON, on the last line")
    parser.add_argument("--place", type=Path, help="where the stores are made")
    chosen = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 31) if chosen.seed is None else chosen.seed
    place = chosen.place or Path(tempfile.mkdtemp(prefix="rocketlake-kills-"))
    lab = Laboratory(place, seed, chosen.modes.split(","))
    gc.collect()
    gc.freeze()
    sys.stdout.write(f"seed {seed}, stores under {place}\n")
    sys.stdout.flush()
    try:
        if chosen.store is None:
            lab.run(chosen.cycles)
        else:
            lab.run_store(chosen.store)
    except LabError as error:
        sys.stdout.write(f"{error}\n{lab.report}\n")
        return 1
    sys.stdout.write(f"{lab.report}\n")
    if chosen.json:
        sys.stdout.write(json.encode(lab.report).decode() + "\n")
    if not chosen.place:
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
