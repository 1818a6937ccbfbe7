"""Every option of a store is read by code, or listed as one that is not."""

import ast
from collections.abc import Iterator
from pathlib import Path

from rocketlake.store.options import UNREAD, StoreOptions

SOURCE = Path(__file__).resolve().parents[2] / "src" / "rocketlake"
PACKAGE = SOURCE / "store" / "options"
FIELDS = frozenset(StoreOptions.__struct_fields__)
HOLDERS = ("options", "settled", "asked")
"""What variables and attributes that hold the options of a store are called, or end in."""


def trees(paths: Iterator[Path]) -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def reads(tree: ast.AST, *, holders: tuple[str, ...] = HOLDERS) -> set[str]:
    """Return the attributes that are read of a variable or attribute with one of these names."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and name_of(node.value).endswith(holders)
    }


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def choices(tree: ast.AST) -> set[str]:
    """Return the names of options that are looked up in a choice: they are whole texts."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def derived() -> dict[str, set[str]]:
    """Return what the properties of StoreOptions read of it."""
    tree = ast.parse((PACKAGE / "store_options.py").read_text(encoding="utf-8"))
    return {each.name: reads(each, holders=("self",)) for each in functions(tree)}


def refused() -> set[str]:
    """Return what is read in order to refuse options."""
    tree = ast.parse((PACKAGE / "checks.py").read_text(encoding="utf-8"))
    return next(reads(each) for each in functions(tree) if each.name == "refuse")


def read_options(outside: list[ast.Module]) -> set[str]:
    """Return the options that code outside the package reads, directly or by a property."""
    found: set[str] = refused()
    for tree in outside:
        found |= reads(tree) | choices(tree)
    for name, fields in derived().items():
        if name in found:
            found |= fields
    return found & FIELDS


def outside_modules() -> list[ast.Module]:
    return trees(path for path in SOURCE.rglob("*.py") if PACKAGE not in path.parents)


def test_every_option_is_read_or_listed():
    unread = FIELDS - read_options(outside_modules())
    assert sorted(unread - set(UNREAD)) == [], "neither read nor in store/options/unread.py"


def test_no_option_that_is_read_is_listed_as_unread():
    assert sorted(read_options(outside_modules()) & set(UNREAD)) == []
    assert sorted(set(UNREAD) - FIELDS) == []


def test_search_finds_reads_and_nothing_else():
    code = """
def f(options, other, values):
    \"\"\"max_index_num\"\"\"
    options.max_hash_slot_num
    self._options.slave_timeout
    other.max_message_size
    options.total_replicas = 3
    values.get("store_path_root_dir")
"""
    tree = ast.parse(code)
    assert reads(tree) == {"max_hash_slot_num", "slave_timeout"}
    assert choices(tree) & FIELDS == {"max_index_num", "store_path_root_dir"}


def test_option_that_is_only_doubted_is_not_read():
    assert "min_in_sync_replicas" not in read_options(outside_modules())


def test_property_counts_only_where_it_is_read():
    assert "plug_ins" in derived()
    assert "message_store_plug_in" not in read_options([ast.parse("x = 1")])
    assert "message_store_plug_in" in read_options([ast.parse("asked.plug_ins")])
