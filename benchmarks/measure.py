"""Timing: the best, or the median, of interleaved rounds, so that both sides share the noise."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

SCALE = "ROCKETLAKE_BENCH_SCALE"
"""Variable with the part of the usual counts that is measured; 0.001 shows only that it runs."""


@dataclass(frozen=True)
class Figure:
    """One measured number and what was wanted of it, if anything was."""

    name: str
    measured: float
    wanted: float | None
    unit: str
    at_most: bool = False
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        if self.wanted is None:
            return True
        if self.at_most:
            return self.measured <= self.wanted
        return self.measured >= self.wanted

    def line(self) -> str:
        wanted = verdict = ""
        if self.wanted is not None:
            wanted = f"{'<=' if self.at_most else '>='} {_number(self.wanted)} {self.unit}"
            verdict = "ok" if self.is_ok else "short"
        measured = f"{_number(self.measured)} {self.unit}"
        return f"{self.name:<24} {measured:>18} {wanted:>20}  {verdict:<5}  {self.detail}".rstrip()

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "ok": self.is_ok}


@dataclass(frozen=True)
class Skipped:
    """A number that could not be measured here."""

    name: str
    why: str

    def line(self) -> str:
        return f"{self.name:<24} skipped: {self.why}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


Result = Figure | Skipped


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def best_of(rounds: int, *sides: Callable[[], object]) -> list[float]:
    """Return the least seconds each side took, the sides taking turns."""
    least = [float("inf")] * len(sides)
    for _ in range(rounds):
        for i, side in enumerate(sides):
            begin = time.perf_counter()
            side()
            least[i] = min(least[i], time.perf_counter() - begin)
    return least


def medians(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median of what each side measured, the sides taking turns."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            os.sync()  # what one side left to write is no load on the next
            found[name].append(side())
    return {name: statistics.median(values) for name, values in found.items()}


def scaled(count: int, *, least: int = 1) -> int:
    """Return how many of the usual number are measured in this run."""
    return max(least, round(count * float(os.environ.get(SCALE, "1"))))
