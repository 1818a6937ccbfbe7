"""A scan of any bytes ends, raises nothing, and tells where it stopped."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import damaged_logs, garbage, i64, logs

from rocketlake.format import layout
from rocketlake.format.record import Check, StopReason, scan, scan_at

EVERY_CHECK = range(16)


def scan_to_the_end(data, checks, base_offset=0, rows_max=3):
    """Scan in steps of a few rows until a reason ends it; return the rows of all steps."""
    position, steps, rows = 0, 0, []
    while True:
        found = scan(data, position, base_offset=base_offset, checks=checks, rows_max=rows_max)
        assert position <= found.position <= len(data)
        rows.append(found.columns.rows)
        steps += 1
        if found.reason is not StopReason.OK:
            return np.concatenate(rows), found
        # Each step that did not end it has moved on by as many records as there was room for.
        assert len(found.columns) == rows_max
        assert found.position >= position + rows_max * layout.RECORD_MIN_SIZE
        position = found.position
        assert steps <= len(data) // layout.RECORD_MIN_SIZE + 1


@given(garbage)
def test_scan_of_any_bytes_ends_within_them(data):
    for checks in EVERY_CHECK:
        rows, found = scan_to_the_end(data, checks)
        assert found.reason in StopReason
        assert int(rows["size"].sum()) == found.position


@given(garbage)
def test_rows_of_any_bytes_follow_each_other_and_lie_within_them(data):
    rows, found = scan_to_the_end(data, Check.SHAPE)
    ends = rows["position"] + rows["size"]
    assert rows["position"].tolist() == [0, *ends.tolist()][: len(rows)]
    assert (rows["body_position"] + rows["body_size"] < rows["topic_position"]).all()
    assert (rows["topic_position"] + rows["topic_size"] < rows["properties_position"]).all()
    assert (rows["properties_position"] + rows["properties_size"] == ends).all()
    assert (ends <= found.position).all()
    for name in ("body_size", "topic_size", "properties_size"):
        assert (rows[name] >= 0).all()


@given(garbage)
def test_whatever_was_scanned_can_be_read_as_messages(data):
    found = scan(data, checks=Check.SHAPE)
    messages = list(found.columns.messages())
    assert len(messages) == len(found.columns)
    codes, topics = found.columns.topics()
    assert [topics[code] for code in codes] == [message.topic for message in messages]


@given(garbage, st.integers(0, 500), st.one_of(st.integers(-10, 500), i64))
def test_position_stays_between_start_and_end(data, start, end):
    end = max(end, -(1 << 62))  # below, see test_kernel_limits.py
    found = scan(data, start, end)
    assert start <= found.position <= max(start, min(end, len(data)))


@given(damaged_logs())
def test_more_checks_never_find_more(log):
    counts = [
        len(scan(log.data, base_offset=log.base_offset, checks=checks).columns)
        for checks in EVERY_CHECK
    ]
    for checks in EVERY_CHECK:
        # A whole-record checksum stands in for the body's, so only these grow stricter.
        assert counts[checks] <= counts[Check.SHAPE]
        assert counts[checks | Check.OFFSET] <= counts[checks & ~Check.OFFSET]


@given(logs(), st.integers(1, 5))
def test_steps_of_any_size_find_the_same_rows(log, rows_max):
    whole = scan(log.data, base_offset=log.base_offset)
    rows, found = scan_to_the_end(log.data, Check.BODY_CRC, log.base_offset, rows_max)
    assert rows.tobytes() == whole.columns.rows.tobytes()
    assert (found.reason, found.position) == (whole.reason, whole.position)
    assert rows["position"].tolist() == log.positions


@given(garbage, st.lists(st.tuples(i64, i64, i64), max_size=5))
def test_scan_at_any_places_gives_a_reason_for_each(data, places):
    columns, reasons = scan_at(data, np.array(places, np.int64).reshape(-1, 3))
    assert len(columns) == len(reasons) == len(places)
    for row, reason in zip(columns.rows, reasons, strict=True):
        assert StopReason(reason) in StopReason
        assert reason == StopReason.OK or row.tobytes() == bytes(layout.ROW_SIZE)


@given(logs(min_size=1))
def test_scan_at_the_places_of_a_scan_gives_its_rows(log):
    found = scan(log.data, base_offset=log.base_offset).columns
    columns = [found[name] for name in ("position", "size", "physical_offset")]
    again, reasons = scan_at(
        log.data, np.stack(columns, axis=1).astype(np.int64), checks=Check.BODY_CRC | Check.OFFSET
    )
    assert not reasons.any()
    assert again.rows.tobytes() == found.rows.tobytes()
