"""RowEncoder: Arrow batches -> checked, staged records, in a few calls per batch.

1. A batch is checked column by column. Rows are checked one by one only to name the invalid one;
   nothing of the batch is staged then.
2. Rows that need more than an append (a delay, properties that the store acts on) are staged as
   messages, in their place among the others, if a put would append them.
"""

# ruff: noqa: ANN401 - Arrow ships no types

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from rocketlake.clock import Clock
from rocketlake.embedded.checks import check_topic_for_put
from rocketlake.embedded.put_rehearsal import PutRehearsal
from rocketlake.errors import StoreError
from rocketlake.format.bulk import BY_KEY, TURN, StagedRow, encode_rows, pack_row
from rocketlake.model.hashes import java_hash
from rocketlake.spark.sink.kafka_columns import KAFKA_NAMES, BadValueError, message_columns
from rocketlake.spark.sink.plan import WritePlan
from rocketlake.spark.sink.property_strings import Mask, Texts, make_texts, narrow, places_of
from rocketlake.spark.sink.row_errors import explain_row, row_message
from rocketlake.spark.sink.staging import TopicUse

_I32_MAX: Final = 2_147_483_647
_TOPIC, _QUEUE, _HASH, _FLAG = range(4)

Table = npt.NDArray[np.int32]


class BadRowError(StoreError):
    """A row is not a valid message; the text names column, row and values."""


class _Rows(Struct):
    """Rows as the kernel encodes them."""

    bodies: Any
    """A buffer."""
    places: npt.NDArray[np.int64]
    """Where each body begins, and where the last one ends."""
    texts: Texts
    table: Table
    """Topic number, queue, hash of the ordering key, and flag of each row."""
    born: int

    def part(self, begin: int, end: int) -> "_Rows":
        """Return some of the rows."""
        texts = replace(self.texts, places=self.texts.places[begin : end + 1])
        places = self.places[begin : end + 1]
        return _Rows(self.bodies, places, texts, self.table[begin:end], self.born)


