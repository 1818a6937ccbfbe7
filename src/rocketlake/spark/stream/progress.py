"""The progress of a consumer group, written where other tools see it.

1. To the store's own table, `config/consumerOffset.json`, while no process has the store open: such
   a process would not see the change and would overwrite it. The store's lock is held for the
   write.
2. To a separate directory (`progressPath`), in the same format, if one is named: always.

Other groups and other queues are left alone. A failed write is logged and repeated at the next
batch: the query itself relies on its checkpoint and needs neither.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import StoreError, StoreLockedError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.files.store_lock import StoreLock
from rocketlake.format import names
from rocketlake.metadata import offsets as offset_table
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.offsets import LightOffsetBook, OffsetBook
from rocketlake.spark.stream.offsets import StreamSource
from rocketlake.store.offline import refuse_rocksdb_queues

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
_KINDS: Final = {True: LightOffsetBook, False: OffsetBook}


class StoreLocation(Struct, frozen=True):
    """The location of a store whose table is written."""

    root: Path
    is_4x: bool = False


class GroupProgress:
    """Reads and writes the progress of one group in some stores.

    Thread-safety: one thread.
    """

    def __init__(
        self,
        group: str,
        stores: Mapping[str, StoreLocation],
        own_dir: Path | None = None,
        *,
        ops: FileOps | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Name the stores by broker; `own_dir` is `progressPath`."""
        self._group = group
        self._stores = dict(stores)
        self._own_dir = own_dir
        self._ops = ops or PosixFileOps()
        self._clock = clock or SystemClock()
        self._in_store: dict[str, dict[StreamSource, int]] = {}
        self._in_own: dict[str, dict[StreamSource, int]] = {}
        self._logged: set[str] = set()
        self._waiting: dict[str, tuple[float, dict[StreamSource, int]]] = {}

    def find(self, source: StreamSource) -> int | None:
        """Return the group's next offset of a queue; None if it never committed one.

        The file below `progressPath` takes precedence over the store's table.

        Raises:
            StoreError: a table cannot be read.
        """
        places = [self._own_place(source.broker), self._store_place(source.broker)]
        for place in filter(None, places):
            found = self._load(place).get(source.topic, self._group, source.queue_id)
            if found is not None:
                return found
        return None

    def write(self, ends: Mapping[StreamSource, int]) -> None:
        """Write the next offset of each queue."""
        for broker in self._stores:
            mine = {source: at for source, at in ends.items() if source.broker == broker}
            if mine and self._in_own.get(broker) != mine and self._write_own(broker, mine):
                self._in_own[broker] = mine
            if mine and self._in_store.get(broker) != mine and self._is_due(broker, mine):
                if self._write_store(broker, mine):
                    self._in_store[broker] = mine
                else:
                    self._waiting[broker] = (self._clock.monotonic_s() + _RETRY_S, mine)

    def _is_due(self, broker: str, ends: dict[StreamSource, int]) -> bool:
        """Tell whether to repeat a failed write now: Spark asks a hundred times a second."""
        until, refused = self._waiting.get(broker, (0.0, {}))
        return refused != ends or self._clock.monotonic_s() >= until

    def _write_own(self, broker: str, ends: Mapping[StreamSource, int]) -> bool:
        place = self._own_place(broker)
        if place is None:
            return False
        try:
            self._commit(place, ends)
        except StoreError as error:
            self._log_once(broker, f"progressPath cannot be written: {error}")
            return False
        return True

    def _write_store(self, broker: str, ends: Mapping[StreamSource, int]) -> bool:
        place = self._store_place(broker)
        assert place is not None
        root = self._stores[broker].root
        lock = StoreLock(self._ops, root)
        try:
            refuse_rocksdb_queues(StoreDir(self._ops, root))
            lock.acquire()
        except StoreLockedError as error:
            way_out = "" if self._own_dir else "; set progressPath to have it in a separate file"
            self._log_once(broker, f"{error}, so that its table is left alone{way_out}")
            return False
        except StoreError as error:
            self._log_once(broker, str(error))
            return False
        try:
            self._commit(place, ends)
        except StoreError as error:
            self._log_once(broker, str(error))
            return False
        finally:
            lock.release()
        return True

    def _commit(self, place: TableLocation, ends: Mapping[StreamSource, int]) -> None:
        # Why: loaded each time, since other programs may have written meanwhile.
        book = self._load(place)
        for source, offset in ends.items():
            book.commit(source.topic, self._group, source.queue_id, offset)
        book.persist()

    def _load(self, place: TableLocation) -> OffsetBook:
        has_light = self._ops.stat(place.config_dir / offset_table.LIGHT_FILE_NAME) is not None
        return _KINDS[has_light].load(place)

    def _store_place(self, broker: str) -> TableLocation | None:
        store = self._stores.get(broker)
        if store is None:
            return None
        return TableLocation(self._ops, self._clock, store.root / names.CONFIG, is_4x=store.is_4x)

    def _own_place(self, broker: str) -> TableLocation | None:
        if self._own_dir is None:
            return None
        return TableLocation(self._ops, self._clock, self._own_dir / broker)

    def _log_once(self, broker: str, text: str) -> None:
        """Log why progress is not written, once for each reason."""
        line = f"{broker}: {text}"
        if line not in self._logged:
            self._logged.add(line)
            log.warning("progress of group %s is not written: %s", self._group, line)
