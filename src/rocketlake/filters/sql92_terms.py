"""Operands and operators of the SQL92 language, compiled to closures over a message's properties.

1. A value is a text, a number, a truth value or null. A property is a text, or null when the
   message does not have it. The kind of a term is known when it is compiled, so each operator
   chooses its comparison once.
2. Truth has three values: `True`, `False` and `None` for unknown.
3. A wrong expression raises `ValueError` with a position when it is compiled. A closure raises
   `ValueError` where the reference fails on one message.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from rocketlake.filters.java_text import compare, parse_double

Properties = Mapping[str, str]
Value = str | float | bool | None
Test = Callable[[Properties], bool | None]

# Why: closures nest as deep as the expression does, and Python's stack is shallow. Chains of AND
# and OR are flat and do not count.
DEPTH_MAX = 200

_L = TypeVar("_L")
_R = TypeVar("_R")

_ORDERS: Mapping[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MATCHERS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class Term(Struct, frozen=True, kw_only=True):
    """A compiled part of an expression: how to read its value, and its position."""

    read: Callable[[Properties], Value]
    position: int
    depth: int = 0


class Text(Term, frozen=True, kw_only=True):
    """A term that gives text."""

    read: Callable[[Properties], str | None]


class Property(Text, frozen=True, kw_only=True):
    """A property of the message."""


class TextLiteral(Text, frozen=True, kw_only=True):
    """A text in quotes."""


class Number(Term, frozen=True, kw_only=True):
    """A number, and how a text becomes a number of the same Java type."""

    value: float
    parse: Callable[[str], float]
    is_literal: bool = True


class Truth(Term, frozen=True, kw_only=True):
    """A condition; `literal` is the word when it is one of TRUE, FALSE and NULL."""

    read: Test
    literal: str | None = None


class Nothing(Term, frozen=True, kw_only=True):
    """A term that is always null, such as the negation of anything but a number."""

    read: Callable[[Properties], None]


def refusal(position: int, message: str) -> ValueError:
    """Return the error for a wrong expression."""
    return ValueError(f"SQL92 expression, position {position}: {message}")


def property_term(name: str, position: int) -> Property:
    """A property by its name."""
    return Property(read=lambda properties: properties.get(name), position=position)


def text_literal(text: str, position: int) -> TextLiteral:
    """A text that is always the same."""
    return TextLiteral(read=lambda _: text, position=position)


def number_literal(value: float, parse: Callable[[str], float], position: int) -> Number:
    """A number of the Java type that `parse` reads."""
    return Number(read=lambda _: value, value=value, parse=parse, position=position)


def truth_literal(word: str, position: int, *, value: bool | None) -> Truth:
    """TRUE, FALSE or NULL."""
    return Truth(read=lambda _: value, literal=word, position=position)


def as_truth(term: Term) -> Truth:
    """The term as a condition; a property alone is false when present and unknown when missing."""
    if isinstance(term, Truth):
        return term
    if not isinstance(term, Property):
        raise refusal(term.position, f"expected a condition, found {_describe(term)}")
    # Compat: as UnaryExpression#createBooleanCast: a property is text and never TRUE itself.
    read = term.read
    return _truth(lambda properties: None if read(properties) is None else False, term)


def disjunction(terms: Sequence[Term]) -> Truth:
    """True when one condition is; conditions after it are not looked at."""
    return _chain(terms, deciding=True)


def conjunction(terms: Sequence[Term]) -> Truth:
    """False when one condition is; conditions after it are not looked at."""
    return _chain(terms, deciding=False)


def _chain(terms: Sequence[Term], *, deciding: bool) -> Truth:
    """The first deciding value of some conditions; otherwise unknown if one of them is."""
    conditions = [as_truth(term) for term in terms]
    tests = [condition.read for condition in conditions]

    def test(properties: Properties) -> bool | None:
        answer: bool | None = not deciding
        for each in tests:
            value = each(properties)
            if value is deciding:
                return deciding
            if value is None:
                answer = None
        return answer

    return _truth(test, *conditions)


def inversion(term: Term) -> Truth:
    """NOT: the opposite of a condition; unknown stays unknown."""
    condition = as_truth(term)
    inner = condition.read

    def test(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return _truth(test, condition)


def negation(term: Term) -> Term:
    """The number with the other sign; of anything else, null."""
    if isinstance(term, Number):
        value = -term.value
        return Number(
            read=lambda _: value,
            value=value,
            parse=term.parse,
            # Compat: a signed number is no ConstantExpression: BETWEEN does not check its order.
            is_literal=False,
            position=term.position,
        )
    read = term.read

    def nothing(properties: Properties) -> None:
        read(properties)

    return Nothing(read=nothing, position=term.position, depth=_depth(term))


def equality(left: Term, right: Term) -> Truth:
    """Whether two values are the same, the text among them converted to the other's type."""
    for term in (left, right):
        if isinstance(term, Truth) and term.literal == "NULL":
            raise refusal(term.position, "nothing equals NULL; expected IS NULL or IS NOT NULL")
    if isinstance(left, Truth) and left.literal is not None and _is_plain_literal(right):
        raise refusal(
            right.position, f"expected something {left.literal} can equal, found {_describe(right)}"
        )
    return _truth(_equality_test(left, right), left, right)


