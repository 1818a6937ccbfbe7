"""Makes .venv ready: the environment, the package with its tools, the compiled kernel, Java.

`make setup` runs it with the interpreter that tools/find-python chose. It does nothing when nothing
that matters has changed, and it goes on without a compiled kernel when there cannot be one: the
pure kernel gives the same answers, more slowly. Without Java all works but Spark. Standard library
only.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import java
import logged_disks
import system_packages
from system_packages import Need

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "rocketlake-setup.json"
KERNEL_FOLDER = ROOT / "src" / "rocketlake" / "format" / "_kernel"
RELEVANT_TABLES = ("build-system", "project", "dependency-groups")
PIP_WITH_GROUPS = (25, 1)

Stamp = dict[str, Any]


def main() -> int:
    """Bring .venv up to date and say what is in use."""
    parser = argparse.ArgumentParser(description="Make .venv ready.")
    parser.add_argument("--quiet", action="store_true", help="say nothing if nothing is to be done")
    options = parser.parse_args()
    with one_at_a_time():
        stamp = read_stamp()
        if is_current(stamp):
            if not options.quiet:
                print(summary())
            return 0
        stamp = set_up(moved=stamp.get("root") not in {None, str(ROOT)})
        STAMP.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        print(summary(), flush=True)
    return 0


# --- is there anything to do? ---------------------------------------------------------------------


def is_current(stamp: Stamp) -> bool:
    """Whether the last set-up still holds."""
    if any(stamp.get(key) != value for key, value in present_state().items()):
        return False
    if stamp["built"]:
        return any(KERNEL_FOLDER.glob("native*.so"))
    # What was lacking then may be there now.
    return not stamp["lacking"] or bool(kernel_needs())


def present_state() -> Stamp:
    """What a set-up depends on: where it lies, the interpreter, the sources of the installation."""
    return {
        "root": str(ROOT),
        "python": os.path.realpath(sys.executable),
        "version": python_version(),
        "inputs": digest_of_inputs(ROOT),
    }


def digest_of_inputs(root: Path) -> str:
    """One hash over all that `pip install` reads; settings of other tools do not count."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    relevant = {name: project.get(name) for name in RELEVANT_TABLES}
    relevant["setuptools"] = project.get("tool", {}).get("setuptools")
    digest = hashlib.sha256(json.dumps(relevant, sort_keys=True).encode())
    kernel = root / KERNEL_FOLDER.relative_to(ROOT)
    sources = [path for path in kernel.glob("*") if path.suffix in {".pyx", ".pxd", ".pxi", ".h"}]
    for path in [root / "setup.py", root / "tools" / "setup.py", *sorted(sources)]:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def read_stamp() -> Stamp:
    """What the last set-up left; empty if there was none."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two set-ups started together run one after the other; the second finds nothing to do."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- the work -------------------------------------------------------------------------------------


def set_up(*, moved: bool) -> Stamp:
    """Make the environment if need be, install into it, build the kernel if that is possible."""
    if moved or not venv_is_usable():
        make_venv()
    lacking = provide(kernel_needs())
    for line in explain_missing_kernel(lacking):
        print(line, flush=True)
    upgrade_pip()
    print("installing rocketlake and its tools into .venv", flush=True)
    built = not lacking and install_package(kernel="require")
    if not lacking and not built:
        print("the compiled kernel did not build, for the reason above; trying without", flush=True)
    if not built:
        remove_stale_kernel()
        if not install_package(kernel="skip"):
            stop("pip could not install rocketlake, for the reason above.")
    if java.provide() is None:
        print("\n".join(java.explain_missing()), flush=True)
        print("All but Spark works without it; what needs Spark is skipped.", flush=True)
    logged_disks.provide()  # the tests that need it say what is missing
    return {**present_state(), "built": built, "lacking": lacking}


def venv_is_usable() -> bool:
    """Whether .venv runs, and runs the interpreter that was asked for."""
    if os.path.realpath(VENV_PYTHON) != os.path.realpath(sys.executable):
        return False
    try:
        settings = (VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    # An interpreter replaced in place by its next version looks for packages in another folder.
    return re.search(rf"^version\w* = {python_version()}\b", settings, re.MULTILINE) is not None


def make_venv() -> None:
    """Make .venv anew, after installing what the system's Python lacks for it."""
    if VENV.exists() and any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists():
        stop(f"{VENV} exists and is not a virtual environment; move it away.")
    if not has_module("ensurepip") and provide([Need.VENV]):
        stop(
            "Python's venv module is not complete here, and .venv cannot be made without it.",
            how_to_get([Need.VENV]),
        )
    interpreter = os.path.realpath(sys.executable)
    print(f"making .venv with Python {sys.version.split()[0]} ({interpreter})", flush=True)
    if run([interpreter, "-m", "venv", "--clear", str(VENV)]):
        stop("the virtual environment could not be made, for the reason above.")


def upgrade_pip() -> None:
    """Have a pip that knows dependency groups."""
    done = subprocess.run(
        [VENV_PYTHON, "-m", "pip", "--version"], capture_output=True, text=True, check=False
    )
    if done.returncode and run([VENV_PYTHON, "-m", "ensurepip"]):
        stop("pip is missing in .venv and could not be put there; remove .venv and try again.")
    words = done.stdout.split()  # pip 25.1.1 from …
    version = tuple(int(part) for part in words[1].split(".")[:2]) if len(words) > 1 else (0,)
    if version < PIP_WITH_GROUPS:
        oldest = ".".join(map(str, PIP_WITH_GROUPS))
        if run([*pip_install(), "--upgrade", f"pip>={oldest}"]):
            stop(f"pip {oldest} or newer is needed and could not be installed.")


