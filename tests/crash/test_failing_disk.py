"""A disk that fails: at each sync once, at each place that needs space once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from by_hand import Hands, by_hand
from engine_run import EngineRun
from power_cuts import Laboratory, chances, corners, cuts
from sim_disk import EMPTY
from sim_store import MODES, ROOT

from rocketlake.errors import DiskFullError, FlushFailedError, RocketLakeError, StorePoisonedError

STEPS = 24
NEEDS_SPACE = frozenset({"create", "write", "allocate", "truncate", "mkdir"})


class OneFault:
    """Lets one operation fail: the n-th of some kinds, and so many behind it."""

    def __init__(
        self, kinds: frozenset[str], number: int, fault: Callable[[Path], Exception], count: int = 1
    ) -> None:
        self._kinds = kinds
        self._left = number
        self._fault = fault
        self._count = count
        self.hit: list[str] = []

    def __call__(self, what: str, path: Path) -> None:
        if what not in self._kinds:
            return
        self._left -= 1
        if -self._count < self._left + 1 <= 0:
            self.hit.append(f"{what} {path}")
            raise self._fault(path)

    @property
    def was_reached(self) -> bool:
        """Whether the operation came."""
        return bool(self.hit)


def flush_fault(path: Path) -> Exception:
    return FlushFailedError(str(path), "flush failed: Input/output error")


def space_fault(path: Path) -> Exception:
    return DiskFullError(str(path), 4096, 0)


def begin(mode: str, hands: Hands, seed: object, fault: OneFault) -> EngineRun | None:
    """Open a store on a disk that fails; None if that already does."""
    try:
        return EngineRun(mode, hands, seed, before=fault)
    except RocketLakeError as error:
        if getattr(error, "path", None) is None:
            raise AssertionError("the error names no path") from error
        return None


def check_run(laboratory: Laboratory, run: EngineRun, place: str) -> None:
    """The power goes after the end, and the disk is a good one again."""
    *_, last = cuts(EMPTY, run.disk.journal, run.first)
    for name, fate in {**corners(), **chances(place)}.items():
        laboratory.check(last, fate, run.sent, f"{place}, {name}")
    assert not run.disk.touched_holes


@pytest.mark.parametrize("mode", sorted(MODES))
def test_sync_that_fails(mode, crash_seed):
    """Nothing is acknowledged behind it, and nothing that was is lost."""
    laboratory = Laboratory(mode, crash_seed)
    poisoned = number = 0
    with by_hand() as hands:
        while True:
            fault = OneFault(frozenset({"sync", "sync_dir"}), number, flush_fault)
            run = begin(mode, hands, crash_seed, fault)
            number += 1
            if run is None:
                continue
            errors = run.play_on(STEPS)
            if not fault.was_reached:
                break
            (what,) = fault.hit
            is_poisoned = run.store.parts.log_parts.poison.error is not None
            poisoned += is_poisoned
            if is_poisoned:
                assert any(isinstance(error, StorePoisonedError) for error in errors), what
                assert run.disk.stat(ROOT / "abort") is not None, what
            check_run(laboratory, run, f"fault {number - 1}: {what}")
    assert poisoned > 3
    assert number > 20


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_no_space_at_one_place(mode, count, crash_seed):
    """What cannot be written is refused, or written later; nothing is lost, nothing hangs."""
    laboratory = Laboratory(mode, crash_seed)
    refused = number = 0
    with by_hand() as hands:
        while True:
            fault = OneFault(NEEDS_SPACE, number, space_fault, count)
            run = begin(mode, hands, crash_seed, fault)
            number += 1
            if run is None:
                continue
            run.play_on(STEPS)
            if not fault.was_reached:
                break
            refused += len(run.refused)
            check_run(laboratory, run, f"fault {number - 1}: {fault.hit[0]}")
    assert refused > 0
    assert number > 20
