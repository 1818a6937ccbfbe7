"""SQL92 grammar (lark) compiled to a predicate over properties.

The language is the reference's own small one:

1. Names are properties and exact; keywords are not case-sensitive. Literals are texts in single
   quotes (a doubled quote is a quote), whole numbers, floating-point numbers above zero, TRUE,
   FALSE and NULL. There is no arithmetic, no LIKE, no hexadecimal or octal number.
2. `NOT` and signs bind stronger than comparisons, so `NOT a = 1` compares the condition `NOT a`.
3. An expression ends where the grammar accepts no further word. As in the reference, the rest is
   ignored; `SqlFilter.unread` has it.
4. Both kinds of comments are blanks: `/* */`, and `--` up to the end of a line that has one.

The parser takes milliseconds to build; it is built for the first expression.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Self

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.parsers.lalr_interactive_parser import InteractiveParser
from msgspec.structs import replace

from rocketlake.filters import sql92_terms as terms
from rocketlake.filters.java_text import INT_MAX, LONG_MAX, parse_double, parse_int, parse_long
from rocketlake.filters.sql92_terms import Properties, Term, Truth, refusal

# The terminal of each keyword; a leading underscore keeps its words out of the builder's way.
_KEYWORDS: Mapping[str, str] = {
    **{word: f"_{word}" for word in ("AND", "BETWEEN", "IN", "IS", "OR")},
    **{word: word for word in ("CONTAINS", "ENDSWITH", "STARTSWITH")},
    **{word: word for word in ("FALSE", "NOT", "NULL", "TRUE")},
}

_END = "$END"
_OPERAND_STARTS = frozenset(
    ["ID", "STRING", "WHOLE", "FLOATING", "TRUE", "FALSE", "NULL", "NOT", "PLUS", "MINUS", "LPAR"]
)
_CONNECTIVES = frozenset(["AND", "OR"])
_OPERATORS = _CONNECTIVES | frozenset(
    ["EQUAL", "ORDER", "IS", "NOT", "BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH"]
)
_NAMES: Mapping[str, str] = {
    _END: "the end",
    "COMMA": "','",
    "LPAR": "'('",
    "RPAR": "')'",
    "STRING": "a text in single quotes",
}

_GRAMMAR = r"""
?start: disjunction

?disjunction: conjunction (_OR conjunction)*
?conjunction: equality (_AND equality)*

?equality: comparison
    | equality EQUAL comparison                              -> equality
    | equality _IS [NOT] NULL                                -> null_test

?comparison: unary
    | comparison ORDER unary                                 -> ordering
    | comparison [NOT] _BETWEEN unary _AND unary             -> between
    | comparison [NOT] _IN "(" STRING ("," STRING)* ")"      -> membership
    | comparison [NOT] _matcher STRING                       -> matching
_matcher: CONTAINS | STARTSWITH | ENDSWITH

?unary: primary
    | "+" unary
    | MINUS unary                                            -> negation
    | NOT unary                                              -> inversion

?primary: "(" disjunction ")"
    | ID                                                     -> property
    | STRING                                                 -> text
    | WHOLE                                                  -> whole
    | FLOATING                                               -> floating
    | TRUE                                                   -> true
    | FALSE                                                  -> false
    | NULL                                                   -> null

