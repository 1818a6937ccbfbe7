"""What the files of a store say about its options: the sizes it was made with.

1. Files of one family have one size, and their names are multiples of it; most of them win.
2. An empty file, as a crash leaves one, says nothing. So does a file that no option could make.
3. An index file shows its size, but not how much of it is slots: that must be proven.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Final

from rocketlake.files.ops import Entry
from rocketlake.files.store_dir import OffsetFile, StoreDir
from rocketlake.format import index as index_format
from rocketlake.format import layout, names
from rocketlake.store.disk.index import IndexView
from rocketlake.store.disk.log import Readers
from rocketlake.store.options import embedded

_QUEUES_MAX: Final = 32  # as many queues are asked: there may be ten thousand, all alike
_LOG_SIZE_MIN: Final = layout.RECORD_MIN_SIZE + layout.BLANK_HEADER_SIZE
_DEFAULT_INDEX: Final = (layout.DEFAULT_INDEX_SLOTS, layout.DEFAULT_INDEX_ENTRIES)

_INDEX_OPTIONS: Final = {"max_hash_slot_num", "max_index_num"}
_ENTRY_WORDS: Final = layout.INDEX_ENTRY_SIZE // layout.INDEX_SLOT_SIZE
_USUAL_WORDS: Final = 1 + 4 * _ENTRY_WORDS  # a slot and four entries

IndexShape = tuple[int, int]
"""Slots and entries of an index file."""


def find_shape(
    directory: StoreDir, chosen: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the options of `FILE_SHAPE` that the files of a store answer; none in a new store.

    `chosen` are options by their names that a caller has set: where the files leave a choice, it
    is theirs.
    """
    log = directory.log_files()
    timer_log = directory.offset_files(directory.path(names.TIMER_LOG))
    sizes = {
        "mapped_file_size_commit_log": _usual_size(log, size_min=_LOG_SIZE_MIN),
        "mapped_file_size_consume_queue": _usual_size(
            _queue_files(directory, names.CONSUME_QUEUE), unit=layout.UNIT_SIZE
        ),
        "mapper_file_size_batch_consume_queue": _usual_size(
            _queue_files(directory, names.BATCH_CONSUME_QUEUE), unit=layout.BATCH_UNIT_SIZE
        ),
        "mapped_file_size_consume_queue_ext": _usual_size(
            _queue_files(directory, names.CONSUME_QUEUE_EXT)
        ),
        "mapped_file_size_timer_log": _usual_size(timer_log),
    }
    found: dict[str, object] = {name: size for name, size in sizes.items() if size is not None}
    index = _find_index_shape(directory, chosen or {})
    if index is not None:
        found["max_hash_slot_num"], found["max_index_num"] = index
    return found


def _usual_size(files: list[OffsetFile], *, unit: int = 1, size_min: int = 1) -> int | None:
    """Return the size that most names are multiples of and, of several such, most files have.

    None if there is none: a lone file that was cut short has a size, but its name contradicts it.
    """
    counts = Counter(
        file.size
        for file in files
        if size_min <= file.size <= layout.MAX_I32
        and file.size % unit == 0
        and file.base_offset % file.size == 0
    )

    def rank(size: int) -> tuple[int, int, int]:
        return sum(file.base_offset % size == 0 for file in files), counts[size], size

    return max(counts, key=rank, default=None)


def _queue_files(directory: StoreDir, family: str) -> list[OffsetFile]:
    """List the files of a few queues."""
    queues = (
        directory.offset_files(queue.path)
        for topic in directory.ops.entries(directory.path(family))
        if topic.is_dir
        for queue in directory.ops.entries(topic.path)
        if queue.is_dir
    )
    used = (files for files in queues if any(file.size for file in files))
    return list(chain.from_iterable(islice(used, _QUEUES_MAX)))


# --- the index -----------------------------------------------------------------------------------


