"""ReadRules: what decides how far one read of a queue goes, and where the next one begins."""

from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from rocketlake.store.api import PULL_SIZE_MAX, GetRequest, GetStatus
from rocketlake.store.log.memory_window import memory_window
from rocketlake.store.options import BrokerRole, CompatVersion, StoreOptions

NO_LIMIT: Final = 1 << 62
PULL_SIZE_MIN: Final = 100


class Limits(Struct, frozen=True):
    """How much a read may return: messages, the count that ends it in any case, bytes."""

    count_max: int
    count_stop: int
    size_max: int


class ReadRules(Struct, frozen=True, kw_only=True):
    """The options of reading, and the rules that they are for."""

    window: int
    """Bytes at the end of the log that are taken to be in memory."""
    filter_size_max: int
    files_max: int
    in_memory: Limits
    on_disk: Limits
    is_corrected: bool
    """Whether a reader's offset is corrected; a replica does not."""
    corrects_on_replica: bool
    restarts_at_zero: bool

    @classmethod
    def of(cls, options: StoreOptions, memory_size: int | None = None) -> Self:
        """Take the rules from a store's options."""
        is_primary = options.broker_role is not BrokerRole.SLAVE
        return cls(
            window=memory_window(options.access_message_in_memory_max_ratio, memory_size),
            filter_size_max=options.max_filter_message_size,
            files_max=options.travel_cq_file_num_when_get_message,
            in_memory=Limits(
                NO_LIMIT,
                options.max_transfer_count_on_message_in_memory,
                options.max_transfer_bytes_on_message_in_memory,
            ),
            on_disk=Limits(
                NO_LIMIT,
                options.max_transfer_count_on_message_in_disk,
                options.max_transfer_bytes_on_message_in_disk,
            ),
            is_corrected=is_primary or options.offset_check_in_slave,
            corrects_on_replica=options.offset_check_in_slave,
            restarts_at_zero=options.compat_version is CompatVersion.V4_6,
        )

    def for_role(self, *, is_replica: bool) -> "ReadRules":
        """Return the rules for a role."""
        return replace(self, is_corrected=not is_replica or self.corrects_on_replica)

    def refuse_queue(self, offset: int) -> tuple[GetStatus, int]:
        """Return status and next offset where there is no such queue."""
        # Compat: the reference makes a queue that is asked for and says NO_MESSAGE_IN_QUEUE; what
        # follows from the two is the same.
        return GetStatus.NO_MATCHED_LOGIC_QUEUE, self.correct(offset, 0)

    def refuse(self, offset: int, low: int, high: int) -> tuple[GetStatus, int]:
        """Return status and next offset for an offset that a queue from `low` to `high` lacks."""
        if high == 0:
            return GetStatus.NO_MESSAGE_IN_QUEUE, self.correct(offset, 0)
        if offset < low:
            return GetStatus.OFFSET_TOO_SMALL, self.correct(offset, low)
        if offset == high:
            return GetStatus.OFFSET_OVERFLOW_ONE, offset
        # Compat: up to 4.9.3 DefaultMessageStore#getMessage sends a reader back to a queue's begin
        # if that is 0.
        target = 0 if self.restarts_at_zero and low == 0 else high
        return GetStatus.OFFSET_OVERFLOW_BADLY, self.correct(offset, target)

    def correct(self, offset: int, better: int) -> int:
        """Return the offset that a reader should go on with instead of its own."""
        # Compat: as DefaultMessageStore#nextOffsetCorrection; readers of a replica are left alone.
        return better if self.is_corrected else offset

    def stop_offset(self, request: GetRequest, unit_size: int) -> int:
        """Return the queue offset at which looking at units ends, found something or not."""
        # Compat: as DefaultMessageStore#getMessage, which counts bytes of units, counted from
        # the offset that was asked for.
        budget = max(self.filter_size_max, request.max_messages * unit_size)
        return request.offset + -(-budget // unit_size)

    def limits(self, request: GetRequest, *, is_in_memory: bool) -> Limits:
        """Return how much may be returned, of records in memory or on the disk."""
        # Why comparisons: this is half as long as with min and max, and most reads come here.
        count_max, size_max = request.max_messages, request.max_bytes
        if not 0 <= count_max <= NO_LIMIT:
            count_max = 0 if count_max < 0 else NO_LIMIT
        if not PULL_SIZE_MIN <= size_max <= PULL_SIZE_MAX:
            size_max = PULL_SIZE_MIN if size_max < PULL_SIZE_MIN else PULL_SIZE_MAX
        if not request.is_limited:
            return Limits(count_max, NO_LIMIT, size_max)
        bound = self.in_memory if is_in_memory else self.on_disk
        return Limits(
            count_max,
            bound.count_stop,
            size_max if size_max < bound.size_max else bound.size_max,
        )


def is_usual(request: GetRequest) -> bool:
    """Tell whether a request is not limited, and asks for no more or less than there can be."""
    return (
        not request.is_limited
        and 0 < request.max_messages <= NO_LIMIT
        and PULL_SIZE_MIN <= request.max_bytes <= PULL_SIZE_MAX
    )
