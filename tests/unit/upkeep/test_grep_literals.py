"""The text that every match must hold: never too much, and worth something where it can be."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlake.upkeep.search.literals import required_text, sieve


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("order-1001", "order-1001"),
        (r"timeout after [0-9]+ ms", "timeout after "),
        (r"^region=EU$", "region=EU"),
        (r"a\.b", "a.b"),
        (r"colou?r", "colo"),
        (r"ab+c", "ab"),
        (r"x(yes)?no more", "no more"),
        (r"[^]abc]tail", "tail"),
        (r"[\]a]tail", "tail"),
        (r"ab{2,3}cd", "cd"),
        (r"\d\w\bab", "ab"),
        (r"one|two", ""),
        (r"(?i)one", ""),
        (r"(?=one)one", ""),
        ("[0-9]+", ""),
        ("", ""),
        ("ключ.*键键", "ключ"),
    ],
)
def test_text_of_a_pattern(pattern, text):
    assert required_text(pattern) == text


ALPHABET = "aAkKsSiIé=1\u212a\u017f\u0131\u0130ß -"
PLAIN = [*"aksi=1", "é", "ß", r"\.", r"\d", r"\w", ".", "[ak]", "[^s]", r"\bk"]
REPEATED = ["a*", "k?", "s+", "i{2}", "(si)", "(k|s)", "^", "$", "(?:a)?", "x|a"]
PIECES = st.sampled_from([*PLAIN, *REPEATED])


@given(
    st.lists(PIECES, min_size=1, max_size=6).map("".join),
    st.text(ALPHABET, max_size=12),
    st.booleans(),
)
def test_no_match_is_sifted_out(pattern, text, ignore_case):
    found = re.compile(pattern, re.IGNORECASE if ignore_case else 0).search(text)
    sieved = sieve(required_text(pattern), ignore_case=ignore_case)
    if found is not None and sieved is not None:
        assert sieved.search(text.encode()), (pattern, text)
        assert sieved.search(text.replace("=", "\x01").encode()), (pattern, text)


def test_sieve_is_none_where_it_could_not_tell():
    assert sieve("", ignore_case=False) is None
    assert sieve("é", ignore_case=True) is None
    assert sieve("a\ufffd", ignore_case=False) is None
