"""Times on the command line: milliseconds, or a date and time."""

import contextlib
import itertools
import time

import click
import pytest

from rocketlake.cli.message_search import parse_time
from support import command
from support.store_builder import BEGIN_MS, StoreBuilder


@pytest.fixture
def zone(monkeypatch):
    def set_zone(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["0", "1700000000123", "-5", "9999999999999"])
def test_milliseconds(text):
    assert parse_time(text) == int(text)


def test_local_time(zone):
    zone("UTC")
    assert parse_time("2023-11-14T22:13:20") == 1_700_000_000_000
    assert parse_time("2023-11-14 22:13:20.123") == 1_700_000_000_123
    assert parse_time("2023-11-14") == 1_699_920_000_000
    zone("Asia/Tokyo")
    assert parse_time("2023-11-15T07:13:20") == 1_700_000_000_000


def test_time_of_a_zone(zone):
    zone("Asia/Tokyo")
    assert parse_time("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20+00:00") == 1_700_000_000_000
    assert parse_time("2023-11-14T14:13:20.123-08:00") == 1_700_000_000_123


@pytest.mark.parametrize("fraction", range(0, 1000, 37))
def test_milliseconds_of_a_date_are_exact(zone, fraction):
    """Seconds as a float times 1000 may fall one short."""
    zone("UTC")
    assert parse_time(f"2023-11-14T22:13:20.{fraction:03d}") == 1_700_000_000_000 + fraction


@pytest.mark.parametrize(
    "text",
    ["", " ", "yesterday", "2023-13-01", "22:13", "1.5", "--5", "-", "²", "2023-11-14T25:00"],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(click.BadParameter, match="no time"):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("name", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_dates_at_the_ends_of_the_calendar_do_no_harm(zone, text, name):
    zone(name)
    with contextlib.suppress(click.BadParameter):
        assert abs(parse_time(text)) > 10**13


@pytest.mark.parametrize("text", ["--5", "²", "yesterday", "0001-01-01T00:00:00"])
def test_command_says_so_in_words(tmp_path, text):
    root = StoreBuilder(tmp_path).records(2).write()
    ran = command.run("dump", root, f"--from-time={text}", "--json")
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.err
    assert ran.err == "" or "is no time" in ran.problems[-1]


@pytest.mark.parametrize("text", ["9" * 25, "-" + "9" * 25])
def test_numbers_beyond_any_time(tmp_path, text):
    root = StoreBuilder(tmp_path).records(2).write()
    for option, all_of_it in (("--from-time", text[0] == "-"), ("--to-time", text[0] != "-")):
        ran = command.run("dump", root, f"{option}={text}", "--json")
        assert ran.code == 0, ran.err
        assert len(ran.lines) == (2 if all_of_it else 0)


def test_range_holds_its_begin_and_not_its_end(tmp_path):
    builder = StoreBuilder(tmp_path)
    for number in range(6):
        builder.record("T", number % 2, b"%d" % number, stored=BEGIN_MS + number // 2 * 10)
    root = builder.write()

    def dumped(*arguments):
        ran = command.run("dump", root, "--json", "--body", "text", *arguments)
        assert ran.code == 0, ran.err
        return [line["body"] for line in ran.lines]

    assert dumped("--from-time", BEGIN_MS + 10) == ["2", "4", "3", "5"]
    assert dumped("--to-time", BEGIN_MS + 10) == ["0", "1"]
    assert dumped("--from-time", BEGIN_MS + 10, "--to-time", BEGIN_MS + 11) == ["2", "3"]
    assert dumped("--from-time", BEGIN_MS + 1, "--to-time", BEGIN_MS + 10) == []
    assert dumped("--log", "--from-time", BEGIN_MS + 10, "--to-time", BEGIN_MS + 20) == ["2", "3"]
    assert dumped("--from-time", BEGIN_MS - 5, "--to-time", BEGIN_MS) == []


def test_equal_times_over_many_messages_are_all_found(tmp_path):
    """Ten of each time, three units a queue file."""
    builder = StoreBuilder(tmp_path, log_file_size=4000, queue_file_units=3)
    for number in range(50):
        builder.record(body=b"%d" % number, stored=BEGIN_MS + number // 10)
    root = builder.write()
    for step in range(5):
        begin = BEGIN_MS + step
        ran = command.run("dump", root, "--json", "--from-time", begin, "--to-time", begin + 1)
        assert [line["queueOffset"] for line in ran.lines] == list(range(step * 10, step * 10 + 10))


@pytest.mark.parametrize("damage", ["lost file", "zero record", "garbage record"])
def test_damage_in_the_middle_hides_no_message_of_the_time(tmp_path, damage):
    """The search by time meets what cannot be read; everything readable must still be shown."""
    builder = StoreBuilder(tmp_path, log_file_size=1000)
    for number in range(60):
        builder.record(body=b"%d" % number, stored=BEGIN_MS + number)
    in_file = [n for n, p in enumerate(builder.placed) if p.physical_offset // 1000 == 2]
    assert in_file == list(range(20, 30))
    # 24 and 29 are where a binary search of the second queue file looks.
    lost = in_file if damage == "lost file" else [24, 29]
    if damage == "lost file":
        builder.lose_log_file(2000)
    for number in lost if damage != "lost file" else ():
        place = builder.placed[number]
        builder.overwrite(
            place.physical_offset, (b"\0" if damage == "zero record" else b"\x7f") * place.size
        )
    root = builder.write()
    for begin, end in itertools.combinations(range(0, 61, 7), 2):
        ran = command.run(
            *("dump", root, "--json", "--body", "none"),
            *("--from-time", BEGIN_MS + begin, "--to-time", BEGIN_MS + end),
        )
        wanted = [n for n in range(begin, end) if n not in lost]
        found = [line["queueOffset"] for line in ran.lines]
        assert (begin, end, found) == (begin, end, wanted)
