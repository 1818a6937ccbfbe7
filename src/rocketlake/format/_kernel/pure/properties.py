"""Property string <-> map."""

from collections.abc import Mapping
from typing import Any

Buffer = bytes | bytearray | memoryview


def encode_properties(
    properties: Mapping[str, str | None],
    trailing: bool,
) -> bytes:
    """Return the property string of a map; `trailing` ends the last property too.

    A property whose value is None is left out.

    Raises:
        ValueError: a name or value holds one of the two separator characters, or a name is empty.
    """
    parts = []
    for name, value in properties.items():
        if value is None:
            continue
        data = name.encode()
        if not data:
            raise ValueError("a property without a name")
        data += b"\x01" + value.encode()
        if data.count(b"\x01") > 1 or b"\x02" in data:
            raise ValueError(f"property {name!r} holds a separator character")
        parts.append(data)
    data = b"\x02".join(parts)
    return data + b"\x02" if parts and trailing else data


def message_properties(message: Any, trailing: bool) -> bytes:
    """Return the property string of a message: its properties, then KEYS and TAGS."""
    properties: Mapping[str, str] = message.properties
    keys, tags = message.keys, message.tags
    if (keys and "KEYS" not in properties) or (tags and "TAGS" not in properties):
        properties = dict(properties)
        if keys:
            properties.setdefault("KEYS", " ".join(keys))
        if tags:
            properties.setdefault("TAGS", tags)
    return encode_properties(properties, trailing)


def decode_properties(data: Buffer) -> dict[str, str]:
    """Return the map of a property string; what is not name and value is passed over."""
    found = {}
    for item in bytes(data).split(b"\x02"):
        name, separator, value = item.partition(b"\x01")
        if separator and name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found
