"""RocketLake: message stores that are byte-compatible with Apache RocketMQ.

The public names; each is imported when it is first used, because a program that only asks for the
version should not wait for numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlake.format.kernel import KERNEL
    from rocketlake.model.message import Message, StoredMessage
    from rocketlake.store.offline import OfflineStore
    from rocketlake.version import __version__

__all__ = ["KERNEL", "Message", "OfflineStore", "StoredMessage", "__version__"]

_HOMES = {
    "KERNEL": "rocketlake.format.kernel",
    "Message": "rocketlake.model.message",
    "OfflineStore": "rocketlake.store.offline",
    "StoredMessage": "rocketlake.model.message",
    "__version__": "rocketlake.version",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