class RowEncoder:
    """Encodes the rows of one task. Thread-safety: one thread."""

    def __init__(self, plan: WritePlan, partition: int, clock: Clock) -> None:
        self._plan = plan
        self._shape = plan.shape
        self._clock = clock
        self._partition = partition
        self._put = PutRehearsal(plan.store_options, clock)
        self._topic_numbers: dict[str, int] = {}
        self._renamed: dict[str, str] = {}
        self.uses: list[TopicUse] = []
        self.rows = 0
        self.body_max = 0
        self.record_max = 0

    def encode(self, batch: pa.RecordBatch) -> bytearray | bytes:
        """Return the staged records of a batch.

        Raises:
            BadRowError: a row is not a valid message.
        """
        columns = self._columns(batch)
        count = batch.num_rows
        if columns["body"].null_count:
            self._explain(columns, int(np.flatnonzero(columns["body"].is_null())[0]))
        bodies, places = places_of(columns["body"])
        texts = make_texts(columns, count)
        table = np.zeros((count, 4), np.int32)
        self._fill_topics(columns, table)
        self._fill_queues(columns, table)
        self._fill_flags(columns, table)
        if texts.is_doubtful:
            self._explain_any(columns)
        self._check_sizes(columns, np.diff(places), texts, table)
        special = self._find_special(columns, texts)
        rows = _Rows(bodies, places, texts, table, self._clock.now_ms())
        if special is None:
            data: bytes | bytearray = self._encode(rows)
        else:
            data = b"".join(self._mixed(rows, columns, special))
        self._note_queues(table)
        self.rows += count
        return data

    def _columns(self, batch: pa.RecordBatch) -> dict[str, Any]:
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        try:
            columns = message_columns(given)
        except BadValueError as error:
            self._fail({}, error.row, error.column, str(error))
        self._renamed = {KAFKA_NAMES[name]: name for name in given if name in KAFKA_NAMES}
        return {name: _whole(column) for name, column in columns.items()}

    # --- columns -------------------------------------------------------------------------------

    def _fill_topics(self, columns: dict[str, Any], table: Table) -> None:
        column = columns.get("topic")
        default = self._plan.options.topic
        if column is None:
            assert default is not None, "checked with the schema"
            table[:, _TOPIC] = self._topic_number(default, columns, 0)
            return
        coded = column.dictionary_encode()
        codes = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
        if column.null_count and default is None:
            self._explain(columns, int(np.flatnonzero(column.is_null())[0]))
        found = [*coded.dictionary.to_pylist(), default if column.null_count else None]
        numbers = np.zeros(len(found), np.int32)
        for place, topic in enumerate(found):
            if topic is not None:
                first = int(np.argmax(codes == place))
                numbers[place] = self._topic_number(topic, columns, first)
        table[:, _TOPIC] = numbers[codes]

    def _topic_number(self, topic: str, columns: dict[str, Any], row: int) -> int:
        number = self._topic_numbers.get(topic)
        if number is None:
            try:
                check_topic_for_put(topic)
            except ValueError as error:
                self._refuse(columns, row, f"column {error}")
            refusal = self._put.refusal_of_topic(topic)
            if refusal is not None:
                self._fail(columns, row, "topic", refusal)
            number = self._topic_numbers[topic] = len(self._topic_numbers)
            self.uses.append(TopicUse(topic=topic))
        return number

    def _fill_queues(self, columns: dict[str, Any], table: Table) -> None:
        table[:, _QUEUE] = TURN
        keys = columns.get("ordering_key")
        if keys is not None and keys.null_count < len(keys):
            coded = keys.dictionary_encode()
            hashes = np.array([*map(java_hash, coded.dictionary.to_pylist()), 0], np.int32)
            codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            table[:, _HASH] = hashes[codes]
            table[codes >= 0, _QUEUE] = BY_KEY
        wanted = columns.get("queue_id")
        if wanted is None or wanted.null_count == len(wanted):
            return
        queues = wanted.fill_null(TURN).to_numpy(zero_copy_only=False).astype(np.int64)
        named = ~np.asarray(wanted.is_null())
        self._refuse_numbers(columns, "queue_id", named & ((queues < 0) | (queues > _I32_MAX)))
        table[named, _QUEUE] = queues[named]
        counts = np.array(
            [self._plan.queue_counts.get(use.topic, _I32_MAX) for use in self.uses], np.int64
        )
        beyond = named & (queues >= counts[table[:, _TOPIC]])
        if beyond.any():
            row = int(np.argmax(beyond))
            topic = self.uses[table[row, _TOPIC]].topic
            count = self._plan.queue_counts[topic]
            self._fail(
                columns,
                row,
                "queue_id",
                f"{queues[row]}: topic {topic!r} has {count} queues, 0 to {count - 1}",
            )

    def _fill_flags(self, columns: dict[str, Any], table: Table) -> None:
        column = columns.get("flag")
        if column is not None:
            flags = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            self._refuse_numbers(columns, "flag", (flags > _I32_MAX) | (flags < -_I32_MAX - 1))
            table[:, _FLAG] = flags

    def _refuse_numbers(self, columns: dict[str, Any], name: str, bad: Mask) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            value = columns[name][row].as_py()
            words = "it is negative" if name == "queue_id" and value < 0 else "it is too large"
            self._fail(columns, row, name, f"{value}: {words}")

    def _check_sizes(
        self, columns: dict[str, Any], bodies: npt.NDArray[np.int64], texts: Texts, table: Table
    ) -> None:
        if not len(bodies):
            return
        shape = self._shape
        overheads = np.array([shape.overhead(use.topic) for use in self.uses], np.int64)
        records = bodies + texts.sizes + overheads[table[:, _TOPIC]]
        limits = (
            ("body", bodies, shape.body_max, "bytes; maxMessageSize allows"),
            ("properties", texts.sizes, shape.properties_max, "bytes; a record holds"),
            ("body", records, shape.record_max, "bytes as a record; the store allows"),
        )
        for name, sizes, limit, words in limits:
            row = int(np.argmax(sizes))
            if sizes[row] > limit:
                self._fail(columns, row, name, f"{sizes[row]} {words} {limit}")
        self.body_max = max(self.body_max, int(bodies.max()))
        self.record_max = max(self.record_max, int(records.max()))

    # --- rows that are put by hand ---------------------------------------------------------------

    def _find_special(self, columns: dict[str, Any], texts: Texts) -> Mask | None:
        special = texts.is_special
        for mask in (self._delayed(columns), self._timed(columns)):
            if mask is not None and mask.any():
                special = mask if special is None else special | mask
        return special

    def _delayed(self, columns: dict[str, Any]) -> Mask | None:
        column = columns.get("delay_level")
        if column is None:
            return None
        levels = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        highest = self._shape.level_max
        bad = (levels < 0) | (levels > highest)
        if bad.any():
            row = int(np.argmax(bad))
            words = f"{levels[row]}: the store has the levels 1 to {highest}; 0 or null is none"
            self._fail(columns, row, "delay_level", words)
        return np.asarray(levels > 0)

    def _timed(self, columns: dict[str, Any]) -> Mask | None:
        column = columns.get("deliver_at")
        if column is None or column.null_count == len(column):
            return None
        named = ~np.asarray(column.is_null())
        moments = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
        farthest = self._clock.now_ms() + self._shape.delay_max_ms
        bad = named & (moments > farthest)
        if not self._shape.delay_max_ms:
            self._fail(
                columns,
                int(np.argmax(named)),
                "deliver_at",
                "the store has no timer (timerWheelEnable is off); use delay_level",
            )
        if bad.any():
            row = int(np.argmax(bad))
            days = self._shape.delay_max_ms / 86_400_000
            moment = column[row].as_py().isoformat()
            self._fail(
                columns,
                row,
                "deliver_at",
                f"{moment} is more than {days:g} days ahead, which is what timerMaxDelaySec allows",
            )
        return named

    def _mixed(
        self, rows: "_Rows", columns: dict[str, Any], special: Mask
    ) -> Iterator[bytes | bytearray]:
        """Yield the records of runs of plain rows, and messages in between."""
        edges = np.flatnonzero(np.diff(special)) + 1
        bounds = [0, *edges.tolist(), len(special)]
        for begin, end in pairwise(bounds):
            if not special[begin]:
                yield self._encode(rows.part(begin, end))
                continue
            for row in range(begin, end):
                message = row_message(columns, row, self._plan.options.topic)
                refusal = self._put.refusal(message)
                if refusal is not None:
                    name = "properties" if "properties" in columns else "body"
                    self._fail(columns, row, name, refusal)
                number, queue = rows.table[row, [_TOPIC, _QUEUE]].tolist()
                yield pack_row(StagedRow(message, rows.born, number, queue))

    def _encode(self, rows: "_Rows") -> bytearray:
        shape = self._shape
        return encode_rows(
            rows.bodies,
            rows.places,
            rows.texts.data,
            rows.texts.places,
            np.ascontiguousarray(rows.table),
            [use.topic.encode() for use in self.uses],
            [shape.version(use.topic) for use in self.uses],
            rows.born,
            shape.host,
            shape.host,
            shape.trailing,
            shape.reserve_crc,
        )

    def _note_queues(self, table: Table) -> None:
        """Note the highest queue id that rows of each topic have."""
        if not len(table) or table[:, _QUEUE].max() < 0:
            return
        for number, use in enumerate(self.uses):
            queues = np.where(table[:, _TOPIC] == number, table[:, _QUEUE], -1)
            row = int(np.argmax(queues))
            if queues[row] > use.queue_max:
                self.uses[number] = replace(
                    use, queue_max=int(queues[row]), queue_row=self.rows + row
                )

    # --- refusals ------------------------------------------------------------------------------

    def _explain_any(self, columns: dict[str, Any]) -> None:
        """Raise for the first row that is not a valid message."""
        for row in range(len(columns["body"])):
            self._explain(columns, row, is_sure=False)

    def _explain(self, columns: dict[str, Any], row: int, *, is_sure: bool = True) -> None:
        words = explain_row(columns, row, self._plan.options.topic)
        if words is not None:
            self._refuse(columns, row, words)
        assert not is_sure, "this row is invalid"

    def _fail(self, columns: dict[str, Any], row: int, name: str, words: str) -> NoReturn:
        self._refuse(columns, row, f"column {name}: {words}")

    def _refuse(self, columns: dict[str, Any], row: int, words: str) -> NoReturn:
        raise BadRowError(f"{words}{self._as_given()}; {self._where(columns, row)}")

    def _as_given(self) -> str:
        """Return which columns were given by Kafka's names."""
        pairs = [f"{name} is the column {given}" for name, given in self._renamed.items()]
        return f" ({', '.join(pairs)})" if pairs else ""

    def _where(self, columns: dict[str, Any], row: int) -> str:
        shown = []
        for name in ("topic", "keys", "tags", "unique_key", "queue_id"):
            value = columns[name][row].as_py() if name in columns else None
            if value is not None:
                text = repr(value)
                shown.append(f"{name}={text if len(text) <= 60 else text[:57] + '...'}")
        values = f" ({', '.join(shown)})" if shown else ""
        return f"row {self.rows + row} of partition {self._partition}{values}. Nothing was written"


def _whole(column: Any) -> Any:
    """Return a column as one plain array of values."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_large_list(column.type):
        return column.cast(pa.list_(pa.string()))
    return narrow(column)
