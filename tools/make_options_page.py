"""Writes docs/operations/options.md from StoreOptions; `--check` only tells whether it is current.

Key, name and default come from the Struct; groups and meanings from the text in its source.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import FieldInfo, fields

from rocketlake.known_keys import ALIASES, KNOWN_KEYS
from rocketlake.store.options import (
    UNREAD,
    CompatVersion,
    OptionReader,
    StoreOptions,
    embedded,
    keeping,
    store_options,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operations" / "options.md"
GROUP = re.compile(r"\s*# --- ([^:]*?)(?:: (.*?))? -+")

HEAD = """\
# Options of a store

Written by `tools/make_options_page.py` from `rocketlake.store.options.StoreOptions`; change that
and run it again.

A program gives options as keyword arguments (`mapped_file_size_commit_log=…`), or a `broker.conf`,
a JSON text or a mapping with RocketMQ's keys (`mappedFileSizeCommitLog`). Keyword arguments are
stronger. Keys without effect are accepted with a warning in the log, and `Store.unused_options`
lists those that were set; keys that RocketMQ does not know are refused, with the nearest name.

Two columns say what holds where an option is not set. *RocketMQ*: its own defaults, with a
`broker.conf` (a file). *Embedded*: with keyword arguments, a JSON text or a mapping, or nothing at
all. Without a path a store is where `storePathRootDir` says; with a `broker.conf` that does not set
it, in RocketMQ's default `~/store`.

Files of a store keep their sizes: one that is opened with other sizes is refused, and with none
named it takes its own.
"""

KEEPING = """\
## Kept messages

A program that sets no option of retention, and opens its store without a `broker.conf`, keeps every
message. Setting one switches its rule on ([retention](retention.md)).
"""

OLDER = """\
## Defaults of older releases

What `compatVersion` changes where an option is not set.
"""

UNREAD_HEAD = """\
## Accepted, but not read by a store

Described above, and without effect on a store in a program. Each gives a warning.
"""

UNUSED = """\
## Known, but unused

RocketMQ has these keys; this store does nothing with them. Each gives a warning.
"""


class Group(NamedTuple):
    """Fields that belong together, with the meaning of each."""

    title: str
    note: str
    meanings: dict[str, str]


def main() -> int:
    page = render()
    if "--check" in sys.argv[1:]:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page
        print(f"{PAGE.name} is {'current' if is_current else 'not current: run this tool'}")
        return 0 if is_current else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


def render() -> str:
    """Return the whole page."""
    infos = {info.name: info for info in fields(StoreOptions)}
    return "\n".join(
        [
            HEAD,
            *(render_group(group, infos) for group in groups()),
            KEEPING,
            table(["Key", "Value"], [[key(infos[n]), text(v)] for n, v in keeping([]).items()]),
            OLDER,
            table(["Key", *CompatVersion], list(older_rows(infos))),
            UNREAD_HEAD,
            table(["Key", "Reader", "Reason"], list(unread_rows(infos))),
            UNUSED,
            unused(infos),
        ]
    )


def groups() -> Iterator[Group]:
    """Read the groups of fields out of the source, in its order."""
    source = inspect.getsource(store_options)
    lines = source.splitlines()
    tree = ast.parse(source)
    body = next(n.body for n in tree.body if getattr(n, "name", "") == StoreOptions.__name__)
    documented = {
        node.lineno: (node.target.id, following.value.value)
        for node, following in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }
    group = None
    for number, line in enumerate(lines, 1):
        if match := GROUP.fullmatch(line):
            if group:
                yield group
            group = Group(match[1].capitalize(), match[2] or "", {})
        elif group and number in documented:
            name, meaning = documented[number]
            group.meanings[name] = meaning
    assert group is not None, "StoreOptions has groups"
    yield group


def render_group(group: Group, infos: dict[str, FieldInfo]) -> str:
    preset = {**keeping([]), **embedded()}
    rows = [
        [
            *(key(infos[name]), f"`{name}`"),
            text(infos[name].default),
            text(preset.get(name, infos[name].default)),
            meaning.replace("|", "\\|") + effect(name),
        ]
        for name, meaning in group.meanings.items()
    ]
    note = f"{group.note[:1].upper()}{group.note[1:]}.\n\n" if group.note else ""
    head = ["Key", "Keyword argument", "RocketMQ", "Embedded", "Meaning"]
    return f"## {group.title}\n\n{note}{table(head, rows)}"


def effect(name: str) -> str:
    """Say that a store does not read an option; nothing if it does."""
    return f" *{str(UNREAD[name].reader).capitalize()}.*" if name in UNREAD else ""


def unread_rows(infos: dict[str, FieldInfo]) -> Iterator[list[str]]:
    for reader in OptionReader:
        for name, found in UNREAD.items():
            if found.reader is reader:
                yield [key(infos[name]), str(reader), found.reason or "-"]


def key(info: FieldInfo) -> str:
    return f"`{info.encode_name}`"


def text(value: object) -> str:
    """Spell a value as a properties file has it."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, Enum) else str(value)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def older_rows(infos: dict[str, FieldInfo]) -> Iterator[list[str]]:
    each = [StoreOptions.from_source(compat_version=version) for version in CompatVersion]
    for name, info in infos.items():
        values = [getattr(options, name) for options in each]
        if name != "compat_version" and len(set(values)) > 1:
            yield [key(info), *map(text, values)]


def unused(infos: dict[str, FieldInfo]) -> str:
    declared = {info.encode_name for info in infos.values()}
    spare = sorted(
        (name for name in KNOWN_KEYS - declared if ALIASES.get(name) not in declared),
        key=str.lower,
    )
    return textwrap.fill(" ".join(f"`{name}`" for name in spare), 100) + "\n"


if __name__ == "__main__":
    sys.exit(main())
