"""The scripts behind `make setup`: which interpreter, what is lacking, what to type."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    """Imports a script of tools/ by its name."""
    monkeypatch.syspath_prepend(TOOLS)
    names = {path.stem for path in TOOLS.glob("*.py")}
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


# --- find-python ----------------------------------------------------------------------------------


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


OLD = 'case "$2" in *exit*) exit 1;; *) echo 3.9.2;; esac'


@pytest.fixture
def machine(tmp_path):
    """A tree with find-python in it, and a PATH with nothing on it but what a test puts there."""
    script(tmp_path / "bin" / "dirname", f'exec {shutil.which("dirname")} "$@"')
    (tmp_path / "tree" / "tools").mkdir(parents=True)
    (tmp_path / "tree" / "tools" / "find-python").write_text((TOOLS / "find-python").read_text())
    return tmp_path


def find_python(machine: Path, python: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(machine / "tree" / "tools" / "find-python")],
        env={"PATH": str(machine / "bin"), "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


def test_find_python_newest_that_runs_is_taken(machine):
    script(machine / "bin" / "python3.13", "echo shim >&2; exit 127")
    script(machine / "bin" / "python3.12", "exit 0")
    script(machine / "bin" / "python3", "exit 0")
    assert find_python(machine).stdout == "python3.12\n"


def test_find_python_that_of_the_venv_comes_first(machine):
    script(machine / "bin" / "python3.13", "exit 0")
    own = script(machine / "tree" / ".venv" / "bin" / "python", "exit 0")
    assert find_python(machine).stdout == f"{own}\n"


def test_find_python_broken_venv_is_passed_over(machine):
    script(machine / "bin" / "python3", "exit 0")
    script(machine / "tree" / ".venv" / "bin" / "python", "exit 1")
    assert find_python(machine).stdout == "python3\n"


def test_find_python_the_one_asked_for_is_taken(machine):
    script(machine / "bin" / "python3.13", "exit 0")
    script(machine / "tree" / ".venv" / "bin" / "python", "exit 0")
    other = script(machine / "other python", "exit 0")
    assert find_python(machine, str(other)).stdout == f"{other}\n"


def test_find_python_too_old_one_asked_for_is_refused(machine):
    script(machine / "bin" / "python3.13", "exit 0")
    old = script(machine / "old", OLD)
    done = find_python(machine, str(old))
    assert (done.returncode, done.stdout) == (1, "")
    assert "3.11 or newer is needed (3.9.2)" in done.stderr


def test_find_python_none_says_what_was_found_and_what_to_type(machine):
    script(machine / "bin" / "python3", OLD)
    done = find_python(machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert "python3: 3.9.2" in done.stderr
    assert "sudo apt-get update && sudo apt-get install -y python3" in done.stderr


# --- system_packages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "apt-get",
            "sudo apt-get update && sudo apt-get install -y python3.12-venv python3.12-dev"
            " build-essential",
        ),
        ("dnf", "sudo dnf install -y python3-pip python3-devel gcc"),
        ("apk", "sudo apk add py3-pip python3-dev build-base"),
    ],
)
def test_line_to_type_is_complete(tool, monkeypatch, command, line):
    packages = tool("system_packages")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    manager = next(manager for manager in packages.MANAGERS if manager.command == command)
    needs = [packages.Need.VENV, packages.Need.HEADERS, packages.Need.COMPILER]
    names = packages.package_names(manager, needs, python_version="3.12")
    assert packages.line_to_type(manager, names) == line
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert packages.line_to_type(manager, names) == line.replace("sudo ", "")


@pytest.fixture
def fake_manager(tool, tmp_path, monkeypatch):
    """A package manager and a sudo that write down how they were called."""
    calls = tmp_path / "calls"
    note = f'echo "${{0##*/}} $@" >> {calls}'
    script(tmp_path / "apt-get", note)
    script(tmp_path / "sudo", f"{note}; [ -e {tmp_path}/may ]")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    packages = tool("system_packages")
    manager = packages.MANAGERS[0]
    return lambda: (packages.install(manager, ["gcc"]), calls.read_text().splitlines())


def test_install_as_root_refreshes_and_installs(fake_manager, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    done, calls = fake_manager()
    assert done
    assert calls[0] == "apt-get update"
    assert calls[1].startswith("apt-get install -y")
    assert calls[1].endswith(" gcc")


def test_install_with_free_sudo_goes_through_it(fake_manager, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "may").touch()
    done, calls = fake_manager()
    assert done
    assert [call.split()[:2] for call in calls] == [["sudo", "-n"]] * 3


def test_install_without_the_right_installs_nothing(fake_manager, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert fake_manager() == (False, ["sudo -n true"])


# --- setup ----------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    """As much of a project as the digest of a set-up reads."""
    kernel = tmp_path / "src" / "rocketlake" / "format" / "_kernel"
    kernel.mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[tool.ruff]\nline-length = 1\n'
    )
    for path in (tmp_path / "setup.py", tmp_path / "tools" / "setup.py", kernel / "native.pyx"):
        path.write_text("pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "text", "matters"),
    [
        ("setup.py", "pass  # changed\n", True),
        ("src/rocketlake/format/_kernel/native.pyx", "changed\n", True),
        ("src/rocketlake/format/_kernel/new.h", "", True),
        ("src/rocketlake/format/_kernel/pure.py", "changed\n", False),
        ("pyproject.toml", '[project]\nname = "y"\n[tool.ruff]\nfix = true\n', True),
        ("pyproject.toml", '[project]\nname = "x"\n[tool.ruff]\nfix = false\n', False),
    ],
)
def test_digest_of_inputs_changes_with_what_is_installed(tool, tree, path, text, matters):
    setup = tool("setup")
    before = setup.digest_of_inputs(tree)
    (tree / path).write_text(text)
    assert (setup.digest_of_inputs(tree) != before) is matters


@pytest.mark.parametrize(
    ("change", "is_current"),
    [
        ({}, True),
        ({"root": "elsewhere"}, False),
        ({"python": "another"}, False),
        ({"version": "3.10"}, False),
        ({"inputs": "0"}, False),
        ({"built": False, "lacking": ["compiler"]}, False),
        ({"built": False, "lacking": []}, True),
    ],
)
def test_is_current_only_when_nothing_changed(tool, tmp_path, monkeypatch, change, is_current):
    setup = tool("setup")
    (tmp_path / "native.so").touch()
    monkeypatch.setattr(setup, "KERNEL_FOLDER", tmp_path)
    monkeypatch.setattr(setup, "digest_of_inputs", lambda _: "1")
    monkeypatch.setattr(setup, "kernel_needs", list)
    stamp = {**setup.present_state(), "built": True, "lacking": [], **change}
    assert setup.is_current(stamp) is is_current
    (tmp_path / "native.so").unlink()
    assert setup.is_current(stamp) is (is_current and not stamp["built"])
    assert not setup.is_current({})


def test_compiles_false_for_a_compiler_that_is_not_there_or_fails(tool):
    setup = tool("setup")
    assert not setup.compiles("no-such-compiler -pthread")
    assert not setup.compiles("false")


def test_explain_missing_kernel_names_the_line(tool, monkeypatch):
    setup, packages = tool("setup"), tool("system_packages")
    monkeypatch.setattr(packages, "find_manager", lambda: packages.MANAGERS[0])
    monkeypatch.setattr(os.path, "realpath", lambda _: "/usr/bin/python3.12")
    monkeypatch.setattr(setup, "python_version", lambda: "3.12")
    needs = [packages.Need.COMPILER, packages.Need.HEADERS]
    text = "\n".join(setup.explain_missing_kernel(needs))
    assert "a C compiler and Python's C headers (Python.h)" in text
    assert "the pure one serves" in text
    assert text.endswith("apt-get install -y build-essential python3.12-dev")
    assert setup.explain_missing_kernel([]) == []


def test_packages_for_a_python_of_its_own_asks_nothing_for_it(tool, monkeypatch):
    setup, packages = tool("setup"), tool("system_packages")
    monkeypatch.setattr(packages, "find_manager", lambda: packages.MANAGERS[0])
    monkeypatch.setattr(os.path, "realpath", lambda _: "/opt/python/bin/python3.12")
    assert setup.packages_for([packages.Need.HEADERS]) == []
    assert "install it again" in setup.how_to_get([packages.Need.HEADERS])


# --- java -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\n', 17),
        ('java version "1.8.0_412"\n', 8),
        ('openjdk version "25" 2025-09-16\n', 25),
        ("The operation couldn't be completed.\n", None),
    ],
)
def test_java_version_is_parsed(tool, text, version):
    assert tool("java").parse_version(text) == version


@pytest.mark.parametrize(("version", "code"), [("17.0.1", 0), ("21", 0), ("11.0.2", 1)])
def test_java_new_enough_is_found(tmp_path, version, code):
    home = script(tmp_path / "bin" / "java", f"echo 'version \"{version}\"' >&2").parents[1]
    done = subprocess.run(
        [sys.executable, str(TOOLS / "java.py")],
        env={"JAVA_HOME": str(home), "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert (str(home) in done.stdout) is (code == 0)


@pytest.fixture
def without_java(tool, tmp_path, monkeypatch):
    """A machine without Java, whose package manager brings the given versions, one per call."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    calls = tmp_path / "calls"

    def brings(*versions):
        steps = "".join(
            f"{number}) printf '#!/bin/sh\\necho version \\\\\"{version}\\\\\" >&2\\n'"
            f" > {tmp_path}/java; /bin/chmod +x {tmp_path}/java;;\n"
            for number, version in enumerate(versions, start=1)
        )
        script(
            tmp_path / "apt-get",
            f'case "$1" in update) exit 0;; esac\necho "$@" >> {calls}\n'
            f'case "$(/usr/bin/wc -l < {calls})" in\n{steps}*) exit 1;; esac',
        )
        return tool("java"), lambda: [line.split()[-1] for line in calls.read_text().splitlines()]

    return brings


