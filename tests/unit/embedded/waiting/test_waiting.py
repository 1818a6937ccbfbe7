"""One reader waits, nothing else reads or puts: every message comes as soon as it may be seen.

Every flush mode x way of putting x plain, delayed, timed x reader, on the machine's disk and on a
slow one. Nothing looks by itself from time to time: dispatch's own look at the log, which bounds
the effects of an exception in a put, is put off here, so that a wake-up that is lost is seen.

A case puts up to three messages, one at a time. Each must come within 5 s, and one of them within
0.2 s of the moment at which it may be seen: a machine that is busy delays some, a wake-up that is
lost delays all.
"""

from concurrent.futures import Future
from time import monotonic

import pytest
from waiting_bench import (
    BOUND_S,
    DISKS,
    LEVEL_MS,
    MODES,
    PRECISION_MS,
    READERS,
    WAIT_S,
    WAYS,
    Bench,
)

from rocketlake.clock import SystemClock
from rocketlake.store.dispatch import dispatcher as dispatch
from rocketlake.store.options import store_options

DELAYABLE = [way for way in WAYS if way != "put_batch"]
"""Messages of a batch cannot be delayed."""


@pytest.fixture(scope="module")
def slow_look():
    """Let dispatch not look by itself, and delay levels be short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "_IDLE_LOOK_S", 3600.0, raising=False)
        patch.setattr(store_options, "parse_delay_levels", lambda _: [LEVEL_MS])
        yield


@pytest.fixture(scope="module", params=[(mode, disk) for disk in DISKS for mode in MODES], ids=str)
def bench(request, tmp_path_factory, slow_look):
    mode, disk = request.param
    made = Bench(tmp_path_factory.mktemp("waiting") / "store", mode, disk)
    made.mode = mode
    yield made
    made.store.close()


def check(bench, way, reader, *, delay_s=0.0, tries=3, **fields):
    """Put messages one at a time; each comes, and one of them in time."""
    topic = bench.new_topic()
    taken = []
    with READERS[reader](bench, topic) as waiting:
        for _ in range(tries):
            waiting.rest()
            bench.rest()
            started = monotonic()
            number, answer = bench.put(way, topic, **fields)
            waiting.get(number)
            taken.append(monotonic() - started)
            receipt = answer.result(WAIT_S) if isinstance(answer, Future) else answer
            assert receipt.is_ok
    assert min(taken) <= delay_s + BOUND_S, taken


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("way", WAYS)
def test_message_comes_to_the_one_that_waits(bench, way, reader):
    check(bench, way, reader)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("way", DELAYABLE)
def test_delayed_message_comes_to_the_one_that_waits(bench, way, reader):
    check(bench, way, reader, delay_s=LEVEL_MS / 1000, tries=2, delay_level=1)


@pytest.mark.parametrize(
    ("way", "reader"),
    # Why not all: each lasts until its slot is over. Every way and every reader has its turn.
    [(way, reader) for way, reader in zip(DELAYABLE, READERS, strict=True)],
)
def test_timed_message_comes_to_the_one_that_waits(bench, way, reader):
    if bench.mode == "sync 4.9":
        pytest.skip("4.9 has no timer")
    soon = SystemClock().now_ms() + 1
    check(bench, way, reader, delay_s=2 * PRECISION_MS / 1000, tries=1, deliver_at=soon)
