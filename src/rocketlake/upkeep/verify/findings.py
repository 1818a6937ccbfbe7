"""What verify says: faults with their kind, and what the next start does by itself."""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct, field

from rocketlake.store.disk.damage import Finding


class Kind(StrEnum):
    """What sort of thing is wrong; findings are shown by these."""

    LOG_FILE = "log files"
    RECORD = "records"
    LOG_END = "end of the log"
    QUEUE_FILE = "queue files"
    UNIT = "queue units"
    LACKS_UNITS = "messages missing in queues"
    EXTENSION = "queue extensions"
    INDEX = "index"
    LACKS_KEYS = "keys missing in the index"
    CHECKPOINT = "checkpoint"
    TABLE = "config tables"
    PROGRESS = "consumer progress"


class Fault(Finding, frozen=True, kw_only=True):
    """A finding and its kind; in JSON it is a finding."""

    kind: Kind
    about: str = ""
    """The queue (`topic/number`) or the file a repair would have to deal with."""


class Pending(Struct, kw_only=True, rename="camel"):
    """What is unfinished, and what the next start finishes by itself."""

    torn_bytes: int = 0
    not_dispatched: int = 0
    units_to_cut: int = 0
    keys_to_index: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, other: "Pending") -> None:
        """Count what another part of the store adds."""
        self.torn_bytes += other.torn_bytes
        self.not_dispatched += other.not_dispatched
        self.units_to_cut += other.units_to_cut
        self.keys_to_index += other.keys_to_index
        self.notes += [note for note in other.notes if note not in self.notes]


class Ledger:
    """Keeps findings: a bounded list, a count of all, and a listener that receives all."""

    def __init__(
        self, listener: Callable[[Finding], None] | None = None, kept: int = 100_000
    ) -> None:
        self.faults: list[Fault] = []
        self.kinds: Counter[str] = Counter()
        self.pending = Pending()
        self._listener = listener
        self._kept = kept
        self._seen: set[tuple[str, int, str]] = set()

    @property
    def count(self) -> int:
        """How many findings there were."""
        return self.kinds.total()

    def add(self, faults: Iterable[Fault]) -> None:
        """Take findings, each once."""
        for fault in faults:
            place = (fault.path, fault.position, fault.reason)
            if place in self._seen:
                continue
            self.kinds[fault.kind.value] += 1
            if len(self.faults) < self._kept:
                self._seen.add(place)
                self.faults.append(fault)
            if self._listener is not None:
                self._listener(fault)
