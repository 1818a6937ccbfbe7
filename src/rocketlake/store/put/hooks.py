"""Calls the hooks of a put, and checks their answers."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt
from rocketlake.store.ports import PutHook
from rocketlake.store.put.field_types import check_batch, check_receipt, check_request

R = TypeVar("R", AppendRequest, BatchRequest)


def show_message(hooks: Iterable[PutHook], request: AppendRequest) -> AppendRequest | PutReceipt:
    """Call the hooks for a message, in order; return what is put, or a refusal.

    Raises:
        TypeError, ValueError: a hook answered with something else, or with a field of another type.
    """
    for hook in hooks:
        answer = hook.before_put(request)
        if answer is None or answer is request:
            continue
        found = _checked(hook, answer, AppendRequest, check_request)
        if isinstance(found, PutReceipt):
            return found
        request = found
    return request


def show_batch(hooks: Iterable[PutHook], batch: BatchRequest) -> BatchRequest | PutReceipt:
    """Call the hooks that take batches; return what is put, or a refusal.

    Raises:
        TypeError, ValueError: a hook answered with something else, or with a field of another type.
    """
    for hook in hooks:
        look = getattr(hook, "before_put_batch", None)
        answer: object = look(batch) if look is not None else None
        if answer is None or answer is batch:
            continue
        found = _checked(hook, answer, BatchRequest, check_batch)
        if isinstance(found, PutReceipt):
            return found
        batch = found
    return batch


def _checked(
    hook: PutHook, answer: object, kind: type[R], check: Callable[[R], None]
) -> R | PutReceipt:
    """Return the answer of a hook; a refusal without a reason names the hook."""
    name = getattr(hook, "name", type(hook).__name__)
    try:
        if isinstance(answer, PutReceipt):
            check_receipt(answer)
            return answer if answer.reason else replace(answer, reason=f"the hook {name!r} said so")
        if isinstance(answer, kind):
            check(answer)
            return answer
    except (TypeError, ValueError) as error:
        raise type(error)(f"answer of the hook {name!r}: {error}") from error
    raise TypeError(
        f"answer of the hook {name!r}: {answer!r} is {type(answer).__name__};"
        f" wanted {kind.__name__}, PutReceipt or None"
    )
