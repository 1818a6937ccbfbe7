"""The dialect, held against what fastjson 1.2.61, 1.2.69 and 1.2.83 read and wrote."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlake.format import java_json

TABLES = Path(__file__).parents[1] / "metadata" / "tables"
WRITTEN_PRETTY = [
    path
    for path in sorted(TABLES.glob("*/*.json"))
    if path.relative_to(TABLES).as_posix() != "classes/topics.json"  # Holds a reference.
]


@pytest.mark.parametrize("path", WRITTEN_PRETTY, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_table_of_the_reference_read_and_written_gives_its_bytes(path):
    data = path.read_bytes()
    assert java_json.dumps(java_json.loads(data), pretty=True) == data


def test_one_line_table_of_the_reference_read_and_written_gives_its_bytes():
    data = (TABLES / "v5-timer" / "timermetrics").read_bytes()
    assert java_json.dumps(java_json.loads(data), pretty=False) == data


def test_there_are_tables_of_each_version():
    assert {path.parent.name.partition("-")[0] for path in WRITTEN_PRETTY} == {
        "classes",
        "v46",
        "v4",
        "v5",
    }


# --- reading ------------------------------------------------------------------------------------

READ = [
    ('{"offsetTable":{"T@G":{0:12,1:9}}}', {"offsetTable": {"T@G": {0: 12, 1: 9}}}),
    ('{"T@G":{"0":12}}', {"T@G": {"0": 12}}),
    ("{0:12,1:9\n\t}", {0: 12, 1: 9}),
    ("{0 : 12 , 1 : 9}", {0: 12, 1: 9}),
    ("{-1:12,01:3}", {-1: 12, 1: 3}),
    ('{1:{2:{"a":3}}}', {1: {2: {"a": 3}}}),
    ("{1:1.5,2:-2,}", {1: 1.5, 2: -2}),
    ("{n:2,$s:'x',_a1:3,中:4}", {"n": 2, "$s": "x", "_a1": 3, "中": 4}),
    ("{null:1,true:2}", {"null": 1, "true": 2}),
    ("""{'n':'a"b','s':'a\\'b'}""", {"n": 'a"b', "s": "a'b"}),
    ('{"a":1,}', {"a": 1}),
    ('{,"a":1,,"b":2}', {"a": 1, "b": 2}),
    ("[1,,2,]", [1, 2]),
    ('/*c*/{"n"/*d*/:2 // hi\n,"s":"x"}//e', {"n": 2, "s": "x"}),
    ("{//\n0:1/*,9:9*/,1:2}", {0: 1, 1: 2}),
    ('\ufeff {"n":2}\n\n', {"n": 2}),
    ('\t\r\n\f\b\v{"n":\v2}', {"n": 2}),
    ("[undefined,NaN,null,true,false]", [None, None, None, True, False]),
    ("[+1,01,-01,1.,1.5,1E+2]", [1, 1, -1, 1.0, 1.5, 100.0]),
    ("[9223372036854775808,-9223372036854775808]", [2**63, -(2**63)]),
    ('{"a":1,"a":2}', {"a": 2}),
    ("{1:1,1:2}", {1: 2}),
    ("{a:1,a:2}", {"a": 2}),
    (r'["\x41\'\/\v\0\7\F\"\\"]', ["A'/\v\0\7\f\"\\"]),
    (r'["\u00e9\u00E9\ud83d\ude00"]', ["éé😀"]),
    (r'["a\ud83db"]', ["a\ufffdb"]),
    ('["a\nb\tc\x1a"]', ["a\nb\tc\x1a"]),
    ("{}", {}),
    ("[]", []),
    ('"x"', "x"),
    ("5", 5),
]


@pytest.mark.parametrize(("text", "value"), READ)
def test_what_fastjson_reads_is_read(text, value):
    assert java_json.loads(text) == value
    assert java_json.loads(text.encode()) == value


