"""Sweeper: removes staged rows that no commit needs any more."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rocketlake import failpoint
from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import StoreError
from rocketlake.files.ops import Entry, FileOps
from rocketlake.spark.sink.marks import MarkFiles
from rocketlake.spark.sink.plan import WriteKey
from rocketlake.spark.sink.staging import StagedFile

log = logging.getLogger(__name__)

FORGOTTEN_MS: Final = 7 * 24 * 3_600_000
"""The age at which staged rows count as left behind by a job that was killed."""


class Sweeper:
    """Removes staged files; logs a warning for those that cannot be removed.

    Invariants: a file that an intent names is never removed.
    """

    def __init__(self, ops: FileOps, marks: MarkFiles, clock: Clock | None = None) -> None:
        self._ops = ops
        self._marks = marks
        self._clock = clock or SystemClock()

    def sweep(self, key: WriteKey, files: Sequence[StagedFile]) -> None:
        """Remove the files of a finished write, and those that earlier runs of it left."""
        failpoint.hit("sweep.before")
        folders = {Path(file.path).parent for file in files}
        for folder in {folder.parent for folder in folders}:
            if folder.name == replace(key, batch=0).slug:
                folders |= {e.path for e in self._ops.entries(folder) if self._is_past(e, key)}
                self._sweep_forgotten(folder.parent)
        self._remove_folders(folders)
        failpoint.hit("sweep.after")

    def remove(self, files: Sequence[StagedFile], folder: Path | None = None) -> None:
        """Remove files of a failed write, and all others of its run if its folder is given."""
        kept = self._intended()
        for file in files:
            if file.path not in kept:
                self._unlink(Path(file.path))
        folders = {Path(file.path).parent for file in files} | ({folder} if folder else set())
        self._remove_folders(folders if folder is not None else (), kept)
        for path in folders:
            self._rmdir(path)

    def _is_past(self, entry: Entry, key: WriteKey) -> bool:
        """Tell whether a folder belongs to a batch that is done."""
        batch, _, _ = entry.name.partition("-")
        return entry.is_dir and batch.isdigit() and int(batch) <= key.batch

    def _sweep_forgotten(self, staging: Path) -> None:
        oldest = self._clock.now_ms() - FORGOTTEN_MS
        folders = [
            run.path
            for write in self._ops.entries(staging)
            if write.is_dir
            for run in self._ops.entries(write.path)
            if run.is_dir
            and run.mtime_ms < oldest
            and all(entry.mtime_ms < oldest for entry in self._ops.entries(run.path))
        ]
        self._remove_folders(folders)

    def _remove_folders(
        self, folders: Sequence[Path] | set[Path], kept: set[str] | None = None
    ) -> None:
        if not folders:
            return
        kept = self._intended() if kept is None else kept
        for folder in folders:
            for entry in self._ops.entries(folder):
                if not entry.is_dir and str(entry.path) not in kept:
                    self._unlink(entry.path)
            self._rmdir(folder)

    def _intended(self) -> set[str]:
        """Return the files that an intent names."""
        marks = self._marks.pending()
        return {file.path for mark in marks if mark.intent for file in mark.intent.files}

    def _unlink(self, path: Path) -> None:
        try:
            self._ops.unlink(path)
        except StoreError as error:
            log.warning("staged rows not removed path=%s reason=%s", path, error)

    def _rmdir(self, path: Path) -> None:
        try:
            if self._ops.rmdir(path):
                self._ops.rmdir(path.parent)
        except StoreError as error:
            log.warning("folder not removed path=%s reason=%s", path, error)
