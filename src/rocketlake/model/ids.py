"""Offset message ids and client-made unique ids."""

import re

from msgspec import Struct

from rocketlake.model.endpoint import Endpoint


class OffsetMessageId(Struct, frozen=True):
    """Where a broker put a message: its address and the physical offset."""

    store_host: Endpoint
    physical_offset: int

    def __str__(self) -> str:
        return offset_message_id(self.store_host.encode(), self.physical_offset)

    @classmethod
    def parse(cls, text: str) -> "OffsetMessageId":
        """Read the 32 (IPv4) or 56 (IPv6) hex digits of an id."""
        data = _from_hex(text, "message id")
        offset = int.from_bytes(data[-8:], "big", signed=True)
        return cls(Endpoint.decode(data[:-8]), offset)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Spell the id of the record at this offset; the host as the record holds it."""
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


class UniqueId(Struct, frozen=True):
    """What a client's unique key says of its maker.

    `since_month_ms` counts from the first day of the month of making, local time; the counter
    and the process id are cut to 16 bits.
    """

    address: bytes
    process_id: int
    loader_hash: int
    since_month_ms: int
    counter: int

    def __str__(self) -> str:
        tail = (self.process_id, 2), (self.loader_hash, 4), (self.since_month_ms, 4)
        parts = [value.to_bytes(size, "big") for value, size in (*tail, (self.counter, 2))]
        return (self.address + b"".join(parts)).hex().upper()

    @classmethod
    def parse(cls, text: str) -> "UniqueId":
        """Read the 32 (IPv4) or 56 (IPv6) hex digits of a unique key."""
        data = _from_hex(text, "unique key")
        tail = data[-12:]
        return cls(
            data[:-12],
            int.from_bytes(tail[0:2], "big"),
            int.from_bytes(tail[2:6], "big"),
            int.from_bytes(tail[6:10], "big"),
            int.from_bytes(tail[10:12], "big"),
        )


_HEX = re.compile(r"[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{24})?")


def _from_hex(text: str, what: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise ValueError(f"not a {what}: {text!r} (32 or 56 hex digits are wanted)")
    return bytes.fromhex(text)
