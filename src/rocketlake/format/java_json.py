"""The JSON dialect the reference writes and reads, on disk and on the wire.

The reference uses fastjson 1.x, which leaves standard JSON in both directions:

1. **Integer keys are written without quotes**: `{0:12,1:9}`. They come back as `int` keys; a
   quoted key stays a `str`, so a value read and written again gives the same bytes.
2. Objects are written in the given order. Members that are null are left out; elements of an
   array are not.
3. Pretty text is indented by tabs, but only a quoted key starts a line; a Java array or set stays
   on one line (`list` here), a Java list has a line per element (`tuple` here).
4. Text made or edited by hand may hold comments, bare words or single quotes around keys, commas
   too many, and raw control characters. fastjson reads all of these, so does `loads`.
5. An object that occurs twice is written once; the second place says `{"$ref":"$.path"}`.
   `loads` puts the object in both places.
"""

import math
import re
from typing import Final, NoReturn, TypeAlias

import msgspec

JsonValue: TypeAlias = (
    "bool | int | float | str | list[JsonValue] | dict[str | int, JsonValue] | None"
)
JsonObject: TypeAlias = dict[str | int, JsonValue]
_Container: TypeAlias = JsonObject | list[JsonValue]

DEPTH_MAX: Final = 128
_NUMBER_SIZE_MAX: Final = 1000
_REFERRED_VALUES_MAX: Final = 1_000_000

