"""What retention decides, and the words of a refusal; no file is touched."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocketlake.files.ops import DiskUsage
from rocketlake.store.options import StoreOptions
from rocketlake.store.retention import reasons, rules
from rocketlake.store.retention.reasons import Outlook
from rocketlake.store.retention.rules import NEVER, DiskLevel, Limits

HOUR = 3_600_000
GIB = 1 << 30
LIMITS = Limits(reserved_ms=72 * HOUR, hours=frozenset({4}))
BYTES = replace(LIMITS, uses_ratio=False, clean_free=8 * GIB, refuse_free=4 * GIB)


@pytest.fixture(autouse=True)
def zone(monkeypatch):
    """The tests' time is that of UTC, unless one asks for another."""

    def set_zone(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    set_zone("UTC")
    yield set_zone
    monkeypatch.undo()
    time.tzset()


def usage(percent, total=100 * GIB):
    used = total * percent // 100
    return DiskUsage(total, used, total - used)


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_limits_are_those_of_the_options():
    options = StoreOptions(
        file_reserved_time=5,
        delete_when="04;16",
        disk_max_used_space_ratio=5,
        disk_space_clean_forcibly_ratio=99,
        disk_space_warning_level_ratio=99,
        disk_free_clean_bytes=7,
        disk_free_refuse_bytes=6,
        clean_file_forcibly_enable=False,
        replicas_per_disk_partition=3,
        logical_disk_space_clean_forcibly_threshold=0.7,
    )
    assert Limits.of(options) == Limits(
        reserved_ms=5 * HOUR,
        hours=frozenset({4, 16}),
        max_used=0.10,
        clean_used=0.85,
        refuse_used=0.90,
        clean_free=7,
        refuse_free=6,
        cleans_forcibly=False,
        sharers=3,
        clean_share=0.7,
    )
    assert Limits.of(StoreOptions()) == LIMITS


@pytest.mark.parametrize(
    ("percent", "level", "is_critical"),
    [
        (0, DiskLevel.OK, False),
        (75, DiskLevel.OK, False),
        (76, DiskLevel.CROWDED, False),
        (85, DiskLevel.CROWDED, False),
        (86, DiskLevel.CLEANING, False),
        (90, DiskLevel.CLEANING, False),
        (91, DiskLevel.CLEANING, True),
        (100, DiskLevel.CLEANING, True),
    ],
)
def test_levels_by_percent_begin_above_theirs(percent, level, is_critical):
    assert rules.judge(usage(percent), LIMITS) is level
    assert rules.is_critical(usage(percent), LIMITS) is is_critical
    off = replace(LIMITS, uses_ratio=False)
    assert rules.judge(usage(percent), off) is DiskLevel.OK
    assert not rules.is_critical(usage(percent), off)


@pytest.mark.parametrize(
    ("free", "level", "is_critical"),
    [
        (8 * GIB, DiskLevel.OK, False),
        (8 * GIB - 1, DiskLevel.CLEANING, False),
        (4 * GIB, DiskLevel.CLEANING, False),
        (4 * GIB - 1, DiskLevel.CLEANING, True),
        (0, DiskLevel.CLEANING, True),
    ],
)
def test_levels_by_free_bytes_begin_below_theirs(free, level, is_critical):
    found = DiskUsage(100 * GIB, 100 * GIB - free, free)
    assert rules.judge(found, BYTES) is level
    assert rules.is_critical(found, BYTES) is is_critical


def test_bytes_that_only_refuse_let_only_expired_files_go():
    limits = replace(BYTES, clean_free=0)
    assert rules.judge(usage(99), limits) is DiskLevel.CROWDED
    assert rules.is_critical(usage(99), limits)


def test_disk_that_cannot_be_looked_at_lets_expired_files_go_and_changes_no_refusal():
    assert rules.judge(None, LIMITS) is DiskLevel.CROWDED
    assert rules.judge(None, BYTES) is DiskLevel.OK
    assert not rules.is_critical(None, LIMITS)
    assert rules.is_refusing(None, LIMITS, before=True)
    assert not rules.is_refusing(None, LIMITS, before=False)


@pytest.mark.parametrize(
    ("percent", "after_ok", "after_refusal"),
    [(85, False, False), (86, False, True), (90, False, True), (91, True, True)],
)
def test_refusal_ends_at_the_level_where_cleaning_does(percent, after_ok, after_refusal):
    for before, wanted in ((False, after_ok), (True, after_refusal)):
        assert rules.is_refusing(usage(percent), LIMITS, before=before) is wanted


def test_refusal_by_bytes_ends_with_a_quarter_more_or_where_cleaning_begins():
    limits = replace(BYTES, clean_free=0)
    for free, wanted in ((4 * GIB - 1, True), (5 * GIB - 1, True), (5 * GIB, False)):
        found = DiskUsage(100 * GIB, 100 * GIB - free, free)
        assert rules.is_refusing(found, limits, before=True) is wanted
    assert BYTES.resume_free == 8 * GIB


@pytest.mark.parametrize(
    ("limits", "percent", "wanted"),
    [
        (LIMITS, 85, 0),
        (LIMITS, 86, GIB),
        (LIMITS, 100, 15 * GIB),
        (BYTES, 92, 0),
        (BYTES, 93, GIB),
        (replace(BYTES, clean_free=0), 99, 0),
        (replace(BYTES, uses_ratio=True), 90, 5 * GIB),
    ],
)
def test_bytes_that_must_go(limits, percent, wanted):
    found = usage(percent)
    needed = rules.bytes_to_free(found, limits)
    assert needed == wanted
    after = DiskUsage(found.total, found.used - needed, found.free + needed)
    assert rules.judge(after, limits) < DiskLevel.CLEANING
    assert rules.bytes_to_free(None, limits) == 0


def test_cleaning_begins_no_later_than_refusing():
    options = StoreOptions(disk_free_clean_bytes=5, disk_free_refuse_bytes=9)
    assert Limits.of(options).clean_free == Limits.of(options).resume_free == 9
    assert Limits.of(StoreOptions(disk_free_refuse_bytes=8)).clean_free == 0


def test_store_that_shares_a_disk_goes_by_its_share():
    limits = replace(LIMITS, sharers=2)
    shares = [rules.judge_share(size, 100, limits) for size in (37, 38, 40, 41)]
    assert shares == [DiskLevel.OK, DiskLevel.CROWDED, DiskLevel.CROWDED, DiskLevel.CLEANING]
    assert rules.judge(usage(80), limits) is DiskLevel.OK
    assert rules.judge(usage(86), limits) is DiskLevel.CLEANING
    assert rules.judge_share(99, 100, LIMITS) is DiskLevel.OK


NIGHT, DAY = at("2026-03-10T04:59:59"), at("2026-03-10T05:00:00")


@pytest.mark.parametrize(
    ("now", "level", "changes", "is_asked", "wanted"),
    [
        (DAY, DiskLevel.OK, {}, False, (False, False)),
        (NIGHT, DiskLevel.OK, {}, False, (True, False)),
        (DAY, DiskLevel.CROWDED, {}, False, (True, False)),
        (DAY, DiskLevel.CLEANING, {}, False, (True, True)),
        (DAY, DiskLevel.CLEANING, {"cleans_forcibly": False}, False, (True, False)),
        (DAY, DiskLevel.OK, {}, True, (True, False)),
        (DAY, DiskLevel.CLEANING, {}, True, (True, True)),
        (NIGHT, DiskLevel.CLEANING, {"is_automatic": False}, False, (False, False)),
        (NIGHT, DiskLevel.CLEANING, {"is_automatic": False}, True, (True, False)),
    ],
)
def test_round(now, level, changes, is_asked, wanted):
    decision = rules.decide(now, level, replace(LIMITS, **changes), is_asked=is_asked)
    assert (decision.deletes, decision.is_forced) == wanted
    assert bool(decision.why) is decision.deletes


@pytest.mark.parametrize(
    ("now", "changed", "hours", "wanted"),
    [
        ("2026-03-10T12:00", "2026-03-01T00:00", {4}, "2026-03-11T04:00"),
        ("2026-03-10T04:30", "2026-03-01T00:00", {4}, "2026-03-10T04:30"),
        ("2026-03-10T05:00", "2026-03-01T00:00", {4}, "2026-03-11T04:00"),
        ("2026-03-10T12:00", "2026-03-01T00:00", {4, 16}, "2026-03-10T16:00"),
        ("2026-03-10T12:00", "2026-03-10T11:10", {4}, "2026-03-14T04:00"),
        ("2026-03-10T12:00", "2026-03-08T04:20", {4}, "2026-03-11T04:20"),
    ],
)
def test_next_deletion_is_in_the_first_hour_behind_the_age(now, changed, hours, wanted):
    limits = replace(LIMITS, hours=frozenset(hours))
    found = rules.next_deletion(at(now), at(changed), DiskLevel.OK, limits)
    assert found == at(wanted)


def test_next_deletion_on_a_full_disk():
    now, fresh, old = at("2026-03-10T12:00"), at("2026-03-10T11:00"), at("2026-03-01T00:00")
    assert rules.next_deletion(now, old, DiskLevel.CROWDED, LIMITS) == now
    assert rules.next_deletion(now, fresh, DiskLevel.CROWDED, LIMITS) == fresh + 72 * HOUR
    assert rules.next_deletion(now, fresh, DiskLevel.CLEANING, LIMITS) == now
    kept = replace(LIMITS, cleans_forcibly=False)
    assert rules.next_deletion(now, fresh, DiskLevel.CLEANING, kept) == fresh + 72 * HOUR
    by_hand = replace(LIMITS, is_automatic=False)
    assert rules.next_deletion(now, old, DiskLevel.CLEANING, by_hand) == NEVER


def test_hours_are_those_of_the_place(zone):
    zone("Asia/Kolkata")  # half an hour beside the hours of UTC
    assert rules.local_hour(at("2026-03-10T22:29")) == 3
    assert rules.local_hour(at("2026-03-10T22:30")) == 4
    found = rules.next_deletion(
        at("2026-03-10T12:00"), at("2026-03-01T00:00"), DiskLevel.OK, LIMITS
    )
    assert found == at("2026-03-10T22:30")


def test_hour_that_summer_time_leaves_out_comes_the_next_day(zone):
    zone("Europe/Berlin")  # 02:00 became 03:00 on 29 March 2026
    limits = replace(LIMITS, hours=frozenset({2}))
    found = rules.next_deletion(
        at("2026-03-29T00:30"), at("2026-03-01T00:00"), DiskLevel.OK, limits
    )
    assert found == at("2026-03-30T00:00")


# --- words ----------------------------------------------------------------------------------------

OUTLOOK = Outlook(
    deletable=7, file_size=GIB, next_ms=at("2026-03-11T04:00"), now_ms=DAY, look_s=10.0
)
PATH = Path("data/commitlog")


def words(limits=LIMITS, found=None, **outlook):
    return reasons.refusal(PATH, found or usage(92), limits, replace(OUTLOOK, **outlook))


def test_refusal_names_path_ratio_and_bytes():
    text = words()
    assert text.startswith(
        "the disk of data/commitlog is 92 % full: 92 GiB used, 8 GiB free;"
        " puts are refused above 90 % until it is 85 %."
    )


@pytest.mark.parametrize(
    ("limits", "outlook", "wanted"),
    [
        ({}, {"next_ms": DAY}, "Log files are being deleted, up to 7, 7 GiB; the next look"),
        ({}, {}, "The oldest of 7 log files, 1 GiB, goes at 2026-03-11 04:00"),
        ({"cleans_forcibly": False}, {}, "; cleanFileForciblyEnable would let it go now"),
        (
            {},
            {"next_ms": NEVER},
            "by itself (autoDeleteEnable): delete_expired(hours=0)",
        ),
        ({}, {"deletable": 0}, "No log file can be deleted: the last one stays; free space"),
        ({}, {"deletable": 0, "kept_from": 5000}, "held back from offset 5000 on"),
    ],
)
def test_refusal_says_what_will_free_space(limits, outlook, wanted):
    assert wanted in words(replace(LIMITS, **limits), **outlook)


def test_refusal_by_bytes_names_both_numbers():
    text = words(replace(BYTES, clean_free=0), DiskUsage(100 * GIB, 99 * GIB, GIB))
    assert "with less than 4 GiB free until 5 GiB are." in text
    assert "above" not in text
