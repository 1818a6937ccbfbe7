"""Committer: appends staged rows to a store, each exactly once (docs/adr/0013).

A commit records durably what it will append and where the log ends (the intent), appends, flushes,
and records that it is done. A commit that is killed anywhere leaves a mark from which the next
commit, of any write, continues: rows that the log already has are recognised by their content from
the intent's offset on, and the rest is appended.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.embedded.bulk_store import BulkStore, RoutePlan, open_bulk
from rocketlake.errors import StoreError, StoreLockedError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.spark.sink.append import Append
from rocketlake.spark.sink.marks import Intent, Mark, MarkFiles, Point
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.sink.plan import WriteKey
from rocketlake.spark.sink.staging import Footer, StagedFile, StageReader
from rocketlake.spark.sink.sweeper import Sweeper

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.1


class Committer:
    """Commits to one store. Thread-safety: one thread; processes take turns by the store's lock."""

    def __init__(
        self, options: SinkOptions, *, clock: Clock | None = None, ops: FileOps | None = None
    ) -> None:
        self._options = options
        self._root = Path(options.path)
        self._clock = clock
        self._ops = ops or PosixFileOps()
        self._marks = MarkFiles(self._ops, self._root)
        self._sweeper = Sweeper(self._ops, self._marks)

    def commit(self, key: WriteKey, files: Sequence[StagedFile]) -> int:
        """Append staged rows, unless the store already has this write; return how many were new.

        Raises:
            StoreError: the store is in use, or a write failed. The same commit may be tried again,
                with these files or with others for the same rows.
        """
        if self._is_done(key):
            log.info("rows are in the store already write=%s", key)
            self._sweeper.sweep(key, files)
            return 0
        with ThreadPoolExecutor(1, "rocketlake-sweep") as pool:
            with self._open() as store:
                for mark in self._marks.pending():
                    self._finish_other(store, mark, key)
                rows = 0
                if not self._is_done(key) and files:
                    rows = self._append(store, self._start(store, key, files), is_new=True)
                elif files:
                    log.info("a killed commit was finished, new rows are left out write=%s", key)
                swept = pool.submit(self._sweeper.sweep, key, files)  # while the store closes
            swept.result()
        return rows

    def abort(self, files: Sequence[StagedFile], folder: Path | None = None) -> None:
        """Remove staged rows that no commit will append."""
        self._sweeper.remove(files, folder)

    def finish_pending(self) -> int:
        """Finish the commits that were killed; return how many there were.

        Raises:
            StoreError: the store is in use, or staged rows are gone.
        """
        if not self._marks.pending():
            return 0
        with self._open() as store:
            pending = self._marks.pending()
            for mark in pending:
                self._append(store, mark)
                self._forget(mark)
        return len(pending)

    def _is_done(self, key: WriteKey) -> bool:
        return self._marks.load(key).done >= key.batch

    # --- the store -----------------------------------------------------------------------------

    def _open(self) -> BulkStore:
        options = self._options
        deadline = time.monotonic() + options.lock_timeout_s
        while True:
            try:
                return open_bulk(
                    options.path, options.conf, clock=self._clock, **options.store_options
                )
            except StoreLockedError as error:
                if time.monotonic() >= deadline:
                    raise StoreError(
                        f"{error.reason}. A store has one writer: close it there, or let the"
                        f" write begin when it is free (waited {options.lock_timeout_s:g} s, option"
                        " lockTimeout). Nothing was appended"
                    ) from error
                time.sleep(_RETRY_S)

    def _finish_other(self, store: BulkStore, mark: Mark, key: WriteKey) -> None:
        """Finish a commit that was killed.

        Why: some of its rows may be in the store, and its own query may never run again.
        """
        assert mark.intent is not None, "it is pending"
        is_own = mark.key(0).slug == replace(key, batch=0).slug
        try:
            self._append(store, mark)
            self._forget(mark)
        except StoreError as error:
            if is_own:
                raise
            other = mark.key(mark.intent.batch)
            log.warning("killed commit not finished write=%s reason=%s", other, error)

    def _forget(self, mark: Mark) -> None:
        """Remove the staged rows of a finished intent."""
        assert mark.intent is not None, "it was pending"
        self._sweeper.remove(mark.intent.files)

    # --- the intent ----------------------------------------------------------------------------

    def _start(self, store: BulkStore, key: WriteKey, files: Sequence[StagedFile]) -> Mark:
        """Check everything that can be checked, then record the intent durably."""
        with ExitStack() as stack:
            readers = [_open_staged(stack, self._ops, file) for file in files]
            footers = [reader.footer for reader in readers]
        _check_shapes(store, footers)
        routes = _plan_routes(store, footers)
        # Order: the log before the intent's offset must survive a crash, or later records would lie
        # before the place where the next attempt begins to search.
        store.flush()
        intent = Intent(
            batch=key.batch,
            files=list(files),
            routes=routes,
            points=[Point(store.log_bounds[1], 0, [route.turn for route in routes])],
        )
        return self._marks.intend(self._marks.load(key), intent)

    def _append(self, store: BulkStore, mark: Mark, *, is_new: bool = False) -> int:
        """Append the rows of an intent that the log lacks; return how many there were."""
        intent = mark.intent
        assert intent is not None, "the mark has an intent"
        try:
            appended = Append(store, self._ops, self._marks, mark).run(is_new=is_new)
        except StoreError as error:
            key = mark.key(intent.batch)
            raise StoreError(
                f"{key} is not in the store as a whole: {error}. Committing it again appends the"
                f" missing rows; if its staged rows are lost, remove {self._marks.path(mark)}, and"
                " all of it is written again"
            ) from error
        store.flush()
        self._marks.finish(mark)
        return appended


def _open_staged(stack: ExitStack, ops: FileOps, file: StagedFile) -> StageReader:
    reader = StageReader(ops, file)
    stack.callback(reader.close)
    return reader


def _check_shapes(store: BulkStore, footers: Sequence[Footer]) -> None:
    shape = store.shape
    for footer in footers:
        if not footer.shape.is_alike(shape):
            raise StoreError(
                "rows were staged for other options than the store is opened with (storeHost,"
                " compatVersion, enabledAppendPropCRC or autoMessageVersionOnTopicLen changed);"
                " write them again. Nothing was appended"
            )
        if footer.body_max > shape.body_max or footer.record_max > shape.record_max:
            raise StoreError(
                f"partition {footer.partition} has a body of {footer.body_max} bytes;"
                f" maxMessageSize of the store allows {shape.body_max}. Nothing was appended"
            )


def _plan_routes(store: BulkStore, footers: Sequence[Footer]) -> list[RoutePlan]:
    """Return the route of each topic, in the order of their first rows.

    Raises:
        StoreError: a topic may not be written, or has no such queue.
    """
    routes: dict[str, RoutePlan] = {}
    for footer in footers:
        for use in footer.topics:
            try:
                route = routes.get(use.topic) or store.plan_route(use.topic)
            except (TypeError, ValueError) as error:
                raise StoreError(f"{error}. Nothing was appended") from error
            routes[use.topic] = route
            if use.queue_max >= route.queue_count:
                raise StoreError(
                    f"column queue_id: {use.queue_max}: topic {use.topic!r} has"
                    f" {route.queue_count} queues, 0 to {route.queue_count - 1}; row"
                    f" {use.queue_row} of partition {footer.partition}. Nothing was appended"
                )
    return list(routes.values())
