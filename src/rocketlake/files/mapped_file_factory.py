"""Where all mapped files come from."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rocketlake.clock import Clock
from rocketlake.errors import FlushFailedError, RocketLakeError
from rocketlake.files.file_traits import LOG_FILES, FilePlace, FileTraits
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.ops import FileOps
from rocketlake.files.write_buffer_pool import LentBuffer

log = logging.getLogger(__name__)


class MappedFileFactory(Protocol):
    """Makes and opens mapped files; replace it to have files of another kind."""

    def create(self, place: FilePlace) -> MappedFile:
        """Make a new file."""
        ...

    def open(self, place: FilePlace) -> MappedFile:
        """Take a file that exists, full as far as anybody knows."""
        ...


class MappedFileMaker:
    """Makes files of one family; those it creates get a write buffer while `lend` has one.

    A file that `kind`, a subclass of MappedFile, cannot make is made as a MappedFile.
    """

    def __init__(
        self,
        ops: FileOps,
        clock: Clock,
        traits: FileTraits = LOG_FILES,
        lend: Callable[[], LentBuffer | None] | None = None,
        *,
        kind: type[MappedFile] = MappedFile,
    ) -> None:
        self._ops = ops
        self._clock = clock
        self._traits = traits
        self._lend = lend
        self._kind = kind
        self._guard = threading.Lock()
        self._unsynced: set[Path] = set()  # directories with names that are not on the disk

    def create(self, place: FilePlace) -> MappedFile:
        """Make a new file.

        Raises:
            DiskFullError: there is no space; nothing is left behind.
        """
        named = set() if self._traits.is_durable else self._named_by(place.path)
        self._ops.mkdirs(place.path.parent, is_durable=self._traits.is_durable)
        lent = self._lend() if self._lend is not None else None
        try:
            file = self._created(place, lent)
        except BaseException:
            if lent is not None:
                lent.give_back()
            raise
        # Order: behind the names. Noted before, they could be synced too early, and be forgotten.
        with self._guard:
            self._unsynced |= named
        return file

    def open(self, place: FilePlace) -> MappedFile:
        """Take a file that exists, full as far as anybody knows; it is mapped when it is needed."""
        return self._make(place, self._kind)

    def _created(self, place: FilePlace, lent: LentBuffer | None) -> MappedFile:
        file = self._make(place, self._kind)
        if type(file) is MappedFile:
            file.create(lent)
            return file
        try:
            file.create(lent)
        except RocketLakeError:
            raise  # Why: a full disk is full for every class
        except Exception as error:  # noqa: BLE001 - whatever the code of another class raises
            self._note_default(place, error)
            self._ops.unlink(place.path)
            file = self._make(place, MappedFile)
            file.create(lent)
        return file

    def _make(self, place: FilePlace, kind: type[MappedFile]) -> MappedFile:
        if kind is not MappedFile:
            try:
                return kind(self._ops, self._clock, place, self._traits)
            except Exception as error:  # noqa: BLE001 - whatever the code of another class raises
                self._note_default(place, error)
        return MappedFile(self._ops, self._clock, place, self._traits)

    def _note_default(self, place: FilePlace, error: Exception) -> None:
        log.warning("MappedFile used path=%s class=%s reason=%r", place.path, self._kind, error)

    def sync_names(self) -> None:
        """Have the names of all files made so far on the disk, and those of their directories.

        Why: files that can be made again get no sync of their own when they are made. Before
        anybody says that what is in them is safe, their names must be.

        Raises:
            FlushFailedError: they may not be there.
        """
        with self._guard:
            places, self._unsynced = self._unsynced, set()
        try:
            for place in sorted(places):
                self._sync_dir(place)
        except FlushFailedError:
            with self._guard:
                self._unsynced |= places
            raise

    def _named_by(self, path: Path) -> set[Path]:
        """Return the directory of a new file, and those of the directories to be made for it."""
        new = {path.parent}
        for place in path.parents:
            if self._ops.stat(place) is not None:
                break
            new.add(place.parent)
        return new

    def _sync_dir(self, place: Path) -> None:
        try:
            self._ops.sync_dir(place)
        except FlushFailedError as error:
            # It was removed meanwhile, and its names with it. Why not look whether it is there: it
            # may have been made again since, which was noted then.
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
