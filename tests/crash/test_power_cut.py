"""The power goes at every moment of a store's life; what was acknowledged is there afterwards."""

import random

import pytest
from by_hand import by_hand
from engine_run import EngineRun
from platter import PAGE, Backwards
from power_cuts import Laboratory, chances, corners, cuts, some
from sim_disk import EMPTY
from sim_store import MODES, ROOT

from support.manual_clock import ManualClock

STEPS = 32
LIVES = 6
MANY = 30


@pytest.mark.parametrize("mode", sorted(MODES))
def test_power_cut_at_every_moment(mode, crash_seed):
    laboratory = Laboratory(mode, crash_seed)
    with by_hand() as hands:
        run = EngineRun(mode, hands, crash_seed)
        run.play(STEPS)
        for cut in cuts(EMPTY, run.disk.journal, run.first):
            seed = laboratory.fate_seed(cut.moment)
            fates = {
                **some(corners(), cut.moment, 2),
                **some(chances(seed), cut.moment, 1),
            }
            for name, fate in fates.items():
                laboratory.check(cut, fate, run.sent, name)
    assert not run.disk.touched_holes
    assert laboratory.recoverer.count > MANY
    assert all(laboratory.losses[kind] > 0 for kind in ("pages", "names", "sizes", "torn"))


@pytest.mark.parametrize("is_uniform", [False, True], ids=["mixed", "uniform"])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_one_life_after_the_other(mode, is_uniform, crash_seed):
    """Each begins with what a power cut has left of the one before it."""
    laboratory = Laboratory(mode, crash_seed)
    chooser = random.Random(f"lives {crash_seed}")
    image, sent, safe, clock = EMPTY, [], 0, ManualClock()
    with by_hand() as hands:
        for life in range(LIVES):
            seed = laboratory.fate_seed("life", life)
            left = {"image": image, "sent": sent, "safe": safe, "clock": clock}
            run = EngineRun(mode, hands, seed, **left, is_uniform=is_uniform)
            run.play(STEPS // 2)
            moments = set(chooser.sample(range(len(run.disk.journal)), 12))
            end = chooser.choice(sorted(moments))
            for cut in cuts(image, run.disk.journal, run.first):
                if cut.moment in moments:
                    name, fate = chooser.choice(list(chances(f"{seed} {cut.moment}").items()))
                    outcome = laboratory.check(cut, fate, run.sent, f"life {life}, {name}")
                    if cut.moment == end:
                        following = outcome.image, outcome.found, cut.progress.safe
            image, sent, safe = following
            clock = ManualClock(run.clock.now_ms() + 1000)
    assert laboratory.losses["pages"] > 0


def test_record_behind_a_cut_never_comes_back():
    """It is whole, and a new record in place of the lost one may end just where it begins."""
    with by_hand() as hands:
        run = EngineRun("async", hands, "cut", is_uniform=True)
        for _ in range(5):
            run.put()
        run.flush()
        for _ in range(13):
            run.put()
        run.disk.look()
        *_, cut = cuts(EMPTY, run.disk.journal, run.first)
        left = Laboratory("async", "cut").check(cut, Backwards("cut"), run.sent, "backwards")
        run.store.close()
        assert len(left.found) == 5
        log = left.image.contents()[ROOT / "commitlog" / f"{0:020d}"]
        assert any(log[PAGE:]), "nothing whole lies behind the hole"
        run = EngineRun("async", hands, "again", image=left.image, sent=left.found, is_uniform=True)
        laboratory = Laboratory("async", "again")
        for number in range(6, 6 + 13):
            run.put()
            run.flush()
            *_, cut = cuts(left.image, run.disk.journal, run.first)
            for name, fate in corners().items():
                assert len(laboratory.check(cut, fate, run.sent, name).found) == number
        run.store.close()
