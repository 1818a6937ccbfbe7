"""The inventory: what queues and index files a store had when it was last closed.

1. A queue without files cannot be missed by looking at files: a start reads only the end of
   the log, and finds none of its records there if it was quiet for long.
2. It is written before the mark of a running store goes. Queues only grow behind their ends, so
   that it still holds after a crash; a topic that is dropped takes it away.
3. It is ours alone: the reference neither writes nor reads it. A store without one is opened all
   the same.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct, structs

from rocketlake.files.ops import FileOps
from rocketlake.files.whole_file import replace_whole
from rocketlake.model.queues import QueueKey

log = logging.getLogger(__name__)

_SIZE_MAX: Final = 256 << 20  # some millions of queues

FILE_NAME: Final = "inventory.json"


class QueueBounds(Struct, frozen=True, array_like=True):
    """What a queue has: its first place, the offset behind its last message, and where that ends.

    The first place is that of the first unit in its files, whether its message is expired or not.
    """

    first: int
    end: int
    physical_end: int


class Inventory(Struct, frozen=True, kw_only=True):
    """What a store has."""

    log_min: int
    log_end: int
    queues: dict[str, dict[int, QueueBounds]]
    """By topic and number."""
    index: dict[str, int] = {}
    """The index files, and the last record that each has a key of."""

    @classmethod
    def of(
        cls,
        log: tuple[int, int],
        bounds: Mapping[QueueKey, QueueBounds],
        index: Mapping[str, int],
    ) -> "Inventory":
        """Take the bounds of the log, and of all queues."""
        queues: dict[str, dict[int, QueueBounds]] = {}
        for key, found in bounds.items():
            queues.setdefault(key.topic, {})[key.queue_id] = found
        return cls(log_min=log[0], log_end=log[1], queues=queues, index=dict(index))

    def with_queues(self, more: Mapping[QueueKey, QueueBounds]) -> "Inventory":
        """Return the same with other bounds of some queues."""
        queues = {topic: dict(found) for topic, found in self.queues.items()}
        for key, found in more.items():
            queues.setdefault(key.topic, {})[key.queue_id] = found
        return structs.replace(self, queues=queues)


class Losses(Struct, frozen=True):
    """Queues that have less than they had."""

    absent: list[QueueKey]
    """They lack everything, or what they had first: only the whole log gives that."""
    short: list[QueueKey]
    """They lack what they had last."""


def find_losses(
    then: Inventory,
    now: Mapping[QueueKey, QueueBounds],
    log: tuple[int, int],
    is_deleted: Callable[[str], bool],
) -> Losses:
    """Compare the queues of a store with what they were, `log` being the bounds of its log.

    What the log no longer holds is not missed. Nor is anything where the log itself is shorter.
    """
    losses = Losses([], [])
    if log[1] < then.log_end:
        return losses
    for topic, queues in then.queues.items():
        for queue_id, before in queues.items():
            if before.end <= before.first or before.physical_end <= log[0]:
                continue
            key = QueueKey(topic, queue_id)
            found = now.get(key)
            if found is None or found.physical_end < 0:
                if not is_deleted(topic):
                    losses.absent.append(key)
            elif found.first > before.first and log[0] == then.log_min:
                losses.absent.append(key)
            elif found.end < before.end:
                losses.short.append(key)
    return losses


class InventoryFile:
    """The file of one store.

    Durability: `save` leaves the old or the new one, and returns once the new one is on the disk.
    """

    def __init__(self, ops: FileOps, root: Path) -> None:
        self._ops = ops
        self._path = root / FILE_NAME

    def load(self) -> Inventory | None:
        """Return what was saved; None if nothing was, or it cannot be read."""
        entry = self._ops.stat(self._path)
        if entry is None or entry.is_dir:
            return None
        if entry.size > _SIZE_MAX:
            log.warning("inventory not used path=%s reason=it has %d bytes", self._path, entry.size)
            return None
        reader = self._ops.open_reader(self._path)
        try:
            return msgspec.json.decode(reader.read(0, entry.size), type=Inventory)
        except msgspec.DecodeError as error:
            log.warning("inventory not used path=%s reason=%s", self._path, error)
            return None
        finally:
            reader.close()

    def save(self, inventory: Inventory) -> None:
        """Put an inventory in the place of the old one.

        Raises:
            FileAccessError: it cannot be written.
        """
        replace_whole(self._ops, self._path, msgspec.json.encode(inventory) + b"\n")

    def remove(self) -> None:
        """Forget what was saved."""
        if self._ops.unlink(self._path):
            self._ops.sync_dir(self._path.parent)


class InventoriedQueues(Protocol):
    """Queues that can be compared with an inventory (ConsumeQueueSet)."""

    def bounds(self) -> dict[QueueKey, QueueBounds]:
        """Return what each queue has."""
        ...

    def broken(self) -> list[QueueKey]:
        """Return the queues that lack a file between two others."""
        ...

    def reset(self, keys: Iterable[QueueKey]) -> None:
        """Empty queues, which are then made again from the log."""
        ...


class Found(Struct, frozen=True):
    """The queues as a start found them."""

    bounds: dict[QueueKey, QueueBounds]
    broken: list[QueueKey]
    """They lack a file between two others."""

    @classmethod
    def of(cls, queues: InventoriedQueues) -> "Found":
        """Look at queues."""
        return cls(queues.bounds(), queues.broken())


def give_up_broken(
    queues: InventoriedQueues,
    found: Found,
    file: InventoryFile | None,
    log: tuple[int, int],
    *,
    is_deleted: Callable[[str], bool],
) -> Losses:
    """Find the queues that had lost something, and empty those that cannot just be continued.

    Raises:
        FileAccessError: the inventory cannot be written, or a file not be removed.
    """
    then = file.load() if file is not None else None
    now = found.bounds
    broken = {key: now[key] for key in found.broken if now[key].physical_end > log[0]}
    losses = Losses([], [])
    if then is not None:
        losses = find_losses(then, now, log, is_deleted)
    absent = list(dict.fromkeys([*broken, *losses.absent]))
    to_reset = [key for key in absent if key in now and now[key].physical_end >= 0]
    if to_reset:
        if file is not None and broken:
            # Order: before they are empty, so that a crash does not lose them.
            file.save((then or Inventory.of(log, now, {})).with_queues(broken))
        queues.reset(to_reset)
    return Losses(absent, [key for key in losses.short if key not in absent])
