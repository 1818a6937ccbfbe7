"""Checkpoint and config tables: can they be read, and do they fit what the log holds."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rocketlake.files.json_file import backup_path
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import layout, names
from rocketlake.format.checkpoint import FIELDS_SIZE, Checkpoint
from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import filters, groups, offsets, table, topics
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store import deleted_topics
from rocketlake.upkeep.verify.findings import Fault, Kind

DECODERS: Final[Mapping[str, Callable[[JsonObject], object]]] = {
    topics.FILE_NAME: topics.decode,
    groups.FILE_NAME: groups.decode,
    filters.FILE_NAME: filters.decode,
    offsets.FILE_NAME: offsets.decode,
    offsets.LIGHT_FILE_NAME: offsets.decode_light,
    offsets.DELAY_FILE_NAME: offsets.decode_delay,
    deleted_topics.FILE_NAME: deleted_topics.decode,
}
"""The tables of a store and how they are read."""


def check_checkpoint(
    directory: StoreDir, page: Checkpoint, newest: int | None, log_end: int
) -> Iterator[Fault]:
    """Yield what the checkpoint says that cannot be; `newest` is the last store time there is."""
    path = str(directory.path(names.CHECKPOINT))
    data = directory.read_small(names.CHECKPOINT)
    if data is None:
        return

    def fault(position: int, reason: str) -> Fault:
        return Fault(path, position, reason, kind=Kind.CHECKPOINT, about="checkpoint")

    if len(data) not in (0, layout.CHECKPOINT_SIZE):
        yield fault(len(data), f"the checkpoint has {len(data)} bytes, not 4096")
    if any(data[FIELDS_SIZE:]):
        yield fault(FIELDS_SIZE, "bytes behind the checkpoint's values that are not zero")
    times = (
        ("log was", page.physical_timestamp),
        ("queues were", page.queue_timestamp),
        ("index was", page.index_timestamp),
    )
    for number, (what, time) in enumerate(times):
        if time < 0:
            yield fault(8 * number, f"the checkpoint says that the {what} flushed up to {time}")
        elif newest is not None and time > newest:
            text = f"the checkpoint says that the {what} flushed up to {time}, but the newest"
            yield fault(8 * number, f"{text} record was stored at {newest}")
    places = (
        ("primary's flushed offset", page.primary_flushed_offset),
        ("confirmed offset", page.confirm_offset),
        ("offset of the queues", page.queue_physical_offset),
    )
    for number, (what, offset) in enumerate(places):
        if offset > log_end or offset < -1:
            text = f"the checkpoint's {what} is {offset}, but the log ends at {log_end}"
            yield fault(24 + 8 * number, text)


def check_tables(directory: StoreDir, queue_ends: Mapping[QueueKey, int]) -> Iterator[Fault]:
    """Yield what is wrong with the tables, given where each queue ends."""
    config = directory.path(names.CONFIG)
    for name, decode in DECODERS.items():
        path = config / name
        found = table.find(path, decode, ops=directory.ops)
        if found.problem is not None:
            used = found.source == "backup"
            what = f"the table is read from {backup_path(path).name}: " if used else ""
            reason = f"{what}{found.problem}"
            yield Fault(str(path), 0, reason, kind=Kind.TABLE, about=name)
        if isinstance(found.value, offsets.OffsetTable):
            yield from _progress(str(path), found.value, queue_ends)
        elif isinstance(found.value, offsets.DelayOffsetTable):
            yield from _delay_progress(str(path), found.value, queue_ends)


def _progress(
    path: str, committed: offsets.OffsetTable, queue_ends: Mapping[QueueKey, int]
) -> Iterator[Fault]:
    for progress in committed.progress():
        for queue_id, offset in progress.offsets.items():
            end = queue_ends.get(QueueKey(progress.topic, queue_id))
            where = f"group {progress.group} is at {offset} of {progress.topic}/{queue_id}"
            if end is not None and offset > end:
                reason = f"{where}, which ends at {end}"
                yield Fault(path, 0, reason, kind=Kind.PROGRESS, about="progress")
            elif offset < -1:
                yield Fault(path, 0, where, kind=Kind.PROGRESS, about="progress")


def _delay_progress(
    path: str, delayed: offsets.DelayOffsetTable, queue_ends: Mapping[QueueKey, int]
) -> Iterator[Fault]:
    for level, offset in delayed.offsets.items():
        end = queue_ends.get(QueueKey(SCHEDULE_TOPIC, level - 1))
        if end is not None and offset > end:
            reason = f"delay level {level} is at {offset} of its queue, which ends at {end}"
            yield Fault(path, 0, reason, kind=Kind.PROGRESS, about="progress")
