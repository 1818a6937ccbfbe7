"""A message whose reading runs code of its sender, which itself puts, is put like any other."""

from collections.abc import Mapping, Sequence

import pytest

import rocketlake
from rocketlake import Message


class PuttingMapping(Mapping):
    """Properties that put a message whenever they are read."""

    def __init__(self, store):
        self._store = store

    def __getitem__(self, name):
        self._store.put(Message(topic="inner", body=b"by the value"))
        return {"p": "q"}[name]

    def __iter__(self):
        self._store.put(Message(topic="inner", body=b"by the names"))
        return iter(["p"])

    def __len__(self):
        return 1


class PuttingKeys(Sequence):
    """Keys that put a message whenever they are read."""

    def __init__(self, store):
        self._store = store

    def __getitem__(self, index):
        self._store.put(Message(topic="inner", body=b"by the keys"))
        return ["k"][index]

    def __len__(self):
        return 1


PUTS = {
    "put": lambda store, message: store.put(message),
    "put_batch": lambda store, message: store.put_batch([message, message]),
    "put_async": lambda store, message: store.put_async(message).result(10),
    "delayed": lambda store, message: store.put(
        Message(topic="outer", body=b"x", properties=message.properties, delay_level=18)
    ),
}


@pytest.mark.parametrize("way", PUTS)
@pytest.mark.parametrize("is_known", [False, True], ids=["new topic", "known topic"])
def test_put_of_a_message_that_puts(tmp_path, way, is_known):
    with rocketlake.open_store(tmp_path / "store") as store:
        if is_known:
            store.put(Message(topic="outer", body=b"first"))
            store.put(Message(topic="inner", body=b"first"))
        message = Message(
            topic="outer", body=b"x", properties=PuttingMapping(store), keys=PuttingKeys(store)
        )
        assert PUTS[way](store, message).is_ok
        assert sum(store.max_offset("inner", queue) for queue in range(8)) > 0
