"""The families of a store, copied one after the other into a backup."""

from collections.abc import Iterator
from pathlib import Path

from rocketlake.files.ops import Entry, FileOps
from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import names
from rocketlake.format.names import offset_name
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.offline import OfflineStore
from rocketlake.store.recovery.salvage import DESCRIPTION, SALVAGE
from rocketlake.upkeep.backup.files import BackupFiles, Growing


def log_parts(view: OfflineStore, end: int) -> Iterator[Growing]:
    """Yield the files of the log up to its end; one that just begins there is empty."""
    for file in view.log.files:
        if file.base_offset <= end:
            name = f"{names.COMMIT_LOG}/{offset_name(file.base_offset)}"
            yield _growing(view.directory.ops, file, name, end)


class StoreCopier:
    """Copies what a view shows; the log up to a fixed end."""

    def __init__(
        self,
        view: OfflineStore,
        files: BackupFiles,
        end: int,
        *,
        prune: bool,
        as_is: bool = False,
    ) -> None:
        """With `as_is`, log and queues are copied as their files are, behind the end too."""
        self.as_is = as_is
        self._view = view
        self._files = files
        self._end = end
        self._prune = prune
        self._ops = files.ops
        self.pruned = 0
        self.kept = 0

    # --- the log ---------------------------------------------------------------------------------

    def copy_log(self) -> None:
        """Copy the log up to the end; files that expire meanwhile are left out."""
        last = self._view.log.limit if self.as_is else self._end
        wanted = list(log_parts(self._view, last))
        self._files.make_dir(self._files.target / names.COMMIT_LOG)
        for part in wanted:
            if self.as_is and part.base_offset + part.size > self._end:
                self._files.replace(part.source, part.name, is_passing=True)
            else:
                self._files.grow(part)
        first = min((part.name for part in wanted), default="")
        self._drop_others(names.COMMIT_LOG, {part.name for part in wanted}, first)

    # --- queues ----------------------------------------------------------------------------------

    def copy_queues(self) -> None:
        """Copy the units that point into the log; of a queue that was rebuilt, all."""
        held: dict[str, set[str]] = {names.CONSUME_QUEUE: set(), names.BATCH_CONSUME_QUEUE: set()}
        for key, queue in self._view.queues.items():
            family = names.BATCH_CONSUME_QUEUE if queue.kind.is_batch else names.CONSUME_QUEUE
            held[family].add(_queue_name(family, key))
            self._copy_queue(family, key, queue)
        for family, queues in held.items():
            self._drop_queues(family, queues)

    def _copy_queue(self, family: str, key: QueueKey, queue: QueueView) -> None:
        parts = list(_queue_parts(self._ops, _queue_name(family, key), queue, as_is=self.as_is))
        if self.as_is:
            for part in parts:
                self._files.replace(part.source, part.name, is_passing=True)
        elif any(self._files.is_other(part) for part in parts):
            for name in self._names_in(_queue_name(family, key)):
                self._files.forget(name)
        for part in () if self.as_is else parts:
            self._files.grow(part)
        first = min((part.name for part in parts), default="")
        if parts:
            self._drop_others(_queue_name(family, key), {part.name for part in parts}, first)

    def _drop_queues(self, family: str, held: set[str]) -> None:
        """Remove queues that the source does not have, if pruning is wanted."""
        for topic in self._ops.entries(self._files.target / family):
            for queue in self._ops.entries(topic.path):
                place = f"{family}/{topic.name}/{queue.name}"
                if queue.is_dir and place not in held:
                    self._expire(self._names_in(place))
                    self._ops.rmdir(queue.path)
            self._ops.rmdir(topic.path)

    # --- what is copied whole --------------------------------------------------------------------

    def copy_ext(self) -> None:
        """Copy the extension of the queues."""
        directory = self._view.directory
        for queue in directory.queue_dirs(names.CONSUME_QUEUE_EXT):
            place = f"{names.CONSUME_QUEUE_EXT}/{queue.topic}/{queue.queue_id}"
            self._copy_rolling(directory.offset_files(queue.path), place)

    def copy_timer(self) -> None:
        """Copy wheel and log of the timer; the wheel first, which the log can bring forward."""
        directory = self._view.directory
        wheel = directory.path(names.TIMER_WHEEL)
        if self._ops.stat(wheel) is not None:
            self._files.replace(wheel, names.TIMER_WHEEL)
        timer_log = directory.offset_files(directory.path(names.TIMER_LOG))
        self._copy_rolling(timer_log, names.TIMER_LOG)

    def _copy_rolling(self, files: list[OffsetFile], place: str) -> None:
        for file in files:
            name = f"{place}/{file.path.name}"
            is_last = file is files[-1]
            self._files.replace_unless_final(file, name, is_last=is_last)
        if files:
            wanted = {f"{place}/{file.path.name}" for file in files}
            self._drop_others(place, wanted, f"{place}/{files[0].path.name}")

    def copy_salvage(self) -> None:
        """Copy what starts of the source have saved before they cut its log."""
        for place in self._ops.entries(self._view.directory.path(SALVAGE)):
            for file in self._ops.entries(place.path):
                name = f"{SALVAGE}/{place.name}/{file.name}"
                if not file.is_dir:
                    is_kept = file.name != DESCRIPTION and self._files.keep(name, file.size)
                    _ = is_kept or self._files.replace(file.path, name)

    def copy_index(self, *, with_last: bool) -> None:
        """Copy the index files; the last one only if no process writes to it."""
        found = self._view.directory.index_files()
        complete = found if with_last else found[:-1]
        if found:
            self._files.make_dir(self._files.target / names.INDEX)
        wanted = {_index_name(entry) for entry in complete}
        for entry in complete:
            is_last = entry is found[-1]
            self._files.replace_unless_final(entry, _index_name(entry), is_last=is_last)
        for name in self._names_in(names.INDEX):
            known = self._files.former.get(name)
            if name in wanted:
                continue
            if known is None or known.rebuilt or not wanted or name > min(wanted):
                self._files.forget(name)  # it was made here, or is the one that is left out
            else:
                self._expire([name])

    def drop_last_index(self) -> None:
        """Leave out the newest index file after all."""
        for entry in self._view.directory.index_files()[-1:]:
            self._files.forget(_index_name(entry))

    # --- what the source does not have -----------------------------------------------------------

    def _names_in(self, place: str) -> list[str]:
        entries = self._ops.entries(self._files.target / place)
        return [f"{place}/{entry.name}" for entry in entries if not entry.is_dir]

    def _drop_others(self, place: str, wanted: set[str], first: str) -> None:
        """Remove files that do not belong; those before the source's first one have expired."""
        expired = []
        for name in self._names_in(place):
            if name not in wanted:
                if name < first:
                    expired.append(name)
                else:
                    self._files.forget(name)
        self._expire(expired)

    def _expire(self, expired: list[str]) -> None:
        if self._prune:
            for name in expired:
                self._files.forget(name)
            self.pruned += len(expired)
        else:
            self.kept += len(expired)


def _queue_name(family: str, key: QueueKey) -> str:
    return f"{family}/{key.topic}/{key.queue_id}"


def _queue_parts(ops: FileOps, place: str, queue: QueueView, *, as_is: bool) -> Iterator[Growing]:
    """Yield the files of a queue, each up to the last unit that points into the log."""
    end = queue.end_index * queue.kind.unit_size
    for file in queue.files:
        if as_is or file.base_offset < end:
            yield _growing(ops, file, f"{place}/{file.path.name}", end)


def _growing(ops: FileOps, file: OffsetFile, name: str, end: int) -> Growing:
    """Return a file up to an end, in the size that it has now.

    Why: a file that its writer was making when it was listed had only a part of its size; the
    bytes before the end were written when it had all.
    """
    now = ops.stat(file.path)
    size = file.size if now is None else max(file.size, now.size)
    return Growing(file.path, name, size, min(end - file.base_offset, size), file.base_offset)


def _index_name(entry: Entry) -> str:
    return f"{names.INDEX}/{Path(entry.name).name}"
