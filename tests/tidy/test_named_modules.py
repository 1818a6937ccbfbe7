"""Modules that the pages name are there: `store.put.putter`, in the way of ARCHITECTURE.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rocketlake"
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_")
NAMED = re.compile(rf"`(?:rocketlake\.)?((?:{'|'.join(ROOMS)})(?:\.[a-z_]+)+)`")
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", *sorted(map(str, ROOT.glob("docs/adr/*.md")))]


def is_there(name: str) -> bool:
    place = PACKAGE.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).name)
def test_every_named_module_is_there(page):
    named = set(NAMED.findall((ROOT / page).read_text(encoding="utf-8")))
    assert not {name for name in named if not is_there(name)}


def test_paths_of_the_architecture_are_as_short_as_they_are_wanted():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    limits = {"put": 12, "get": 14, "recovery": 18, "Spark read": 16, "sink commit": 18}
    for path, most in limits.items():
        part = text.partition(f"### One {path}\n")[2].partition("\n#")[0]
        rows = re.findall(r"^\| \d+ \| `([\w.]+)` \|", part, re.MULTILINE)
        assert 0 < len(rows) <= most, path
        assert all(is_there(name) for name in rows)
