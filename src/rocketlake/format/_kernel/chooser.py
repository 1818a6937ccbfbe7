"""Chooses the kernel once, at import: native where it was built and fits, else pure.

ROCKETLAKE_KERNEL=auto|native|pure; `native` makes a missing compiled kernel an error.
"""

import os
import platform
from types import ModuleType
from typing import TYPE_CHECKING

from rocketlake.errors import ConfigError
from rocketlake.format import layout
from rocketlake.format._kernel import pure


def choose(wanted: str) -> ModuleType:
    """Return the kernel module to use.

    Raises:
        ConfigError: the wish is unknown, or `native` was asked for and cannot be had.
    """
    if wanted not in ("auto", "native", "pure"):
        raise ConfigError(f"ROCKETLAKE_KERNEL must be auto, native or pure, not {wanted!r}")
    if wanted == "pure" or platform.python_implementation() != "CPython":
        return pure
    try:
        from rocketlake.format._kernel import native  # noqa: PLC0415 - may not have been built
    except ImportError as error:
        if wanted == "native":
            raise ConfigError(f"the compiled kernel was not built: {error}") from error
        return pure
    differing = {
        name: (value, getattr(layout, name, None))
        for name, value in native.LAYOUT.items()
        if value != getattr(layout, name, None)
    }
    if differing:
        raise ConfigError(
            f"the compiled kernel was built for another layout: {differing}; build it anew "
            "(pip install --force-reinstall .) or set ROCKETLAKE_KERNEL=pure"
        )
    return native


if TYPE_CHECKING:
    KERNEL = pure  # the specification is what callers are checked against
else:
    KERNEL = choose(os.environ.get("ROCKETLAKE_KERNEL", "auto"))
