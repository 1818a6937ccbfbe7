"""Extensions: the hooks, listeners and dispatchers that a program adds to a store."""

from collections.abc import Iterable, Sequence
from typing import Self, TypeVar

from msgspec import Struct

from rocketlake.errors import ConfigError
from rocketlake.store.message_store import MessageStore
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, PutHook

Extension = TypeVar("Extension")


class Extensions(Struct, frozen=True):
    """The extensions of one store."""

    hooks: tuple[PutHook, ...] = ()
    arrival_listeners: tuple[ArrivalListener, ...] = ()
    dispatchers: tuple[CustomDispatcher, ...] = ()

    @classmethod
    def of(
        cls,
        hooks: Sequence[PutHook],
        arrival_listeners: Sequence[ArrivalListener],
        dispatchers: Sequence[CustomDispatcher],
        *,
        read_only: bool = False,
    ) -> Self:
        """Check the arguments of `open_store`.

        Raises:
            ConfigError: one of them is not a sequence, an item lacks its method, or the store is
                read-only.
        """
        found = cls(
            _checked("hooks", hooks, "before_put"),
            _checked("arrival_listeners", arrival_listeners, "arrived"),
            _checked("dispatchers", dispatchers, "dispatch"),
        )
        if read_only and found != cls():
            raise ConfigError("hooks, arrival_listeners, dispatchers: not with read_only")
        return found

    def attach_early(self, engine: MessageStore) -> None:
        """Attach the dispatchers, before the start, which dispatches records."""
        for dispatcher in self.dispatchers:
            engine.add_dispatcher(dispatcher)

    def attach(self, engine: MessageStore) -> None:
        """Attach hooks and listeners, after the start and before those of the store itself.

        Order: a hook sees a delayed message before it becomes one of a schedule topic.
        """
        for hook in self.hooks:
            engine.add_hook(hook)
        for listener in self.arrival_listeners:
            engine.add_listener(listener)


def _checked(argument: str, parts: Iterable[Extension], method: str) -> tuple[Extension, ...]:
    try:
        found = tuple(parts)
    except TypeError as error:
        raise ConfigError(f"{argument} = {parts!r}: wanted a list of objects") from error
    for part in found:
        if not callable(getattr(part, method, None)):
            raise ConfigError(f"{argument}: {part!r} has no method {method}")
    return found
