"""Power cuts: every moment of a journal, and the fates that a test lets decide there."""

from collections import Counter
from collections.abc import Iterator, Sequence

from crash_model import Progress, Sent
from msgspec import Struct
from platter import Backwards, Chance, Effect, Fate, Image, Mark, Platter, Whole
from recovering import Outcome, Recoverer


class Cut(Struct, frozen=True):
    """A moment at which the power may go."""

    moment: int
    """How many effects were before it."""
    platter: Platter
    """What may be on the disk; changes with the next cut."""
    progress: Progress


def cuts(image: Image, journal: Sequence[Effect], first: Progress) -> Iterator[Cut]:
    """Yield each moment of a journal, the one before its first effect included."""
    platter, progress = Platter(image), first
    yield Cut(0, platter, progress)
    for moment, effect in enumerate(journal, 1):
        platter.apply(effect)
        if isinstance(effect, Mark) and isinstance(effect.note, Progress):
            progress = effect.note
        yield Cut(moment, platter, progress)


def corners() -> dict[str, Fate]:
    """Everything or nothing."""
    return {
        "all lost": Whole(pages=False, names=False),
        "all kept": Whole(pages=True, names=True),
        "only names": Whole(pages=False, names=True),
        "only pages": Whole(pages=True, names=False),
    }


def chances(seed: str) -> dict[str, Fate]:
    """Each page and each name by itself."""
    return {
        "by chance": Chance(seed),
        "few lost": Chance(seed, odds=0.9),
        "torn": Chance(seed, tears=0.5),
        "backwards": Backwards(seed),
    }


def some(fates: dict[str, Fate], turn: int, count: int) -> dict[str, Fate]:
    """Choose so many; with each turn others."""
    names = list(fates)
    chosen = {names[(turn * count + number) % len(names)] for number in range(count)}
    return {name: fates[name] for name in names if name in chosen}


class Laboratory:
    """Cuts the power and looks at what comes back; counts what was lost, to show that it was."""

    def __init__(self, mode: str, seed: object) -> None:
        self._seed = seed
        self._title = f"{mode}, --crash-seed={seed}"
        self.recoverer = Recoverer(mode)
        self.losses: Counter[str] = Counter()

    def fate_seed(self, *place: object) -> str:
        """Return the seed for what happens at a place."""
        return " ".join(map(str, (self._seed, *place)))

    def check(self, cut: Cut, fate: Fate, sent: Sequence[Sent], place: str) -> Outcome:
        """Cut the power here; return what is left, and what a start made of it."""
        image = cut.platter.crash(fate)
        self.losses += fate.losses
        try:
            return self.recoverer.check(image, sent, cut.progress)
        except Exception as error:
            error.add_note(f"{self._title}: {place}, behind {cut.moment} effects")
            raise
