"""Where all mapped files come from."""

from collections.abc import Callable
from typing import Protocol

from rocketlake.clock import Clock
from rocketlake.files.mapped_file import LOG_FILES, FilePlace, FileTraits, MappedFile, WriteBuffer
from rocketlake.files.ops import FileOps


class MappedFileFactory(Protocol):
    """Makes and opens mapped files; replace it to have files of another kind."""

    def create(self, place: FilePlace) -> MappedFile:
        """Make a new file."""
        ...

    def open(self, place: FilePlace) -> MappedFile:
        """Take a file that exists, full as far as anybody knows."""
        ...


class MappedFileMaker:
    """Makes files of one family; those it creates get a write buffer while `lend` has one."""

    def __init__(
        self,
        ops: FileOps,
        clock: Clock,
        traits: FileTraits = LOG_FILES,
        lend: Callable[[], WriteBuffer | None] | None = None,
    ) -> None:
        self._ops = ops
        self._clock = clock
        self._traits = traits
        self._lend = lend

    def create(self, place: FilePlace) -> MappedFile:
        """Make a new file.

        Raises:
            DiskFullError: there is no space; nothing is left behind.
        """
        self._ops.mkdirs(place.path.parent, is_durable=self._traits.is_durable)
        file = MappedFile(self._ops, self._clock, place, self._traits)
        lent = self._lend() if self._lend is not None else None
        try:
            file.create(lent)
        except BaseException:
            if lent is not None:
                lent.give_back()
            raise
        return file

    def open(self, place: FilePlace) -> MappedFile:
        """Take a file that exists, full as far as anybody knows; it is mapped when it is needed."""
        return MappedFile(self._ops, self._clock, place, self._traits)
