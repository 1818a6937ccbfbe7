"""The directories of the option `path`, and the names of the stores there."""

from collections.abc import Iterable
from pathlib import Path

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import local_path


def is_dir(text: str) -> bool:
    """Whether a text is a directory; a list of many may be longer than a path can be."""
    try:
        return Path(text).is_dir()
    except OSError:
        return False


def named_path(text: str) -> tuple[str | None, str]:
    """Split `broker=path`; a path that has a `=` itself is taken as it is.

    Raises:
        ConfigError: it names no directory.
    """
    name, is_named, rest = text.partition("=")
    if not is_named or "/" in name:
        name, rest = "", text
    return name or None, str(local_path(rest))


def with_own_names(named: Iterable[tuple[str | None, str]]) -> tuple[tuple[str, str], ...]:
    """Name each store: as given, else by the last parts of its path that make it the only one.

    Raises:
        ConfigError: two have the same name.
    """
    found: dict[str, str] = {}
    for name, path in named:
        parts = [part for part in Path(path).parts if part != "/"] or [path]
        own = name or parts[-1]
        used = 1
        while name is None and own in found and used < len(parts):
            used += 1
            own = "/".join(parts[-used:])
        if own in found:
            raise ConfigError(f"option path: two stores are named {own!r}; name them as name=path")
        found[own] = path
    return tuple(found.items())
