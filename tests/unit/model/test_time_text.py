"""Times and durations that people type and read."""

import contextlib
import time
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from rocketlake.model.time_text import parse_duration_ms, parse_time, parse_zone, time_text

TOKYO = ZoneInfo("Asia/Tokyo")


@pytest.fixture
def zone(monkeypatch):
    def set_zone(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["0", "1700000000123", "-5", "9999999999999", " 7 "])
def test_number_is_milliseconds(text):
    assert parse_time(text) == int(text)


@pytest.mark.parametrize("text", ["9" * 25, "-" + "9" * 25])
def test_number_beyond_any_time_stays_in_64_bits(text):
    assert parse_time(text) == (1 << 62) * (-1 if text[0] == "-" else 1)


def test_time_without_zone_is_local(zone):
    zone("UTC")
    assert parse_time("2023-11-14T22:13:20") == 1_700_000_000_000
    assert parse_time("2023-11-14 22:13:20.123") == 1_700_000_000_123
    assert parse_time("2023-11-14") == 1_699_920_000_000
    zone("Asia/Tokyo")
    assert parse_time("2023-11-15T07:13:20") == 1_700_000_000_000


def test_time_without_zone_is_in_the_given_zone(zone):
    zone("America/Los_Angeles")
    assert parse_time("2023-11-15T07:13:20", TOKYO) == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20", UTC) == 1_700_000_000_000


@pytest.mark.parametrize("given", [None, UTC, TOKYO])
def test_zone_in_the_text_wins(zone, given):
    zone("Asia/Tokyo")
    assert parse_time("2023-11-14T22:13:20Z", given) == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20+00:00", given) == 1_700_000_000_000
    assert parse_time("2023-11-14T14:13:20.123-08:00", given) == 1_700_000_000_123


@pytest.mark.parametrize("fraction", range(0, 1000, 37))
def test_milliseconds_of_a_date_are_exact(fraction):
    """Seconds as a float times 1000 may fall one short."""
    assert parse_time(f"2023-11-14T22:13:20.{fraction:03d}", UTC) == 1_700_000_000_000 + fraction


@pytest.mark.parametrize(
    "text",
    ["", " ", "yesterday", "2023-13-01", "22:13", "1.5", "--5", "-", "²", "2023-11-14T25:00"],
)
def test_what_is_not_a_time_is_refused(text):
    with pytest.raises(ValueError, match="is not a time; wanted milliseconds"):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("name", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_first_and_last_date_of_the_calendar_are_times_or_refused(zone, text, name):
    zone(name)
    with contextlib.suppress(ValueError):  # another error would be a crash of the command
        assert abs(parse_time(text)) > 10**13


@pytest.mark.parametrize(
    ("text", "noon"),
    [
        ("UTC", 12),
        ("Z", 12),
        ("Asia/Tokyo", 3),
        ("+09:00", 3),
        ("GMT+9", 3),
        ("UTC-0330", 15.5),
    ],
)
def test_zones(text, noon):
    assert parse_time("1970-01-01T12:00", parse_zone(text)) == noon * 3_600_000


@pytest.mark.parametrize("text", ["", "Mars/Olympus", "+99:00", "../etc/passwd", "9"])
def test_unknown_zone_is_refused(text):
    with pytest.raises(ValueError, match="is not a time zone; wanted a region"):
        parse_zone(text)


@pytest.mark.parametrize(
    ("text", "unit", "wanted"),
    [
        ("90", "s", 90_000),
        ("90", "ms", 90),
        ("1500us", "s", 1),
        ("500 ms", "s", 500),
        ("30S", "ms", 30_000),
        ("15m", "s", 900_000),
        ("15min", "s", 900_000),
        ("2h", "s", 7_200_000),
        ("7d", "s", 604_800_000),
        ("0", "s", 0),
    ],
)
def test_durations(text, unit, wanted):
    assert parse_duration_ms(text, unit) == wanted


@pytest.mark.parametrize("text", ["", "soon", "1.5h", "-1s", "5w", "1h30m"])
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration; wanted 500ms"):
        parse_duration_ms(text, "s")


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (1, "2023-11-14 22:13:20.007"),
        (1000, "2023-11-14 22:13:20"),
        (60_000, "2023-11-14 22:13"),
        (86_400_000, "2023-11-14"),
    ],
)
def test_text_is_as_precise_as_its_step(step, wanted):
    assert time_text(1_700_000_000_007, step, UTC) == wanted


def test_text_is_local_time_without_a_zone(zone):
    zone("Asia/Tokyo")
    assert time_text(1_700_000_000_000, 1000) == "2023-11-15 07:13:20"
    assert time_text(1_700_000_000_000, 1000, UTC) == "2023-11-14 22:13:20"


@pytest.mark.parametrize("timestamp_ms", [None, 0, -1])
def test_text_of_no_time(timestamp_ms):
    assert time_text(timestamp_ms) == "-"


def test_text_of_a_number_that_no_calendar_has():
    assert time_text(1 << 62) == f"{1 << 62} ms"
