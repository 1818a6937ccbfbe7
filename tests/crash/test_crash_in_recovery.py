"""The power goes while a store recovers from a power cut, and while it recovers from that."""

import random

import pytest
from by_hand import by_hand
from crash_model import Progress
from engine_run import EngineRun
from power_cuts import Laboratory, chances, corners, cuts, some
from recovering import Outcome
from sim_disk import EMPTY
from sim_store import MODES

STEPS = 32
FIRST_CRASHES = 3
SECOND_CRASHES = 2


@pytest.mark.parametrize("mode", sorted(MODES))
def test_power_cut_at_every_moment_of_recovery(mode, crash_seed):
    laboratory = Laboratory(mode, crash_seed)
    chooser = random.Random(f"recovery {crash_seed}")
    with by_hand() as hands:
        run = EngineRun(mode, hands, f"{crash_seed} recovery")
        run.play(STEPS)
        moments = chooser.sample(
            range(len(run.disk.journal) // 3, len(run.disk.journal)), FIRST_CRASHES
        )
        for cut in cuts(EMPTY, run.disk.journal, run.first):
            if cut.moment in moments:
                seed = laboratory.fate_seed(cut.moment)
                name, fate = chooser.choice(list(chances(seed).items()))
                outcome = laboratory.check(cut, fate, run.sent, name)
                inner = Inner(laboratory, outcome, cut.progress, f"{seed} {name}")
                for again in chooser.sample(inner.crash_everywhere(outcome), SECOND_CRASHES):
                    inner.crash_everywhere(again, fates_count=1)
    assert laboratory.losses["pages"] > 0
    assert laboratory.losses["names"] > 0


class Inner:
    """Crashes of the recovery from one image; what that found is what there is to lose."""

    def __init__(
        self, laboratory: Laboratory, outcome: Outcome, progress: Progress, place: str
    ) -> None:
        self._laboratory = laboratory
        self._sent = outcome.found
        self._progress = Progress(len(self._sent), progress.safe)
        self._place = place

    def crash_everywhere(self, outcome: Outcome, fates_count: int = 2) -> list[Outcome]:
        """Crash at each moment of the start that had this outcome; return what it leaves."""
        found = []
        for cut in cuts(outcome.image, outcome.journal, self._progress):
            seed = self._laboratory.fate_seed(self._place, cut.moment)
            every = {**corners(), **chances(seed)}
            for name, fate in some(every, cut.moment, fates_count).items():
                place = f"{self._place}, then in recovery {name}"
                found.append(self._laboratory.check(cut, fate, self._sent, place))
        return found
