"""Runs threads one at a time, in an order that a test chooses.

An actor is a function with a thread of its own. Exactly one actor runs; before each line of the
traced functions, and where it has to wait for a lock, another one may go on. Locks that are made
through `Scheduler.threading` are known to the scheduler, so that it sees who waits for what.

1. A schedule is a default order with some deviations: at step N, go on with actor A, and with the
   one that was interrupted only when no other can run. There are two default orders: an actor runs
   until it waits, then the first that can; or it runs until one before it can.
2. A wait with a time limit ends by itself only when nothing else can run, and only if it is short:
   long limits are those that would hide a wake-up that is lost.
3. When no actor can run, the schedule is over. The test looks at what is left, and actors that
   still wait are ended.
"""

import random
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator

STEPS_MAX = 20_000
STUCK_S = 30.0
SHORT_S = 0.25
"""A wait with a limit below this is part of the design, and not a second look."""

Deviation = tuple[int, int]
"""At this step, go on with this actor."""


class Ended(BaseException):
    """Raised in an actor that waits when the schedule is over."""


class SpinningError(AssertionError):
    """The actors do not come to rest."""


class Lock:
    """A lock whose waits the scheduler knows; outside of a schedule it is never waited for."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self.owner: object = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while self.owner is not None:
            if not blocking or timeout == 0:
                return False
            if not self._scheduler.wait_for(self, timeout):
                return False
        self.owner = threading.current_thread()
        return True

    def release(self) -> None:
        if self.owner is None:
            raise RuntimeError("release unlocked lock")
        self.owner = None

    def locked(self) -> bool:
        return self.owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class ReentrantLock(Lock):
    """The same for a lock that its owner may take again."""

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.owner is not threading.current_thread() and not super().acquire(blocking, timeout):
            return False
        self._count += 1
        return True

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            super().release()


class Actor:
    """A function and its thread."""

    def __init__(self, scheduler: "Scheduler", number: int, name: str, call: Callable) -> None:
        self.number, self.name = number, name
        self.fires_left = 3
        self.error: BaseException | None = None
        self.is_done = False
        self.waits_for: Lock | None = None
        self.limit_s = -1.0
        self.has_timed_out = False
        self.baton = threading.Lock()
        self.baton.acquire()
        self._scheduler = scheduler
        self._call = call
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def can_run(self) -> bool:
        is_free = self.waits_for is None or self.waits_for.owner is None or self.has_timed_out
        return not self.is_done and is_free

    def _run(self) -> None:
        self.baton.acquire()
        try:
            if not self._scheduler.is_over:
                sys.settrace(self._scheduler.on_call)
                self._call()
        except Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.error = error
        finally:
            sys.settrace(None)
            self.is_done = True
            self._scheduler.leave(self)


class Scheduler:
    """Runs actors. One schedule at a time."""

    def __init__(self, traced: Iterable[types.CodeType]) -> None:
        self.traced = frozenset(traced)
        self.actors: list[Actor] = []
        self.is_over = False
        self.steps = 0
        self.decisions: list[tuple[int, tuple[int, ...]]] = []
        """For each step: who went on, and who could have."""
        self._deviations: dict[int, int] = {}
        self._has_ended = threading.Event()
        self._by_thread: dict[threading.Thread, Actor] = {}
        self._order: list[Actor] = []
        self._spinning = self._is_eager = False
        self.threading = types.SimpleNamespace(
            Lock=lambda: Lock(self),
            RLock=lambda: ReentrantLock(self),
            Event=threading.Event,
            Thread=threading.Thread,
            current_thread=threading.current_thread,
        )

    def prepare(self, calls: dict[str, Callable]) -> dict[str, threading.Thread]:
        """Make the actors of the next schedule; return their threads."""
        self.actors = [Actor(self, n, name, call) for n, (name, call) in enumerate(calls.items())]
        self._by_thread = {actor.thread: actor for actor in self.actors}
        self._order = list(self.actors)
        return {actor.name: actor.thread for actor in self.actors}

    def run(self, deviations: Iterable[Deviation] = (), *, is_eager: bool = False) -> None:
        """Run a schedule until no actor can go on; `end` must follow.

        Eager: an actor that can go on interrupts those behind it.
        """
        self._is_eager = is_eager
        self._deviations = dict(deviations)
        self.steps, self.decisions = 0, []
        self.is_over = self._spinning = False
        self._has_ended.clear()
        for actor in self.actors:
            actor.thread.start()
        self._choose(None).baton.release()
        assert self._has_ended.wait(STUCK_S), (
            f"blocked by a lock the scheduler does not control: {self.state()}"
        )
        if self._spinning:
            raise SpinningError(f"no rest after {STEPS_MAX} steps: {self.state()}")

    def end(self) -> None:
        """End the actors that wait."""
        self.is_over = True
        for actor in self.actors:
            if not actor.is_done:
                actor.baton.release()
            actor.thread.join(STUCK_S)
            assert not actor.thread.is_alive(), f"{actor.name} does not end"
        for actor in self.actors:
            if actor.error is not None:
                raise actor.error

    def state(self) -> str:
        return ", ".join(f"{a.name}: {_state_of(a)}" for a in self.actors)

    # --- in the threads of actors -------------------------------------------------------------

    def on_call(self, frame: types.FrameType, event: str, argument: object) -> object:
        return self._on_line if frame.f_code in self.traced else None

    def _on_line(self, frame: types.FrameType, event: str, argument: object) -> object:
        if event == "line" and not self.is_over:
            self._switch(self._by_thread[threading.current_thread()])
        return self._on_line

    def wait_for(self, lock: Lock, limit_s: float) -> bool:
        """Let others go on until a lock is free; False if the time limit came first."""
        actor = self._by_thread.get(threading.current_thread())
        assert actor is not None, "a thread that is no actor waits for a lock"
        if self.is_over:
            raise Ended
        actor.waits_for, actor.limit_s, actor.has_timed_out = lock, limit_s, False
        self._switch(actor)
        has_timed_out = actor.has_timed_out
        actor.waits_for, actor.has_timed_out = None, False
        return not has_timed_out

    def leave(self, actor: Actor) -> None:
        """Go on with another one for good."""
        if not self.is_over:
            following = self._choose(None)
            if following is None:
                self._has_ended.set()
            else:
                following.baton.release()

    def _switch(self, actor: Actor) -> None:
        following = self._choose(actor)
        if following is actor:
            return
        if following is None:
            self._has_ended.set()
        else:
            following.baton.release()
        actor.baton.acquire()
        if self.is_over:
            raise Ended

    def _choose(self, current: Actor | None) -> Actor | None:
        ready = [actor for actor in self._order if actor.can_run] or self._fire()
        if not ready or self.steps > STEPS_MAX:
            self._spinning = bool(ready)
            return None
        wanted = self._deviations.get(self.steps)
        chosen = current if current in ready and not self._is_eager else ready[0]
        for actor in ready:
            if actor.number == wanted:
                others = [one for one in self._order if one not in (actor, chosen)]
                self._order = [actor, *others, chosen]
                chosen = actor
        self.decisions.append((chosen.number, tuple(actor.number for actor in ready)))
        self.steps += 1
        return chosen

    def _fire(self) -> list[Actor]:
        """End the first short wait, for its time is over."""
        for actor in self.actors:
            is_short = actor.waits_for is not None and 0 <= actor.limit_s < SHORT_S
            if is_short and not actor.is_done and actor.fires_left:
                actor.fires_left -= 1
                actor.has_timed_out = True
                return [actor]
        return []


def _state_of(actor: Actor) -> str:
    if actor.is_done:
        return "done"
    return "runs" if actor.waits_for is None else f"waits (limit {actor.limit_s})"


Decisions = list[tuple[int, tuple[int, ...]]]
Run = Callable[[list[Deviation], bool], Decisions]
"""Runs one schedule: which deviations, and whether it is eager."""


def explore(run: Run, seed: int = 0, most: int | None = None) -> int:
    """Run both default orders and every schedule with one deviation; return how many there were.

    With `most`, only so many of each order, by chance.
    """
    count = 0
    for is_eager in (False, True):
        found = run([], is_eager)
        assert found == run([], is_eager), "the same schedule takes other steps the second time"
        deviations = list(alternatives(found))
        if most is not None and most < len(deviations):
            deviations = random.Random(seed).sample(deviations, most)
        for deviation in deviations:
            run([deviation], is_eager)
        count += len(deviations)
    return count


def explore_at_random(run: Run, seed: int, count: int) -> None:
    """Run so many schedules with two to four deviations each."""
    chance = random.Random(seed)
    for _ in range(count):
        is_eager = chance.random() < 0.5
        chosen: list[Deviation] = []
        found = run(chosen, is_eager)
        for _ in range(chance.randint(2, 4)):
            last = chosen[-1][0] if chosen else -1
            left = [deviation for deviation in alternatives(found) if deviation[0] > last]
            if not left:
                break
            chosen.append(chance.choice(left))
            found = run(chosen, is_eager)


def alternatives(decisions: Decisions) -> Iterator[Deviation]:
    """Return what else could have been done at each step."""
    for step, (chosen, ready) in enumerate(decisions):
        yield from ((step, other) for other in ready if other != chosen)


def codes_of(*functions: Callable) -> Iterator[types.CodeType]:
    """Return the code of functions, whatever they are wrapped in."""
    for function in functions:
        inner = function.fget if isinstance(function, property) else function
        yield getattr(inner, "__wrapped__", inner).__code__
