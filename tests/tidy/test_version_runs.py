"""`make test-versions`: which interpreters are found, and what the tool says of the others."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "tools")
    monkeypatch.delitem(sys.modules, "test_versions", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    yield importlib.import_module("test_versions")
    sys.modules.pop("test_versions", None)


def interpreter(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def test_supported_versions_are_those_of_the_project(tool):
    project = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={tool.SUPPORTED[0]}"' in project
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert claimed
    assert set(claimed) <= set(tool.SUPPORTED)


def test_shim_that_does_not_run_is_passed_over_for_one_of_pyenv(tool, tmp_path):
    interpreter(tmp_path / "bin" / "python3.12", "exit 127")
    good = interpreter(
        tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", "echo 3.12"
    )
    assert tool.find_interpreter("3.12") == good


def test_interpreter_of_another_version_is_not_taken(tool, tmp_path):
    interpreter(tmp_path / "bin" / "python3.13", "echo 3.12")
    assert tool.find_interpreter("3.13") is None


def test_missing_interpreters_are_named_and_a_run_of_nothing_fails(tool, capsys):
    assert tool.main([]) == 1
    shown = capsys.readouterr().out
    for version in tool.SUPPORTED:
        assert f"Python {version}: SKIPPED: no such interpreter" in shown


def test_one_failure_fails_the_run(tool, tmp_path, monkeypatch, capsys):
    for version in ("3.11", "3.12"):
        interpreter(tmp_path / "bin" / f"python{version}", f"echo {version}")
    monkeypatch.setattr(tool, "prepare", lambda version, _: Path(version))
    monkeypatch.setattr(tool, "run_oldest_pyspark", lambda *_: "passed")
    codes = {"3.11": 0, "3.12": 1}
    monkeypatch.setattr(tool, "run_tests", lambda python, _: codes[str(python)])
    assert tool.main(["-k", "x"]) == 1
    assert "Python 3.12                 FAILED (exit code 1)" in capsys.readouterr().out
    codes["3.12"] = tool.NO_TESTS_SELECTED
    assert tool.main(["-k", "x"]) == 0
