"""Timing: the best of several interleaved rounds, so that both sides of a ratio share the noise."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number and what was wanted of it."""

    name: str
    measured: float
    wanted: float
    unit: str
    at_most: bool = False
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        if self.at_most:
            return self.measured <= self.wanted
        return self.measured >= self.wanted

    def line(self) -> str:
        sign = "<=" if self.at_most else ">="
        verdict = "ok" if self.is_ok else "short"
        measured = f"{_number(self.measured)} {self.unit}"
        wanted = f"{sign} {_number(self.wanted)} {self.unit}"
        return f"{self.name:<24} {measured:>18} {wanted:>20}  {verdict:<5}  {self.detail}".rstrip()

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "ok": self.is_ok}


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
