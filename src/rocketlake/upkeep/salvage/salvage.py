"""Records that a start cut off, or that are in files without a store: listed, and put again.

1. `<store>/salvage/<time>/` is what a start saved before it cut the log: files named by the offset
   of their first byte, and `salvage.json`. Before that start the same records are in the log,
   behind a bad one.
2. Replaying puts each message again, as a new record at the end of its queue: topic, queue,
   properties, body and birth are those of the old one. One whose unique key the store still has is
   left out, so that a second try repeats nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from rocketlake.clock import Clock, SystemClock
from rocketlake.embedded.store import Store
from rocketlake.errors import PutFailedError, Receipt, StoreError, StoreNotFoundError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format import names
from rocketlake.format.names import parse_offset_name
from rocketlake.format.record import RecordColumns, StoredMessage
from rocketlake.model import properties as property_names
from rocketlake.model import topics
from rocketlake.model.flags import enters_queue
from rocketlake.store.offline import OfflineStore
from rocketlake.store.recovery.salvage import DESCRIPTION, SALVAGE
from rocketlake.upkeep.export.new_file import NewFile
from rocketlake.upkeep.salvage.cut_off import CutOff, find_cut_off
from rocketlake.upkeep.salvage.raw_records import RawFile

_DESCRIPTION_MAX: Final = 1 << 20
_WAITING: Final = frozenset({topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC})
_TOPICS_SHOWN: Final = 1000

OnBytes = Callable[[int], None]


class Description(Struct, frozen=True, kw_only=True):
    """What `salvage.json` says."""

    reason: str = ""
    cut_at: int = 0
    path: str = ""
    position: int = 0
    bytes: int = 0
    first_record: int = 0
    made_by: str = ""
    replayed_at: str | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """What the good records of a source are."""

    records: int
    bytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    topics: dict[str, int]


class RawSource:
    """Files with bytes of a log that belong together: a salvage directory, or what was named."""

    def __init__(
        self,
        ops: FileOps,
        path: Path,
        files: list[RawFile],
        description: Description | None,
        *,
        cut_off: CutOff | None = None,
    ) -> None:
        self._ops = ops
        self.path = path
        self.files = files
        self.description = description
        self.cut_off = cut_off
        """Of a log that was not cut yet: what the next start would cut off."""

    @property
    def size(self) -> int:
        """How many bytes will be read."""
        return sum(file.size for file in self.files)

    @property
    def is_replayed(self) -> bool:
        """Tell whether its messages were put again already."""
        return self.description is not None and self.description.replayed_at is not None

    def records(self, on_bytes: OnBytes | None = None) -> Iterator[RecordColumns]:
        """Yield the good records, in the order of the log."""
        for file in self.files:
            yield from file.records(on_bytes)

    def summary(self, on_bytes: OnBytes | None = None) -> Summary:
        """Count what is there."""
        records = size = 0
        times: list[int] = []
        counts: Counter[str] = Counter()
        for columns in self.records(on_bytes):
            records += len(columns)
            size += int(columns["size"].sum())
            stamps = columns["store_timestamp"]
            times += [int(stamps.min()), int(stamps.max())]
            codes, found = columns.topics()
            for code, count in enumerate(np.bincount(codes, minlength=len(found)).tolist()):
                counts[found[code]] += count
        return Summary(
            records=records,
            bytes=size,
            first_timestamp=min(times, default=None),
            last_timestamp=max(times, default=None),
            topics=dict(counts.most_common(_TOPICS_SHOWN)),
        )

    def mark_replayed(self, moment_ms: int) -> None:
        """Note that its messages were put again, if it has a description."""
        if self.description is None:
            return
        path = self.path / DESCRIPTION
        content: dict[str, Any] = msgspec.json.decode(_read(self._ops, path))
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
        content["replayed_at"] = moment.isoformat("T", "seconds")
        new = NewFile(self._ops, path)
        try:
            new.write(msgspec.json.encode(content) + b"\n")
            new.commit()
        finally:
            new.abandon()


def salvaged(store: Path, ops: FileOps | None = None) -> list[RawSource]:
    """Return what starts of a store have saved, oldest first; unfinished directories left out.

    Raises:
        StoreNotFoundError: there is no such directory.
        StoreError: a description cannot be read.
    """
    ops = ops or PosixFileOps()
    entry = ops.stat(store)
    if entry is None or not entry.is_dir:
        raise StoreNotFoundError(f"no store at {store}: there is no such directory")
    found = []
    for place in ops.entries(store / SALVAGE):
        if place.is_dir and ops.stat(place.path / DESCRIPTION) is not None:
            files = [
                RawFile(ops, file.path)
                for file in ops.entries(place.path)
                if not file.is_dir and parse_offset_name(file.name) is not None
            ]
            found.append(RawSource(ops, place.path, files, _describe(ops, place.path)))
    return found


def uncut_log(view: OfflineStore) -> RawSource | None:
    """Return the log of a store whose next start would cut good records off; None if it would not.

    All good records of the log are in it, those before the cut too, as in `raw_source`.
    """
    cut_off = find_cut_off(view)
    if cut_off is None:
        return None
    ops = view.directory.ops
    files = [RawFile(ops, file.path, file.base_offset) for file in view.log.files]
    return RawSource(ops, files[0].path.parent, files, None, cut_off=cut_off)


def raw_source(path: Path, ops: FileOps | None = None) -> RawSource:
    """Return the log files of a file, of a directory of such, or of a store.

    Raises:
        StoreNotFoundError: there is nothing of that kind.
    """
    ops = ops or PosixFileOps()
    entry = ops.stat(path)
    if entry is None:
        raise StoreNotFoundError(f"nothing to scan at {path}: there is no such file or directory")
    if not entry.is_dir:
        return RawSource(ops, path, [RawFile(ops, path)], None)
    log = path / names.COMMIT_LOG
    place = log if ops.stat(log) is not None else path
    entries = [item for item in ops.entries(place) if not item.is_dir and item.size]
    named = [item for item in entries if parse_offset_name(item.name) is not None]
    files = [RawFile(ops, item.path) for item in named or entries]
    if not files:
        raise StoreNotFoundError(f"nothing to scan at {path}: no files of a commit log are there")
    return RawSource(ops, path, files, None)


def _describe(ops: FileOps, place: Path) -> Description:
    path = place / DESCRIPTION
    try:
        return msgspec.json.decode(_read(ops, path), type=Description)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} cannot be read: {error}; --from {place} does without") from error


def _read(ops: FileOps, path: Path) -> bytes:
    reader = ops.open_reader(path)
    try:
        return reader.read(0, _DESCRIPTION_MAX)
    finally:
        reader.close()


# --- replaying -----------------------------------------------------------------------------------


class ReplayReport(Struct, kw_only=True):
    """The result for the records of a source."""

    put: int = 0
    held: int = 0
    """The store has a message with the same unique key."""
    left_out: int = 0
    """Halves of transactions and the broker's own records."""
    keyless: int = 0
    """Put without a unique key: nothing tells whether the store has them already."""
    refused: int = 0
    first_refusal: str = ""


