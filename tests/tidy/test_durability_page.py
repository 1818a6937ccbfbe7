"""docs/durability.md and docs/robustness.md name tests: each of them exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
FILES = re.compile(r"(tests/[\w/]+\.py)")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_line_of_the_contract_names_a_test_that_exists():
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in DEFINED.findall(path.read_text(encoding="utf-8"))
    }
    named = {*NAMED.findall(page("durability.md"))}
    assert len(named) > 20
    assert not named - defined


def test_what_survives_is_proved_line_by_line():
    """The last column of both tables of what survives has at least one test."""
    body = page("durability.md").partition("## What survives what")[2].partition("\n## ")[0]
    rows = [row for row in body.splitlines() if row.startswith("| ") and "| Test |" not in row]
    rows = [row for row in rows if not row.startswith("| ---")]
    assert len(rows) > 15
    unproved = [row for row in rows if not NAMED.search(row.rstrip(" |").rpartition("|")[2])]
    assert not unproved


def test_commands_of_the_list_of_bugs_name_files_that_exist():
    found = {*FILES.findall(page("robustness.md"))}
    assert found
    assert not [path for path in found if not (ROOT / path).exists()]
