"""Reading with a filter: by unit, by message, within a budget."""

from functools import partial

import pytest

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.message_filter import SqlMessageFilter, make_filter, may_want
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.format.queue_unit import ExtUnit, ext_address
from rocketlake.model.hashes import tags_code
from rocketlake.store.api import GetStatus
from support.read_parts import BEGIN_MS, ReadParts, ask, numbers

BLOOM = BloomFilter.sized()


@pytest.fixture
def parts(tmp_path):
    return ReadParts(tmp_path, queue_file_units=2000, log_file_size=1 << 20)


@pytest.fixture
def mixed(parts):
    """Thirty messages with the tags a, b and none in turn, and their number as a property."""
    for number in range(30):
        tags = ("a", "b", None)[number % 3]
        parts.put(body=b"%d" % number, tags=tags, properties={"n": str(number)})
    return parts


def test_messages_with_a_wanted_tag_are_found(mixed):
    result = mixed.reader().get(ask(0), make_filter("a"))
    assert numbers(result) == list(range(0, 30, 3))
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 30)
    both = mixed.reader().get(ask(0), make_filter("a || b"))
    assert numbers(both) == [n for n in range(30) if n % 3 < 2]


def test_read_ends_behind_the_last_message_it_took(mixed):
    result = mixed.reader().get(ask(1, 2), make_filter("a"))
    assert (numbers(result), result.next_offset) == ([3, 6], 7)


def test_messages_whose_properties_fulfil_an_expression_are_found(mixed):
    result = mixed.reader().get(ask(0, 3), make_filter(sql="n BETWEEN 4 AND 20"))
    assert (numbers(result), result.next_offset) == ([4, 5, 6], 7)
    result = mixed.reader().get(ask(7, 100), make_filter(sql="n BETWEEN 4 AND 20"))
    assert (numbers(result), result.next_offset) == (list(range(7, 21)), 30)


def test_limit_counts_what_was_kept_not_what_was_looked_at(mixed):
    size = mixed.units[0].size
    wanted = make_filter(sql="n > 9 AND TAGS = 'a'")
    result = mixed.reader().get(ask(0, 4), wanted)
    assert (numbers(result), result.next_offset) == ([12, 15, 18, 21], 22)
    result = mixed.reader().get(ask(0, max_bytes=2 * size + 20), wanted)
    assert numbers(result) == [12, 15]


def test_nothing_wanted_says_so_and_goes_on_behind(mixed):
    result = mixed.reader().get(ask(0), make_filter("c"))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)
    result = mixed.reader().get(ask(0), make_filter(sql="n > 99"))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)
    assert mixed.stats.get_miss_count == 2


@pytest.mark.parametrize(
    ("size", "asked", "looked"), [(100, 1, 5), (101, 1, 6), (20, 1, 1), (20, 7, 7), (16000, 1, 30)]
)
def test_units_are_looked_at_within_a_budget(mixed, size, asked, looked):
    reader = mixed.reader(max_filter_message_size=size)
    for wanted in (make_filter("c"), make_filter(sql="n > 99")):
        result = reader.get(ask(0, asked), wanted)
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, looked)
    result = reader.get(ask(1, asked), make_filter("a"))
    found = list(range(3, min(1 + looked, 30), 3))[:asked]
    assert numbers(result) == found


def test_budget_counts_over_queue_files_as_far_as_one_may_travel(tmp_path):
    parts = ReadParts(tmp_path, queue_file_units=4)
    for number in range(12):
        parts.put(tags="b" if number == 9 else "a")
    wanted = make_filter("b")
    for files, status, next_offset in (
        (1, GetStatus.NO_MATCHED_MESSAGE, 4),
        (2, GetStatus.NO_MATCHED_MESSAGE, 8),
        (3, GetStatus.FOUND, 12),
        (9, GetStatus.FOUND, 12),
    ):
        reader = parts.reader(travel_cq_file_num_when_get_message=files)
        result = reader.get(ask(0, is_limited=True), wanted)
        assert (result.status, result.next_offset) == (status, next_offset)
    reader = parts.reader(travel_cq_file_num_when_get_message=9, max_filter_message_size=120)
    assert reader.get(ask(0, 1), wanted).next_offset == 6


def test_stranger_with_the_same_hash_is_not_returned(parts):
    """Aa and BB have one hash: the text of the record decides."""
    assert tags_code("Aa") == tags_code("BB")
    for tags in ("Aa", "BB", "Aa", "BB"):
        parts.put(tags=tags)
    result = parts.reader().get(ask(0, 2), make_filter("Aa"))
    assert (numbers(result), result.next_offset) == ([0, 2], 3)
    result = parts.reader().get(ask(3), make_filter("Aa"))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)


def test_unit_with_an_extension_is_read_and_judged_by_its_text(parts):
    parts.put(tags="a", code=ext_address(0))
    parts.put(tags="b", code=ext_address(20))
    assert numbers(parts.reader().get(ask(0), make_filter("b"))) == [1]


