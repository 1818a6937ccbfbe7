"""Append: appends the rows of an intent to the log, from the first one that is missing there."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from msgspec.structs import replace

from rocketlake.embedded.bulk_match import LogMatcher
from rocketlake.embedded.bulk_store import BulkStore
from rocketlake.embedded.bulk_types import TopicRoutes
from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps
from rocketlake.format.bulk import row_size
from rocketlake.spark.sink.marks import Intent, Mark, MarkFiles, Point
from rocketlake.spark.sink.staging import Piece, StagedFile, StageReader


class Append:
    """Appends the rows of an intent, once.

    A row's queue follows from the intent alone, so that every attempt chooses the same one.
    """

    def __init__(self, store: BulkStore, ops: FileOps, marks: MarkFiles, mark: Mark) -> None:
        assert mark.intent is not None, "the mark has an intent"
        self._store = store
        self._ops = ops
        self._marks = marks
        self._mark = mark
        self._intent: Intent = mark.intent
        self._point = self._intent.points[-1]
        self._plans = {route.topic: route for route in self._intent.routes}
        topics = [route.topic for route in self._intent.routes]
        self._turns = dict(zip(topics, self._point.turns, strict=True))
        self._row = 0  # the first row of the current piece
        self._matcher: LogMatcher | None = None

    def run(self, *, is_new: bool) -> int:
        """Append the missing rows, and return their number.

        With `is_new` the log cannot have any of them.

        Raises:
            StoreError: something cannot be read or appended; what was appended stays.
        """
        log_min = self._store.log_bounds[0]
        if self._point.offset < log_min:
            raise StoreError(
                f"the log begins at {log_min}, and the rows began at {self._point.offset}: those"
                " files have expired, so it is not known which rows are missing"
            )
        if not is_new:
            with_crc = self._store.shape.reserve_crc
            self._matcher = LogMatcher(self._store.core.log, self._point.offset, with_crc=with_crc)
        return sum(self._append_file(file) for file in self._intent.files)

    def _append_file(self, file: StagedFile) -> int:
        reader = StageReader(self._ops, file)
        try:
            topics = [use.topic for use in reader.footer.topics]
            plans = [replace(self._plans[t], turn=self._turns[t]) for t in topics]
            routes = self._store.make_routes(plans)
            appended = 0
            for piece, records in self._read(reader):
                position = self._first_missing(memoryview(records), routes)
                if position < len(records):
                    appended += self._store.append(records, routes, position)
                self._row += piece.rows
                self._turns.update(zip(topics, routes.turns, strict=True))
            return appended
        finally:
            reader.close()

    def _read(self, reader: StageReader) -> Iterator[tuple[Piece, bytes]]:
        """Yield the pieces with rows at or behind the point, reading one ahead."""
        wanted: list[Piece] = []
        for piece in reader.footer.pieces:
            if not wanted and self._row + piece.rows <= self._point.row:
                self._row += piece.rows
            else:
                wanted.append(piece)
        with ThreadPoolExecutor(1, "rocketlake-staged") as pool:
            ahead: Future[bytes] | None = None
            for number, piece in enumerate(wanted):
                records = reader.read(piece) if ahead is None else ahead.result()
                following = wanted[number + 1 : number + 2]
                ahead = pool.submit(reader.read, following[0]) if following else None
                yield piece, records

    def _first_missing(self, records: memoryview, routes: TopicRoutes) -> int:
        """Return the position of the first row of a piece that is not in the log."""
        position = 0
        skipped = max(self._point.row - self._row, 0)
        for _ in range(skipped):
            position += row_size(records, position)
        if self._matcher is None:
            return position
        count, position = self._matcher.pass_over(records, position, routes)
        if self._matcher.is_over:
            self._matcher = None
            self._add_point(self._row + skipped + count, routes)
        return position

    def _add_point(self, row: int, routes: TopicRoutes) -> None:
        """Record durably that the rest of the rows begins at the end of the log.

        Why: other programs may have appended since the first attempt, and the next attempt must
        search behind their records.
        """
        end = self._store.log_bounds[1]
        if (end, row) == (self._point.offset, self._point.row):
            return
        self._store.flush()
        turns = self._turns | {
            route.topic: turn for route, turn in zip(routes.routes, routes.turns, strict=True)
        }
        point = Point(end, row, [turns[route.topic] for route in self._intent.routes])
        self._intent = replace(self._intent, points=[*self._intent.points, point])
        self._mark = self._marks.intend(self._mark, self._intent)