def install_package(*, kernel: str) -> bool:
    """Install the package, editable, with its tools; `require` fails if the kernel does."""
    environment = {**os.environ, "ROCKETLAKE_BUILD_KERNEL": kernel}
    compiler = find_compiler()
    if kernel == "require" and compiler:
        environment["CC"] = compiler
    command = [*pip_install(), "--editable", str(ROOT), "--group", f"{ROOT}/pyproject.toml:dev"]
    return run(command, environment) == 0


def pip_install() -> list[str]:
    """The beginning of each call of pip."""
    return [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]


def remove_stale_kernel() -> None:
    """Forget a kernel compiled from other sources, so that it is not taken for the present one."""
    for path in KERNEL_FOLDER.glob("native*.so"):
        path.unlink(missing_ok=True)


def kernel_in_use() -> str:
    """The kernel that the installed package chooses; "no" if it cannot be imported."""
    environment = {key: value for key, value in os.environ.items() if key != "ROCKETLAKE_KERNEL"}
    done = subprocess.run(
        [VENV_PYTHON, "-c", "import rocketlake; print(rocketlake.KERNEL)"],
        capture_output=True,
        text=True,
        check=False,
        cwd=VENV,
        env=environment,
    )
    if done.returncode:
        print(f"rocketlake is installed but cannot be imported:\n{done.stderr}", end="", flush=True)
        return "no"
    return done.stdout.strip()


# --- what the system provides ---------------------------------------------------------------------


def kernel_needs() -> list[Need]:
    """What is missing for compiling the kernel."""
    needs = [] if find_compiler() else [Need.COMPILER]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        needs.append(Need.HEADERS)
    return needs


def find_compiler() -> str | None:
    """A C compiler that really makes a shared library, preferring the one Python was made with."""
    named = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    return next((compiler for compiler in named if compiler and compiles(compiler)), None)


def compiles(compiler: str) -> bool:
    """Whether the compiler, its linker and the C library's headers are all there."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <stdio.h>\nint answer(void) { return EOF; }\n")
        command = [*shlex.split(compiler), "-shared", "-fPIC", "-o", f"{folder}/probe", str(source)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def provide(needs: list[Need]) -> list[Need]:
    """Install what the package manager has of the needs, if this process may; what is left."""
    manager = system_packages.find_manager()
    packages = packages_for(needs)
    if manager and packages and system_packages.install(manager, packages):
        return [need for need in needs if not is_met(need)]
    return needs


def is_met(need: Need) -> bool:
    """Whether the system has it now."""
    if need is Need.VENV:
        # A new process, since this one remembers which modules there were.
        return run([sys.executable, "-c", "import ensurepip"]) == 0
    return need not in kernel_needs()


def packages_for(needs: list[Need]) -> list[str]:
    """Package names for the needs; a Python not from the system gets nothing for itself from it."""
    manager = system_packages.find_manager()
    if manager is None:
        return []
    if not os.path.realpath(sys.executable).startswith("/usr/bin/"):
        needs = [need for need in needs if need not in {Need.VENV, Need.HEADERS}]
    return system_packages.package_names(manager, needs, python_version=python_version())


def how_to_get(needs: list[Need]) -> str:
    """What a person does about the needs."""
    manager = system_packages.find_manager()
    packages = packages_for(needs)
    if manager and packages:
        line = system_packages.line_to_type(manager, packages)
        return f"Type this, then `make setup`:\n  {line}"
    if Need.COMPILER in needs:
        on_mac = sys.platform == "darwin"
        return "Type: xcode-select --install" if on_mac else "Install a C compiler, such as gcc."
    interpreter = os.path.realpath(sys.executable)
    return (
        f"{interpreter} was installed without it: install it again, whole, "
        "or use another: make setup PYTHON=/path/to/python3.12"
    )


def explain_missing_kernel(lacking: list[Need]) -> list[str]:
    """Why there is no compiled kernel, and how to get one; nothing if nothing is lacking."""
    names = {Need.COMPILER: "a C compiler", Need.HEADERS: "Python's C headers (Python.h)"}
    if not lacking:
        return []
    missing = " and ".join(names[need] for need in lacking)
    return [
        f"no compiled kernel, since {missing} cannot be found; the pure one serves, more slowly.",
        how_to_get(lacking),
    ]


# --- small things ---------------------------------------------------------------------------------


def summary() -> str:
    """The last line: what is in use."""
    found = java.find_java()
    spark = f"Java {found[1]} for Spark" if found else "no Java for Spark"
    return f".venv is ready: Python {sys.version.split()[0]}, {kernel_in_use()} kernel, {spark}"


def python_version() -> str:
    """Such as 3.12."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def has_module(name: str) -> bool:
    """Whether a module can be imported."""
    return importlib.util.find_spec(name) is not None


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> int:
    """Run a command that may speak for itself; its exit code."""
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def stop(*lines: str) -> NoReturn:
    """End with what is wrong and what to do."""
    sys.exit("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
