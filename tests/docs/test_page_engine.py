"""The engine that runs the pages finds what is wrong with one."""

import pytest

from support.pages import console
from support.pages.output import is_shown
from support.pages.parsing import PageError, blocks_of, indented_code
from support.pages.running import PageRun
from support.pages.setups import SETUPS


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run_page(text: str) -> int:
        return PageRun("page.md", SETUPS).run(blocks_of("page.md", text))

    return run_page


def fenced(language: str, *lines: str) -> str:
    return "\n".join((f"```{language}", *lines, "```", ""))


def test_blocks_share_names_and_directory(run):
    first = fenced("python", "from pathlib import Path", "Path('a').write_text('x')", "n = 3")
    second = fenced("python", "assert Path('a').read_text() * n == 'xxx'")
    assert run(f"{first}\ntext\n\n{second}") == 2


def test_a_block_that_fails_names_its_line(run):
    with pytest.raises(ZeroDivisionError) as caught:
        run("# Title\n\n" + fenced("python", "", "1 / 0"))
    assert caught.traceback[-1].lineno == 4  # counted from 0
    assert caught.value.__notes__ == ["in the block of page.md:3"]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (fenced("", "text"), "page.md:1: a block of language ''; known are"),
        (fenced("bash", "ls"), "page.md:1: a block of language 'bash'"),
        (fenced("text", "$ rocketlake info"), "the block has commands"),
        (fenced("text", "pip install rocketlake"), "the block has commands"),
        ("```python\n1", "page.md:1: the block has no end"),
        ("<!-- not-run: x -->\n" + fenced("python"), "page.md:1: a comment begins with 'not-run'"),
        ("<!-- not run: -->\n" + fenced("python"), "`not run:` without a reason"),
        ("<!-- exit: 1 -->\n\nText\n" + fenced("python"), "no block follows 'exit'"),
        (fenced("console", "rocketlake info"), "does not begin with '[$] '"),
    ],
)
def test_a_block_without_a_rule(run, block, said):
    with pytest.raises(PageError, match=said):
        run(block)


def test_a_block_that_is_not_run_is_not_run(run):
    assert run("<!-- not run: needs a moon -->\n\n" + fenced("python", "1 / 0")) == 0


def test_setups_are_run_at_their_place_and_leave_only_what_they_name(run):
    setup = "<!-- setup: orders_store('/data/store', 3); n = 1 -->\n"
    names = fenced("python", "assert n == 1 and 'orders_store' not in globals()")
    dump = fenced("console", "$ rocketlake dump /data/store --topic orders --json | wc -l", "3")
    assert run(f"{setup}\nText.\n\n{names}\n{dump}") == 2


@pytest.mark.parametrize("shown", ["store", "/data/store … messages", "…"])
def test_output_is_compared(run, shown, capsys):
    text = "<!-- setup: orders_store('/data/store', 3) -->\n"
    block = fenced("console", "$ rocketlake dump /data/store --topic orders --limit 1", shown)
    if shown == "…":
        assert run(text + block) == 1
    else:
        with pytest.raises(AssertionError, match=r"page.md:3\n--- the page shows"):
            run(text + block)


def test_output_of_python(run):
    program = fenced("python", "print('one')", "print('two')")
    assert run(f"{program}\n<!-- output -->\n{fenced('text', 'one', 'two')}") == 2
    with pytest.raises(AssertionError, match="printed was"):
        run(f"{program}\n<!-- output -->\n{fenced('text', 'one')}")


def test_exit_codes_are_compared(run):
    missing = fenced("console", "$ rocketlake info nowhere")
    assert run(f"<!-- exit: 2 -->\n{missing}") == 1
    with pytest.raises(AssertionError, match="exit code 2"):
        run(missing)


def test_pycon_prints_what_the_page_shows(run):
    assert run(fenced("pycon", ">>> {'a': 'bcd'}", "{'a': 'b…'}")) == 1
    with pytest.raises(AssertionError, match="Expected"):
        run(fenced("pycon", ">>> 1 + 1", "3"))


def test_what_a_page_leaves_open_is_closed(run, tmp_path):
    run(fenced("python", "import rocketlake", "store = rocketlake.open_store('data/store')"))
    assert [*tmp_path.iterdir()] == []


def test_a_command_that_follows_is_interrupted(run):
    setup = "<!-- setup: orders_store('/data/store', 3) -->\n<!-- interrupt -->\n"
    command = "$ rocketlake tail /data/store --topic orders -n 3"
    assert run(setup + fenced("console", command)) == 1


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  b\nc", "a b c\n", True),
        ("a b", "a b c", False),
        ("at 2026-01-31 08:00:01.123 done", "at 1999-12-31 00:00:00.000 done", True),
        ("at 2026-01-31 08:00:01", "at noon", False),
        ("salvage/20261116T064626131", "salvage/20270101T000000000", True),
        ("in 1.2 s", "in 33.45 s", True),
        ("size 1.2 KiB", "size 1.3 KiB", False),
        ("a … z", "a b\nc z", True),
    ],
)
def test_wildcards(shown, printed, same):
    assert is_shown(shown, printed) is same


def test_commands_of_a_block():
    code = "$ one --a \\\n    --b\nout\nput\n$ two\n"
    found = console.commands_of(code)
    assert [(command.text, command.shown) for command in found] == [
        ("one --a --b", "out\nput"),
        ("two", ""),
    ]
    assert [command.line for command in found] == [1, 5]


def test_indented_code_is_found():
    assert [*indented_code("Text:\n\n    make it\n\n- a\n\n      more\n")] == [3]
