"""Options: a properties file, a JSON text or a dictionary -> one Struct per role.

1. Keys are the reference's. One source serves several Structs: each key goes to every Struct that
   declares it.
2. A key is *supported* (some Struct declares it), *known but unused* (the reference has it; one
   warning each) or *unknown*, which is an error that names the nearest known key.
3. Values are checked while they are converted; a Struct made here holds no value out of bounds.
"""

import logging
import os
import re
from collections.abc import Mapping
from enum import Enum, EnumMeta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from rocketlake.errors import ConfigError
from rocketlake.known_keys import ALIASES, KNOWN_KEYS
from rocketlake.near_names import nearest_names

log = logging.getLogger(__name__)

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, object]
"""A path, the text of a JSON object, or a mapping."""

A = TypeVar("A", bound=Struct)
B = TypeVar("B", bound=Struct)
C = TypeVar("C", bound=Struct)
D = TypeVar("D", bound=Struct)

_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


@overload
def load(source: Source, a: type[A], /) -> tuple[A]: ...
@overload
def load(source: Source, a: type[A], b: type[B], /) -> tuple[A, B]: ...
@overload
def load(source: Source, a: type[A], b: type[B], c: type[C], /) -> tuple[A, B, C]: ...
@overload
def load(
    source: Source, a: type[A], b: type[B], c: type[C], d: type[D], /
) -> tuple[A, B, C, D]: ...
def load(source: Source, /, *structs: type[Struct]) -> tuple[Struct, ...]:
    """Read options and deal them to the Structs; the answer has an instance of each, in order.

    Raises:
        ConfigError: The source cannot be read, or a key or a value in it is wrong.
    """
    name, values = _read(source)
    declared = _declared_keys(structs)
    for key in _find_unused(values, declared, name):
        log.warning("option known but unused key=%s source=%s", key, name)
    values = _apply_aliases(values, declared)
    return tuple(_build(struct, values, name) for struct in structs)


def names_file(source: Source | None) -> bool:
    """Tell whether a source is a file, as a broker.conf is, and not a text or a mapping."""
    if source is None or isinstance(source, Mapping):
        return False
    return not (isinstance(source, str) and source.lstrip().startswith("{"))


def unused_keys(source: Source, *structs: type[Struct]) -> tuple[str, ...]:
    """Return the keys in a source that the reference knows and none of the Structs declares.

    Raises:
        ConfigError: The source cannot be read, or a key in it is unknown.
    """
    name, values = _read(source)
    return _find_unused(values, _declared_keys(structs), name)


def parse_properties(text: str) -> dict[str, str]:
    r"""Read the text of a Java properties file; of equal keys the last one counts.

    Lines that begin with `#` or `!` are comments. A key ends at `=`, `:` or a blank; a backslash
    before the end of a line joins the next one to it; other escapes are `\t \n \r \f \uXXXX`.

    Raises:
        ConfigError: An escape `\u` is not followed by four hexadecimal digits.
    """
    properties = {}
    for line in _join_lines(text):
        match = _PROPERTY.fullmatch(line)
        assert match is not None, "a line ends in a whole escape"
        key, value = match.groups()
        properties[_unescape(key)] = _unescape(value)
    return properties


def _join_lines(text: str) -> list[str]:
    """Return the lines of a properties file without comments, continued ones joined."""
    lines = []
    pending: str | None = None
    for natural_line in _LINE_END.split(text):
        line = natural_line.lstrip(" \t\f")
        if pending is None and (not line or line.startswith(("#", "!"))):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending = (pending or "") + (line[:-1] if is_continued else line)
        if not is_continued:
            lines.append(pending)
            pending = None
    return lines if pending is None else [*lines, pending]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_replace_escape, text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _replace_escape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code == "u":
        raise ConfigError(rf"malformed \uXXXX in {match.string!r}")
    return _CONTROL_ESCAPES.get(code, code)


def _read(source: Source) -> tuple[str, dict[str, object]]:
    """Return a name for the source, and its keys and values."""
    if isinstance(source, Mapping):
        return "options", dict(source)
    if not names_file(source):
        return "options", _parse_json(str(source))
    path = Path(source)
    try:
        # Compat: for Properties#load the bytes of a file are ISO-8859-1.
        text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("iso-8859-1")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    try:
        return str(path), dict(parse_properties(text))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _parse_json(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"options are no JSON object: {error}") from error


def _declared_keys(structs: tuple[type[Struct], ...]) -> frozenset[str]:
    return frozenset(field.encode_name for struct in structs for field in fields(struct))


def _find_unused(
    values: Mapping[str, object], declared: frozenset[str], source: str
) -> tuple[str, ...]:
    unused = []
    for key in values:
        if key in declared or ALIASES.get(key) in declared:
            continue
        if key not in KNOWN_KEYS:
            raise ConfigError(f"{source}: unknown option {key!r}{_suggest(key, declared)}")
        unused.append(key)
    return tuple(unused)


def _suggest(key: str, declared: frozenset[str]) -> str:
    nearest = nearest_names(str(key), sorted(KNOWN_KEYS | declared))
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _apply_aliases(values: dict[str, object], declared: frozenset[str]) -> dict[str, object]:
    """Rename keys that a Struct declares under their other name; the name itself is stronger."""
    renamed = {
        ALIASES[key]: value
        for key, value in values.items()
        if key not in declared and key in ALIASES
    }
    return renamed | values


def _build(struct: type[A], values: Mapping[str, object], source: str) -> A:
    arguments: dict[str, Any] = {}
    for field in fields(struct):
        if field.encode_name in values:
            arguments[field.name] = _convert(values[field.encode_name], field, source)
        elif field.required:
            raise ConfigError(f"{source}: option {field.encode_name!r} is missing")
    try:
        return struct(**arguments)
    except ValueError as error:  # From __post_init__: values that do not go together.
        raise ConfigError(f"{source}: {error}") from error


def _convert(value: object, field: FieldInfo, source: str) -> object:
    """Turn a value into what a field takes; text stands for numbers and the other way round."""
    if isinstance(value, str):
        value = value.strip()
    error: msgspec.ValidationError | None = None
    for candidate in (value, *_other_spellings(value)):
        try:
            return msgspec.convert(candidate, field.type, strict=False)
        except msgspec.ValidationError as problem:
            error = error or problem
    expected = _list_members(field.type) if isinstance(field.type, EnumMeta) else ""
    raise ConfigError(f"{source}: {field.encode_name} = {value!r}: {error}{expected}") from error


def _list_members(kind: EnumMeta) -> str:
    members: list[Enum] = list(kind)
    return f", expected one of {', '.join(str(member.value) for member in members)}"


def _other_spellings(value: object) -> tuple[object, ...]:
    if isinstance(value, str):
        # Compat: a plus sign and leading zeros are fine for Integer#parseInt.
        return (int(value),) if _WHOLE_NUMBER.fullmatch(value) else ()
    if isinstance(value, bool):
        return (str(value).lower(),)
    if isinstance(value, int | float):
        return (str(value),)
    return (os.fspath(value),) if isinstance(value, os.PathLike) else ()