MINUS: "-"
EQUAL.1: "=" | "<>"
ORDER: ">=" | "<=" | ">" | "<"
ID: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(''|[^'])*'/
FLOATING.2: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
WHOLE.1: /0|[1-9][0-9]*[lL]?/

%declare _AND _BETWEEN _IN _IS _OR CONTAINS ENDSWITH STARTSWITH FALSE NOT NULL TRUE

BLANKS: /[ \t\n\r\f]+/
LINE_COMMENT.2: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.2: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore BLANKS
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""


class SqlFilter:
    """A compiled expression.

    `expression` is the whole text; `unread` is the ignored text after the end of the expression,
    usually empty.

    Thread-safety: immutable after construction. Pickles as its expression.
    """

    __slots__ = ("_test", "expression", "unread")

    def __init__(self, expression: str) -> None:
        """Compile an expression.

        Raises:
            ValueError: The expression is wrong; the message has its position and the expected.
        """
        condition, unread = _compile(expression)
        self._test = condition.read
        self.expression = expression
        self.unread = unread

    def matches(self, properties: Properties) -> bool:
        """Tell whether a message with these properties is wanted; no if unknown or failing."""
        try:
            return self._test(properties) is True
        except ValueError:
            # Compat: as ExpressionMessageFilter#isMatchedByCommitLog: a failure means not wanted.
            return False

    def evaluate(self, properties: Properties) -> bool | None:
        """Evaluate the expression for these properties; `None` is unknown.

        Raises:
            ValueError: A property is not of the type it is compared with.
        """
        return self._test(properties)

    def __repr__(self) -> str:
        return f"SqlFilter({self.expression!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlFilter) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.expression,)


def _compile(expression: str) -> tuple[Truth, str]:
    """The condition an expression stands for, and the text after its end."""
    cursor = _build_parser().parse_interactive(expression)
    try:
        for _ in cursor.iter_parse():
            pass
        return _finish(cursor), ""
    except UnexpectedCharacters:
        raise _refuse_character(expression, cursor) from None
    except UnexpectedToken as error:
        return _compile_prefix(expression, error, cursor)


def _compile_prefix(
    expression: str, error: UnexpectedToken, cursor: InteractiveParser
) -> tuple[Truth, str]:
    """The condition before a word the grammar cannot take, if it is whole there."""
    expected = _name_expected(cursor)
    if error.token.type == _END:
        position, found = len(expression) + 1, "the end"
    else:
        position, found = _position(error.token), repr(str(error.token))
        # Compat: as SelectorParser#JmsSelector, which does not ask for the end of the text.
        with suppress(UnexpectedToken):
            return _finish(cursor), expression[position - 1 :]
    raise refusal(position, f"expected {expected}, found {found}") from None


def _finish(cursor: InteractiveParser) -> Truth:
    """The condition of everything read so far."""
    whole: Term = cursor.feed_eof()  # type: ignore[no-untyped-call]  # lark has no types there
    return terms.as_truth(whole)


def _refuse_character(expression: str, cursor: InteractiveParser) -> ValueError:
    """The error for text that is no word of the language."""
    state = cursor.lexer_thread.state
    assert state is not None, "a parser that was given no text"
    start = state.line_ctr.char_pos
    rest = expression[start:]
    if rest.startswith("'"):
        reason = "expected a closing quote after this text, found the end"
    elif rest.startswith("/*"):
        reason = "expected '*/' after this comment, found the end"
    else:
        reason = f"expected {_name_expected(cursor)}, found {rest[0]!r}"
    return refusal(start + 1, reason)


def _name_expected(cursor: InteractiveParser) -> str:
    """The words the grammar could take next, for people."""
    accepted: set[str] = cursor.accepts()  # type: ignore[no-untyped-call]  # lark has no types there
    wanted = {word.lstrip("_") for word in accepted}
    names = []
    if "ID" in wanted:
        names.append("a property, a literal, NOT, a sign or '('")
        wanted -= _OPERAND_STARTS
    if wanted >= _CONNECTIVES:
        names.append("an operator")
        wanted -= _OPERATORS
    names += [_NAMES.get(word, word) for word in sorted(wanted)]
    return ", ".join(names[:-1]) + " or " * (len(names) > 1) + names[-1]


@cache
def _build_parser() -> Lark:
    """The parser; it keeps no state between expressions."""
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        transformer=_Builder(),
        lexer_callbacks={"ID": _to_keyword},
    )


def _to_keyword(word: Token) -> Token:
    """The word as a keyword if it is one."""
    kind = _KEYWORDS.get(word.upper())
    return word if kind is None else word.update(type=kind)


@v_args(inline=True)
class _Builder(Transformer[Token, Term]):
    """Grammar rules to terms."""

    def disjunction(self, *conditions: Term) -> Term:
        return terms.disjunction(conditions)

    def conjunction(self, *conditions: Term) -> Term:
        return terms.conjunction(conditions)

    def equality(self, left: Term, symbol: Token, right: Term) -> Term:
        same = terms.equality(left, right)
        return same if symbol == "=" else terms.inversion(same)

    def null_test(self, term: Term, negated: Token | None, _null: Token) -> Term:
        return _invert_if(negated, terms.is_null(term))

    def ordering(self, left: Term, symbol: Token, right: Term) -> Term:
        return terms.ordering(left, str(symbol), right)

    def between(self, term: Term, negated: Token | None, low: Term, high: Term) -> Term:
        build = terms.between if negated is None else terms.outside
        return build(term, low, high)

    def membership(self, term: Term, negated: Token | None, *texts: Token) -> Term:
        return _invert_if(negated, terms.membership(term, [_unquote(text) for text in texts]))

    def matching(self, term: Term, negated: Token | None, word: Token, text: Token) -> Term:
        return terms.matching(term, word.upper(), _unquote(text), wanted=negated is None)

    def negation(self, sign: Token, term: Term) -> Term:
        return replace(terms.negation(term), position=_position(sign))

    def inversion(self, word: Token, term: Term) -> Term:
        return replace(terms.inversion(term), position=_position(word))

    def property(self, name: Token) -> Term:
        return terms.property_term(str(name), _position(name))

    def text(self, text: Token) -> Term:
        return terms.text_literal(_unquote(text), _position(text))

    def whole(self, digits: Token) -> Term:
        # Compat: as ConstantExpression#createFromDecimal: the suffix does not decide the type.
        text = digits.rstrip("lL")
        # Why: the length first; Python refuses to convert very long numbers at all.
        if len(text) > len(str(LONG_MAX)) or (number := int(text)) > LONG_MAX:
            raise refusal(_position(digits), f"expected a number up to {LONG_MAX}, found {text}")
        parse = parse_int if number <= INT_MAX else parse_long
        return terms.number_literal(number, parse, _position(digits))

    def floating(self, digits: Token) -> Term:
        # Compat: as ConstantExpression#createFloat, which takes Java's MIN_VALUE for the least.
        number = float(digits)
        if not 0 < number < math.inf:
            raise refusal(
                _position(digits), f"expected a number above 0.0 and in range, found {digits}"
            )
        return terms.number_literal(number, parse_double, _position(digits))

    def true(self, word: Token) -> Term:
        return terms.truth_literal("TRUE", _position(word), value=True)

    def false(self, word: Token) -> Term:
        return terms.truth_literal("FALSE", _position(word), value=False)

    def null(self, word: Token) -> Term:
        return terms.truth_literal("NULL", _position(word), value=None)


def _invert_if(negated: Token | None, condition: Truth) -> Truth:
    """The opposite of a condition if there is a NOT."""
    return condition if negated is None else terms.inversion(condition)


def _unquote(text: Token) -> str:
    """The text between its quotes."""
    return text[1:-1].replace("''", "'")


def _position(word: Token) -> int:
    """Where a word stands, the first character being 1."""
    return (word.start_pos or 0) + 1