REFUSED = [
    ("", "line 1 column 1: expected a value, found the end of the text"),
    (" \n ", "line 2 column 2: expected a value, found the end of the text"),
    ("\0\0\0", r"line 1 column 1: expected a value, found '\x00'"),
    ('{"n":2', "line 1 column 7: expected ',' or '}', found the end of the text"),
    ("{", "line 1 column 2: expected a key or '}', found the end of the text"),
    ("[1 2]", "line 1 column 4: expected ',' or ']', found '2'"),
    ('{"a":1 "b":2}', "line 1 column 8: expected ',' or '}', found '\"'"),
    ('{"n" 2}', "line 1 column 6: expected ':', found '2'"),
    ('{"n":}', "line 1 column 6: expected a value, found '}'"),
    ('{"n":2}}', "line 1 column 8: expected the end of the text, found '}'"),
    ('{\n\t"n":2\n} x', "line 3 column 3: expected the end of the text, found 'x'"),
    ("{a-b:2}", "line 1 column 3: expected ':', found '-'"),
    ("{T@G:2}", "line 1 column 3: expected ':', found '@'"),
    ("{[1]:1}", "line 1 column 2: expected a key or '}', found '['"),
    ("[abc]", "line 1 column 2: expected a value, found 'a'"),
    ("[nullx]", "line 1 column 2: expected a value, found 'n'"),
    ("[1_000]", "line 1 column 3: expected ',' or ']', found '_'"),
    ("[0x10]", "line 1 column 3: expected ',' or ']', found 'x'"),
    ("[.5]", "line 1 column 2: expected a value, found '.'"),
    ("[-]", "line 1 column 2: expected a value, found '-'"),
    ("[1e999]", "line 1 column 2: expected a number in the range of a double, found '1'"),
    ('{"s":"x', "line 1 column 6: expected a closing \" for the text that begins here, found '\"'"),
    (r'["a\8"]', r"line 1 column 4: expected an escape that JSON or Java knows, found '\\'"),
    (r'["a\u12"]', r"line 1 column 4: expected an escape that JSON or Java knows, found '\\'"),
    ('["a\\', "line 1 column 4: expected an escape that JSON or Java knows, found '\\\\'"),
    ("[1 /* x", "line 1 column 4: expected '*/' for the comment that begins here, found '/'"),
    ("# c", "line 1 column 1: expected a value, found '#'"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_no_json_is_refused_with_place_and_expectation(text, message):
    with pytest.raises(ValueError, match=r"line \d+ column \d+") as caught:
        java_json.loads(text)
    assert str(caught.value) == message


def test_bytes_that_are_no_utf8_become_replacement_characters():
    assert java_json.loads(b'{"a":"\xff",1:2}') == {"a": "\ufffd", 1: 2}


@pytest.mark.parametrize("bracket", ["[", "{1:", '{"a":', "[[],"])
def test_deep_nesting_is_refused(bracket):
    with pytest.raises(ValueError, match="expected at most 128 levels"):
        java_json.loads(bracket * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        "{" + "0:1," * 50_000 + "x",
        "[" + "/*" * 50_000,
        "[" + "//\n" * 50_000,
        "[" + "," * 100_000,
        '["' + "\\\\" * 50_000,
        "[" + "1" * 100_000,
        "[-" + "1." * 50_000,
        "{" * 100_000,
        "[1] " + " " * 100_000 + "x",
    ],
    ids=range(9),
)
def test_hostile_text_ends_soon(text):
    with pytest.raises(ValueError, match="line"):
        java_json.loads(text)


@given(st.text(st.sampled_from("{}[]\"'\\:,/*-+0123456789.eEnulltruefasx$ \n\tu@\ud83d\u00e9")))
def test_any_text_gives_a_value_or_a_place(text):
    try:
        java_json.loads(text)
    except ValueError as error:
        assert "line" in str(error) or "reference" in str(error)  # noqa: PT017 - either is fine


# --- references ---------------------------------------------------------------------------------


def test_reference_in_a_table_of_the_reference_is_resolved():
    table = java_json.loads((TABLES / "classes" / "topics.json").read_bytes())
    topics = table["topicConfigTable"]
    assert topics["odd.n-a_m%e|"]["attributes"] == topics["copy"]["attributes"] == {}


REFERENCES = [
    (r'{"t":{"T@G":{"x":1},"b":{"$ref":"$.t.T\\@G"}}}', {"t": {"T@G": {"x": 1}, "b": {"x": 1}}}),
    (r'{"a.b [0]\\":{"x":1},"b":{"$ref":"$.a\\.b\\ \\[0\\]\\\\"}}', None),
    ('{"a":[{"x":1},{"$ref":"$.a[0]"}]}', {"a": [{"x": 1}, {"x": 1}]}),
    ('{1:{"x":1},2:{"$ref":"$[1]"}}', {1: {"x": 1}, 2: {"x": 1}}),
    ('{"a":{"$ref":"$.b"},"b":{"x":1}}', {"a": {"x": 1}, "b": {"x": 1}}),
    (
        '{"a":{"x":1},"b":{"c":{"$ref":"$.a"}},"d":{"$ref":"$.b"}}',
        {"a": {"x": 1}, "b": {"c": {"x": 1}}, "d": {"c": {"x": 1}}},
    ),
    ('{"$ref":{"perm":6}}', {"$ref": {"perm": 6}}),
    ('{"a":{"$ref":"$.x","b":1}}', {"a": {"$ref": "$.x", "b": 1}}),
    ('{"a":"$ref"}', {"a": "$ref"}),
]


@pytest.mark.parametrize(("text", "value"), REFERENCES)
def test_reference_is_replaced_by_what_it_names(text, value):
    result = java_json.loads(text)
    assert result == ({"a.b [0]\\": {"x": 1}, "b": {"x": 1}} if value is None else value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":{"$ref":"$.b"}}', "leads nowhere"),
        ('{"a":{"$ref":"$.a.b"}}', "leads nowhere"),
        ('{"a":[1],"b":{"$ref":"$.a[1]"}}', "leads nowhere"),
        ('{"a":{"$ref":"$.a"}}', "references of its own"),
        ('{"a":{"b":{"$ref":"$"}}}', "references of its own"),
        ('{"a":{"b":{"$ref":"$.a"}}}', "references of its own"),
        ('{"a":{"b":{"$ref":".."}}}', "not supported"),
        ('{"a":{"$ref":"@"}}', "not supported"),
        ('{"a":{"$ref":""}}', "not supported"),
        ('{"a":{"$ref":"$..a"}}', "not supported"),
    ],
)
def test_reference_without_an_end_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        java_json.loads(text)


