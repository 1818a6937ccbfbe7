"""The version, as the installed package says it."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rocketlake")
except PackageNotFoundError:
    __version__ = "0+unknown"  # run from a source tree, or shipped as plain files
