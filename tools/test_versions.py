"""Runs the tests on every supported Python that this machine has, then with the oldest PySpark.

`make test-versions ARGS='-k scan'` passes arguments on to pytest. Each interpreter gets its own
environment below .venv/versions, with a compiled kernel, which is required. An interpreter that is
missing is reported as SKIPPED, before and after the runs. Standard library only.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv" / "versions"
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
OLDEST_PYSPARK = "pyspark>=4.2,<4.3"
NO_TESTS_SELECTED = 5


def main(arguments: Sequence[str]) -> int:
    """Run all that can be run; 1 if any of it failed, or if nothing could be run."""
    outcomes: dict[str, str] = {}
    ready: dict[str, Path] = {}
    for version in SUPPORTED:
        name = f"Python {version}"
        found = find_interpreter(version)
        outcomes[name] = "not run" if found else "SKIPPED: no such interpreter on this machine"
        if found is None:
            say(f"{name}: {outcomes[name]}")
            continue
        say(f"{name}: {found}")
        python = prepare(version, found)
        outcomes[name] = "FAILED: no environment could be made" if python is None else "not run"
        if python is not None:
            ready[version] = python
            outcomes[name] = outcome(run_tests(python, arguments))
    if ready:
        version, python = next(iter(ready.items()))
        name = f"PySpark 4.2 on Python {version}"
        say(name)
        outcomes[name] = run_oldest_pyspark(version, python, arguments)
    say("tried")
    for name, result in outcomes.items():
        print(f"{name:<28}{result}", flush=True)
    return 0 if ready and not any(text.startswith("FAILED") for text in outcomes.values()) else 1


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of a version that runs: on the PATH, or one of pyenv's."""
    named = [Path(folder) / f"python{version}" for folder in os.environ["PATH"].split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named += sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)
    return next((path for path in named if path.exists() and runs_as(path, version)), None)


def runs_as(path: Path, version: str) -> bool:
    """Tell whether a file is an interpreter of this version that runs: a shim may not."""
    program = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def prepare(version: str, interpreter: Path) -> Path | None:
    """Return the Python of an environment that has the package, its kernel and the test tools."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    steps = [
        *([] if python.exists() else [[str(interpreter), "-m", "venv", str(folder)]]),
        [*pip, "--upgrade", "pip>=25.1"],
        [*pip, "--editable", str(ROOT), "--group", f"{ROOT}/pyproject.toml:test"],
    ]
    environment = {**os.environ, "ROCKETLAKE_BUILD_KERNEL": "require"}
    for step in steps:
        if subprocess.run(step, env=environment, cwd=ROOT, check=False).returncode:
            return None
    return python


def run_tests(python: Path, arguments: Sequence[str], **variables: str) -> int:
    """Run pytest; return its exit code."""
    # Why not ROCKETLAKE_KERNEL=native: executors of the cluster tests have the pure kernel alone.
    environment = {**os.environ, **variables}
    command = [str(python), "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def run_oldest_pyspark(version: str, python: Path, arguments: Sequence[str]) -> str:
    """Run the Spark tests with the oldest PySpark that is supported, beside the newest."""
    folder = ENVIRONMENTS / f"pyspark42-{version}"
    if not (folder / "pyspark").exists():
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        command = [*pip, "--target", str(folder), OLDEST_PYSPARK]
        if subprocess.run(command, check=False).returncode:
            return f"FAILED: {OLDEST_PYSPARK} could not be installed"
    return outcome(run_tests(python, ["tests/spark", *arguments], PYTHONPATH=str(folder)))


def outcome(code: int) -> str:
    """Return an exit code of pytest in words."""
    known = {0: "passed", NO_TESTS_SELECTED: "passed (no test selected)"}
    return known.get(code, f"FAILED (exit code {code})")


def say(text: str) -> None:
    """Print a heading."""
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
