"""Closing: what is closed at the end of a `with` block."""

from abc import abstractmethod
from types import TracebackType
from typing import Self


class Closing:
    """Gives `with` to a class that has `close`."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BaseException:
            # Why again: an exception of a signal handler may have come before `close` did
            # anything. A second call does no harm.
            self.close()
            raise
