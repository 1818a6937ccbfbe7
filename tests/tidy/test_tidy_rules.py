"""The rules themselves: each finds what it is there for, at the right line, and nothing else."""

import pytest
import tidy_rules


def lines_of(findings):
    return [finding.line for finding in findings]


@pytest.mark.parametrize(
    ("path", "text", "cap"),
    [
        ("src/a.py", "print()\n", 500),
        ("src/a.py", 'X = 1\n"""Text."""\n', 900),
        ("src/a.py", "class Code(Enum):\n    A = 1\n", 900),
        ("src/a.py", "class Code:\n    def f(self): ...\n", 500),
        ("src/native.pyx", "cdef int f(): pass\n", 900),
        ("src/other.pyx", "cdef int f(): pass\n", 500),
        ("tests/conftest.py", "X = 1\n", 150),
    ],
)
def test_long_modules_one_line_over_the_cap_is_found(path, text, cap):
    padding = cap - text.count("\n")
    assert lines_of(tidy_rules.long_modules(path, text + "\n" * padding)) == []
    assert lines_of(tidy_rules.long_modules(path, text + "\n" * (padding + 1))) == [cap + 1]


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_long_functions_one_line_over_the_cap_is_found(keyword):
    def function(count):
        body = "    pass\n" * (count - 1)
        return f"X = 1\n\n@decorated\n@twice\n{keyword} f():\n{body}"

    assert lines_of(tidy_rules.long_functions("a.py", function(60))) == []
    assert lines_of(tidy_rules.long_functions("a.py", function(61))) == [5]


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("src/rocketlake/store/utils.py", 1),
        ("src/rocketlake/common/log.py", 1),
        ("src/rocketlake/base/types.py", 2),
        ("src/rocketlake/model/queues.py", 0),
        ("src/rocketlake/model/based.py", 0),
    ],
)
def test_banned_names_are_found_in_any_part(path, count):
    assert len(list(tidy_rules.banned_names(path))) == count


RE_EXPORTS = '''"""Sign."""
from typing import TYPE_CHECKING
from a.b import C
if TYPE_CHECKING:
    from a.d import E
__all__ = ["C", "E"]
'''
LAZY_EXPORTS = """_HOMES = {"open_store": "a.store"}
KERNEL: str
def __getattr__(name):
    return 1
"""


def test_logic_in_init_re_exports_pass():
    assert lines_of(tidy_rules.logic_in_init("src/rocketlake/a/__init__.py", RE_EXPORTS)) == []


@pytest.mark.parametrize(
    "logic",
    [
        "def f(): ...",
        "class A: ...",
        "X = 1",
        "f()",
        "for x in y: pass",
        "if x: import y",
        "if TYPE_CHECKING: x = 1",
    ],
)
def test_logic_in_init_is_found(logic):
    text = RE_EXPORTS + logic + "\n"
    assert lines_of(tidy_rules.logic_in_init("src/rocketlake/a/__init__.py", text)) == [7]
    assert lines_of(tidy_rules.logic_in_init("src/rocketlake/__init__.py", text)) == [7]


def test_logic_in_init_lazy_exports_pass_in_the_topmost_only():
    text = RE_EXPORTS + LAZY_EXPORTS
    assert lines_of(tidy_rules.logic_in_init("src/rocketlake/__init__.py", text)) == []
    assert lines_of(tidy_rules.logic_in_init("src/rocketlake/a/__init__.py", text)) == [7, 8, 9]


def test_logic_in_init_computed_table_is_found():
    text = '"""Sign."""\n_HOMES = compute()\n'
    assert lines_of(tidy_rules.logic_in_init("src/rocketlake/__init__.py", text)) == [2]


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("a.py", '"""Sign."""\n', []),
        ("a.py", "X = 1\n", [1]),
        ("a.py", "", [1]),
        ("a.pyx", '# cython: boundscheck=False\n\n"""Sign."""\n', []),
        ("a.pyx", '# cython: boundscheck=False\ncimport x\n"""Late."""\n', [1]),
    ],
)
def test_missing_docstrings_are_found(path, text, lines):
    assert lines_of(tidy_rules.missing_docstrings(path, text)) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('__version__ = "1.0"\n', [1]),
        ('X = 1\n__version__: str = "1.0"\n', [2]),
        ('__version__ = version("rocketlake")\n', []),
        ('__version__ = "0+unknown"\n', []),
        ("__version__: str\n", []),
    ],
)
def test_written_versions_are_found(text, lines):
    assert lines_of(tidy_rules.written_versions("a.py", text)) == lines


@pytest.mark.parametrize("folder", ["work", "root", "home", "Users"])
def test_machine_paths_are_found(folder):
    text = f"first\nsee /{folder}/someone/x\n'/{folder}/a'\n"
    assert lines_of(tidy_rules.machine_paths("a.md", text)) == [2, 3]


@pytest.mark.parametrize(
    "text", ["src/work/x", "$HOME/store", "https://host/root/x", "~/home/x", "/var/lib/x", "/home"]
)
def test_machine_paths_other_paths_pass(text):
    assert lines_of(tidy_rules.machine_paths("a.md", text)) == []


@pytest.mark.parametrize(
    "address",
    [
        "https://pypi" + ".org/simple",
        "https://files.pythonhosted" + ".org/x",
        "--extra-index" + "-url x",
        "index_" + "url = x",
        "https://repo1" + ".maven.org/maven2",
        "https://repo" + ".maven.apache.org/maven2",
        "PIP_" + "INDEX_URL=x",
    ],
)
def test_registry_addresses_are_found(address):
    assert lines_of(tidy_rules.registry_addresses("a.md", f"text\n{address}\n")) == [2]


def test_registry_addresses_a_package_name_passes():
    assert lines_of(tidy_rules.registry_addresses("a.md", "pip install rocketlake\n")) == []


def test_unknown_targets_are_found_in_code_not_in_prose():
    text = "Run `make demo`, then\n\n    make tset\n\n`make gone` and make sure.\n$ make test\n"
    assert lines_of(tidy_rules.unknown_targets("a.md", text, {"demo", "test"})) == [3, 5]


def test_make_targets_are_rules_not_variables():
    makefile = "venv := .venv\n.PHONY: x\nhelp: ## Help\n\techo a: b\ntest: ready\n"
    assert tidy_rules.make_targets(makefile) == {"help", "test"}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# Changes\n\n## Unreleased\n", []),
        ("## [Unreleased]\n", []),
        ("# Changes\n\nUnreleased\n", [1]),
    ],
)
def test_missing_unreleased_is_found(text, lines):
    assert lines_of(tidy_rules.missing_unreleased("a.md", text)) == lines


@pytest.mark.parametrize(
    ("path", "content", "lines"),
    [
        ("docs/a.bin", b"\0" * (512 * 1024), []),
        ("docs/a.bin", b"\0" * (512 * 1024 + 1), [1]),
        ("docs/a.bin", b"\xff" * (512 * 1024 + 1), [1]),
        ("docs/a.md", b"a" * (512 * 1024 + 1), []),
        ("tests/golden/a.bin", b"\0" * (512 * 1024 + 1), []),
        ("tests/goldenrod/a.bin", b"\0" * (512 * 1024 + 1), [1]),
    ],
)
def test_large_binaries_are_found(path, content, lines):
    assert lines_of(tidy_rules.large_binaries(path, content)) == lines


def test_finding_names_file_and_line():
    assert str(tidy_rules.Finding("src/a.py", 7, "too long")) == "src/a.py:7: too long"
