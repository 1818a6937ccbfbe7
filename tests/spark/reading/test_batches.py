"""Batches hold what messages say, have the schema Spark asked for, and stay small."""

import random
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from rocketlake.format import arrow_columns as layout_room
from rocketlake.format import record
from rocketlake.format._kernel import pure
from rocketlake.format._kernel.chooser import KERNEL
from rocketlake.format.record import RecordColumns
from rocketlake.model import flags
from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.spark.reading.batches import COLUMNS, BatchMaker
from rocketlake.spark.schema import MESSAGE_SCHEMA, RAW_TIMES, arrow_schema
from rocketlake.store.offline import OfflineStore
from support.golden import GoldenStores, case_names

FIELDS = {field.name: field for field in (*MESSAGE_SCHEMA.fields, *RAW_TIMES.fields)}
WHOLE = arrow_schema(StructType(list(FIELDS.values())))
KERNELS = {kernel.NAME: kernel for kernel in (pure, KERNEL)}
V4 = Endpoint.parse("10.0.0.2:10911")
V6 = Endpoint.parse("[2001:db8::1]:-7")

quick = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=sorted(KERNELS))
def kernel(request, monkeypatch):
    monkeypatch.setattr(layout_room, "_KERNEL", KERNELS[request.param])
    return request.param


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return GoldenStores(tmp_path_factory.mktemp("golden"))


def schema_of(*names):
    return arrow_schema(StructType([FIELDS[name] for name in names]))


def body_of(message):
    try:
        return message.body
    except ValueError:
        return message.stored_body


def time_of(value):
    """Return microseconds; None for what lies outside of the years 1 to 9999."""
    inside = -62_135_510_400_000 <= value <= 253_402_214_400_000
    return value * 1000 if inside else None


def expected_row(message):
    names = ("queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "topic", "msg_id")
    names += ("reconsume_times", "prepared_transaction_offset", "store_size", "unique_key", "tags")
    return {name: getattr(message, name) for name in (*names, "keys")} | {
        "store_timestamp": time_of(message.store_timestamp),
        "born_timestamp": time_of(message.born_timestamp),
        "store_timestamp_ms": message.store_timestamp,
        "born_timestamp_ms": message.born_timestamp,
        "body": body_of(message),
        "properties": list(message.properties.items()),
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "broker": "b",
    }


def rows_of(batches, schema=WHOLE):
    """Return every row of checked batches, times as microseconds."""
    rows = []
    for batch in batches:
        assert batch.schema.equals(schema, check_metadata=True)
        batch.validate(full=True)
        numbers = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        ]
        rows += pa.RecordBatch.from_arrays(numbers, schema.names).to_pylist()
    return rows


def columns_of(records):
    data = b"".join(map(bytes, records))
    return record.scan(data, checks=record.Check.SHAPE).columns


def make(body=b"body", *, sys_flag=0, properties=None, stored=1_700_000_000_000, host=V4):
    message = Message(topic="Topic", body=body, properties=properties or {}, tags="A", keys=["k"])
    envelope = record.Envelope(
        queue_id=3, born_timestamp=stored, born_host=host, store_host=host, sys_flag=sys_flag
    )
    encoded = record.encode(message, envelope)
    record.seal(encoded, 0, 7, 4096, stored, False)
    return encoded


# --- content -----------------------------------------------------------------------------------


def test_every_column_of_the_schema_can_be_made():
    assert set(FIELDS) == COLUMNS


@pytest.mark.parametrize("case", case_names())
def test_golden_records_are_the_rows(case, stores, kernel):
    maker = BatchMaker(WHOLE, broker="b")
    golden = stores.get(case)
    with OfflineStore(golden.root, log_dirs=golden.log_dirs) as store:
        found, expected = [], []
        for chunk in store.walk():
            found += rows_of(maker.batches(chunk.columns))
            expected += map(expected_row, chunk.columns.messages())
        for key in store.queues:
            for batch in store.messages(key):
                numbers = batch.places["queue_offset"].copy()
                found += rows_of(maker.batches(batch.columns, numbers))
                rows = map(expected_row, batch.columns.messages())
                expected += [
                    row | {"queue_offset": number}
                    for row, number in zip(rows, numbers.tolist(), strict=True)
                ]
    assert expected
    assert found == expected


