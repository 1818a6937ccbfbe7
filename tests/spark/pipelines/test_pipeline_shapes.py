"""Schemas from examples: what joins, what becomes text, how it is spelled."""

import pytest

from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.spark.pipelines.json_schema import Fields, columns_text, join, shape_of, type_text
from rocketlake.spark.pipelines.project import silver_columns, table_names
from rocketlake.spark.pipelines.samples import sample_topic
from rocketlake.store.offline import OfflineStore
from support.store_builder import StoreBuilder


def spelled(*values: object) -> str:
    found = shape_of(values[0])
    for value in values[1:]:
        found = join(found, shape_of(value))
    return type_text(found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1], "bigint"),
        ([1 << 63], "string"),
        ([True], "boolean"),
        ([1, 2.5], "double"),
        ([2.5, 1, None], "double"),
        ([None], "string"),
        ([None, True], "boolean"),
        ([1, "a"], "string"),
        ([1, True], "string"),
        ([1, {"a": 1}], "string"),
        ([[], [1]], "array<bigint>"),
        ([[1, "a"]], "array<string>"),
        ([[1], {}], "string"),
        ([{}], "string"),
        ([{"a": 1}, {"b": [{"c": None}]}], "struct<`a`: bigint, `b`: array<struct<`c`: string>>>"),
        ([{"a`b": 1}], "struct<`a``b`: bigint>"),
        ([{"Id": 1, "id": "x"}, {"ID": 2}], "struct<`Id`: bigint>"),
    ],
)
def test_types_of_examples(values, expected):
    assert spelled(*values) == expected


def test_very_deep_values_end_as_text():
    value: object = 1
    for _ in range(100):
        value = [value]
    assert "string" in spelled(value)


def test_columns_of_silver_do_not_hide_those_of_the_message():
    schema = shape_of({"id": 1, "Tags": 2, "keys": 3, "body_keys": 4, "a.b": 5})
    assert isinstance(schema, Fields)
    assert silver_columns(schema) == {
        "id": "id",
        "body_Tags": "Tags",
        "body_keys": "keys",
        "body_body_keys": "body_keys",
        "a.b": "a.b",
    }
    assert columns_text(schema).endswith("`a.b` bigint")


def test_names_of_tables_are_plain_and_differ():
    assert table_names(["Orders", "orders", "a-b%c", "%%", "ß"]) == [
        *("orders", "orders_2", "a_b_c", "topic", "topic_2"),
    ]


def test_schema_of_compressed_bodies(tmp_path):
    """The body of a message is plain already: inflating it again finds no JSON."""
    body = deflate(b'{"order": 7}' + b" " * 500, Compression.ZLIB)
    flag = flagged(0, Compression.ZLIB)
    root = StoreBuilder(tmp_path).record("T", 0, body, sys_flag=flag).write()
    with OfflineStore(root) as store:
        sample = sample_topic(store, "T")
    assert sample.schema is not None
    assert list(sample.schema.fields) == ["order"]
