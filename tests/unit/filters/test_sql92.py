"""The language against RocketMQ's own judgement, and what is ours: messages, limits, pickling.

`sql92_cases.jsonl` holds one case a line. Its results come from the reference, release 5.3.3:
FilterFactory's SQL92 filter compiled each expression and evaluated it over the broker's
MessageEvaluationContext. `null` is unknown; `compile error` and `runtime error` tell which of the
two steps threw.
"""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlake.filters.sql92 import SqlFilter
from rocketlake.filters.sql92_terms import DEPTH_MAX

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("sql92_cases.jsonl").read_text("utf-8").splitlines()
]


def _judge(expression, properties):
    try:
        compiled = SqlFilter(expression)
    except ValueError:
        return "compile error"
    try:
        return compiled.evaluate(properties)
    except ValueError:
        return "runtime error"


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['expression']} {case['properties']}"
)
def test_evaluate_agrees_with_the_reference(case):
    assert _judge(case["expression"], case["properties"]) == case["result"]


def test_matches_only_what_the_reference_delivers():
    for case in CASES:
        if case["result"] != "compile error":
            wanted = SqlFilter(case["expression"]).matches(case["properties"])
            assert wanted is (case["result"] is True), case


def test_cases_cover_every_outcome():
    outcomes = [case["result"] for case in CASES]
    for outcome in (True, False, None, "compile error", "runtime error"):
        assert outcomes.count(outcome) > 30, outcome


@pytest.mark.parametrize(
    ("expression", "position", "message"),
    [
        ("", 1, "expected a property, a literal, NOT, a sign or '(', found the end"),
        ("a =", 4, "expected a property, a literal, NOT, a sign or '(', found the end"),
        ("a = AND", 5, "expected a property, a literal, NOT, a sign or '(', found 'AND'"),
        ("(a = 1", 7, "expected ')', found the end"),
        ("a # 1", 3, "expected an operator or the end, found '#'"),
        ("a = 'x", 5, "expected a closing quote after this text, found the end"),
        ("a /* x", 3, "expected '*/' after this comment, found the end"),
        ("a IS 5", 6, "expected NOT or NULL, found '5'"),
        ("a NOT 5", 7, "expected BETWEEN, CONTAINS, ENDSWITH, IN or STARTSWITH, found '5'"),
        ("a IN 'x'", 6, "expected '(', found \"'x'\""),
        ("a IN (5)", 7, "expected a text in single quotes, found '5'"),
        ("a IN ('x' 'y')", 11, "expected ',' or ')', found \"'y'\""),
        ("a BETWEEN 1 5", 13, "expected AND, found '5'"),
        ("a CONTAINS b", 12, "expected a text in single quotes, found 'b'"),
        ("\n\na > 'x'", 7, "expected a number or a property beside '>', found a text"),
        ("a > TRUE", 5, "expected a number or a property beside '>', found TRUE"),
        ("NOT a > 1", 1, "expected a number or a property beside '>', found a condition"),
        ("a BETWEEN 5 AND 1", 11, "expected the lower bound of BETWEEN first, found 5 above 1"),
        ("a = NULL", 5, "nothing equals NULL; expected IS NULL or IS NOT NULL"),
        ("TRUE = 5", 8, "expected something TRUE can equal, found a number"),
        ("5 IN ('x')", 1, "expected a property before IN, found a number"),
        ("5", 1, "expected a condition, found a number"),
        ("TRUE AND -a", 10, "expected a condition, found a negated term"),
        ("a = 0.0", 5, "expected a number above 0.0 and in range, found 0.0"),
        (f"a = {'9' * 5000}", 5, "expected a number up to 9223372036854775807"),
    ],
)
def test_refused_expression_names_position_and_expectation(expression, position, message):
    with pytest.raises(ValueError, match="SQL92") as refused:
        SqlFilter(expression)
    assert str(refused.value).startswith(f"SQL92 expression, position {position}: {message}")


@pytest.mark.parametrize(
    ("expression", "unread"),
    [
        ("a = 1", ""),
        ("a = 1 ", ""),
        ("a = 1 b = 2", "b = 2"),
        ("a LIKE 'x%'", "LIKE 'x%'"),
        ("a = 017", "17"),
        ("a = 1)", ")"),
    ],
)
def test_unread_is_what_the_reference_never_looks_at(expression, unread):
    assert SqlFilter(expression).unread == unread


def test_long_chain_is_flat():
    compiled = SqlFilter(" OR ".join(f"a = {number}" for number in range(3000)))
    assert compiled.matches({"a": "2999"})
    assert not compiled.matches({"a": "3000"})


def test_deep_parentheses_cost_nothing():
    depth = 10 * DEPTH_MAX
    assert SqlFilter("(" * depth + "a = 1" + ")" * depth).matches({"a": "1"})


@pytest.mark.parametrize(
    "expression", ["NOT " * DEPTH_MAX + "TRUE", "TRUE" + " = TRUE" * DEPTH_MAX]
)
def test_nesting_up_to_the_limit_evaluates(expression):
    assert SqlFilter(expression).matches({})


@pytest.mark.parametrize(
    "expression",
    [
        "NOT " * (DEPTH_MAX + 1) + "TRUE",
        "TRUE" + " = TRUE" * (DEPTH_MAX + 1),
        "-" * (DEPTH_MAX + 1) + "a IS NULL",
    ],
)
def test_nesting_beyond_the_limit_is_refused(expression):
    with pytest.raises(ValueError, match=f"at most {DEPTH_MAX} nested"):
        SqlFilter(expression)


def test_filter_is_a_value_that_pickles():
    compiled = SqlFilter("a > 5")
    copy = pickle.loads(pickle.dumps(compiled))
    assert copy == compiled
    assert hash(copy) == hash(compiled)
    assert copy != SqlFilter("a > 6")
    assert repr(copy) == "SqlFilter('a > 5')"
    assert copy.matches({"a": "6"})


def test_package_import_does_not_load_the_grammar_library():
    code = "import sys, rocketlake.filters; sys.exit('lark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
