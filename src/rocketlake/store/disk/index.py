"""Messages by key: through the index files where they can be trusted, else by scanning the log.

1. A hash is not a key: every record is looked at before it is returned.
2. Parts of the log that no index file surely covers are scanned, with a note for the caller.
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from rocketlake.files.ops import Entry
from rocketlake.format import index as index_format
from rocketlake.format import layout
from rocketlake.format.record import Check, RecordColumns, StoredMessage
from rocketlake.model import flags
from rocketlake.model.hashes import TAG_KEY_PREFIX
from rocketlake.store.disk.damage import Damage, reason_text
from rocketlake.store.disk.log import MISSING, Chunk, LogView, Readers

_PROVE_MAX = 512 << 20  # beyond this a file of unknown shape is not read whole
_EVER = 1 << 62


class KeyQuery(Struct, frozen=True, kw_only=True):
    """Which messages: of a topic (None: any), with a key or unique key, stored in a time range.

    With `is_tag` the key is a tag. RocketMQ has tags in the index from 5.5 on.
    """

    topic: str | None
    key: str
    is_tag: bool = False
    begin: int = 0
    end: int = _EVER
    limit: int = 64

    @property
    def index_key(self) -> str:
        """The key under which the index has the messages."""
        return TAG_KEY_PREFIX + self.key if self.is_tag else self.key

    def wants(self, message: StoredMessage) -> bool:
        """Tell whether a message is one of those asked for."""
        if self.topic is not None and message.topic != self.topic:
            return False
        if not self.begin <= message.store_timestamp <= self.end:
            return False
        if self.is_tag:
            return self.key == message.tags
        return self.key == message.unique_key or self.key in message.keys


class IndexView:
    """One index file; `slots` is None where its shape could not be proven."""

    def __init__(self, entry: Entry, readers: Readers, slots: int | None) -> None:
        self.path = entry.path
        self.size = entry.size
        self._readers = readers
        head = readers.read(entry.path, 0, layout.INDEX_HEADER_SIZE)
        self.header = index_format.IndexHeader.decode(head.ljust(layout.INDEX_HEADER_SIZE, b"\0"))
        self.slots = self._prove(slots)

    def _prove(self, given: int | None) -> int | None:
        """Take the slot count of the chains, the default one, or the one that was given."""
        is_default = self.size == index_format.file_size(
            layout.DEFAULT_INDEX_SLOTS, layout.DEFAULT_INDEX_ENTRIES
        )
        if is_default and given in (None, layout.DEFAULT_INDEX_SLOTS):
            return self._if_it_fits(layout.DEFAULT_INDEX_SLOTS)
        if self.size > _PROVE_MAX:
            return self._if_it_fits(given)
        data = self._readers.read(self.path, 0, self.size)
        if given is not None and index_format.prove_slots(data, given):
            return given
        # Why: chains that prove another count overrule the option; broken chains prove nothing.
        return index_format.find_slots(data) or self._if_it_fits(given)

    def _if_it_fits(self, slots: int | None) -> int | None:
        room = index_format.entries_for(self.size, slots) if slots is not None else None
        return slots if room is not None and self.header.entry_count <= room else None

    def offsets(self, hash_: int, damage: Damage) -> Iterator[int]:
        """Yield the physical offsets of a hash, newest first."""
        if self.slots is None or self.header.entry_count <= 1:
            return
        at = index_format.slot_position(self.slots, hash_)
        number = int.from_bytes(self._readers.read(self.path, at, 4), "big", signed=True)
        while 0 < number <= self.header.entry_count:
            at = index_format.entry_position(self.slots, number)
            data = self._readers.read(self.path, at, layout.INDEX_ENTRY_SIZE)
            if len(data) < layout.INDEX_ENTRY_SIZE:
                damage.report(self.path, at, "a chain of the index leaves its file")
                return
            entry = index_format.IndexEntry.decode(data)
            if entry.key_hash == hash_:
                yield entry.physical_offset
            # Invariant: a chain goes back, so that it has no more entries than the file.
            if entry.previous >= number:
                damage.report(self.path, at, "a chain of the index does not end")
                return
            number = entry.previous


class Coverage(Struct, frozen=True):
    """What index files cover, oldest first, and the parts of the log that must be scanned."""

    files: list[IndexView]
    scans: list[tuple[int, int]]
    notes: list[str]


class KeySearch:
    """Finds messages by key in one log."""

    def __init__(self, log: LogView, log_end: int, damage: Damage, checks: Check) -> None:
        self._log = log
        self._log_end = log_end
        self._damage = damage
        self._checks = checks

    def find(
        self, query: KeyQuery, coverage: Coverage, progress: Callable[[int], None] | None = None
    ) -> list[StoredMessage]:
        """Return the newest messages that match, in the order of the log."""
        found: dict[int, StoredMessage] = {}
        for start, end in sorted(coverage.scans, reverse=True):
            for message in self._scan(query, start, end, progress):
                found[message.physical_offset] = message
        for file in reversed(coverage.files if query.topic is not None else []):
            newer = sum(offset > file.header.end_physical_offset for offset in found)
            if newer >= query.limit:
                break
            self._verify(query, file, found)
        newest = sorted(found)[-query.limit :] if query.limit > 0 else []
        return [found[offset] for offset in newest]

    def _verify(self, query: KeyQuery, file: IndexView, found: dict[int, StoredMessage]) -> None:
        """Look at the records an index file names, newest first, until there are enough."""
        count = 0
        hash_ = index_format.key_hash(query.topic or "", query.index_key)
        seen: set[int] = set()  # a record is read once, however many entries name it
        for offset in file.offsets(hash_, self._damage):
            if offset in seen:
                continue
            seen.add(offset)
            message = found.get(offset) or self.message_at(offset)
            if message is not None and query.wants(message):
                count += offset not in found
                found[offset] = message
                if count >= query.limit:
                    return

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose record begins at an offset; None if no good one does.

        Records behind the end of the log do not count, however good they look.
        """
        if physical_offset >= self._log_end:
            return None
        size = int.from_bytes(self._log.read(physical_offset, 4), "big", signed=True)
        columns, reasons = self._log.gather(
            np.array([physical_offset]), np.array([max(size, 0)]), checks=self._checks
        )
        if reasons[0] == 0:
            return columns.message(0)
        if reasons[0] != MISSING and size > 0:
            path, position = self._log.describe(physical_offset)
            self._damage.report(path, position, reason_text(int(reasons[0])))
        return None

    def _scan(
        self, query: KeyQuery, start: int, end: int, progress: Callable[[int], None] | None
    ) -> Iterator[StoredMessage]:
        """Look at every record of a part of the log that holds the bytes of the key."""
        key = query.key.encode("utf-8", "surrogateescape")
        if end < self._log_end:
            # The record at the very end may have some of its keys in the part before.
            size = int.from_bytes(self._log.read(end, 4), "big", signed=True)
            end = min(end + max(size, 0), self._log_end)
        for step in self._log.walk(start, end, checks=self._checks):
            if not isinstance(step, Chunk):
                path, position = step.file.path, step.file_position
                if not self._log.is_expired(step.physical_offset):
                    self._damage.report(path, position, reason_text(step.reason))
                continue
            for index in _rows_holding(step.columns, key):
                message = step.columns.message(index)
                if is_indexed(message) and query.wants(message):
                    yield message
            if progress is not None:
                progress(int(step.columns["size"].sum()))


def is_indexed(message: StoredMessage) -> bool:
    """Tell whether dispatch gives a message's keys to the index: not those rolled back."""
    return flags.is_indexed(message.sys_flag)


def _rows_holding(columns: RecordColumns, key: bytes) -> Iterator[int]:
    """Yield the rows whose property bytes hold the key somewhere."""
    buffer = columns.buffer
    starts = columns["properties_position"]
    ends = starts + columns["properties_size"]
    data = bytes(buffer)
    at = data.find(key, int(starts[0]))
    last = -1
    while at >= 0:
        row = int(np.searchsorted(starts, at, side="right")) - 1
        if row >= 0 and row != last and at + len(key) <= int(ends[row]):
            yield row
            last = row
        if at >= int(ends[-1]):
            return
        at = data.find(key, at + 1)
