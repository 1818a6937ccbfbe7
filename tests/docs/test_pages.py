"""Every code block of the documentation is run; those of pages with Spark by tests/spark/docs."""

import contextlib

import pytest

from support.pages.parsing import Block, PageError, indented_code
from support.pages.running import ROOT, PageRun, is_on_spark, pages, read_page
from support.pages.setups import SETUPS

PLAIN = [page for page in pages() if not is_on_spark(page)]


def left_out() -> list[tuple[str, Block]]:
    found = []
    for page in pages():
        with contextlib.suppress(PageError):  # a test below fails with it
            found += [(page, block) for block in read_page(page) if block.value("not run")]
    return found


@pytest.mark.parametrize("page", PLAIN)
def test_blocks_of_a_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PageRun(page, SETUPS).run(read_page(page))


@pytest.mark.parametrize(
    ("page", "block"), left_out(), ids=[f"{page}:{block.line}" for page, block in left_out()]
)
def test_block_that_cannot_run(page, block):
    """Each is one skipped test: pytest counts them, and lists them with their reasons."""
    pytest.skip(f"{page}:{block.line}: {block.first_line}: {block.value('not run')}")


@pytest.mark.parametrize("page", pages())
def test_all_code_is_fenced(page):
    """An indented block would not be seen by the tests above."""
    assert [*indented_code((ROOT / page).read_text(encoding="utf-8"))] == []
