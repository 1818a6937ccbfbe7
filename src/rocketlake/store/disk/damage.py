"""Damage that a reader found and stepped over."""

from collections.abc import Callable

from msgspec import Struct

from rocketlake.format.record import reason_text

__all__ = ["Damage", "Finding", "reason_text"]


class Finding(Struct, frozen=True):
    """One thing that is wrong: where, and what."""

    path: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at {self.position}: {self.reason}"


class Loss(Finding, frozen=True):
    """A finding whose cost is known."""

    size: int = 0
    """How many bytes are passed over; 0: that is not known."""
    messages: int = 0
    """How many messages are surely lost by it."""


class Damage:
    """Collects findings, each once, and passes them to a listener as they come.

    The list is bounded; the count is not.
    """

    def __init__(
        self, listener: Callable[[Finding], None] | None = None, kept: int = 10_000
    ) -> None:
        self.findings: list[Finding] = []
        self.count = 0
        self._seen: set[tuple[str, int]] = set()
        self._listener = listener
        self._kept = kept

    def report(
        self, path: object, position: int, reason: str, *, size: int = 0, messages: int = 0
    ) -> None:
        """Note that something is wrong."""
        place = (str(path), position)
        if place in self._seen:
            return
        self.count += 1
        if len(self.findings) < self._kept:
            finding = Finding(*place, reason)
            if size or messages:
                finding = Loss(*place, reason, size, messages)
            self._seen.add(place)
            self.findings.append(finding)
            if self._listener is not None:
                self._listener(finding)
