"""RocketLake: message stores that are byte-compatible with Apache RocketMQ.

    import rocketlake
    from rocketlake import Message

    with rocketlake.open_store("data/store") as store:
        store.put(Message(topic="orders", body=b"...", tags="paid", keys=["o-1001"]))
        for message in store.consumer(group="billing", topic="orders", timeout=1):
            print(message.body)

The public names; each is imported when it is first used, because a program that only asks for the
version should not wait for numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlake.embedded.aio import AsyncStore, open_store_async
    from rocketlake.embedded.consumer.consumer import Consumer
    from rocketlake.embedded.open_store import open_store
    from rocketlake.embedded.plug_ins import PlugInContext, PluginMessageStore
    from rocketlake.embedded.read_only import ReadOnlyStore
    from rocketlake.embedded.store import Store
    from rocketlake.errors import (
        ConfigError,
        PutFailedError,
        RocketLakeError,
        StoreClosedError,
        StoreError,
        StoreLockedError,
        StoreNotFoundError,
        StorePoisonedError,
    )
    from rocketlake.format.kernel import KERNEL
    from rocketlake.format.record import StoredMessage
    from rocketlake.model.compression import set_body_size_max
    from rocketlake.model.message import Message
    from rocketlake.model.queues import QueueKey
    from rocketlake.model.topics import TopicConfig
    from rocketlake.store.api import GetResult, GetStatus, PutReceipt, PutStatus
    from rocketlake.store.exit_hook import closing_on_sigterm
    from rocketlake.store.offline import OfflineStore
    from rocketlake.version import __version__

__all__ = [
    "KERNEL",
    "AsyncStore",
    "ConfigError",
    "Consumer",
    "GetResult",
    "GetStatus",
    "Message",
    "OfflineStore",
    "PlugInContext",
    "PluginMessageStore",
    "PutFailedError",
    "PutReceipt",
    "PutStatus",
    "QueueKey",
    "ReadOnlyStore",
    "RocketLakeError",
    "Store",
    "StoreClosedError",
    "StoreError",
    "StoreLockedError",
    "StoreNotFoundError",
    "StorePoisonedError",
    "StoredMessage",
    "TopicConfig",
    "__version__",
    "closing_on_sigterm",
    "open_store",
    "open_store_async",
    "set_body_size_max",
]

_HOMES = {
    "AsyncStore": "rocketlake.embedded.aio",
    "ConfigError": "rocketlake.errors",
    "Consumer": "rocketlake.embedded.consumer.consumer",
    "GetResult": "rocketlake.store.api",
    "GetStatus": "rocketlake.store.api",
    "KERNEL": "rocketlake.format.kernel",
    "Message": "rocketlake.model.message",
    "OfflineStore": "rocketlake.store.offline",
    "PlugInContext": "rocketlake.embedded.plug_ins",
    "PluginMessageStore": "rocketlake.embedded.plug_ins",
    "PutFailedError": "rocketlake.errors",
    "PutReceipt": "rocketlake.store.api",
    "PutStatus": "rocketlake.store.api",
    "QueueKey": "rocketlake.model.queues",
    "ReadOnlyStore": "rocketlake.embedded.read_only",
    "RocketLakeError": "rocketlake.errors",
    "Store": "rocketlake.embedded.store",
    "StoreClosedError": "rocketlake.errors",
    "StoreError": "rocketlake.errors",
    "StoreLockedError": "rocketlake.errors",
    "StoreNotFoundError": "rocketlake.errors",
    "StorePoisonedError": "rocketlake.errors",
    "StoredMessage": "rocketlake.format.record",
    "TopicConfig": "rocketlake.model.topics",
    "__version__": "rocketlake.version",
    "closing_on_sigterm": "rocketlake.store.exit_hook",
    "open_store": "rocketlake.embedded.open_store",
    "open_store_async": "rocketlake.embedded.aio",
    "set_body_size_max": "rocketlake.model.compression",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
