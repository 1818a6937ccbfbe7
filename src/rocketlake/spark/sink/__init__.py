"""DataFrames into a store: rows are staged by executors and appended, exactly once, by a commit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlake.spark.sink.finishing import finish

__all__ = ["finish"]


def __getattr__(name: str) -> object:
    if name == "finish":  # executors import this package, and do not need what opens a store
        from rocketlake.spark.sink.finishing import finish  # noqa: PLC0415 - see above

        return finish
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
