"""Rules about the repository that ruff does not know; each takes text and yields findings."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import NamedTuple

MODULE_LINES_MAX = 500
TABLE_LINES_MAX = 900  # modules without code, and native.pyx
CONFTEST_LINES_MAX = 150
FUNCTION_LINES_MAX = 60
BINARY_SIZE_MAX = 512 * 1024
BANNED_NAMES = frozenset(
    {"util", "utils", "helper", "helpers", "common", "base", "misc", "types", "manager"}
)

# The slashes stand apart from the names, so that this file does not break its own rules.
MACHINE_PATH = re.compile(r"(?<![\w.$~/-])/(?:work|root|home|Users)/[\w.]")
REGISTRY = re.compile(
    r"pypi[.]org|pythonhosted[.]org|index[-_]url|repo1?[.]maven|registry[.]npmjs|PIP_(?:EXTRA_)?INDEX"
)
MAKE_COMMAND = re.compile(r"(?:^\s*(?:\$ )?|`)make ([a-z][\w-]*)")
MAKE_TARGET = re.compile(r"^([a-z][\w-]*):(?!=)", re.MULTILINE)


class Finding(NamedTuple):
    """One broken rule, where it is broken."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def long_modules(path: str, text: str) -> Iterator[Finding]:
    """A module stays under its cap."""
    count = text.count("\n")
    cap = lines_max(path, text)
    if count > cap:
        yield Finding(path, cap + 1, f"{count} lines, at most {cap}")


def lines_max(path: str, text: str) -> int:
    """The cap of a module: by its name, or by having no code."""
    name = PurePath(path).name
    if name == "conftest.py":
        return CONFTEST_LINES_MAX
    if name == "native.pyx" or (name.endswith(".py") and is_table(ast.parse(text))):
        return TABLE_LINES_MAX
    return MODULE_LINES_MAX


def is_table(tree: ast.Module) -> bool:
    """Whether a module only names values: no functions, no statements."""
    plain = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    return all(
        isinstance(node, plain) or is_text(node) or (body is tree.body and is_class(node))
        for body in bodies
        for node in body
    )


def long_functions(path: str, text: str) -> Iterator[Finding]:
    """A function stays under its cap, its decorators not counted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield Finding(
                    path, node.lineno, f"{node.name}: {count} lines, at most {FUNCTION_LINES_MAX}"
                )


def banned_names(path: str) -> Iterator[Finding]:
    """No module or package has a name that says nothing."""
    for part in PurePath(path).with_suffix("").parts:
        if part in BANNED_NAMES:
            yield Finding(path, 1, f"the name {part!r} says nothing about what is inside")


def logic_in_init(path: str, text: str) -> Iterator[Finding]:
    """A package's `__init__` re-exports; the topmost may do so lazily."""
    is_topmost = PurePath(path).parts[-3:-1] == ("src", "rocketlake")
    for node in ast.parse(text).body:
        if not (is_re_export(node) or (is_topmost and is_lazy_export(node))):
            yield Finding(path, node.lineno, "logic in __init__.py")


def is_re_export(node: ast.stmt) -> bool:
    """Docstring, imports (also for type checkers only) and `__all__`."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in body)
        case _:
            return is_text(node)


def is_lazy_export(node: ast.stmt) -> bool:
    """`__getattr__`, `__dir__`, annotations of names and a private table of literals."""
    match node:
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case ast.AnnAssign(value=None):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name.startswith("_") and is_literal(value)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name.startswith("_") and is_literal(value)
        case _:
            return False


def missing_docstrings(path: str, text: str) -> Iterator[Finding]:
    """Every module has a sign at its door."""
    if path.endswith(".pyx"):
        has_docstring = re.match(r'(?:#[^\n]*\n|\s)*r?"""', text) is not None
    else:
        has_docstring = ast.get_docstring(ast.parse(text)) is not None
    if not has_docstring:
        yield Finding(path, 1, "no module docstring")


def written_versions(path: str, text: str) -> Iterator[Finding]:
    """The version is written in pyproject.toml and nowhere else."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__version__")], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id="__version__"), value=ast.Constant(value=value))
            ) if re.match(r"\d+\.\d", str(value)):
                yield Finding(path, node.lineno, "the version's home is pyproject.toml")


def machine_paths(path: str, text: str) -> Iterator[Finding]:
    """Nothing names a directory of somebody's machine."""
    yield from lines_with(MACHINE_PATH, path, text, "path of a machine")


def registry_addresses(path: str, text: str) -> Iterator[Finding]:
    """Packages are named, their registries are not."""
    yield from lines_with(REGISTRY, path, text, "address of a package registry")


def lines_with(pattern: re.Pattern[str], path: str, text: str, what: str) -> Iterator[Finding]:
    """One finding for each line where the pattern is found."""
    for number, line in enumerate(text.splitlines(), 1):
        match = pattern.search(line)
        if match:
            yield Finding(path, number, f"{what}: {match[0]}")


def unknown_targets(path: str, text: str, targets: Collection[str]) -> Iterator[Finding]:
    """Every `make` command shown in a document exists."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in MAKE_COMMAND.findall(line):
            if target not in targets:
                yield Finding(path, number, f"no such target: make {target}")


def make_targets(makefile: str) -> set[str]:
    """Targets of a Makefile."""
    return set(MAKE_TARGET.findall(makefile))


def missing_unreleased(path: str, text: str) -> Iterator[Finding]:
    """A changelog has a part for what is not released yet."""
    if not re.search(r"^## \[?Unreleased\b", text, re.MULTILINE):
        yield Finding(path, 1, "no part called Unreleased")


def large_binaries(path: str, content: bytes) -> Iterator[Finding]:
    """Large data is kept out, except the golden stores."""
    in_golden = path.startswith("tests/golden/")
    if len(content) > BINARY_SIZE_MAX and is_binary(content) and not in_golden:
        yield Finding(path, 1, f"binary of {len(content)} bytes, at most {BINARY_SIZE_MAX}")


def is_binary(content: bytes) -> bool:
    """Whether a file is not text."""
    try:
        return "\0" in content.decode()
    except UnicodeDecodeError:
        return True


def is_text(node: ast.stmt) -> bool:
    """A docstring, or another string standing alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef)


def is_literal(value: ast.expr) -> bool:
    """Whether an expression is written out, without calls."""
    return not any(isinstance(node, ast.Call) for node in ast.walk(value))