def test_unwanted_unit_of_an_expired_file_is_no_removed_message(tmp_path):
    parts = ReadParts(tmp_path, log_file_size=400)
    for tags in ("a", "a", "b", "b", "b", "b"):
        parts.put(tags=tags, body=b"x" * 60)
    first = sum(unit.physical_offset < 400 for unit in parts.units)
    assert first == 2
    parts.log.expire()
    parts.queue("T").next_offset = 2
    for tags, status in (
        ("b", GetStatus.NO_MATCHED_MESSAGE),
        ("a", GetStatus.MESSAGE_WAS_REMOVING),
    ):
        result = parts.reader().get(ask(0), make_filter(tags))
        assert (result.status, result.next_offset) == (status, 2)


def test_status_is_that_of_the_last_thing_looked_at_in_vain(tmp_path):
    parts = ReadParts(tmp_path, log_file_size=400)
    for tags in ("a", "b", "b", "b"):
        parts.put(tags=tags, body=b"x" * 60)
    parts.log.expire()
    wanted = make_filter("a")
    # The second unit lies in the same missing file and is not looked at.
    parts.queue("T").next_offset = 2
    assert parts.reader().get(ask(0), wanted).status is GetStatus.MESSAGE_WAS_REMOVING
    parts.queue("T").next_offset = 4
    result = parts.reader().get(ask(0), wanted)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)


def test_damaged_record_among_filtered_ones_is_listed(mixed):
    mixed.log.flip(mixed.units[3].physical_offset + 88)
    mixed.log.flip(mixed.units[4].physical_offset + 88)
    result = mixed.reader().get(ask(0, 3), make_filter("a"))
    assert numbers(result) == [0, 6, 9]
    assert [unit.queue_offset for unit in result.corrupt] == [3]


def test_filter_works_over_the_files_of_the_log(tmp_path):
    parts = ReadParts(tmp_path, log_file_size=400, queue_file_units=100)
    for number in range(20):
        parts.put(tags="ab"[number % 2], properties={"n": str(number)}, body=b"x" * 60)
    assert numbers(parts.reader().get(ask(0), make_filter("b"))) == list(range(1, 20, 2))
    result = parts.reader().get(ask(0, 5), make_filter(sql="n > 3"))
    assert numbers(result) == [4, 5, 6, 7, 8]


def test_filter_of_batches_judges_the_outer_record(parts):
    for tags in ("a", "b", None, "a"):
        parts.put_inner_batch(3, topic="T", tags=tags)
    result = parts.reader().get(ask(0, 7), make_filter("a"))
    assert (numbers(result), result.next_offset) == ([0, 9], 12)
    assert parts.stats.get_transferred_count == 6
    # Three more would be too many: that is seen before the tag is.
    result = parts.reader().get(ask(0, 4), make_filter("a"))
    assert (numbers(result), result.next_offset) == ([0], 3)


# --- bits -------------------------------------------------------------------------------------


def bits_filter(group="G", born=BEGIN_MS, sql="n IS NOT NULL"):
    positions = BLOOM.bit_positions(group, "T")
    tells = partial(may_want, bloom=BLOOM, positions=positions, born_timestamp=born)
    return SqlMessageFilter(SqlFilter(sql), tells)


def bitmap_of(*groups):
    bitmap = bytearray(BLOOM.byte_count)
    for group in groups:
        BLOOM.set_bits(BLOOM.bit_positions(group, "T"), bitmap)
    return bytes(bitmap)


@pytest.fixture
def extended(parts):
    """Six messages; bits of the even ones name group G, those of the odd ones nobody."""
    queue = parts.queue("T")
    for number in range(6):
        address = ext_address(34 * number)
        stored = BEGIN_MS + 1000 * (number + 1)
        bitmap = bitmap_of("G") if number % 2 == 0 else bitmap_of()
        queue.ext[address] = ExtUnit(0, stored, bitmap)
        parts.put(properties={"n": str(number)}, code=address)
    return parts


def test_clear_bits_rule_a_message_out_before_it_is_read(extended):
    extended.log.flip(extended.units[1].physical_offset + 4)
    result = extended.reader().get(ask(0), bits_filter())
    assert (numbers(result), result.next_offset) == ([0, 2, 4], 6)
    assert list(result.corrupt) == []


def test_expression_decides_on_what_bits_let_pass(extended):
    result = extended.reader().get(ask(0, 1), bits_filter(sql="n > 1"))
    assert (numbers(result), result.next_offset) == ([2], 3)


def test_bits_from_before_the_subscription_prove_nothing(extended):
    result = extended.reader().get(ask(0), bits_filter(born=BEGIN_MS + 4000))
    assert numbers(result) == [0, 1, 2, 3, 4]


def test_missing_extension_and_plain_units_prove_nothing(extended):
    queue = extended.queue("T")
    del queue.ext[ext_address(34)]
    extended.put(properties={"n": "6"})
    result = extended.reader().get(ask(0), bits_filter())
    assert numbers(result) == [0, 1, 2, 4, 6]


def test_nothing_that_bits_let_pass_says_so(extended):
    result = extended.reader().get(ask(0), bits_filter(group="other group"))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
