"""Types of what callers and hooks hand over; an error names the field, what it got, what it wants.

Checked only where the kernel does not check itself, or has refused already: a good message pays
nothing for the error texts of a bad one.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt, PutStatus, SendFields

Types: TypeAlias = type | tuple[type, ...]

_BUFFERS: Final = (bytes, bytearray, memoryview)
_HOST_SIZES: Final = (8, 20)
_SHOWN: Final = 60


def require_type(field: str, value: object, types: Types, wanted: str = "") -> None:
    """Refuse a value of another type.

    Raises:
        TypeError: names the field.
    """
    if not isinstance(value, types):
        words = wanted or getattr(types, "__name__", str(types))
        raise TypeError(f"{field} = {_short(value)} is {type(value).__name__}; wanted {words}")


def require_number(field: str, value: object, bits: int = 32) -> None:
    """Refuse a value that is not an integer of so many bits.

    Raises:
        TypeError, ValueError: names the field.
    """
    require_type(field, value, int)
    assert isinstance(value, int), "checked"
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{field} = {value} does not fit into {bits} bits")


def check_fields(fields: object) -> None:
    """Refuse an object that is not the fields of a client's message.

    Raises:
        TypeError, ValueError: names the field.
    """
    require_type("fields", fields, SendFields)
    assert isinstance(fields, SendFields), "checked"
    require_type("topic", fields.topic, str)
    require_type("body", fields.body, _BUFFERS, "bytes, bytearray or memoryview")
    require_type("properties", fields.properties, (str, bytes), "str or bytes")
    require_type("born_host", fields.born_host, bytes)
    if len(fields.born_host) not in _HOST_SIZES:
        raise ValueError(
            f"born_host has {len(fields.born_host)} bytes; wanted 8 or 20, an address and a port"
        )
    for name in ("queue_id", "flag", "sys_flag", "reconsume_times"):
        require_number(name, getattr(fields, name))
    require_number("born_timestamp", fields.born_timestamp, bits=64)


def explain(fields: object, error: Exception) -> NoReturn:
    """Raise an error that names the field at fault, or else the given one."""
    check_fields(fields)
    raise error


def check_request(request: AppendRequest) -> None:
    """Refuse a request that has fields of other types.

    Raises:
        TypeError, ValueError: names the field.
    """
    _check_message("message", request.message)
    _check_hosts(request)
    for name in ("queue_id", "sys_flag", "reconsume_times"):
        require_number(name, getattr(request, name))
    for name in ("born_timestamp", "prepared_transaction_offset"):
        require_number(name, getattr(request, name), bits=64)


def check_batch(batch: BatchRequest) -> None:
    """Refuse a batch that has fields of other types.

    Raises:
        TypeError, ValueError: names the field.
    """
    require_type("topic", batch.topic, str)
    require_type("messages", batch.messages, Sequence, "a list of Message")
    for at, message in enumerate(batch.messages):
        _check_message(f"messages[{at}]", message)
    _check_hosts(batch)
    require_number("queue_id", batch.queue_id)
    require_number("sys_flag", batch.sys_flag)
    require_number("born_timestamp", batch.born_timestamp, bits=64)


def check_receipt(receipt: PutReceipt) -> None:
    """Refuse a receipt whose status or reason has another type.

    Raises:
        TypeError: names the field.
    """
    require_type("status", receipt.status, PutStatus)
    require_type("reason", receipt.reason, str)


def _check_message(field: str, message: object) -> None:
    require_type(field, message, Message)
    assert isinstance(message, Message), "checked"
    require_type(f"{field}.topic", message.topic, str)
    require_type(f"{field}.body", message.body, _BUFFERS, "bytes")
    require_type(f"{field}.tags", message.tags, (str, type(None)), "str or None")
    require_type(f"{field}.keys", message.keys, Sequence, "a list of str")
    if isinstance(message.keys, str):
        raise TypeError(f"{field}.keys = {_short(message.keys)} is str; wanted a list of str")
    require_type(f"{field}.properties", message.properties, Mapping, "a dict of str to str")
    for name, value in message.properties.items():
        require_type(f"a name in {field}.properties", name, str)
        require_type(f"{field}.properties[{name!r}]", value, (str, type(None)), "str")
    for name in ("flag", "delay_level"):
        require_number(f"{field}.{name}", getattr(message, name))


def _check_hosts(request: AppendRequest | BatchRequest) -> None:
    require_type("born_host", request.born_host, Endpoint)
    require_type("store_host", request.store_host, (Endpoint, type(None)), "Endpoint or None")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
