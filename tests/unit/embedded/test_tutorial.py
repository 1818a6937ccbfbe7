"""Every example of docs/embedded.md and docs/server.md is run, and prints what the page says."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(("name", "least"), [("embedded.md", 30), ("server.md", 20)])
def test_page_shows_what_happens(tmp_path, monkeypatch, name, least):
    monkeypatch.chdir(tmp_path)
    done = doctest.testfile(str(DOCS / name), module_relative=False)
    assert done.attempted > least
    assert done.failed == 0
