"""The page in a real browser: no errors, plots that read out, tables that sort, inert names."""

import re
import shutil
import subprocess

import profile_cases as cases
import pytest

from rocketlake.spark.jobs.profile.page.document import render

pytestmark = pytest.mark.browser

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--window-size=400,900", "--virtual-time-budget=2000"),
)
ACTIONS = """<script>
addEventListener("load", () => {
  for (const plot of document.querySelectorAll("[data-plot]"))
    for (const key of ["End", "ArrowLeft"])
      plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
  document.querySelector("#topics th button").click();
  const cells = [...document.querySelectorAll("#topics tbody tr")].map((r) => r.cells[0].dataset.v);
  const sorted = JSON.stringify(cells) === JSON.stringify(cells.toSorted());
  document.documentElement.dataset.sorted = sorted;
  document.documentElement.dataset.wide = document.documentElement.scrollWidth > innerWidth;
});
</script>"""


def visit(page: str, tmp_path) -> tuple[str, list[str]]:
    """Open a page; return its elements afterwards, and what the console said."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={tmp_path}/user", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_page_runs_without_errors_and_hostile_names_stay_text(tmp_path):
    # The policy of the page forbids the test's own script; what it does is looked at without it.
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render(cases.full()))
    elements, console = visit(page.replace("</body>", f"{ACTIONS}</body>"), tmp_path)
    assert console == []
    root = re.search(r"<html[^>]*>", elements)[0]
    assert 'data-sorted="true"' in root
    assert 'data-wide="false"' in root
    assert "data-hacked" not in root
    assert elements.count('class="cursor" style="left: 98.6111%') == 3
    assert re.search(r'id="read-messages"><span><b>2026-01-01 11:50</b>', elements)


def test_page_forbids_scripts_that_are_not_its_own(tmp_path):
    injected = "<script>document.documentElement.dataset.hacked = 1</script></body>"
    page = render(cases.single()).replace("</body>", injected)
    elements, console = visit(page, tmp_path)
    assert "data-hacked" not in re.search(r"<html[^>]*>", elements)[0]
    assert len(console) == 1
    assert "Content Security Policy" in console[0]


def test_a_topic_is_painted_alike_everywhere(tmp_path):
    """What the browser paints, not what the page says: legends, areas and small plots agree."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render(cases.lopsided()))
    asks = """<script>
addEventListener("load", () => {
  const painted = {};
  const add = (name, color) => (painted[name] ??= new Set()).add(color);
  for (const item of document.querySelectorAll(".legend li"))
    add(item.children[1].textContent, getComputedStyle(item.children[0]).backgroundColor);
  for (const row of document.querySelectorAll("#topics tbody tr"))
    if (painted[row.cells[0].textContent])
      add(row.cells[0].textContent, getComputedStyle(row.querySelector("path")).fill);
  const counts = Object.values(painted).slice(0, 6).map((colors) => colors.size);
  document.documentElement.dataset.painted = counts.join();
});
</script>"""
    elements, console = visit(page.replace("</body>", f"{asks}</body>"), tmp_path)
    assert console == []
    assert 'data-painted="1,1,1,1,1,1"' in re.search(r"<html[^>]*>", elements)[0]


def test_a_notebook_shows_the_page_in_a_frame(tmp_path):
    """The page's own script runs there, under its own policy, without an error."""
    shown = cases.full()._repr_html_()
    elements, console = visit(f"<!doctype html><html><body>{shown}</body></html>", tmp_path)
    assert console == []
    assert '<iframe sandbox="allow-scripts"' in elements
    assert "data-hacked" not in re.search(r"<html[^>]*>", elements)[0]
