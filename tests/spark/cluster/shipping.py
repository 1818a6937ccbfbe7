"""What executors of the tests' cluster get: an environment without rocketlake, and its code."""

import os
import re
import shutil
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pyspark

import rocketlake

NEEDED = ("lark", "lz4", "msgspec", "numpy", "pandas", "pyarrow", "zstandard")
"""What rocketlake needs on an executor, and Spark itself."""

_LEFT_OUT = re.compile(r"\.\.|.*(/tests/|/include/|/__pycache__/)")


def pack_environment(folder: Path) -> Path:
    """Make an archive of a second environment; every file comes from the first one."""
    made = folder / "made"
    venv.create(made, symlinks=True, with_pip=False)
    archive = folder / "environment.tar.gz"
    site = Path(sysconfig.get_path("purelib", "venv", {"base": "."}))
    # Spark unpacks .tar.gz with `tar`, but .tar by itself, which knows neither links out of the
    # archive nor modes of files. Nothing is compressed: it travels no farther than this disk.
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        for path in made.iterdir():
            tar.add(path, path.name)
        for name in sorted(closure(NEEDED)):
            for file in metadata.distribution(name).files or ():
                path = Path(str(file.locate()))
                if not _LEFT_OUT.match(str(file)) and path.is_file():
                    tar.add(path, f"{site}/{file}")
    shutil.rmtree(made)
    return archive


def closure(names: tuple[str, ...]) -> set[str]:
    """Distributions, with all that they need."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            needs = metadata.requires(name) or ()
            left += [need_name(need) for need in needs if "extra ==" not in need]
    return found


def need_name(need: str) -> str:
    """Such as `python-dateutil` of `python-dateutil>=2.8.2; …`."""
    end = next((i for i, c in enumerate(need) if not (c.isalnum() or c in "-_.")), len(need))
    return need[:end]


def pack_code(folder: Path, *extra: Path) -> Path:
    """Make what `--py-files` takes: the Python files of the package, and modules of the tests."""
    archive = folder / "rocketlake.zip"
    source = Path(rocketlake.__file__).parent.parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in ("rocketlake", "pyspark_rocketlake"):
            for path in sorted((source / package).rglob("*.py")):
                packed.write(path, path.relative_to(source))
        for path in extra:
            packed.write(path, path.name)
    return archive


def make_spark_home(folder: Path) -> Path:
    """Make another face of the installed Spark, which workers may write to."""
    home = folder / "spark"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    return home


def make_driver_python(path: Path, source: Path) -> None:
    """Make the Python of the driver, under the name of the executors': Spark plans reads with it.

    A person types `ln -s "$VIRTUAL_ENV" environment`. Here the tests' own source tree comes first,
    whichever the environment has installed.
    """
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH="{source}:$PYTHONPATH" exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)


def make_java_home(folder: Path, hidden: Path) -> Path:
    """Make a Java for executors: each has a host of its own, and none sees a directory.

    Spark never runs a second attempt of a task on the host of the first, and all executors of a
    local cluster are on one: hence the addresses. The directory is hidden by a mount that only the
    executor has.
    """
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    assert java is not None
    home = folder / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"""#!/bin/bash
arguments=()
for word in "$@"; do
    case "$previous" in
        --executor-id) number=$word;;
    esac
    previous=$word
done
previous=
for word in "$@"; do
    case "$previous" in --hostname|--bind-address) word=127.0.1.$((number + 1));; esac
    arguments+=("$word")
    previous=$word
done
[ -n "$number" ] || exec {java} "$@"
if unshare -m true 2> /dev/null; then
    exec unshare -m sh -c 'mount -t tmpfs none "{hidden}" && exec "$@"' sh \\
        {java} "${{arguments[@]}}"
fi
exec {java} "${{arguments[@]}}"
""",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return home


if __name__ == "__main__":
    print(pack_environment(Path(sys.argv[1])))  # noqa: T201
