"""The rules about words and commit subjects, applied to this repository and to examples."""

import subprocess
from pathlib import Path

import pytest
import word_rules
from test_tidy_repository import ROOT, project_files, require_none, text_of

CHECKED_FROM = "c7cc095c677676674610f7ab90590aa354cdd26a"
"""Subjects of commits behind this one are checked; older ones stay as they are."""


def test_words_of_the_project_are_wanted_ones():
    pages = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
    concerned = [
        path
        for path in project_files()
        if path in pages or (path.startswith(("src/", "docs/")) and not path.endswith(".png"))
    ]
    assert len(concerned) > 500
    require_none(
        finding
        for path in concerned
        if (text := text_of(path)) is not None
        for finding in word_rules.unwanted_words(path, text)
    )


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("src/a.py", "# the column is none that a message has", 1),
        ("src/a.py", "class Crew: ...", 1),
        ("src/rocketlake/cli/a.py", "# Nobody waits", 1),
        ("docs/a.md", "Whoever waits", 1),
        ("CONTRIBUTING.md", "| the crew | the thread pool |\n", 0),
        ("CONTRIBUTING.md", "the crew\n", 1),
        ("src/a.py", "# aircrew, reseated", 0),
    ],
)
def test_unwanted_words_are_found(path, text, count):
    assert len(list(word_rules.unwanted_words(path, text))) == count


def test_subjects_of_new_commits_keep_the_form():
    known = git("cat-file", "-e", CHECKED_FROM)
    if known.returncode:
        pytest.skip("the commit that the check begins at is not here: a shallow clone, or no git")
    log = git("log", "--no-merges", "--format=%h %s", f"{CHECKED_FROM}..HEAD").stdout
    require_none(word_rules.bad_subjects(log))


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("store: stop dispatch at the first torn record", True),
        ("docs, tests: run every code block of every page", True),
        ("store: a", False),
        ("Store: stop dispatch", False),
        ("stop dispatch at the first torn record", False),
        ("store: stop dispatch.", False),
        ("store: " + "x" * 65, True),
        ("store: " + "x" * 66, False),
    ],
)
def test_form_of_a_subject(subject, is_good):
    assert (list(word_rules.bad_subjects(f"0123abc {subject}\n")) == []) == is_good


def git(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError as error:
        return subprocess.CompletedProcess(arguments, 127, "", str(error))
