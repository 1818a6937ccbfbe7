"""Expected sets are those of the reference's FilterAPI#buildSubscriptionData, release 5.3.3."""

import pytest

from rocketlake.filters import TagFilter


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_parse_of_nothing_or_star_wants_everything(expression):
    wanted = TagFilter.parse(expression)
    assert wanted.is_everything
    assert wanted.tags == frozenset()
    assert wanted.matches(None)
    assert wanted.matches("TagA")
    assert wanted.matches_code(0)
    assert wanted.matches_code(-1)


@pytest.mark.parametrize(
    ("expression", "tags", "hashes"),
    [
        ("A", {"A"}, {65}),
        ("A||B", {"A", "B"}, {65, 66}),
        (" A ||  B ", {"A", "B"}, {65, 66}),
        ("A|| ||B||", {"A", "B"}, {65, 66}),
        ("||A", {"A"}, {65}),
        ("A || A", {"A"}, {65}),
        ("A|B", {"A|B"}, {66375}),
        ("|A|||B|", {"|A", "|B|"}, {3909, 121334}),
        ("* || A", {"*", "A"}, {42, 65}),
        (" * ", {"*"}, {42}),
        ("\u00a0A\u2003||\tB\n", {"\u00a0A\u2003", "B"}, {163970, 66}),
        ("标签||😀", {"标签", "😀"}, {857175, 1772899}),
    ],
)
def test_parse_of_tags_gives_trimmed_tags_and_hashes(expression, tags, hashes):
    wanted = TagFilter.parse(expression)
    assert wanted.tags == tags
    assert wanted.hashes == hashes
    assert not wanted.is_everything


@pytest.mark.parametrize("expression", [" ", " || ", "\t||"])
def test_parse_of_blanks_wants_nothing(expression):
    wanted = TagFilter.parse(expression)
    assert not wanted.matches(None)
    assert not wanted.matches("")
    assert not wanted.matches_code(0)


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_parse_of_separators_only_is_refused(expression):
    with pytest.raises(ValueError, match="expected a tag"):
        TagFilter.parse(expression)


def test_matches_is_exact_and_needs_a_tag():
    wanted = TagFilter.parse("TagA || TagB")
    assert wanted.matches("TagA")
    assert not wanted.matches("taga")
    assert not wanted.matches("TagA || TagB")
    assert not wanted.matches(None)


def test_matches_code_lets_colliding_tags_pass():
    wanted = TagFilter.parse("Aa")
    assert wanted.matches_code(2112)  # also the hash of BB
    assert not wanted.matches("BB")


def test_matches_code_compares_low_32_bits():
    wanted = TagFilter.parse("polygenelubricants")
    assert wanted.matches_code(-(1 << 31))
    assert wanted.matches_code(1 << 31)
    assert wanted.matches_code((7 << 32) | 1 << 31)
    assert not wanted.matches_code(0)


def test_filter_is_a_value():
    assert TagFilter.parse("A||B") == TagFilter.parse("B || A")
    assert hash(TagFilter.parse("A")) == hash(TagFilter.parse(" A"))
    with pytest.raises(AttributeError):
        TagFilter.parse("A").tags = frozenset()