def is_null(term: Term) -> Truth:
    """Whether a value is null; never unknown."""
    read = term.read
    return _truth(lambda properties: read(properties) is None, term)


def ordering(left: Term, symbol: str, right: Term) -> Truth:
    """Whether two numbers are in order, the text among them converted to the other's type."""
    for term in (left, right):
        if isinstance(term, TextLiteral | Truth):
            raise refusal(
                term.position,
                f"expected a number or a property beside {symbol!r}, found {_describe(term)}",
            )
    return _truth(_ordering_test(left, _ORDERS[symbol], right), left, right)


def between(term: Term, low: Term, high: Term) -> Truth:
    """Whether a number is between two others, both included."""
    if isinstance(low, Number) and isinstance(high, Number):
        is_literal = low.is_literal and high.is_literal
        if is_literal and _compare_numbers(low, high) > 0:
            raise refusal(
                low.position,
                f"expected the lower bound of BETWEEN first, found {low.value} above {high.value}",
            )
    return conjunction((ordering(term, ">=", low), ordering(term, "<=", high)))


def outside(term: Term, low: Term, high: Term) -> Truth:
    """Whether a number is less than the first or greater than the second of two others."""
    return disjunction((ordering(term, "<", low), ordering(term, ">", high)))


def membership(term: Term, texts: Sequence[str]) -> Truth:
    """Whether a property is one of some texts; unknown when it is missing."""
    if not isinstance(term, Property):
        raise refusal(term.position, f"expected a property before IN, found {_describe(term)}")
    wanted = frozenset(texts)
    read = term.read

    def test(properties: Properties) -> bool | None:
        value = read(properties)
        return None if value is None else value in wanted

    return _truth(test, term)


def matching(term: Term, word: str, part: str, *, wanted: bool) -> Truth:
    """Whether a text contains, begins or ends with a part; a text that is missing never does.

    Compat: ComparisonExpression's six such expressions; what is no text, and an empty part, give
    false even for the NOT forms.
    """
    if part == "":
        return _truth(lambda _: False, term)
    matcher = _MATCHERS[word]
    read = term.read

    def test(properties: Properties) -> bool | None:
        value = read(properties)
        return isinstance(value, str) and matcher(value, part) is wanted

    return _truth(test, term)


