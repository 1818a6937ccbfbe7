"""`rocketlake grep`: what it finds, where it looks, what it prints and how it ends."""

import re

import pytest

from rocketlake.cli import rows
from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.model.flags import TransactionType
from support import command
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=4000)


@pytest.fixture
def store(builder):
    builder.record("orders", 0, b"timeout after 30 ms", tags="slow", keys=["o-1", "c-9"])
    builder.record("orders", 1, b"all is well", tags="good", properties={"region": "EU"})
    builder.record("bills", 0, "größer".encode(), properties={"UNIQ_KEY": "ABC123"})
    builder.record(
        "bills",
        0,
        deflate(b"hidden timeout", Compression.ZLIB),
        sys_flag=flagged(0, Compression.ZLIB),
    )
    return builder.write()


def grep(store, *arguments, code=0):
    ran = command.run("grep", store, *arguments)
    assert ran.code == code, ran.err
    return ran


def places(store, *arguments):
    lines = grep(store, "--json", "--body", "none", *arguments).lines
    return [(line["topic"], line["queueId"], line["queueOffset"]) for line in lines]


FIRST, SECOND, THIRD, PACKED = (
    ("orders", 0, 0),
    ("orders", 1, 0),
    ("bills", 0, 0),
    ("bills", 0, 1),
)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["timeout"], [FIRST, PACKED]),
        (["after [0-9]+ ms$"], [FIRST]),
        (["TIMEOUT", "-i"], [FIRST, PACKED]),
        (["GRÖSSER|GRÖßER", "-i"], [THIRD]),
        (["o-1", "-F"], [FIRST]),
        (["slow", "--in", "tags"], [FIRST]),
        (["slow", "--in", "body,keys"], None),
        (["ABC", "--in", "keys"], [THIRD]),
        (["^region=EU$"], [SECOND]),
        (["^EU$", "--in", "properties"], [SECOND]),
        (["bill", "--in", "topic"], [THIRD, PACKED]),
        (["^timeout", "-v"], [SECOND, THIRD, PACKED]),
        ([""], [FIRST, SECOND, THIRD, PACKED]),
        (["timeout", "--topic", "bills"], [PACKED]),
        (["timeout", "--topic", "orders", "--queue", "0"], [FIRST]),
        (["timeout", "--tag", "slow"], [FIRST]),
        (["well", "--sql", "region = 'EU'"], [SECOND]),
        (["timeout", "--key", "c-9"], [FIRST]),
        ([".", "--in", "body", "-m", "2"], [FIRST, SECOND]),
        (["well|timeout", "-m", "2"], [FIRST, SECOND]),
    ],
)
def test_finds(store, arguments, found):
    if found is None:
        grep(store, *arguments, code=1)
    else:
        assert places(store, *arguments) == found


def test_a_store_of_several_windows_is_searched_whole(tmp_path):
    """Each record once, however its bytes lie in the windows that are read."""
    builder = StoreBuilder(tmp_path / "large", log_file_size=3 << 20)
    for number in range(60):
        builder.record("T", number % 3, b"%03d " % number + b"x" * 150_000 + b" end %03d" % number)
    root = builder.write()
    assert grep(root, "end", "-c").out == "60\n"
    assert places(root, "end 05[0-9]") == [("T", n % 3, n // 3) for n in range(50, 60)]
    assert len(places(root, "-v", "end 05[0-9]")) == 50


def test_times_bound_the_search(builder):
    for number in range(60):
        builder.record("T", 0, b"number %d" % number, stored=1_700_000_000_000 + number * 1000)
    root = builder.write()
    found = places(root, "number", "--from-time", "1700000050000", "--to-time", "1700000053000")
    assert found == [("T", 0, 50), ("T", 0, 51), ("T", 0, 52)]


def test_records_without_a_queue_need_log(builder):
    builder.record("T", 0, b"one").record("T", 0, b"one half", sys_flag=TransactionType.PREPARED)
    root = builder.write()
    assert grep(root, "one", "-c").out == "1\n"
    assert grep(root, "one", "-c", "--log").out == "2\n"


def test_other_encodings(builder):
    builder.record("T", 0, "键值".encode("gbk"))
    root = builder.write()
    grep(root, "键值", code=1)
    assert grep(root, "键值", "--encoding", "gbk", "-c").out == "1\n"


def test_rows_show_where_it_matched(store):
    ran = grep(store, "after")
    header, row = ran.out.splitlines()
    assert header.split() == ["TOPIC", "QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "IN", "MATCH"]
    assert row.endswith("body  timeout after 30 ms")
    assert grep(store, "EU").out.splitlines()[1].endswith("region  EU")
    assert grep(store, "-v", ".", "--in", "tags").out.count("\n") == 3


def test_long_texts_and_control_characters_are_tamed(tmp_path):
    builder = StoreBuilder(tmp_path / "store", log_file_size=20_000)
    builder.record("T", 0, b"a" * 5000 + b"needle\x1b[2J\n" + b"b" * 5000)
    (row,) = grep(builder.write(), "needle").out.splitlines()[1:]
    assert "…" + "a" * 30 + "needle\\x1b[2J\\n" in row
    assert len(row) < 250
    assert row.endswith("…")


def test_matches_stand_out_on_a_terminal(store, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in grep(store, "after").out
    monkeypatch.setattr(rows, "stdout_is_terminal", lambda: True)
    assert "timeout \x1b[1;31mafter\x1b[0m 30 ms" in grep(store, "after").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in grep(store, "after").out


def test_exit_codes_are_those_of_grep(store, builder):
    grep(store, "nowhere", code=1)
    assert grep(store, "nowhere", "-c", code=1).out == "0\n"
    builder.record("orders", 0, b"timeout again")
    builder.record("orders", 0, b"and again")
    builder.flip_body(4).write()
    ran = grep(store, "timeout", code=2)
    assert ran.out.count("\n") >= 2  # what could be read is shown
    assert "damage: " in ran.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["("], "is no regular expression"),
        (["x", "--in", "body,head"], "known: body, keys, tags, properties, topic"),
        (["x", "--encoding", "klingon"], "no text encoding"),
        (["x", "--encoding", "hex"], "no text encoding"),
    ],
)
def test_wrong_usage_says_what_is_wrong(store, arguments, text):
    assert text in re.sub(r"\s+", " ", grep(store, *arguments, code=2).err)


def test_json_is_that_of_dump(store):
    dumped = command.run("dump", store, "--json", "--topic", "orders", "--queue", "0")
    assert grep(store, "timeout", "--json", "--topic", "orders").lines == dumped.lines
