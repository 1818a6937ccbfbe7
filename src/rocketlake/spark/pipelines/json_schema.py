"""The schema of JSON values, from examples, as Spark spells types.

A value that has two types which do not join (a number here, a text there) becomes a string: Spark's
`from_json` keeps the text of whatever it meets there, so nothing is lost.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

_LONG: Final = (-(1 << 63), (1 << 63) - 1)
_DEPTH_MAX: Final = 20


class Plain(Struct, frozen=True):
    """A type without parts; `void` is that of null."""

    name: str


class Array(Struct, frozen=True):
    """A list."""

    item: "Shape"


class Fields(Struct, frozen=True):
    """An object: its fields, in the order in which they were met."""

    fields: dict[str, "Shape"]


Shape = Plain | Array | Fields

VOID: Final = Plain("void")
STRING: Final = Plain("string")


def shape_of(value: object, depth: int = 0) -> Shape:  # noqa: PLR0911 - one a type
    """Return the type of one value."""
    if depth > _DEPTH_MAX:
        return STRING
    match value:
        case None:
            return VOID
        case bool():
            return Plain("boolean")
        case int():
            return Plain("bigint" if _LONG[0] <= value <= _LONG[1] else "string")
        case float():
            return Plain("double")
        case str():
            return STRING
        case list():
            return Array(_joined(shape_of(item, depth + 1) for item in value))
        case dict():
            return Fields(_one_of_each_case(value, depth))
        case _:
            raise AssertionError(f"{type(value)} is no JSON value")


def join(left: Shape, right: Shape) -> Shape:
    """Return the type that holds both."""
    if right in (left, VOID):
        return left
    match left, right:
        case Plain("void"), _:
            return right
        case (Plain("bigint"), Plain("double")) | (Plain("double"), Plain("bigint")):
            return Plain("double")
        case Array(first), Array(second):
            return Array(join(first, second))
        case Fields(first), Fields(second):
            return Fields(_joined_fields(first, second))
        case _:
            return STRING


def type_text(shape: Shape) -> str:
    """Spell a type as Spark's SQL does; what was only ever null is a string."""
    match shape:
        case Plain(name):
            return "string" if name == "void" else name
        case Array(item):
            return f"array<{type_text(item)}>"
        case Fields(fields):
            if not fields:
                return "string"  # Parquet has no objects without fields
            inner = ", ".join(f"{quoted(name)}: {type_text(s)}" for name, s in fields.items())
            return f"struct<{inner}>"


def columns_text(shape: Fields) -> str:
    """Spell the fields of an object as columns."""
    return ", ".join(f"{quoted(name)} {type_text(s)}" for name, s in shape.fields.items())


def quoted(name: str) -> str:
    """Quote a name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def _joined(shapes: Iterable[Shape]) -> Shape:
    found: Shape = VOID
    for shape in shapes:
        found = join(found, shape)
    return found


def _one_of_each_case(value: Mapping[str, Any], depth: int) -> dict[str, Shape]:
    return _joined_fields({}, {name: shape_of(item, depth + 1) for name, item in value.items()})


def _joined_fields(first: Mapping[str, Shape], second: Mapping[str, Shape]) -> dict[str, Shape]:
    """Join fields by name; of names that differ only in case Spark can hold one: the first."""
    found = dict(first)
    spelled = {name.lower(): name for name in found}
    for name, shape in second.items():
        known = spelled.setdefault(name.lower(), name)
        if known == name:
            found[name] = join(found.get(name, VOID), shape)
    return found
