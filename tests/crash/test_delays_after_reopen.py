"""A store is opened again: what waits is delivered in time although nothing more is put."""

import pytest
from by_hand import by_hand

import rocketlake
from rocketlake import Message
from support.manual_clock import ManualClock

T0 = 1_700_000_000_000
SMALL = {"mapped_file_size_commit_log": 1 << 20}
SERVICES = ("delay levels", "timer")
STEPS_MAX = 100

WAYS = {
    "level": {"delay_level": 2},  # 5 s
    "time": {"deliver_at": T0 + 5_000},
}


@pytest.fixture
def hands():
    with by_hand() as hands:
        yield hands


def live(hands, clock, span_ms):
    """Let time pass, and run the services as their threads would: when their pauses are over."""
    end = clock.now_ms() + span_ms
    due = {name: clock.now_ms() for name in SERVICES}
    for _ in range(STEPS_MAX):
        for name in SERVICES:
            pause = hands.pause_s(name)
            due[name] = float("inf") if pause is None else clock.now_ms() + pause * 1000
        name = min(due, key=due.__getitem__)
        if due[name] > end:
            clock.advance_ms(end - clock.now_ms())
            return
        clock.advance_ms(round(max(due[name] - clock.now_ms(), 0)))
        hands.run(name)
    raise AssertionError("a service does not come to rest")


@pytest.mark.parametrize("has_run_before", [False, True], ids=["first", "not the first"])
@pytest.mark.parametrize("runs", [False, True], ids=["closed before it ran", "closed after it ran"])
@pytest.mark.parametrize("way", WAYS)
def test_message_is_delivered_after_a_reopen(tmp_path, hands, way, runs, has_run_before):
    clock = ManualClock(T0)
    if has_run_before:
        # The files of the timer are there, and nothing waits in them.
        with rocketlake.open_store(tmp_path, **SMALL, clock=clock) as store:
            for fields in ({"delay_level": 1}, {"deliver_at": T0 + 1}):
                assert store.put(Message(topic="early", body=b"x", **fields), 0).is_ok
            hands.run("rocketlake-dispatch")
            live(hands, clock, 2_000)
            hands.run("rocketlake-dispatch")
            assert store.max_offset("early", 0) == 2
    with rocketlake.open_store(tmp_path, **SMALL, clock=clock) as store:
        assert store.put(Message(topic="T", body=b"later", **WAYS[way]), 0).is_ok
        if runs:
            hands.run("rocketlake-dispatch")
            live(hands, clock, 500)
    with rocketlake.open_store(tmp_path, **SMALL, clock=clock) as store:
        live(hands, clock, 60_000)
        hands.run("rocketlake-dispatch")
        (message,) = store.get("T", 0, 0).messages
        assert message.body == b"later"
        assert message.store_timestamp <= T0 + 10_000


@pytest.mark.parametrize("way", WAYS)
def test_message_that_became_due_while_the_store_was_closed(tmp_path, hands, way):
    clock = ManualClock(T0)
    with rocketlake.open_store(tmp_path, **SMALL, clock=clock) as store:
        assert store.put(Message(topic="T", body=b"later", **WAYS[way]), 0).is_ok
        hands.run("rocketlake-dispatch")
        live(hands, clock, 500)
    clock.advance_ms(3_600_000)
    with rocketlake.open_store(tmp_path, **SMALL, clock=clock) as store:
        live(hands, clock, 1)
        hands.run("rocketlake-dispatch")
        assert [message.body for message in store.get("T", 0, 0).messages] == [b"later"]