class Replayer:
    """Puts messages again into an open store."""

    def __init__(self, store: Store, *, force: bool = False, clock: Clock | None = None) -> None:
        """With `force`, messages are put even where the store has one of the same unique key."""
        self._store = store
        self._force = force
        self._clock = clock or SystemClock()

    def replay(self, source: RawSource, on_bytes: OnBytes | None = None) -> ReplayReport:
        """Put the messages of a source, and mark it as done unless one was refused."""
        report = ReplayReport()
        for columns in source.records(on_bytes):
            messages = [m for m in columns.messages() if is_replayable(m)]
            report.left_out += len(columns) - len(messages)
            held = [not self._force and self._is_held(message) for message in messages]
            for message, is_held in zip(messages, held, strict=True):
                if is_held:
                    report.held += 1
                else:
                    self._put(message, report)
        self._store.flush()
        if not report.refused:
            source.mark_replayed(self._clock.now_ms())
        return report

    def _put(self, message: StoredMessage, report: ReplayReport) -> None:
        try:
            reason = _refusal(self._store.put_again(message))
        except ValueError as error:
            reason = str(error)
        except PutFailedError as error:
            reason = _refusal(error.receipt)
        # One that is stored but not on the disk yet counts: `flush` at the end waits for it.
        if not reason:
            report.put += 1
            report.keyless += not message.unique_key
            return
        report.refused += 1
        place = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
        report.first_refusal = report.first_refusal or f"{place}: {reason}"

    def _is_held(self, message: StoredMessage) -> bool:
        key = message.unique_key
        if not key:
            return False
        found = {message.topic, message.properties.get(property_names.REAL_TOPIC, message.topic)}
        return any(
            other.unique_key == key for topic in found for other in self._store.query(topic, key)
        )


def is_replayable(message: StoredMessage) -> bool:
    """Tell whether a record is a message of its own: no half of a transaction, no bookkeeping."""
    if message.topic in _WAITING:
        return True
    return enters_queue(message.sys_flag) and not topics.is_system_topic(message.topic)


def _refusal(receipt: Receipt) -> str:
    """Return why a message was refused; nothing if it is stored."""
    if receipt.physical_offset >= 0:
        return ""
    return f"{receipt.status}{': ' if receipt.reason else ''}{receipt.reason}"
