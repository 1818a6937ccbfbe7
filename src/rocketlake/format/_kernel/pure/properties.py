"""Property string <-> map."""

from collections.abc import Mapping, Sequence
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
        if keys and "KEYS" not in properties:
            properties["KEYS"] = _keys_text(keys)
        if tags:
            properties.setdefault("TAGS", tags)
    return encode_properties(properties, trailing)


def _keys_text(keys: Sequence[str]) -> str:
    """Join keys; one that would be written as several, or as its characters, is refused."""
    if isinstance(keys, str):
        raise TypeError("keys are a list of texts, not one text")
    text = " ".join(keys)
    if text.count(" ") != len(keys) - 1:
        raise ValueError("a key holds a blank, which separates keys")
    return text


def body_of(value: Any) -> bytes:
    """Take the bytes of a body; bytes() would make some of a number or a list, too."""
    return value if type(value) is bytes else bytes(memoryview(value))


def decode_properties(data: Buffer) -> dict[str, str]:
    """Return the map of a property string; what is not name and value is passed over."""
    found = {}
    for item in bytes(data).split(b"\x02"):
        name, separator, value = item.partition(b"\x01")
        if separator and name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


def find_property(data: bytes, name: bytes) -> str | None:
    """Return one property of a property string, the last of that name; None if there is none."""
    found = None
    for item in data.split(b"\x02"):
        if item.startswith(name + b"\x01") and len(item) > len(name) + 1:
            found = item[len(name) + 1 :]
    return None if found is None else found.decode("utf-8", "replace")
