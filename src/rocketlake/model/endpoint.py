"""Host and port, IPv4 or IPv6, as records carry them."""

import ipaddress
from functools import lru_cache

from msgspec import Struct


class Endpoint(Struct, frozen=True, gc=False):
    """An address of 4 or 16 bytes and a port of 32 bits (the format keeps four bytes for it)."""

    address: bytes
    port: int

    @property
    def is_v6(self) -> bool:
        """Tell whether the address has 16 bytes."""
        return len(self.address) == 16

    def encode(self) -> bytes:
        """Return address and port as a record holds them: 8 or 20 bytes.

        Raises:
            ValueError: the port does not fit into 32 bits.
        """
        if not -0x80000000 <= self.port <= 0x7FFFFFFF:
            raise ValueError(f"port {self.port} does not fit into 32 bits")
        return self.address + self.port.to_bytes(4, "big", signed=True)

    def __str__(self) -> str:
        return _text(self.address, self.port)

    @classmethod
    def decode(cls, data: bytes) -> "Endpoint":
        """Read the 8 or 20 bytes of a record."""
        if len(data) not in (8, 20):
            raise ValueError(f"a host has 8 or 20 bytes, not {len(data)}")
        return cls(bytes(data[:-4]), int.from_bytes(data[-4:], "big", signed=True))

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Read `1.2.3.4:99` or `[2001:db8::1]:99`."""
        host, separator, port = text.rpartition(":")
        if not separator:
            raise ValueError(f"not a host and port: {text!r} (no port)")
        try:
            address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
            return cls(address.packed, int(port))
        except ValueError as error:
            raise ValueError(f"not a host and port: {text!r} ({error})") from error


@lru_cache(maxsize=4096)
def _text(address: bytes, port: int) -> str:
    """Spell an endpoint as the reference prints it: IPv6 in eight groups, none left out."""
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = (f"{int.from_bytes(address[i : i + 2], 'big'):x}" for i in range(0, 16, 2))
    return f"[{':'.join(groups)}]:{port}"


@lru_cache(maxsize=4096)
def host_text(data: bytes) -> str:
    """Spell the 8 or 20 bytes of a record's host."""
    return str(Endpoint.decode(data))