def _find_index_shape(directory: StoreDir, chosen: Mapping[str, object]) -> IndexShape | None:
    """Return the shape that an index file proves, else one that it allows; the newest is asked."""
    readers = Readers(directory.ops)
    likely = list(_likely_shapes(chosen))
    allowed: IndexShape | None = None
    try:
        for entry in reversed(directory.index_files()):
            if entry.size < layout.INDEX_HEADER_SIZE:
                continue
            file = _IndexFile(entry, readers)
            fitting = [shape for shape in likely if index_format.file_size(*shape) == entry.size]
            proven = next((shape for shape in fitting if file.fits(shape[0])), None)
            proven = proven or file.prove()
            if proven is not None:
                return proven
            allowed = allowed or file.allow(fitting, is_free=not _INDEX_OPTIONS & set(chosen))
    finally:
        readers.close()
    return allowed


def _likely_shapes(chosen: Mapping[str, object]) -> Iterator[IndexShape]:
    """Yield the shapes to try first: the caller's, the reference's, that of small stores."""
    preset = embedded()
    for options in ({**preset, **chosen}, chosen, preset):
        slots = options.get("max_hash_slot_num", layout.DEFAULT_INDEX_SLOTS)
        entries = options.get("max_index_num", layout.DEFAULT_INDEX_ENTRIES)
        if isinstance(slots, int) and isinstance(entries, int):
            yield slots, entries
    yield _DEFAULT_INDEX


class _IndexFile:
    """An index file whose shape is looked for."""

    def __init__(self, entry: Entry, readers: Readers) -> None:
        self._entry = entry
        self._readers = readers
        head = readers.read(entry.path, 0, layout.INDEX_HEADER_SIZE)
        self._header = index_format.IndexHeader.decode(head.ljust(layout.INDEX_HEADER_SIZE, b"\0"))

    def fits(self, slots: int) -> bool:
        """Tell by its first and last entry whether the file has so many slots; few bytes are read.

        Both lie where the slots end, and the last is the newest of its chain.
        """
        room = index_format.entries_for(self._entry.size, slots)
        last = self._header.entries_used
        if room is None or not 0 < last < room:
            return False
        ends = self._entry_at(slots, 1), self._entry_at(slots, last)
        slot = self._readers.read(
            self._entry.path,
            index_format.slot_position(slots, max(ends[1].key_hash, 0)),
            layout.INDEX_SLOT_SIZE,
        )
        return (
            ends[0].previous == 0
            and min(end.key_hash for end in ends) >= 0
            and ends[0].physical_offset == self._header.begin_physical_offset
            and ends[1].physical_offset == self._header.end_physical_offset
            and int.from_bytes(slot, "big", signed=True) == last
        )

    def prove(self) -> IndexShape | None:
        """Return the shape that all chains of the file prove."""
        if self._header.entries_used == 0:
            return None
        slots = IndexView(self._entry, self._readers, None).slots
        entries = index_format.entries_for(self._entry.size, slots) if slots is not None else None
        return (slots, entries) if slots is not None and entries is not None else None

    def allow(self, fitting: list[IndexShape], *, is_free: bool) -> IndexShape | None:
        """Return a shape for a file that proves none, as one without keys or with torn chains.

        Without keys any shape of its size will do; torn chains are made anew. So if the choice is
        free, it is four entries to a slot, as is usual.
        """
        header = self._header
        if fitting or not is_free:
            return fitting[0] if fitting else None
        if not 0 <= header.begin_physical_offset <= header.end_physical_offset:
            return None
        words = (self._entry.size - layout.INDEX_HEADER_SIZE) // layout.INDEX_SLOT_SIZE
        slots = words // _USUAL_WORDS
        slots += (words - slots) % _ENTRY_WORDS
        entries = index_format.entries_for(self._entry.size, slots)
        is_shape = entries is not None and max(header.entry_count, 1) < entries
        return (slots, entries) if entries is not None and is_shape else None

    def _entry_at(self, slots: int, number: int) -> index_format.IndexEntry:
        at = index_format.entry_position(slots, number)
        data = self._readers.read(self._entry.path, at, layout.INDEX_ENTRY_SIZE)
        return index_format.IndexEntry.decode(data.ljust(layout.INDEX_ENTRY_SIZE, b"\0"))
