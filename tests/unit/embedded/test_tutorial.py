"""Every example of docs/embedded.md is run, and prints what the page says."""

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "embedded.md"


def test_page_shows_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = doctest.testfile(str(PAGE), module_relative=False)
    assert done.attempted > 30
    assert done.failed == 0
