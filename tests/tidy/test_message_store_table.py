"""docs/compat.md maps every method of RocketMQ's MessageStore, to what there is."""

import re
from importlib import import_module
from pathlib import Path

import rocketlake
from rocketlake.dotted_path import find_object
from rocketlake.store.message_store import MessageStore

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "compat.md"
METHODS = (HERE / "message_store_methods.txt").read_text(encoding="utf-8").split()
"""Of org.apache.rocketmq.store.MessageStore in rocketmq-store-5.5.0.jar, as `javap` lists them."""

OTHERS = {
    "GetRequest": "rocketlake.store.api.GetRequest",
    "embedded.aio": "rocketlake.embedded.aio",
    "embedded.store.Store.send_back": "rocketlake.embedded.store.Store",
    "Replicator": "rocketlake.store.ports.Replicator",
    "AppendListener": "rocketlake.store.ports.AppendListener",
    "RoleListener": "rocketlake.store.ports.RoleListener",
}
"""Names of the right column that are not those of a MessageStore."""


def rows() -> list[list[str]]:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("### The reference's MessageStore interface")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [[part.strip() for part in line.strip("| ").split(" | ", 1)] for line in lines]


def lacks(engine: MessageStore, path: str) -> bool:
    path = OTHERS.get(path, path)
    if path.startswith("rocketlake."):
        try:
            import_module(path)
        except ModuleNotFoundError:
            find_object(path)
        return False
    value: object = engine
    for part in path.split("."):
        if not hasattr(value, part.removesuffix("()")):
            return True
        value = getattr(value, part.removesuffix("()"))
        value = value() if part.endswith("()") else value
    return False


def test_every_method_of_the_reference_has_a_row():
    words = set(re.findall(r"\w+", " ".join(left for left, _ in rows())))
    assert [name for name in METHODS if name not in words] == []


def test_what_the_rows_name_is_there(tmp_path):
    named = {path for _, right in rows() for path in re.findall(r"`([^`]+)`", right)}
    paths = {path for path in named if not re.search("[/=]", path)}  # without files and arguments
    assert len(paths) > 50
    with rocketlake.open_store(tmp_path) as store:
        assert sorted(path for path in paths if lacks(store._engine, path)) == []
