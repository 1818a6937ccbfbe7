"""ArchiveDir: the directory of an archive, changed by one process at a time, in safe steps.

| # | Step | What a kill leaves |
| --- | --- | --- |
| 1 | executors write files below `_work` | unreferenced files |
| 2 | the manifest names them, with their places | the run belongs to the archive |
| 3 | each file gets its name | files under either name; readers of the manifest try both |
| 4 | the manifest drops the places, `_work` is emptied | nothing to do |

`archive-drop` and `archive-compact` take the same steps. Their manifest names in `retired` the
files that no longer belong to the archive; before step 3 these move below `_retired`, and the first
run after their time deletes them.

The next run, or `recover`, does what is left of 3 and 4, and removes what 1 left.

Invariants:
- A file is replaced under its name only by one that begins with all its messages (step 3 is a
  rename). Merged files leave their place before the file that has their messages gets its name.
  So a program that lists the directory never sees a message twice.
- A reader that has read an older manifest finds the messages it names: under the file's name, or
  below `_retired`.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from rocketlake import failpoint
from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import (
    ArchiveBusyError,
    FileAccessError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
)
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_lock import StoreLock
from rocketlake.metadata.archive_manifest import (
    MANIFEST,
    PARQUET,
    RETIRED,
    WORK,
    Manifest,
    archive_path,
    load_manifest,
    write_manifest,
)


class ArchiveDir:
    """The directory of an archive.

    Thread-safety: one thread.
    """

    def __init__(
        self, path: Path | str, ops: FileOps | None = None, clock: Clock | None = None
    ) -> None:
        self.path = archive_path(path)
        self.ops = ops or PosixFileOps()
        self._clock = clock or SystemClock()

    @property
    def work(self) -> Path:
        """The directory of files that are not part of the archive yet."""
        return self.path / WORK

    def load(self) -> Manifest | None:
        """Read the manifest; None if there is none.

        Raises:
            StoreError: it cannot be read.
        """
        return load_manifest(self.ops, self.path)

    def load_or_begin(self, table_format: str = PARQUET) -> Manifest:
        """Read the manifest, or return that of an empty archive.

        Raises:
            StoreError: the directory holds something else, or an archive of another format.
        """
        found = self.load()
        if found is not None:
            if found.format != table_format:
                raise StoreError(
                    f"{self.path} is an archive in the format {found.format}, not {table_format};"
                    f" name another directory, or format={found.format!r}"
                )
            return found
        entry = self.ops.stat(self.path)
        if entry is not None and not entry.is_dir:
            raise StoreError(f"{self.path} is a file; an archive is a directory")
        strangers = [e.name for e in self.ops.entries(self.path) if e.name[:1] not in "._"]
        if strangers and entry is not None:
            raise StoreError(
                f"{self.path} holds {strangers[0]!r} and no {MANIFEST}: it is not an archive; name"
                " an empty or new directory"
            )
        return Manifest(archive=uuid.uuid4().hex, format=table_format)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out.

        Raises:
            ArchiveBusyError: another run is at work.
            StoreError: the archive cannot be written.
        """
        try:
            self.ops.mkdirs(self.work)
        except (FileAccessError, StoreNotFoundError) as error:
            raise StoreError(f"the archive cannot be written: {error}") from error
        lock = StoreLock(self.ops, self.work)
        try:
            lock.acquire()
        except StoreLockedError as error:
            other = f"process {error.holder}" if error.holder else "another process"
            holder = "this process" if error.is_own else other
            raise ArchiveBusyError(
                f"{self.path}: {holder} is archiving into it; wait until it is done"
            ) from error
        try:
            yield
        finally:
            lock.release()

    # --- the steps -------------------------------------------------------------------------------

    def new_work(self, run: int) -> Path:
        """Make the directory in which executors write the files of a run."""
        path = self.work / f"run-{run:06d}"
        self.ops.mkdirs(path)
        return path

    def commit(self, manifest: Manifest) -> None:
        """Make the files of a run part of the archive, in one atomic step."""
        write_manifest(self.ops, self.path, manifest, "archive_commit")

    def finish_commit(self, manifest: Manifest) -> Manifest:
        """Give the files of a committed run their names; return the resulting manifest."""
        self._retire(manifest)
        is_moved = self._move(manifest)
        now_ms = self._clock.now_ms()
        kept = tuple(entry for entry in manifest.retired if entry.until > now_ms)
        self._purge([entry.path for entry in manifest.retired if entry.until <= now_ms])
        if is_moved or len(kept) < len(manifest.retired):
            files = tuple(structs.replace(file, staged=None) for file in manifest.files)
            manifest = structs.replace(manifest, files=files, retired=kept)
            write_manifest(self.ops, self.path, manifest, "archive_settle")
        self.clear_work()
        return manifest

    def recover(self) -> Manifest | None:
        """Finish the commit of a run that was killed, and remove what it left behind."""
        manifest = self.load()
        if manifest is None:
            self.clear_work()
            return None
        return self.finish_commit(manifest)

    def clear_work(self) -> None:
        """Remove files that no manifest names."""
        for entry in self.ops.entries(self.work):
            if entry.is_dir:
                self._remove_tree(entry.path)
        self.ops.unlink(self.path / f"{MANIFEST}.tmp")

    def _retire(self, manifest: Manifest) -> None:
        """Move files that no longer belong to the archive below `_retired`."""
        left = set()
        for entry in manifest.retired:
            source, target = self.path / entry.path, self.path / RETIRED / entry.path
            if self.ops.stat(source) is None:
                continue  # a run that was killed has moved it
            failpoint.hit("archive_retire.before")
            self.ops.mkdirs(target.parent)
            self.ops.rename(source, target)
            self.ops.sync_dir(target.parent)
            left.add(source.parent)
            failpoint.hit("archive_retire.after")
        for directory in left:
            self.ops.sync_dir(directory)
            self._remove_empty(directory, self.path)

    def _purge(self, paths: Sequence[str]) -> None:
        """Delete retired files.

        Order: before the manifest forgets them, so that a kill leaves none that it does not name.
        """
        root = self.path / RETIRED
        for path in paths:
            failpoint.hit("archive_purge.before")
            self.ops.unlink(root / path)
            self._remove_empty((root / path).parent, self.path)
            failpoint.hit("archive_purge.after")

    def _remove_empty(self, directory: Path, root: Path) -> None:
        """Remove a directory that nothing is left in, and those above it, below a root."""
        while directory != root and self.ops.rmdir(directory):
            directory = directory.parent

    def _move(self, manifest: Manifest) -> bool:
        waiting = [file for file in manifest.files if file.staged is not None]
        directories = set()
        for file in waiting:
            source, target = self.path / str(file.staged), self.path / file.path
            if self.ops.stat(source) is None:
                entry = self.ops.stat(target)
                if entry is None or entry.size != file.bytes:
                    raise StoreError(
                        f"{target} is gone, and so is {source}; the manifest of the archive names"
                        " them: restore the directory from a copy"
                    )
                continue  # a run that was killed has moved it
            failpoint.hit("archive_move.before")
            self.ops.mkdirs(target.parent)
            self.ops.rename(source, target)
            directories.add(target.parent)
            failpoint.hit("archive_move.after")
        for directory in directories:
            self.ops.sync_dir(directory)
        return bool(waiting)

    def _remove_tree(self, path: Path) -> None:
        for entry in self.ops.entries(path):
            if entry.is_dir:
                self._remove_tree(entry.path)
            else:
                self.ops.unlink(entry.path)
        self.ops.rmdir(path)
