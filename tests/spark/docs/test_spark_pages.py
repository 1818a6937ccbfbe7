"""Every code block of pages with Spark is run, in the one session of all Spark tests."""

import pytest

from support.pages.running import PageRun, is_on_spark, pages, read_page
from support.pages.setups import SETUPS

ON_SPARK = [page for page in pages() if is_on_spark(page)]


@pytest.mark.parametrize("page", ON_SPARK)
def test_blocks_of_a_page(page, spark, spark_directory, monkeypatch):
    monkeypatch.chdir(spark_directory)
    PageRun(page, SETUPS, spark=spark).run(read_page(page))
