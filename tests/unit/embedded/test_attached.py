"""Hooks, listeners and dispatchers given to open_store, and what a plug-in is given."""

import asyncio
import threading

import pytest
from embedded_fakes import WAIT_S, bodies
from msgspec.structs import replace

import rocketlake
from rocketlake import Message, PutFailedError, PutReceipt, PutStatus
from rocketlake.errors import ConfigError
from rocketlake.store.ports import Arrival


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store"


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


class Stamp:
    """Gives every message a property, and refuses what is called bad."""

    name = "stamp"

    def __init__(self):
        self.topics = []

    def before_put(self, request):
        message = request.message
        self.topics.append(message.topic)
        if message.body == b"bad":
            return PutReceipt(status=PutStatus.MESSAGE_ILLEGAL, reason="bad body")
        return replace(request, message=self.stamp(message))

    def before_put_batch(self, batch):
        if any(message.body == b"bad" for message in batch.messages):
            return PutReceipt(status=PutStatus.MESSAGE_ILLEGAL, reason="bad body")
        return replace(batch, messages=[self.stamp(message) for message in batch.messages])

    @staticmethod
    def stamp(message):
        return replace(message, properties={**message.properties, "stamp": "1"})


class Ledger:
    """Remembers the physical offsets of all records."""

    def __init__(self):
        self.offsets = []

    def dispatch(self, records):
        self.offsets += records.columns["physical_offset"].tolist()


class Bell:
    """Remembers what arrived."""

    def __init__(self):
        self.arrivals = []
        self.rang = threading.Event()

    def arrived(self, arrivals):
        self.arrivals += list(arrivals)
        self.rang.set()


# --- hooks ----------------------------------------------------------------------------------------


def test_hook_sees_every_put_and_may_change_or_refuse_it(path):
    hook = Stamp()
    with rocketlake.open_store(path, hooks=[hook]) as store:
        for _ in range(2):  # the second put of a queue could go the short way
            store.put(order(), queue_id=0)
        store.put_async(order(), queue_id=0).result(WAIT_S)
        store.put_batch([order(), order()], queue_id=0)
        with pytest.raises(PutFailedError, match="bad body"):
            store.put(order(body=b"bad"), queue_id=0)
        with pytest.raises(PutFailedError, match="bad body"):
            store.put_batch([order(), order(body=b"bad")], queue_id=0)
        found = store.get("orders", 0, 0).messages
    assert [message.properties.get("stamp") for message in found] == ["1"] * 5
    assert hook.topics == ["orders"] * 4


def test_hook_that_does_not_look_at_batches_lets_them_pass(path):
    class Single:
        name = "single"

        def before_put(self, request):
            return PutReceipt(status=PutStatus.MESSAGE_ILLEGAL, reason="none by itself")

    with rocketlake.open_store(path, hooks=[Single()]) as store:
        assert store.put_batch([order()], queue_id=0).is_ok


def test_hook_sees_a_delayed_message_under_its_own_topic(path):
    hook = Stamp()
    with rocketlake.open_store(path, hooks=[hook]) as store:
        store.put(order(delay_level=18))
    assert hook.topics == ["orders"]


# --- listeners ------------------------------------------------------------------------------------


def test_listener_is_told_of_what_can_be_read(path):
    bell = Bell()
    with rocketlake.open_store(path, arrival_listeners=[bell]) as store:
        store.put(order(tags="paid"), queue_id=1)
        assert bell.rang.wait(WAIT_S)
    arrival = bell.arrivals[0]
    assert (arrival.topic, arrival.queue_id, arrival.next_offset) == ("orders", 1, 1)


@pytest.mark.parametrize("dispatch", ["internal", "external"])
def test_listener_is_told_of_light_queues_too(path, dispatch):
    bell = Bell()
    light = {"enable_lmq": True, "enable_multi_dispatch": True, "dispatch": dispatch}
    with rocketlake.open_store(path, arrival_listeners=[bell], **light) as store:
        store.put(order(properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}), queue_id=1)
        assert bell.rang.wait(WAIT_S)
    found = [(a.topic, a.queue_id, a.next_offset) for a in bell.arrivals]
    assert found == [("orders", 1, 1), ("%LMQ%a", 0, 1)]