def test_java_is_installed_where_it_is_missing(without_java):
    java, installed = without_java("21.0.1")
    assert java.find_java() is None
    found = java.provide()
    assert found is not None
    assert found[1] == 21
    assert installed() == ["default-jre-headless"]
    assert java.provide() == found
    assert len(installed()) == 1


def test_java_that_the_system_prefers_may_be_too_old(without_java):
    java, installed = without_java("11.0.2", "17.0.1")
    found = java.provide()
    assert found is not None
    assert found[1] == 17
    assert installed() == ["default-jre-headless", "openjdk-17-jre-headless"]


def test_java_that_cannot_be_had_is_told_with_the_line_to_type(without_java):
    java, _ = without_java()
    assert java.provide() is None
    assert java.explain_missing()[-1].endswith("apt-get install -y default-jre-headless")


def test_set_up_goes_on_without_java(tool, tmp_path, monkeypatch, capsys):
    setup, java = tool("setup"), tool("java")
    monkeypatch.setattr(java, "provide", lambda: None)
    monkeypatch.setattr(tool("logged_disks"), "provide", list)
    for name in ("upgrade_pip", "remove_stale_kernel"):
        monkeypatch.setattr(setup, name, lambda: None)
    monkeypatch.setattr(setup, "venv_is_usable", lambda: True)
    monkeypatch.setattr(setup, "kernel_needs", list)
    monkeypatch.setattr(setup, "install_package", lambda *, kernel: True)
    assert setup.set_up(moved=False)["built"]
    assert "All but Spark works without it" in capsys.readouterr().out


# --- logged disks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("may_mount", "installed"), [(True, ["fuse3", "xfsprogs"]), (False, [])])
def test_logged_disks_are_provided_only_where_they_can_be_mounted(
    tool, tmp_path, monkeypatch, may_mount, installed
):
    disks, packages = tool("logged_disks"), tool("system_packages")
    script(tmp_path / "mkfs.ext4", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(disks, "can_mount", lambda: may_mount)
    monkeypatch.setattr(packages, "find_manager", lambda: packages.MANAGERS[0])
    calls = []
    monkeypatch.setattr(packages, "install", lambda _, names: calls.extend(names))
    assert disks.provide() == [packages.Need.FUSE, packages.Need.XFS]
    assert calls == installed
