"""The one rule for a path that a person types: a command, an option of Spark's, a function.

`~` is a home, `file:` may stand before the path, and relative paths are those of the process that
was called: where other processes read it too, `absolute_path` is what they get. Symbolic links stay
as they are, since an executor may resolve them to another place. Anything with another scheme is no
directory, and is refused before it is taken for a relative path.
"""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rocketlake.errors import ConfigError

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
_FILE: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a directory or file that a text means, relative if the text is.

    Raises:
        ConfigError: it has a scheme other than `file:`, or names another machine.
    """
    text = os.fspath(path)
    found = _FILE.match(text)
    if found is not None:
        return Path(unquote(text[found.end() :]))
    # Why: one slash is enough, since a Path has none of two.
    scheme = _SCHEME.match(text)
    if scheme is not None:
        raise ConfigError(
            f"{text!r}: stores and archives are in directories that every machine sees, not in"
            f" {scheme[1]}; mount it, or copy it"
        )
    return Path(text).expanduser()


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """Return the same from the root on: for other processes.

    Raises:
        ConfigError: it has a scheme other than `file:`, or names another machine.
    """
    return local_path(path).absolute()
