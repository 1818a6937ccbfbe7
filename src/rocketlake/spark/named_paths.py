"""The option `path`: one store or several, by one rule for reads and writes: `a,b`, `name=a`."""

from pathlib import Path

from rocketlake.files.local_path import local_path
from rocketlake.spark.option_texts import OptionTexts

NamedPath = tuple[str | None, str]
"""The name that was given to a store, and its directory."""


def split_paths(text: str) -> list[str]:
    """Return the parts of a list of paths; a directory whose name has a comma is one."""
    return [text] if _is_dir(text) else text.split(",")


def named_path(text: str) -> NamedPath:
    """Split `name=path`; a path that has a `=` itself is taken as it is.

    Raises:
        ConfigError: the path has a scheme other than `file:`.
    """
    name, path = split_name(text)
    return name, str(OptionTexts({"path": path}).parsed("path", local_path))


def split_name(text: str) -> NamedPath:
    """Split `name=path`, and leave the path as it is."""
    name, is_named, rest = text.strip().partition("=")
    if not is_named or "/" in name:
        return None, text.strip()
    return name.strip() or None, rest.strip()


def _is_dir(text: str) -> bool:
    """Tell whether a text is a directory; a list of many may be longer than a path can be."""
    try:
        return Path(text).is_dir()
    except OSError:
        return False