def test_references_that_double_at_each_step_are_refused():
    doubled = [f'"a{i + 1}":[{{"$ref":"$.a{i}"}},{{"$ref":"$.a{i}"}}]' for i in range(40)]
    with pytest.raises(ValueError, match="more than 1000000 values"):
        java_json.loads('{"a0":[1],' + ",".join(doubled) + "}")


# --- writing ------------------------------------------------------------------------------------

WRITTEN = [
    ({"s": 1, 2: "two", "t": None, 3: None}, '{"s":1,2:"two"}', '{\n\t"s":1,2:"two"\n}'),
    ({2: "two", "s": 1}, '{2:"two","s":1}', '{2:"two",\n\t"s":1\n}'),
    (
        {1: {"q": 1}, 2: {7: 8}},
        '{1:{"q":1},2:{7:8}}',
        '{1:{\n\t\t"q":1\n\t},2:{7:8\n\t}\n}',
    ),
    ({}, "{}", "{}"),
    ({"a": None}, "{}", "{\n}"),
    ({1: None, 2: 1}, "{2:1}", "{2:1\n}"),
    ({"a": {}, "b": []}, '{"a":{},"b":[]}', '{\n\t"a":{},\n\t"b":[]\n}'),
    ({"a": (1, 2)}, '{"a":[1,2]}', '{\n\t"a":[\n\t\t1,\n\t\t2\n\t]\n}'),
    ({"a": [1, 2]}, '{"a":[1,2]}', '{\n\t"a":[1,2]\n}'),
    ({"a": ()}, '{"a":[]}', '{\n\t"a":[]\n}'),
    ({"a": (1, None, "s")}, '{"a":[1,null,"s"]}', '{\n\t"a":[\n\t\t1,\n\t\tnull,\n\t\t"s"\n\t]\n}'),
    (
        {"a": ({"x": 1}, {"x": 2})},
        '{"a":[{"x":1},{"x":2}]}',
        '{\n\t"a":[\n\t\t{\n\t\t\t"x":1\n\t\t},\n\t\t{\n\t\t\t"x":2\n\t\t}\n\t]\n}',
    ),
    (
        {"a": [{"x": 1}, {"x": 2}]},
        '{"a":[{"x":1},{"x":2}]}',
        '{\n\t"a":[{\n\t\t"x":1\n\t},{\n\t\t"x":2\n\t}]\n}',
    ),
    ({"a": [(1,)]}, '{"a":[[1]]}', '{\n\t"a":[[\n\t\t1\n\t]]\n}'),
    (([1, 2], [1]), "[[1,2],[1]]", "[\n\t[1,2],\n\t[1]\n]"),
    ({1: (1, 2), 2: [1]}, "{1:[1,2],2:[1]}", "{1:[\n\t\t1,\n\t\t2\n\t],2:[1]\n}"),
    ({"b": True, "c": False}, '{"b":true,"c":false}', '{\n\t"b":true,\n\t"c":false\n}'),
    (None, "null", "null"),
    ('a"b', '"a\\"b"', '"a\\"b"'),
]


