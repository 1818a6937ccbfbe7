"""What units and messages tell a filter."""

import struct
from functools import partial
from types import SimpleNamespace

import pytest

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.message_filter import (
    RetryMessageFilter,
    SqlMessageFilter,
    TagMessageFilter,
    make_filter,
    may_want,
)
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.filters.tags import TagFilter
from rocketlake.model.hashes import java_hash


def message(tags=None, **properties):
    return SimpleNamespace(tags=tags, properties=properties)


@pytest.mark.parametrize("tags", [None, "", "*"])
def test_expression_that_wants_all_needs_no_filter(tags):
    assert make_filter(tags) is None
    assert make_filter() is None


def test_tag_filter_compares_hashes_of_units_and_texts_of_messages():
    wanted = make_filter("Aa || c")
    hashes = struct.unpack("=2i", wanted.hashes)
    assert set(hashes) == {java_hash("Aa"), java_hash("c")}
    assert wanted.may_match(java_hash("BB"), None), "the same hash as Aa"
    assert not wanted.may_match(java_hash("b"), None)
    assert wanted.may_match(None, None)
    found = {tag: wanted.matches(message(tag)) for tag in ("Aa", "BB", "c", "b", None)}
    assert found == {"Aa": True, "BB": False, "c": True, "b": False, None: False}
    assert not wanted.reads_bits
    assert repr(wanted) == "TagMessageFilter(['Aa', 'c'])"


def test_tag_filter_of_blanks_wants_nothing():
    wanted = make_filter(" ")
    assert wanted.hashes == b""
    assert not wanted.matches(message(""))
    assert not wanted.may_match(0, None)


def test_tag_filter_of_everything_has_no_hashes():
    wanted = TagMessageFilter(TagFilter.parse("*"))
    assert wanted.hashes is None
    assert wanted.matches(message(None))


def test_sql_filter_evaluates_properties():
    wanted = make_filter(sql="a > 5 AND b IS NULL")
    assert wanted.matches(message(a="6"))
    assert not wanted.matches(message(a="6", b="x"))
    assert not wanted.matches(message(a="text"))
    assert (wanted.hashes, wanted.reads_bits) == (None, False)
    assert wanted.may_match(5, SimpleNamespace(store_timestamp=9, bitmap=b""))


@pytest.mark.parametrize(("tags", "sql"), [("a", "b = 1"), (None, "b ="), ("||", None)])
def test_expression_that_makes_no_filter_is_refused(tags, sql):
    with pytest.raises(ValueError, match=r"expected|both"):
        make_filter(tags, sql)


def test_bits_rule_out_only_what_is_newer_than_the_subscription():
    bloom = BloomFilter.sized()
    positions = bloom.bit_positions("CG1", "TopicTest")
    tells = partial(may_want, bloom=bloom, positions=positions, born_timestamp=100)
    wanted = SqlMessageFilter(SqlFilter("a = 1"), tells)
    clear, full = bytearray(bloom.byte_count), bytearray(bloom.byte_count)
    bloom.set_bits(positions, full)

    def may(stored, bitmap):
        return wanted.may_match(7, SimpleNamespace(store_timestamp=stored, bitmap=bytes(bitmap)))

    assert wanted.reads_bits
    assert [may(101, clear), may(101, full)] == [False, True]
    assert [may(100, clear), may(101, b"")] == [True, True]
    assert wanted.may_match(7, None)


def test_retry_filter_asks_for_the_expression_of_the_first_topic():
    expressions = {"orders": SqlFilter("a = 1")}
    wanted = RetryMessageFilter(expressions.get)
    assert wanted.matches(message(RETRY_TOPIC="orders", a="1"))
    assert not wanted.matches(message(RETRY_TOPIC="orders", a="2"))
    assert wanted.matches(message(RETRY_TOPIC="others", a="2"))
    assert wanted.matches(message(a="2"))
    assert (wanted.hashes, wanted.reads_bits, wanted.may_match(1, None)) == (None, False, True)
