"""Which calls may block a thread, or hold a lock, in code that a caller's thread runs.

Why: a signal handler may raise in the main thread between any two instructions. A lock is given
back whatever happens only if a `with` block took it. `Condition`, `Semaphore` and `Event.wait` are
Python code that holds a lock of its own inside. A gate is what is left: a lock that belongs to one
wait, is taken by the thread that waits, and is released only by the one that lets it go.
"""

import ast
from collections.abc import Iterator

from tidy_rules import Finding

HOLDERS = frozenset({"Barrier", "BoundedSemaphore", "Condition", "Semaphore"})
BLOCKING = frozenset({"acquire", "wait"})
GATES = frozenset({"gate", "_gate"})


def blocking_calls(path: str, text: str) -> Iterator[tuple[str, Finding]]:
    """Yield where a lock is taken without `with`, or waited for; with the function's full name."""
    yield from _look(ast.parse(text), path, ())


def _look(node: ast.AST, path: str, names: tuple[str, ...]) -> Iterator[tuple[str, Finding]]:
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        inner = (*names, child.name) if is_named else names
        what = _holder(child) or _blocking(child)
        if what is not None:
            yield ".".join(inner), Finding(path, child.lineno, what)
        yield from _look(child, path, inner)


def _holder(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in HOLDERS:
            return f"{name}() is made"
        case ast.ClassDef(bases=bases):
            for base in bases:
                name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
                if name in HOLDERS:
                    return f"a {name}"
    return None


def _blocking(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=receiver)) if name in BLOCKING:
            is_gate = _name_of(receiver) in GATES and name == "acquire"
            return None if is_gate else f"{ast.unparse(receiver)}.{name}()"
    return None


def _name_of(receiver: ast.expr) -> str:
    match receiver:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
