"""PutFailedError from a receipt: what failed, whether the message is stored, and the way out.

The engine returns a status for every put, as RocketMQ does. Only this module turns a status into an
exception.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.errors import PutFailedError
from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.put.future import OnFailure, PutFuture

_CLOSED: Final = "the store is closed"  # how reasons of the engine end
_FORKED: Final = "the process forked"  # how they begin


class _Advice(Struct, frozen=True):
    """What a caller can do about a status."""

    way_out: str
    retriable: bool = False


_REPLICAS: Final = _Advice(
    "it is stored here; look at the replicas, or open the store with broker_role='ASYNC_MASTER',"
    " which waits for none"
)
_ADVICE: Final[Mapping[PutStatus, _Advice]] = {
    PutStatus.FLUSH_DISK_TIMEOUT: _Advice(
        "store.flush() returns when it is on the disk; sync_flush_timeout is how long a put waits"
    ),
    PutStatus.FLUSH_SLAVE_TIMEOUT: _REPLICAS,
    PutStatus.SLAVE_NOT_AVAILABLE: _REPLICAS,
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: _Advice(
        "put it again when more replicas follow the log", retriable=True
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: _Advice(
        "put it again when the reason is gone", retriable=True
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: _Advice(
        "free space or allow the directory to be written, then put it again", retriable=True
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: _Advice(
        "the disk is too slow for what is put; put it again later", retriable=True
    ),
    PutStatus.MESSAGE_ILLEGAL: _Advice(
        "change the message; for bodies that are too large, open the store with a larger"
        " max_message_size"
    ),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: _Advice(
        "use fewer or shorter properties, and the body for long values"
    ),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: _Advice(
        "choose another deliver_at; timer_max_delay_sec is the limit"
    ),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: _Advice(
        "choose another deliver_at, or put it again later", retriable=True
    ),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: _Advice(
        "open the store with timer_wheel_enable=True, or use delay_level"
    ),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: _Advice(
        "open the store with a larger max_lmq_consume_queue_num (maxLmqConsumeQueueNum), or use"
        " fewer light queues"
    ),
}
_UNKNOWN: Final = _Advice("look at the log of the program")


def put_failure(receipt: PutReceipt, path: Path, topic: str = "") -> PutFailedError:
    """Return the error of a put that did not end with PUT_OK."""
    advice = _ADVICE.get(receipt.status, _UNKNOWN)
    what = f"put to topic {topic!r} of {path}" if topic else f"put to {path}"
    reason = f": {receipt.reason}" if receipt.reason else ""
    if receipt.is_ok:
        state = (
            f"it is stored at offset {receipt.physical_offset} of the log, but the put could not"
            " promise more; putting it again would store it twice"
        )
    else:
        state = "nothing was stored"
    return PutFailedError(
        receipt,
        f"{what} failed with {receipt.status}{reason} ({state}). Way out: {advice.way_out}",
        may_be_stored=receipt.is_ok,
        retriable=advice.retriable and not receipt.is_ok,
    )


def is_of_closed_store(receipt: PutReceipt) -> bool:
    """Tell whether a put was refused because the engine is not open in this process."""
    if receipt.status is not PutStatus.SERVICE_NOT_AVAILABLE:
        return False
    return receipt.reason.endswith(_CLOSED) or receipt.reason.startswith(_FORKED)


def raising(future: Future[PutReceipt], on_failure: OnFailure) -> Future[PutReceipt]:
    """Return a future of the same put that raises if the receipt is not PUT_OK."""
    if isinstance(future, PutFuture):
        future.on_failure = on_failure
        return future
    # A future made by a plug-in.
    answer = PutFuture()
    answer.on_failure = on_failure
    future.add_done_callback(lambda done: _pass_on(done, answer))
    return answer


def _pass_on(done: Future[PutReceipt], answer: PutFuture) -> None:
    error = done.exception()
    if error is None:
        answer.answer(done.result())
    else:
        answer.set_exception(error)