garbage_bytes = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from([b"\x01", b"\x02", b"KEYS", b"TAGS", b"UNIQ_KEY", b" ", b"a", b"\xff"])
    ).map(b"".join),
)
i64 = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 42))
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


@st.composite
def odd_records(draw):
    """A record whose fields are anything that fits into it."""
    numbers = [draw(st.integers(-(1 << 31), (1 << 31) - 1)) for _ in range(3)]
    fields = (draw(garbage_bytes), draw(garbage_bytes), draw(garbage_bytes), *numbers, draw(i64))
    encoded = pure.encode(*fields, draw(hosts), draw(hosts), 1, draw(i64), 2, False)
    pure.seal(encoded, 0, draw(i64), draw(i64), draw(i64), False)
    return bytes(encoded)


@quick
@given(records=st.lists(odd_records(), max_size=6), seed=st.integers(0, 1 << 20))
def test_odd_records_are_the_rows_of_any_subset(records, seed, kernel):
    columns = columns_of(records)
    expected = [expected_row(message) for message in columns.messages()]
    assert rows_of(BatchMaker(WHOLE, broker="b").batches(columns)) == expected
    rng = random.Random(seed)
    names = rng.sample(sorted(COLUMNS), rng.randint(1, 6))
    subset = schema_of(*names)
    maker = BatchMaker(
        subset, broker="b", rows_max=rng.randint(1, 4), bytes_max=rng.randint(1, 300)
    )
    found = rows_of(maker.batches(columns), subset)
    assert found == [{name: row[name] for name in names} for row in expected]


def test_rows_may_be_some_of_them_and_in_any_order():
    columns = columns_of([make(b"%d" % i) for i in range(5)])
    chosen = RecordColumns(columns.buffer, columns.rows[[4, 1, 1]])
    rows = rows_of(BatchMaker(schema_of("body")).batches(chosen), schema_of("body"))
    assert [row["body"] for row in rows] == [b"4", b"1", b"1"]


def test_times_that_are_none_are_null(kernel):
    times = [0, -1, 253_402_300_800_000, -(1 << 63), (1 << 63) - 1, 9_223_372_036_854_776]
    columns = columns_of([make(stored=time, host=V6) for time in times])
    schema = schema_of("store_timestamp", "born_timestamp")
    (batch,) = BatchMaker(schema).batches(columns)
    for column in batch.columns:
        assert column.cast(pa.int64()).to_pylist() == [0, -1000, *[None] * 4]
        assert column.null_count == 4


def test_row_outside_of_its_buffer_is_refused(kernel):
    columns = columns_of([make()])
    with pytest.raises(ValueError, match="row 0 lies outside"):
        list(BatchMaker(WHOLE).batches(RecordColumns(columns.buffer[:50], columns.rows)))


# --- bodies ------------------------------------------------------------------------------------


def packed(plain, kind=Compression.ZLIB):
    return make(deflate(plain, kind), sys_flag=flagged(0, kind))


def test_compressed_bodies_are_inflated_and_raw_ones_are_as_stored(kernel):
    records = [make(b"first"), packed(b"x" * 500), packed(b"", Compression.LZ4), make(b""), make()]
    records += [packed(bytes(range(256)), Compression.ZSTD), packed(b"last")]
    columns = columns_of(records)
    schema = schema_of("body", "sys_flag")
    plain = [row["body"] for row in rows_of(BatchMaker(schema).batches(columns), schema)]
    assert plain == [message.body for message in columns.messages()]
    assert plain[1] == b"x" * 500
    maker = BatchMaker(schema, is_raw_body=True)
    raw = [row["body"] for row in rows_of(maker.batches(columns), schema)]
    assert raw == [message.stored_body for message in columns.messages()]