_BLANK = re.compile(r"[ \t\r\n\f\v\b]*")
_BLANK_OR_COMMA = re.compile(r"[ \t\r\n\f\v\b,]*")
_NUMBER = re.compile(r"[+-]?[0-9]+(?P<fraction>(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INTEGER_PAIR = r"-?[0-9]{1,19}:-?[0-9]{1,19}"
_INTEGER_MAP = re.compile(rf"\{{((?:{_INTEGER_PAIR},)*{_INTEGER_PAIR})\s*\}}")
# Why: letters, digits, _, $ and all beyond ASCII, told by what they are not: the other way round it
# takes five milliseconds of every process's start to compile.
_WORD = re.compile(r"[^\x00-#%-@\[-^`{-\x7f][^\x00-#%-/:-@\[-^`{-\x7f]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = re.compile(r"[0-9A-Fa-f]+")
# Compat: the words of JSONLexerBase#nextToken; it takes NaN for null, and writes null for it.
_WORDS: Final[dict[str, bool | None]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": None,
}
# Compat: these, and nothing else, are known to JSONLexerBase#scanString.
_ESCAPES: Final = dict(
    zip("01234567btnvfFr\"'/\\", "\0\1\2\3\4\5\6\7\b\t\n\v\f\f\r\"'/\\", strict=True)
)
_HEX_ESCAPES: Final = {"u": 4, "x": 2}
_SURROGATE = re.compile("[\ud800-\udfff]")
_REFERENCE_STEP = re.compile(r"\.(?P<name>(?:[^.\[\\]|\\.)+)|\[(?P<index>[0-9]{1,10})\]", re.DOTALL)
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)

# Compat: as SerializeWriter#writeStringWithDoubleQuote; beside what JSON asks for, it escapes the
# second row of control characters and the two line separators of Unicode.
_ESCAPED = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_SHORT_ESCAPES: Final = {
    plain: "\\" + letter for plain, letter in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}


def loads(data: bytes | str) -> JsonValue:
    """Read a value; of equal keys in one object the last one counts.

    Raises:
        ValueError: Even fastjson would refuse it; names line, column and what was expected.
    """
    value: JsonValue
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Compat: bytes that are no UTF-8 become U+FFFD, as in Java's String.
        text = data if isinstance(data, str) else data.decode(errors="replace")
        value = _Parser(text).read_document()
    if "$ref" in data if isinstance(data, str) else b"$ref" in data:
        value = _resolve_references(value)
    return value


def dumps(value: object, *, pretty: bool) -> bytes:
    """Return the bytes that fastjson writes: on one line, or indented as in the tables on disk.

    A `list` is written on one line, a `tuple` with a line per element when `pretty`.

    Raises:
        TypeError: A value or a key is of a type that JSON does not have.
        ValueError: The value is nested too deeply.
    """
    out: list[str] = []
    try:
        _write(out, value, "\n" if pretty else "")
    except RecursionError as error:
        raise ValueError("the value is nested too deeply to be written") from error
    # Compat: half a surrogate pair becomes a question mark, as in String#getBytes.
    return "".join(out).encode(errors="replace")


class _Parser:
    """One pass over a text, in linear time; for what a strict parser refuses."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0

    def read_document(self) -> JsonValue:
        self._skip(_BLANK)
        value = self._read_value(0)
        self._skip(_BLANK)
        if self._at < len(self._text):
            self._fail("the end of the text")
        return value

    def _read_value(self, depth: int) -> JsonValue:
        char = self._text[self._at : self._at + 1]
        if char in ("{", "["):
            if depth == DEPTH_MAX:
                self._fail(f"at most {DEPTH_MAX} levels")
            return self._read_object(depth) if char == "{" else self._read_array(depth)
        if char in _PLAIN:
            return self._read_string(char)
        if number := _NUMBER.match(self._text, self._at):
            return self._read_number(number)
        word = _WORD.match(self._text, self._at)
        if word is None or word.group() not in _WORDS:
            self._fail("a value")
        self._at = word.end()
        return _WORDS[word.group()]

    def _read_object(self, depth: int) -> JsonObject:
        # Why: a table of offsets is little else than such maps, so they are read in one piece.
        if integers := _INTEGER_MAP.match(self._text, self._at):
            self._at = integers.end()
            pairs = (pair.partition(":") for pair in integers[1].split(","))
            return {int(key): int(value) for key, _, value in pairs}
        result: JsonObject = {}
        self._at += 1
        while not self._reaches_end("}"):
            key = self._read_key()
            self._skip(_BLANK)
            if not self._text.startswith(":", self._at):
                self._fail("':'")
            self._at += 1
            self._skip(_BLANK)
            result[key] = self._read_value(depth + 1)
            self._check_member_end("}")
        return result

    def _read_array(self, depth: int) -> list[JsonValue]:
        result: list[JsonValue] = []
        self._at += 1
        while not self._reaches_end("]"):
            result.append(self._read_value(depth + 1))
            self._check_member_end("]")
        return result

    def _reaches_end(self, bracket: str) -> bool:
        # Compat: Feature.AllowArbitraryCommas is on by default.
        self._skip(_BLANK_OR_COMMA)
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        return False

    def _check_member_end(self, bracket: str) -> None:
        self._skip(_BLANK)
        if not self._text.startswith((",", bracket), self._at):
            self._fail(f"',' or '{bracket}'")

    def _read_key(self) -> str | int:
        char = self._text[self._at : self._at + 1]
        if char in _PLAIN:
            return self._read_string(char)
        if number := _INTEGER.match(self._text, self._at):
            return self._to_int(number)
        word = _WORD.match(self._text, self._at)
        if word is None:
            self._fail("a key or '}'")
        self._at = word.end()
        return word.group()

    def _read_number(self, number: re.Match[str]) -> int | float:
        if not number["fraction"]:
            return self._to_int(number)
        value = float(number.group())
        if math.isinf(value):
            self._fail("a number in the range of a double")
        self._at = number.end()
        return value

    def _to_int(self, number: re.Match[str]) -> int:
        if number.end() - number.start() > _NUMBER_SIZE_MAX:
            self._fail(f"a number of at most {_NUMBER_SIZE_MAX} digits")
        self._at = number.end()
        return int(number.group())

    def _read_string(self, quote: str) -> str:
        text, start = self._text, self._at
        plain = _PLAIN[quote]
        parts = []
        at = start + 1
        while True:
            chunk = plain.match(text, at)
            assert chunk is not None, "the pattern matches an empty text too"
            parts.append(chunk.group())
            at = chunk.end()
            if at >= len(text):
                self._fail(f"a closing {quote} for the text that begins here")
            if text[at] == quote:
                break
            self._at = at
            part, at = self._read_escape(at + 1)
            parts.append(part)
        self._at = at + 1
        return parts[0] if len(parts) == 1 else _join_surrogates("".join(parts))

    def _read_escape(self, at: int) -> tuple[str, int]:
        kind = self._text[at : at + 1]
        if kind in _ESCAPES:
            return _ESCAPES[kind], at + 1
        end = at + 1 + _HEX_ESCAPES.get(kind, 0)
        digits = _HEX.fullmatch(self._text, at + 1, end)
        if kind not in _HEX_ESCAPES or digits is None or digits.end() != end:
            self._fail("an escape that JSON or Java knows")
        return chr(int(digits.group(), 16)), end

    def _skip(self, blank: re.Pattern[str]) -> None:
        """Pass over what `blank` matches and over comments."""
        text = self._text
        while True:
            match = blank.match(text, self._at)
            assert match is not None, "the pattern matches an empty text too"
            self._at = match.end()
            if text.startswith("//", self._at):
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end + 1
            elif text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                if end < 0:
                    self._fail("'*/' for the comment that begins here")
                self._at = end + 2
            else:
                return

    def _fail(self, expected: str) -> NoReturn:
        text, at = self._text, self._at
        line = text.count("\n", 0, at) + 1
        column = at - text.rfind("\n", 0, at)
        found = repr(text[at]) if at < len(text) else "the end of the text"
        raise ValueError(f"line {line} column {column}: expected {expected}, found {found}")


def _join_surrogates(text: str) -> str:
    """Make one character of two escaped halves; a half alone becomes U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _resolve_references(root: JsonValue) -> JsonValue:
    """Put the object that a `$ref` names in its place, so that both places share it.

    Why: what is referred to is bounded in sum, since references to references could grow a small
    text beyond any memory once it is walked through.
    """
    budget = _REFERRED_VALUES_MAX
    sizes: dict[int, int] = {}
    pending: list[tuple[_Container, str | int, JsonValue]] = [([root], 0, root)]
    while pending:
        holder, key, value = pending.pop()
        path = _reference_path(value)
        if path is None:
            # Order: as in the text, so that what lies before a reference is resolved by then.
            if isinstance(value, dict | list):
                pending += [(value, *child) for child in reversed(_children(value))]
            continue
        target = _find_referred(root, path)
        if id(target) not in sizes:
            sizes[id(target)] = _count_values(target, path, budget)
        budget -= sizes[id(target)]
        if budget < 0:
            raise ValueError(f"references to more than {_REFERRED_VALUES_MAX} values")
        # mypy does not know that the key is of the holder's own kind.
        holder[key] = target  # type: ignore[index]
    return root


def _children(value: JsonValue) -> list[tuple[str | int, JsonValue]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _reference_path(value: JsonValue) -> str | None:
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None


def _find_referred(root: JsonValue, path: str) -> JsonValue:
    """Return what a path such as `$.table.name[3]` leads to."""
    value = root
    for key in _split_path(path):
        match value:
            case dict() if key in value:
                value = value[key]
            case list() if isinstance(key, int) and key < len(value):
                value = value[key]
            case _:
                raise ValueError(f"the reference {path!r} leads nowhere")
    return value


def _split_path(path: str) -> list[str | int]:
    """Return the keys of a path; in a name, a backslash stands before what is no letter."""
    steps = list(_REFERENCE_STEP.finditer(path))
    if path != "$" + "".join(step.group() for step in steps):
        raise ValueError(f"the reference {path!r} is of a form that is not supported")
    return [
        int(step["index"]) if step["name"] is None else _UNESCAPE.sub(r"\1", step["name"])
        for step in steps
    ]


def _count_values(value: JsonValue, path: str, limit: int) -> int:
    """Count a value and all inside it, until the count passes `limit`."""
    count = 0
    pending = [value]
    while pending and count <= limit:
        value = pending.pop()
        count += 1
        if _reference_path(value) is not None:
            raise ValueError(f"the reference {path!r} leads to a value with references of its own")
        pending += [child for _, child in _children(value)]
    return count


def _write(out: list[str], value: object, line: str) -> None:
    """Write a value; `line` starts a new line at the current indent, empty when not pretty."""
    match value:
        case str():
            out.append(_quote(value))
        case None | bool():
            out.append({None: "null", True: "true", False: "false"}[value])
        case int():
            out.append(repr(int(value)))
        case float():
            out.append(_spell_double(value))
        case dict():
            _write_object(out, value, line)
        case list():
            _write_array(out, value, line, line_per_element=False)
        case tuple():
            _write_array(out, value, line, line_per_element=bool(line and value))
        case _:
            raise TypeError(f"JSON has no {type(value).__name__}")


def _write_object(out: list[str], members: dict[object, object], line: str) -> None:
    if not members:
        out.append("{}")
        return
    inner = line and line + "\t"
    comma = ""
    out.append("{")
    for key, value in members.items():
        if value is None:
            continue
        match key:
            case str():
                out.append(f"{comma}{inner}{_quote(key)}:")
            case int() if not isinstance(key, bool):
                out.append(f"{comma}{key}:")
            case _:
                raise TypeError(f"a key of JSON is no {type(key).__name__}")
        _write(out, value, inner)
        comma = ","
    out.append(line + "}")


def _write_array(
    out: list[str],
    values: list[object] | tuple[object, ...],
    line: str,
    *,
    line_per_element: bool,
) -> None:
    inner = line + "\t" if line_per_element else line
    before = inner if line_per_element else ""
    comma = ""
    out.append("[")
    for value in values:
        out.append(comma + before)
        _write(out, value, inner)
        comma = ","
    out.append(line + "]" if line_per_element else "]")


def _quote(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04X}"


def _spell_double(value: float) -> str:
    """Spell a number as Double#toString does, with the fewest digits that tell it apart."""
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    scale = int(exponent or 0) - len(fraction) + len(digits) - 1
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{scale}"
