"""A few threads for one piece of work: many files that are read or flushed."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


def for_each(
    work: Callable[[Item], Value], items: Iterable[Item], *, threads: int, name: str
) -> list[Value]:
    """Do something with each item, in several threads, and return what came of it.

    The caller's thread is one of them, and does it alone where the system gives no other, as at the
    end of a program. All items have their turn; the first exception is raised then.
    """
    left = deque(enumerate(items))
    results: dict[int, Value] = {}
    errors: list[Exception] = []

    def run() -> None:
        while left:
            try:
                number, item = left.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                results[number] = work(item)
            except Exception as error:  # noqa: BLE001 - raised in the caller's thread
                errors.append(error)

    helpers = []
    for number in range(min(threads, len(left)) - 1):
        helper = threading.Thread(target=run, name=f"{name}-{number}", daemon=True)
        try:
            helper.start()
        except RuntimeError:  # no more threads, or the program ends
            break
        helpers.append(helper)
    run()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return [results[number] for number in sorted(results)]