@pytest.mark.parametrize(("value", "plain", "pretty"), WRITTEN)
def test_value_is_written_as_fastjson_writes_it(value, plain, pretty):
    assert java_json.dumps(value, pretty=False).decode() == plain
    assert java_json.dumps(value, pretty=True).decode() == pretty


def test_every_character_is_escaped_as_fastjson_escapes_it():
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
    escaped = [*range(0x20), 0x22, 0x5C, *range(0x7F, 0xA0), 0x2028, 0x2029]
    expected = {code: short.get(code, f"\\u{code:04X}") for code in escaped}
    for code in range(0x10000):
        if not 0xD800 <= code <= 0xDFFF:
            written = java_json.dumps(chr(code), pretty=False).decode()
            assert written == f'"{expected.get(code, chr(code))}"'


def test_keys_are_escaped_too():
    assert java_json.dumps({'a"\u2028': 1}, pretty=False) == b'{"a\\"\\u2028":1}'


def test_characters_beyond_the_first_plane_and_lone_surrogates():
    assert java_json.dumps("😀", pretty=False).decode() == '"😀"'
    assert java_json.dumps("\ud83d", pretty=False) == b'"?"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (-1.25e-7, "-1.25E-7"),
        (1234567.5, "1234567.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e21, "1.0E21"),
        (1e23, "1.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_numbers_with_a_fraction_look_like_javas(value, text):
    assert java_json.dumps(value, pretty=False).decode() == text


@pytest.mark.parametrize("value", [b"x", {1, 2}, {None: 1}, {True: 1}, {1.5: 1}, object()])
def test_what_json_does_not_have_is_refused(value):
    with pytest.raises(TypeError):
        java_json.dumps(value, pretty=True)


def test_endless_value_is_refused():
    value = []
    value.append(value)
    with pytest.raises(ValueError, match="nested too deeply"):
        java_json.dumps(value, pretty=True)


JSON = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**31), 2**31), inner
        )
    ),
)


@given(JSON, st.booleans())
def test_what_is_written_is_read_again(value, pretty):
    assert java_json.loads(java_json.dumps(value, pretty=pretty)) == value
