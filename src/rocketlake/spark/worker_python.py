"""The Python that Spark's own processes run, without the zip that makes them slow to start.

Spark puts `pyspark.zip` before everything else on the path of its Python processes. Python keeps no
compiled code for modules in a zip, so each process compiles all of PySpark again, which takes half
a second of CPU. The unpacked package beside the zip is the same, and its compiled code is kept. The
setting for that is the name of the Python itself (`PYSPARK_PYTHON`): a script that leaves such zips
out of the path and runs this interpreter.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

_SCRIPT: Final = """#!/bin/sh
set -f
kept=
IFS=:
for place in $PYTHONPATH; do
  case "$place" in
    {lib}/*.zip) ;;
    *) kept="$kept${{kept:+:}}$place" ;;
  esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""
_made: dict[str, str] = {}


def worker_python() -> str:
    """Return what to run as Python: a script where it helps, else this interpreter.

    The script is removed when this process ends, and Spark's Java with it.
    """
    python = sys.executable
    if python not in _made:
        _made[python] = _make(python) or python
    return _made[python]


def _make(python: str) -> str | None:
    """Write the script; None if it would not help or cannot be run."""
    package = Path(pyspark.__file__).parent
    lib = package / "python" / "lib"
    # Why: the package must be found without the zips, and py4j with it.
    if os.name != "posix" or not lib.is_dir() or not _is_found(package):
        return None
    if set("'\"*?[\\$`\n") & set(f"{lib}{python}"):
        return None
    folder = Path(tempfile.mkdtemp(prefix="rocketlake-python-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    script = folder / "python3"
    script.write_text(_SCRIPT.format(lib=f'"{lib}"', python=f'"{python}"'), encoding="utf-8")
    script.chmod(0o755)
    return str(script) if os.access(script, os.X_OK) else None


def _is_found(package: Path) -> bool:
    """Whether other processes of this interpreter find PySpark and py4j unpacked."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [place for place in sys.path if "site-packages" in place or "dist-packages" in place]
    places = [Path(place) for place in (*given, *own) if place]
    first = next((place for place in places if (place / "pyspark" / "__init__.py").exists()), None)
    has_py4j = any((place / "py4j" / "__init__.py").exists() for place in places)
    return first is not None and first.resolve() == package.parent.resolve() and has_py4j