def _equality_test(left: Term, right: Term) -> Test:
    """The comparison for two kinds of values."""
    test: Test
    match left, right:
        case (Text(), Text()) | (Truth(), Truth()):
            test = _equal(left.read, right.read, operator.eq)
        case Text(), Number(parse=parse, value=number):
            test = _equal(left.read, right.read, lambda text, _: parse(text) == number)
        case Number(parse=parse, value=number), Text():
            test = _equal(left.read, right.read, lambda _, text: parse(text) == number)
        case Number(), Number():
            same = _compare_numbers(left, right) == 0
            test = _equal(left.read, right.read, lambda _left, _right: same)
        case Text(), Truth():
            test = _equal(left.read, right.read, _is_text_of_truth)
        case Truth(), Text():
            test = _equal(left.read, right.read, _fail_to_convert)
        case _:
            # Kinds without a common order, or a side that is always null.
            test = _equal(left.read, right.read, lambda _left, _right: False)
    return test


def _equal(
    left: Callable[[Properties], _L | None],
    right: Callable[[Properties], _R | None],
    is_same: Callable[[_L, _R], bool],
) -> Test:
    """A test for equality; two nulls are equal, and a null to the right equals nothing else."""

    def test(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None:
            # Compat: as ComparisonExpression#doCreateEqual: only a null to the left is unknown.
            return True if other is None else None
        return other is not None and is_same(one, other)

    return test


def _is_text_of_truth(text: str, value: bool) -> bool:  # noqa: FBT001 - a value, not a switch
    """Whether a text means this truth value; every text but `true` means false."""
    return (text.lower() == "true") is value


def _fail_to_convert(value: bool, text: str) -> bool:  # noqa: FBT001 - a value, not a switch
    """Fail as the reference does when a truth value stands to the left of a text."""
    # Compat: as ComparisonExpression#__compare, which casts the wrong side there and throws.
    raise ValueError(f"{value} cannot be compared with the text {text!r}")


def _ordering_test(left: Term, order: Callable[[int, int], bool], right: Term) -> Test:
    """The comparison for two kinds of values that have an order."""
    match left, right:
        case Text(), Number(parse=parse, value=number):
            return _ordered(
                left.read, right.read, lambda text, _: order(compare(parse(text), number), 0)
            )
        case Number(parse=parse, value=number), Text():
            return _ordered(
                left.read, right.read, lambda _, text: order(compare(number, parse(text)), 0)
            )
        case Text(), Text():
            return _ordered(
                left.read,
                right.read,
                lambda one, other: order(compare(parse_double(one), parse_double(other)), 0),
            )
        case Number(), Number():
            is_ordered = order(_compare_numbers(left, right), 0)
            return lambda _: is_ordered
        case _:
            return _ordered(left.read, right.read, lambda _left, _right: None)


def _ordered(
    left: Callable[[Properties], _L | None],
    right: Callable[[Properties], _R | None],
    is_ordered: Callable[[_L, _R], bool | None],
) -> Test:
    """A test for order; unknown when a side is null."""

    def test(properties: Properties) -> bool | None:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        return None if other is None else is_ordered(one, other)

    return test


def _compare_numbers(left: Number, right: Number) -> int:
    """The order of two numbers, whole ones made floating-point if the other is."""
    if parse_double in (left.parse, right.parse):
        return compare(float(left.value), float(right.value))
    return compare(left.value, right.value)


def _truth(test: Test, *parts: Term) -> Truth:
    """A condition made of parts, the first of which tells its position."""
    return Truth(read=test, position=parts[0].position, depth=_depth(*parts))


def _depth(*parts: Term) -> int:
    """How deep a term made of these parts nests."""
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise refusal(parts[0].position, f"expected at most {DEPTH_MAX} nested operators")
    return depth


def _is_plain_literal(term: Term) -> bool:
    """Whether the term is a text or a number as written."""
    return isinstance(term, TextLiteral) or (isinstance(term, Number) and term.is_literal)


def _describe(term: Term) -> str:
    """Describe a term in a message."""
    match term:
        case Property():
            return "a property"
        case TextLiteral():
            return "a text"
        case Number():
            return "a number"
        case Truth(literal=str(word)):
            return word
        case Truth():
            return "a condition"
        case _:
            return "a negated term"
