"""Every exception this package raises on purpose.

RocketLakeError
├── ConfigError                 an option is unknown, malformed or contradicts the files
├── SparkError                  Spark could not do its part, for a reason that is not a store's
└── StoreError
    ├── StoreNotFoundError      the path is no store directory, or may not be read
    ├── StoreClosedError        the store, or a part of it, was closed before
    ├── StoreLockedError        another process, or this one, has the store open
    ├── ArchiveBusyError        retriable: another run works, or has worked, in the archive
    ├── StorePoisonedError      a flush failed; restart and recover
    ├── PutFailedError          a put did not keep its promise; says whether it is stored
    ├── FileAccessError         the machine refused to make, change or remove a file
    │   ├── DiskFullError       retriable: there is no space for it now
    │   └── FlushFailedError    what was written may not have reached the disk; final
    ├── RocksDbError            a RocksDB database of a broker cannot be read
    │   └── RocksDbMissingError the extra that reads them is not installed
    ├── FileSizeError           a file has not the size that its family has
    └── CorruptRecordError      one particular record was asked for and is bad
"""

from typing import Protocol


class RocketLakeError(Exception):
    """Root of the tree; `retriable` tells a retry loop whether to try again."""

    retriable: bool = False


class ConfigError(RocketLakeError):
    """An option is unknown, malformed or contradicts the files."""


class SparkError(RocketLakeError):
    """Spark could not do its part; `details` is all that it said."""

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details


class StoreError(RocketLakeError):
    """Something about a store directory is wrong."""


class StoreNotFoundError(StoreError):
    """The path is no store directory, or it may not be read."""


class RocksDbError(StoreError):
    """A RocksDB database of a broker cannot be read."""


class RocksDbMissingError(RocksDbError):
    """The extra that reads RocksDB databases is not installed."""


class StoreClosedError(StoreError):
    """The store, or a part of it, was closed before."""


class StoreLockedError(StoreError):
    """The store is open already: in the process `holder`, or in one that is not known."""

    def __init__(
        self, path: str, holder: int | None, *, is_own: bool = False, way_out: str = ""
    ) -> None:
        if is_own:
            text = "this process has it open already"
        elif holder is None:
            text = "another process has it open"
        else:
            text = f"process {holder} has it open"
        way_out = way_out or "close it there, or read it beside (read_only=True)"
        self.reason = f"{path} is locked: {text}"
        super().__init__(f"{self.reason}; {way_out}")
        self.path = path
        self.holder = holder
        self.is_own = is_own


class ArchiveBusyError(StoreError):
    """Another run is at work in the archive, or has changed it since this one was planned."""

    retriable = True


class StorePoisonedError(StoreError):
    """A flush failed, so nothing more is accepted; restart and recover."""


class Receipt(Protocol):
    """What an error needs to know of a receipt; `rocketlake.PutReceipt` is one."""

    @property
    def status(self) -> str:
        """How the put ended, in RocketMQ's words."""
        ...

    @property
    def reason(self) -> str:
        """Why it was refused; empty where the status says it all."""
        ...

    @property
    def queue_offset(self) -> int:
        """Offset in the queue; -1 if the message was not appended."""
        ...

    @property
    def physical_offset(self) -> int:
        """Offset in the log; -1 if the message was not appended."""
        ...

    @property
    def msg_id(self) -> str:
        """The id of the message; empty if it was not appended."""
        ...


class PutFailedError(StoreError):
    """A put did not keep its promise.

    `receipt` is what the engine answered; `status` and `reason` are its own. `may_be_stored` tells
    whether the message is in the log all the same: putting it again would then store it twice.
    `retriable` tells whether the same put may succeed later.
    """

    def __init__(
        self, receipt: Receipt, text: str, *, may_be_stored: bool, retriable: bool = False
    ) -> None:
        super().__init__(text)
        self.receipt = receipt
        self.status = receipt.status
        self.reason = receipt.reason
        self.may_be_stored = may_be_stored
        self.retriable = retriable

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes whole: `args` alone has the text only."""
        return _put_failed, (self.receipt, str(self), self.may_be_stored, self.retriable)


def _put_failed(
    receipt: Receipt,
    text: str,
    may_be_stored: bool,  # noqa: FBT001 - pickle passes arguments by position
    retriable: bool,  # noqa: FBT001
) -> PutFailedError:
    return PutFailedError(receipt, text, may_be_stored=may_be_stored, retriable=retriable)


class FileAccessError(StoreError):
    """The machine refused to make, change or remove a file; the `OSError` is the cause."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DiskFullError(FileAccessError):
    """There is no space for `wanted` bytes now; nothing was changed, a later try may succeed."""

    retriable = True

    def __init__(self, path: str, wanted: int, free: int | None) -> None:
        room = "an unknown number" if free is None else str(free)
        super().__init__(path, f"no space left on the disk: {wanted} bytes wanted, {room} free")
        self.wanted = wanted
        self.free = free


class FlushFailedError(FileAccessError):
    """What was written may not have reached the disk, and a second flush would not tell."""


class FileSizeError(StoreError):
    """A file has not the size that its family has."""

    def __init__(self, path: str, *, size: int, expected: int, way_out: str = "") -> None:
        super().__init__(
            f"{path} has {size} bytes, but the files of its directory have {expected}"
            f"{'. ' if way_out else ''}{way_out}"
        )
        self.path = path
        self.size = size
        self.expected = expected


class CorruptRecordError(StoreError):
    """One particular record was asked for and is bad: where it lies and why."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason
