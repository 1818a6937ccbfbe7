"""Forms of the output: JSON lines, rows, bodies, and text that is none."""

import base64
import json
import zlib

import pytest

from rocketlake.model.flags import COMPRESSED
from support import command
from support.store_builder import StoreBuilder

FIELDS = (
    *("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "storeTimestamp"),
    *("bornTimestamp", "bornHost", "storeHost", "msgId", "flag", "sysFlag", "bodyCRC"),
    *("reconsumeTimes", "preparedTransactionOffset", "tagsCode", "properties", "body"),
)


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=8000)


def lines(root, *arguments):
    ran = command.run("dump", root, "--json", *arguments)
    assert ran.code == 0, ran.err
    return ran.lines


def test_fields_of_a_line(builder):
    root = builder.record("T", 3, b"hello", tags="A", keys=["k"]).write()
    (line,) = lines(root)
    assert tuple(line) == FIELDS
    assert line == {
        "topic": "T",
        "queueId": 3,
        "queueOffset": 0,
        "physicalOffset": 0,
        "storeSize": builder.placed[0].size,
        "storeTimestamp": builder.placed[0].store_timestamp,
        "bornTimestamp": builder.placed[0].store_timestamp - 1,
        "bornHost": "192.168.0.1:1234",
        "storeHost": "10.0.0.2:10911",
        "msgId": "0A00000200002A9F0000000000000000",
        "flag": 0,
        "sysFlag": 0,
        "bodyCRC": zlib.crc32(b"hello") & 0x7FFFFFFF,
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
        "tagsCode": 65,
        "properties": {"KEYS": "k", "TAGS": "A"},
        "body": base64.b64encode(b"hello").decode(),
    }


# --- bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("text", "häl\ufffdlo"),
        ("hex", "68c3a46cff6c6f"),
        ("base64", "aMOkbP9sbw=="),
        ("none", None),
    ],
)
def test_forms_of_a_body(builder, form, body):
    root = builder.record(body=b"h\xc3\xa4l\xfflo").write()
    (line,) = lines(root, "--body", form)
    assert line.get("body") == body
    (line,) = lines(root, "--log", "--body", form)
    assert line.get("body") == body
    ran = command.run("dump", root, "--body", form)
    header, row = ran.out.splitlines()
    assert header.endswith("SIZE" if form == "none" else "BODY")
    assert form == "none" or row.endswith(str(body))


def test_compressed_body(builder):
    packed = zlib.compress(b"plain text")
    root = builder.record(body=packed, sys_flag=COMPRESSED).write()
    (line,) = lines(root)
    assert base64.b64decode(line["body"]) == packed
    assert base64.b64decode(line["inflated"]) == b"plain text"
    (line,) = lines(root, "--body", "text")
    assert line["body"] == "plain text"
    (line,) = lines(root, "--body", "hex")
    assert line["body"] == packed.hex()
    assert "plain text" in command.run("dump", root).out


@pytest.mark.parametrize("body", [b"", b"not packed", zlib.compress(b"x" * 999)[:10]])
def test_body_that_is_not_what_its_flags_say(builder, body):
    root = builder.record(body=body, sys_flag=COMPRESSED).write()
    (line,) = lines(root)
    assert base64.b64decode(line["body"]) == body
    assert command.run("dump", root, "--body", "text").code == 0


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 57, 1000])
def test_base64_of_every_length(builder, size):
    body = bytes(n % 256 for n in range(size))
    (line,) = lines(builder.record(body=body).write())
    assert base64.b64decode(line["body"], validate=True) == body


# --- text that is hard to print --------------------------------------------------------------

TEXTS = {
    "quotes": 'a"b\\c/d',
    "control": "a\tb\nc\rd\x00e\x1ff\x7fg",
    "unicode": "ä键🚀\u2028\u2029\ufeff",
    "markup": "<b>&amp;</b> [red]x[/red] %s {x}",
    "empty": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_comes_through_as_json(builder, text):
    """The fast way and the general way of writing lines give the same."""
    root = builder.record("T", properties={"p": text, "q" + text: "v"}, tags=text or None).write()
    (fast,) = lines(root, "--body", "none")
    (general,) = lines(root, "--body", "none", "--log")
    assert general.pop("queued")
    assert fast == general
    # Compat: a property without a value is none.
    assert fast["properties"].get("p", "") == text
    assert fast["properties"]["q" + text] == "v"


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_bytes_that_are_no_text_become_marks(builder, raw):
    """Property and topic bytes are replaced in place, so that lengths and offsets still hold."""
    mark = b"m" * len(raw)
    builder.record("T" + mark.decode(), properties={"p": f"<{mark.decode()}>"})
    root = builder.write()
    path = builder.log_path(0)
    path.write_bytes(path.read_bytes().replace(mark, raw))
    ran = command.run("dump", root, "--json", "--body", "none")
    assert ran.code == 0, ran.err
    (fast,) = ran.lines
    assert "\ufffd" in fast["properties"]["p"]
    assert "\ufffd" in fast["topic"]
    (general,) = lines(root, "--body", "none", "--log")
    assert fast["properties"] == general["properties"]
    assert fast["topic"] == general["topic"]
    for arguments in (["info"], ["info", "--json"], ["dump"]):
        ran = command.run(arguments[0], root, *arguments[1:])
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("properties", [b"", b"\x02", b"a", b"a\x01", b"\x01b\x02", b"a\x01b\x01c"])
def test_property_strings_that_are_cut_or_odd(builder, properties):
    """Written raw: the length of the properties is that of the filler."""
    builder.record(properties={"x": "y" * 20})
    path_of = builder.write() / "commitlog" / ("0" * 20)
    data = path_of.read_bytes()
    filler = b"x\x01" + b"y" * 20 + b"\x02"
    path_of.write_bytes(data.replace(filler, properties.ljust(len(filler), b"z")))
    (fast,) = lines(builder.root, "--body", "none")
    (general,) = lines(builder.root, "--body", "none", "--log")
    assert fast["properties"] == general["properties"]


def test_numbers_at_their_ends(builder):
    top, low = (1 << 31) - 1, -(1 << 63)
    builder.record("T", top, b"", stored=(1 << 63) - 1, code=(1 << 63) - 1)
    builder.record("U", 0, b"", stored=0, code=-(1 << 31))
    root = builder.write()
    fast = lines(root)
    assert fast[0]["queueId"] == top
    assert fast[0]["storeTimestamp"] == (1 << 63) - 1
    assert fast[0]["tagsCode"] == (1 << 63) - 1
    assert fast[1]["tagsCode"] == -(1 << 31)
    assert fast[1]["storeTimestamp"] == 0
    assert low < 0
    assert command.run("dump", root).code == 0
    assert command.run("info", root).code == 0


# --- rows for people -------------------------------------------------------------------------


def test_rows_are_aligned(builder):
    for number in range(12):
        builder.record("T" * (number + 1), number, b"b", tags="x" * number or None)
    ran = command.run("dump", builder.write())
    header, *rows = ran.out.splitlines()
    assert len(rows) == 12
    assert {row.index(" 2023-") for row in rows} == {header.index("STORED") - 1}
    assert all(row.endswith("b") for row in rows)


def test_wide_characters_are_aligned(builder):
    """A Chinese character takes two columns of a terminal."""
    builder.record(tags="标签", body=b"x").record(tags="abcd", body=b"x")
    _, first, second = command.run("dump", builder.write()).out.splitlines()
    assert len(second) - len(first) == 2


def test_long_bodies_are_shortened(builder):
    root = builder.record(body=b"x" * 500).write()
    assert "x" * 59 + "…" in command.run("dump", root).out
    assert "x" * 61 not in command.run("dump", root).out


@pytest.mark.parametrize("where", ["body", "tags", "keys", "topic"])
def test_control_characters_are_made_visible(builder, where):
    """What a message holds must not command the terminal."""
    text = "a\x1b[31mb\x07\x9bc"
    builder.record(
        text if where == "topic" else "T",
        body=text.encode() if where == "body" else b"",
        tags=text if where == "tags" else None,
        keys=[text] if where == "keys" else [],
    )
    for arguments in ([], ["--log"]):
        ran = command.run("dump", builder.write(), *arguments)
        assert ran.code == 0
        assert not set(ran.out) & {"\x1b", "\x07", "\x9b"}
        assert "\\x1b[31m" in ran.out


def test_line_feeds_in_a_body_do_not_break_the_row(builder):
    ran = command.run("dump", builder.record(body=b"a\nb\r\nc").write())
    assert len(ran.out.splitlines()) == 2


def test_store_without_messages_prints_nothing(tmp_path):
    (tmp_path / "commitlog").mkdir()
    assert command.run("dump", tmp_path) == (0, "", "")
    assert command.run("dump", tmp_path, "--json") == (0, "", "")


def test_many_rows_keep_their_order(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1 << 16, queue_file_units=1000)
    root = builder.records(900).write()
    rows = command.run("dump", root).out.splitlines()[1:]
    assert [int(row.split()[2]) for row in rows] == list(range(900))
    found = [json.loads(line) for line in command.run("dump", root, "--json").out.splitlines()]
    assert [line["queueOffset"] for line in found] == list(range(900))