# --- dispatchers ----------------------------------------------------------------------------------


def test_dispatcher_gets_every_record(path):
    ledger = Ledger()
    with rocketlake.open_store(path, dispatchers=[ledger]) as store:
        receipts = [store.put(order()) for _ in range(3)]
        store.get("orders", 0, 0)
        assert ledger.offsets == [receipt.physical_offset for receipt in receipts]


def test_dispatcher_gets_the_records_that_a_start_dispatches(path):
    with rocketlake.open_store(path) as store:
        receipts = [store.put(order()) for _ in range(3)]
    (path / "abort").write_text("1")
    ledger = Ledger()
    with rocketlake.open_store(path, dispatchers=[ledger]):
        assert ledger.offsets == [receipt.physical_offset for receipt in receipts]


def test_dispatcher_that_raises_gets_the_same_records_again(path):
    class Late(Ledger):
        failures = 2

        def dispatch(self, records):
            if self.failures:
                self.failures -= 1
                raise RuntimeError("not yet")
            super().dispatch(records)

    late, bell = Late(), Bell()
    attached = {"dispatchers": [late], "arrival_listeners": [bell]}
    with rocketlake.open_store(path, **attached) as store:
        receipt = store.put(order())
        assert bell.rang.wait(WAIT_S)
    assert late.offsets == [receipt.physical_offset]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hooks": [Bell()]}, r"hooks: .*Bell object.* has no method before_put"),
        ({"hooks": Stamp()}, r"hooks = .*Stamp.*: wanted a list of objects"),
        ({"arrival_listeners": [len]}, "arrival_listeners: .* has no method arrived"),
        ({"dispatchers": [Bell()]}, "dispatchers: .* has no method dispatch"),
        ({"hooks": [Stamp()], "read_only": True}, "not with read_only"),
    ],
)
def test_part_that_cannot_work_is_refused_and_nothing_is_made(path, arguments, words):
    with pytest.raises(ConfigError, match=words):
        rocketlake.open_store(path, **arguments)
    assert not path.exists()


def test_asyncio_store_takes_them_too(path):
    hook, bell, ledger = Stamp(), Bell(), Ledger()

    async def main():
        opening = rocketlake.open_store_async(
            path, hooks=[hook], arrival_listeners=[bell], dispatchers=[ledger]
        )
        async with opening as store:
            await store.put(order())
            return bodies((await store.get("orders", 0, 0)).messages)

    assert asyncio.run(main()) == ["x"]
    assert (len(hook.topics), len(bell.arrivals), len(ledger.offsets)) == (1, 1, 1)


# --- the context of a plug-in ---------------------------------------------------------------------


class Curious(rocketlake.PluginMessageStore):
    """Keeps its context where the test finds it."""

    contexts: list = []  # noqa: RUF012 - of the class, which the store makes

    def __init__(self, inner, context):
        super().__init__(inner, context)
        self.contexts.append(context)


def test_plug_in_is_given_options_statistics_and_listeners(path):
    bell = Bell()
    name = f"{__name__}.Curious"
    with rocketlake.open_store(
        path, message_store_plug_in=name, slave_timeout=7, arrival_listeners=[bell]
    ) as store:
        context = Curious.contexts.pop()
        assert (context.path, context.options.slave_timeout) == (path, 7)
        store.put(order())
        store.get("orders", 0, 0)
        assert context.stats.put_count == 1
        bell.arrivals.clear()
        found = Arrival(
            topic="elsewhere",
            queue_id=0,
            next_offset=1,
            tags_code=0,
            store_timestamp=0,
            bitmap=None,
            properties={},
        )
        context.arrival_listener.arrived([found])
        assert bell.arrivals == [found]
