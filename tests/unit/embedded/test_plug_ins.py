"""Wrappers around an engine: found by name, the first outermost, refused by name."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from embedded_fakes import MemoryEngine

from rocketlake.clock import SystemClock
from rocketlake.embedded.plug_ins import PlugInContext, PluginMessageStore, find_plug_ins, wrap
from rocketlake.errors import ConfigError
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, PutStatus
from rocketlake.store.dispatch.arrivals import ArrivalRelay
from rocketlake.store.options import StoreOptions
from rocketlake.store.stats.store_stats import StoreStats

CALLS: list[str] = []
CONTEXT = PlugInContext(
    path=Path("store"),
    options=StoreOptions(),
    clock=SystemClock(),
    stats=StoreStats(0),
    arrival_listener=ArrivalRelay([]),
)


class Outer(PluginMessageStore):
    def put(self, request):
        CALLS.append("outer")
        return super().put(request)


class Inner(PluginMessageStore):
    def put(self, request):
        CALLS.append("inner")
        return super().put(request)


class Silent(PluginMessageStore):
    pass


class Broken(PluginMessageStore):
    def __init__(self, inner, context):
        raise RuntimeError("no licence")


@pytest.fixture(autouse=True)
def module(monkeypatch):
    CALLS.clear()
    made = ModuleType("my_plug_ins")
    made.Outer, made.Inner, made.Silent, made.Broken = Outer, Inner, Silent, Broken
    made.number = 5
    monkeypatch.setitem(sys.modules, "my_plug_ins", made)


def plug_ins(text: str):
    return find_plug_ins(StoreOptions(message_store_plug_in=text).plug_ins)


def test_first_is_outermost():
    engine = MemoryEngine()
    wrapped = wrap(engine, plug_ins("my_plug_ins.Outer, my_plug_ins.Inner"), CONTEXT)
    assert wrapped.put_plain(Message(topic="t", body=b"x"), 0).status is PutStatus.PUT_OK
    assert CALLS == ["outer", "inner"]
    assert wrapped.put_plain_async(Message(topic="t", body=b"x"), 0).result().is_ok
    assert len(engine.requests) == 2


def test_base_class_passes_everything_on():
    engine = MemoryEngine()
    wrapped = wrap(engine, plug_ins("my_plug_ins.Silent"), CONTEXT)
    receipt = wrapped.put_plain(Message(topic="orders", body=b"x", keys=["k"]), 0)
    assert wrapped.queue_bounds(QueueKey("orders", 0)) == (0, 1)
    found = wrapped.get(GetRequest(topic="orders", queue_id=0, offset=0)).messages
    assert [m.body for m in found] == [b"x"]
    assert wrapped.message_at(receipt.physical_offset).body == b"x"
    assert wrapped.runtime_info() == {"puts": "1"}
    assert wrapped.gets == 1  # what only the engine has is reached too
    wrapped.flush()
    assert wrapped.drop_topic("orders") == 1
    wrapped.close()
    assert engine.is_closed
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = wrapped.no_such_thing


def test_no_plug_ins_leave_the_engine_as_it_is():
    engine = MemoryEngine()
    assert wrap(engine, plug_ins(""), CONTEXT) is engine


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("Nowhere", "Nowhere wanted a dotted path"),
        ("no_such_module.Thing", "no_such_module.Thing cannot be loaded: ModuleNotFoundError"),
        ("my_plug_ins.Missing", "my_plug_ins.Missing cannot be loaded: AttributeError"),
        ("my_plug_ins.number", "my_plug_ins.number is int, not a class"),
    ],
)
def test_plug_in_that_cannot_be_loaded_is_named(path, words):
    with pytest.raises(ConfigError, match=f"messageStorePlugIn: {words}"):
        plug_ins(f"my_plug_ins.Outer,{path}")


def test_plug_in_that_cannot_be_made_is_named():
    found = plug_ins("my_plug_ins.Broken")
    with pytest.raises(ConfigError, match=r"my_plug_ins\.Broken cannot be made: .*no licence"):
        wrap(MemoryEngine(), found, CONTEXT)
