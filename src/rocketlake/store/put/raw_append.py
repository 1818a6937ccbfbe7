"""RawAppender: appends the bytes of another log as they are, for a replica [appendToCommitLog].

1. The bytes begin where this log ends; in an empty log, where any file begins.
2. They may end inside a record. Readers and dispatch wait for the rest of it.
3. A damaged record is refused, and so is all that follows it.
"""

from msgspec import Struct

from rocketlake.errors import RocketLakeError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.format import layout
from rocketlake.format.record import Check, StopReason, reason_text, scan
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.put.durability import Durability
from rocketlake.store.role import Role


class RawAppend(Struct, frozen=True):
    """How an append of raw bytes ended."""

    end: int
    """The offset behind the last byte of the log."""
    reason: str | None = None
    """Why not all bytes were appended; None: they were."""

    @property
    def is_whole(self) -> bool:
        """Tell whether all bytes were appended."""
        return self.reason is None


class RawAppender:
    """Appends raw bytes. Thread-safety: any thread; appends take the append lock."""

    def __init__(self, log: CommitLog, durability: Durability, role: Role) -> None:
        self._log = log
        self._durability = durability
        self._role = role
        self._records_end = 0  # where the whole records end that were appended raw
        self._log_end = -1  # where the last append of raw bytes ended
        self._stopped: str | None = None  # why nothing is appended

    def append(self, offset: int, data: bytes | memoryview) -> RawAppend:
        """Append bytes that begin at an offset; wake the flush, dispatch and append listeners.

        A file's end must be the data's end too: blank records come with the data. What was
        appended stays, also after an error: the answer says how far that is.
        """
        with self._log.pause():
            done = self._append(offset, memoryview(data).cast("B"))
        if done.end != offset:
            self._durability.wake_all()
            self._log.note_readable()
        return done

    def _append(self, offset: int, left: memoryview) -> RawAppend:
        files = self._log.files
        refused = self._refuse(offset, len(left))
        if refused is not None:
            return RawAppend(files.wrote_where if files.files else offset, refused)
        if offset != self._log_end:
            self._records_end = offset  # a start or a cut leaves whole records
        try:
            while left:
                last = files.last_file(create_at=offset)
                if last is None:
                    return RawAppend(offset, "a new commit-log file could not be made in time")
                part = left[: last.append_room]
                taken, damage = self._append_part(last, part)
                offset += taken
                if taken:
                    self._log_end = offset
                if damage is not None:
                    return RawAppend(offset, damage)
                left = left[len(part) :]
        except RocketLakeError as error:
            return RawAppend(offset, str(error))
        finally:
            self._log.release_file()
        return RawAppend(offset)

    def _append_part(self, file: MappedFile, part: memoryview) -> tuple[int, str | None]:
        """Append bytes to one file, up to a record that is damaged; say which, if one is.

        Order: looked at before they count. Neither dispatch nor a start ever meets a damaged record
        that came from elsewhere: at a start it would end the log, with all that follows it.
        """
        begin, end = file.wrote, file.wrote + len(part)
        file.reserve(len(part))
        file.buffer[begin:end] = part
        stop, timestamp, damage = self._look_at(file, end)
        taken = len(part) if damage is None else max(stop - begin, 0)
        if taken < len(part):
            file.buffer[begin + taken : end] = bytes(len(part) - taken)
        file.advance(taken)
        if timestamp > 0:
            # Why: once flushed, the checkpoint covers these records.
            file.store_timestamp = timestamp
        if file.is_full and taken and self._log.on_roll is not None:
            self._log.on_roll(file)
        self._records_end = file.base_offset + stop
        return taken, damage

    def _look_at(self, file: MappedFile, end: int) -> tuple[int, int, str | None]:
        """Return where whole records end, the store time of the last, and what is damaged there.

        The time is 0 if no record ends in the bytes since the last append.
        """
        position, timestamp = max(self._records_end - file.base_offset, 0), 0
        reason = StopReason.OK
        while reason is StopReason.OK:
            data, base = file.buffer[position:end], file.base_offset + position
            found = scan(data, base_offset=base, checks=Check.BODY_CRC | Check.OFFSET)
            position, reason = position + found.position, found.reason
            if len(found.columns):
                timestamp = int(found.columns["store_timestamp"][-1])
        claimed = int.from_bytes(file.buffer[position : min(position + 4, end)], "big")
        is_cut = reason is StopReason.TORN and position + claimed <= file.size
        is_short = end - position < layout.BLANK_HEADER_SIZE
        if reason is StopReason.END_OF_FILE or is_cut or is_short:
            return position, timestamp, None
        place = file.base_offset + position
        return position, timestamp, f"the record at {place} is damaged: {reason_text(reason)}"

    def stop(self, reason: str) -> None:
        """Refuse appends; when this returns, none is under way any more."""
        with self._log.pause():
            self._stopped = reason

    def resume(self) -> None:
        """Append again."""
        self._stopped = None

    def _refuse(self, offset: int, size: int) -> str | None:
        files = self._log.files
        reason: str | None = None
        if self._log.is_closed:
            reason = "the store is closed"
        elif self._stopped is not None:
            reason = self._stopped
        elif not self._role.takes_raw:
            reason = (
                "the store takes puts; bytes of another log are for a replica (brokerRole=SLAVE)"
            )
        elif not size:
            reason = "there are no bytes"
        elif files.files and offset != files.wrote_where:
            reason = f"the log ends at {files.wrote_where}, not at {offset}"
        elif not files.files and (offset < 0 or offset % files.file_size):
            reason = f"the log is empty, and no file of {files.file_size} bytes begins at {offset}"
        return reason

    def forget(self) -> None:
        """Take the end of the log for that of a whole record: it was changed in another way."""
        self._log_end = -1
