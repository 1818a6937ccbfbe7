"""What a caller chose: a file, a JSON text or a mapping, and keyword arguments in snake case.

1. A keyword argument is stronger than the source.
2. Only what was said is a choice; defaults are filled in later, by the Struct.
3. Keys are judged as `config` judges them: supported, known but unused, or unknown; of those
   supported, `unread` lists the ones without effect.
4. A file is a broker's configuration: RocketMQ's defaults go with it. A text, a mapping and keyword
   arguments are a program's.
"""

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import FieldInfo, fields

from rocketlake import config
from rocketlake.errors import ConfigError
from rocketlake.known_keys import ALIASES, KNOWN_KEYS
from rocketlake.near_names import nearest_names
from rocketlake.store.options.unread import UNREAD

log = logging.getLogger(__name__)

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Choice(Struct, frozen=True):
    """Options that were set, by their snake-case names; the values are checked and converted."""

    values: dict[str, Any]
    unused: tuple[str, ...] = ()
    """Keys that were set and that a store does not read."""
    is_broker_conf: bool = False
    """Whether a file was read: a broker's, whose owner expects a broker's defaults."""
    source: str = "options"
    """What messages call the place where the options were set: the file, if one was read."""

    def check_agrees(self, options: Struct, found: Mapping[str, object], *, where: object) -> None:
        """Refuse a choice that contradicts what the files of a store show.

        `options` are those the choice led to: their values are rounded and held in bounds.

        Raises:
            ConfigError: a chosen value is another one than that of the files.
        """
        for field in fields(options):
            if field.name not in self.values or field.name not in found:
                continue
            wanted, real = getattr(options, field.name), found[field.name]
            if wanted != real:
                raise ConfigError(f"{where} has {field.encode_name} = {real}, asked for {wanted}")


def choose(
    struct: type[Struct], source: config.Source | None, keywords: Mapping[str, object]
) -> Choice:
    """Read a source and keyword arguments for a Struct of options.

    Raises:
        ConfigError: the source cannot be read, or a key or a value is wrong.
    """
    sources = [] if source is None else [source]
    if keywords:
        names = _keys_by_name(struct)
        sources.append({_key(name, names): keywords[name] for name in keywords})
    values: dict[str, Any] = {}
    unused: list[str] = []
    for each in sources:
        values |= _read(struct, each)
        unused += config.unused_keys(each, struct)
    keys = {field.name: field.encode_name for field in fields(struct)}
    for name in (name for name in values if name in UNREAD):
        log.warning("option has no effect key=%s reason=%s", keys[name], UNREAD[name])
        unused.append(keys[name])
    is_file = config.names_file(source)
    place = str(source) if is_file else "options"
    if is_file and keywords:
        place += " and keyword arguments"
    return Choice(values, tuple(dict.fromkeys(unused)), is_broker_conf=is_file, source=place)


def _read(struct: type[Struct], source: config.Source) -> dict[str, Any]:
    """Return what a source sets; it is read once, to see what is there and to convert it."""
    seen_struct, typed_struct = _twins(struct)
    seen, typed = config.load(source, seen_struct, typed_struct)
    names = [field.name for field in fields(struct) if getattr(seen, field.name) is not UNSET]
    return {name: getattr(typed, name) for name in names}


@lru_cache
def _twins(struct: type[Struct]) -> tuple[type[Struct], type[Struct]]:
    """Make two Structs with the fields of one: the first takes any value, the second is typed.

    Neither checks whether values go together: those of a source may yet be overruled.
    """
    own = fields(struct)
    seen = [(f.name, object, msgspec.field(default=UNSET, name=f.encode_name)) for f in own]
    typed = [(f.name, f.type, _default(f)) for f in own]
    return (
        msgspec.defstruct(f"{struct.__name__}Seen", seen, kw_only=True),
        msgspec.defstruct(f"{struct.__name__}Typed", typed, kw_only=True),
    )


def _default(info: FieldInfo) -> object:
    return msgspec.field(default=info.default, name=info.encode_name)


@lru_cache
def _keys_by_name(struct: type[Struct]) -> Mapping[str, str]:
    """Return every key that may be given, by the name of its keyword argument."""
    known = {_snake(key): key for key in sorted(KNOWN_KEYS | set(ALIASES))}
    own = {field.name: field.encode_name for field in fields(struct)}
    return MappingProxyType(known | own)


def _snake(key: str) -> str:
    return _WORD_START.sub("_", key).lower()


def _key(name: str, keys: Mapping[str, str]) -> str:
    if name in keys:
        return keys[name]
    nearest = nearest_names(_snake(name), keys)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ConfigError(f"unknown option {name!r}{hint}")