def test_body_that_cannot_be_inflated_is_told_of_and_as_stored():
    bad = make(b"no zlib", sys_flag=flags.COMPRESSED)
    columns = columns_of([make(b"a"), bad, packed(b"good")])
    told = []
    maker = BatchMaker(schema_of("body"), on_bad_body=lambda at, _why: told.append(at))
    rows = rows_of(maker.batches(columns), schema_of("body"))
    assert [row["body"] for row in rows] == [b"a", b"no zlib", b"good"]
    assert told == [4096]


def test_callback_may_refuse_a_bad_body():
    def refuse(offset, _reason):
        raise RuntimeError(f"bad body at {offset}")

    columns = columns_of([make(b"no zlib", sys_flag=flags.COMPRESSED)])
    with pytest.raises(RuntimeError, match="bad body at 4096"):
        list(BatchMaker(schema_of("body"), on_bad_body=refuse).batches(columns))
    assert len(list(BatchMaker(schema_of("topic"), on_bad_body=refuse).batches(columns))) == 1


# --- sizes -------------------------------------------------------------------------------------


def sizes(maker, columns):
    return [batch.num_rows for batch in maker.batches(columns)]


def test_no_records_make_no_batch():
    assert sizes(BatchMaker(WHOLE), columns_of([])) == []


def test_rows_are_shared_out_evenly():
    columns = columns_of([make()] * 10)
    assert sizes(BatchMaker(WHOLE, rows_max=10), columns) == [10]
    assert sizes(BatchMaker(WHOLE, rows_max=9), columns) == [5, 5]
    assert sizes(BatchMaker(WHOLE, rows_max=4), columns) == [4, 4, 2]


def test_bytes_end_a_batch_and_a_huge_record_is_one_of_its_own():
    columns = columns_of([make(b"s"), make(b"s"), make(bytes(5000)), make(b"s"), make(b"s")])
    assert sizes(BatchMaker(WHOLE, bytes_max=2000), columns) == [2, 1, 2]
    assert sizes(BatchMaker(schema_of("topic"), bytes_max=2000), columns) == [5]
    assert sizes(BatchMaker(schema_of("queue_id"), bytes_max=1), columns) == [5]


def test_bodies_that_grow_end_a_batch():
    columns = columns_of([packed(bytes(3000))] * 5)
    maker = BatchMaker(WHOLE, bytes_max=5000)
    assert sizes(maker, columns) == [2, 2, 1]
    assert {len(row["body"]) for row in rows_of(maker.batches(columns))} == {3000}
    assert sizes(BatchMaker(WHOLE, bytes_max=5000, is_raw_body=True), columns) == [5]


def test_bomb_is_a_batch_of_its_own_and_one_body_at_a_time_is_held():
    columns = columns_of([make(zlib.compress(bytes(9 << 20)), sys_flag=flags.COMPRESSED)] * 3)
    assert sizes(BatchMaker(schema_of("body")), columns) == [1, 1, 1]


def test_broker_is_the_same_in_batches_of_any_size():
    columns = columns_of([make()] * 7)
    maker = BatchMaker(schema_of("broker"), broker="brök", rows_max=4)
    for part in (columns, RecordColumns(columns.buffer, columns.rows[:1]), columns):
        rows = rows_of(maker.batches(part), schema_of("broker"))
        assert rows == [{"broker": "brök"}] * len(part)


def test_queue_offsets_given_are_those_shown():
    columns = columns_of([make()] * 3)
    schema = schema_of("queue_offset")
    given_ = np.array([5, 6, 9], np.int64)
    rows = rows_of(BatchMaker(schema, rows_max=2).batches(columns, given_), schema)
    assert [row["queue_offset"] for row in rows] == [5, 6, 9]
    rows = rows_of(BatchMaker(schema).batches(columns), schema)
    assert [row["queue_offset"] for row in rows] == [7, 7, 7]
