"""finish: completes the commits that were killed, without a query."""

from rocketlake.spark.sink.options import SinkOptions


def finish(path: str, **options: str) -> int:
    """Append the missing rows of commits that were killed; return how many commits there were.

    Options are those of a write: `lockTimeout`, `options`, `commitLogPath`.

    Raises:
        StoreError: the store is in use, or staged rows are gone.
    """
    # Why: executors import this with the package, and do not open stores.
    from rocketlake.spark.sink.committer import Committer  # noqa: PLC0415 - see above

    return Committer(SinkOptions.parse({"path": path, **options})).finish_pending()
