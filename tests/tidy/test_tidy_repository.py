"""The rules, applied to this repository."""

import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import tidy_rules
from tidy_rules import Finding

import rocketlake

ROOT = Path(__file__).resolve().parents[2]

TextRule = Callable[[str, str], Iterator[Finding]]


def is_python(path: str) -> bool:
    return path.endswith(".py")


def is_source(path: str) -> bool:
    return path.startswith("src/") and path.endswith((".py", ".pyx"))


RULES = {
    tidy_rules.long_modules: lambda path: path.endswith((".py", ".pyx")),
    tidy_rules.long_functions: is_python,
    tidy_rules.logic_in_init: lambda path: is_source(path) and path.endswith("/__init__.py"),
    tidy_rules.missing_docstrings: is_source,
    tidy_rules.written_versions: is_python,
    tidy_rules.machine_paths: lambda _: True,
    tidy_rules.registry_addresses: lambda _: True,
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_files_keep_the_rule(rule: TextRule):
    concerned = [path for path in project_files() if RULES[rule](path)]
    assert concerned, "no file is looked at"
    require_none(
        finding
        for path in concerned
        if (text := text_of(path)) is not None
        for finding in rule(path, text)
    )


def test_names_say_what_is_inside():
    modules = [path for path in project_files() if path.endswith((".py", ".pyx", ".h"))]
    require_none(finding for path in modules for finding in tidy_rules.banned_names(path))


def test_binaries_are_small():
    require_none(
        finding
        for path in project_files()
        for finding in tidy_rules.large_binaries(path, (ROOT / path).read_bytes())
    )


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md"])
def test_documents_name_targets_that_exist(path: str):
    targets = tidy_rules.make_targets(document("Makefile"))
    require_none(tidy_rules.unknown_targets(path, document(path), targets))


def test_changelog_has_an_unreleased_part():
    path = "CHANGELOG.md"
    require_none(tidy_rules.missing_unreleased(path, document(path)))


def test_version_is_that_of_the_project_file():
    project = tomllib.loads(document("pyproject.toml"))["project"]
    assert rocketlake.__version__ == project["version"]


def require_none(findings: Iterable[Finding]) -> None:
    found = [str(finding) for finding in findings]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def document(path: str) -> str:
    assert (ROOT / path).is_file(), f"{path} is missing"
    return (ROOT / path).read_text(encoding="utf-8")


def text_of(path: str) -> str | None:
    content = (ROOT / path).read_bytes()
    return None if tidy_rules.is_binary(content) else content.decode()


@cache
def project_files() -> list[str]:
    """Files that are in the repository, or would be with the next commit."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("only git knows which files belong to the project")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.split("\0") if path and (ROOT / path).is_file()]
