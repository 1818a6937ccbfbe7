"""Spark's errors in plain words: RocketLake's own message where it is the cause.

An error that a Python worker raises comes back as text in the middle of Java's: this finds it. All
else becomes one short reason, and the whole stays in `SparkError.details`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from rocketlake import errors
from rocketlake.errors import ConfigError, RocketLakeError, SparkError

# Where the text of a Python error ends inside Spark's.
_END: Final = re.compile(
    r"\n\s*(?:SQLSTATE:|at \S+\(|=== Streaming Query|JVM stacktrace|Driver stacktrace|Caused by:)"
    r"|\n\s*\n|\s+SQLSTATE: \w{5}(?=\s|$)"
)
_OURS: Final = re.compile(r"^rocketlake\.errors\.(\w+): ?", re.MULTILINE)
_PYTHON: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt))(?:: |$)", re.M)
_MODULE: Final = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] (.+)")
_FAILED: Final = re.compile(r"Job aborted due to stage failure: (.*)")
_JAVA: Final = re.compile(r"^(?:: )?(?:[a-z]\w*\.)+\w*(?:Exception|Error): (.+)", re.MULTILINE)

_SHIP: Final = (
    "on this machine `spark = rocketlake.spark.session()`, before any other session, runs them with"
    " the program's own Python;"
    " executors get packages by --archives or from their image, rocketlake also by --py-files;"
    " docs/spark/cluster.md shows how"
)
# What Spark says -> what to do about it. The first that fits.
_KNOWN: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"DATA_SOURCE_NOT_FOUND\] Failed to find the data source: rocketlake"),
        "this Spark has not found the format rocketlake: its Python processes run another Python"
        " than this program, or this thread, which writes, has no active session."
        " `spark = rocketlake.spark.session()` cures both: before any other session is made, and"
        " again in every thread that writes. (Without it, PYSPARK_PYTHON must name a Python with"
        " rocketlake; for Spark Connect the server's.)",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH|Python in worker has different version[^\n.]*"),
        "driver and executors run different versions of Python: set PYSPARK_PYTHON, or"
        " --conf spark.pyspark.python, to one that both have in the same version",
    ),
    (
        re.compile(r'Cannot run program "(?P<what>[^"]+)"'),
        "{what} cannot be run, and Spark wants to start its Python workers with it: set"
        " PYSPARK_PYTHON, or --conf spark.pyspark.python, to a Python that every machine has there",
    ),
    (
        re.compile(r"All masters are unresponsive|Could not connect to (?P<what>spark://\S+)"),
        "the Spark master does not answer; is --master right, and does the master run?",
    ),
    (
        re.compile(r"Could not parse Master URL: '?(?P<what>[^'\n]+?)'?(?:\s|$)"),
        "--master {what}: Spark knows local[N], local-cluster[N,CORES,MEMORY], spark://HOST:PORT,"
        " yarn, k8s://… and sc://HOST:PORT",
    ),
    (
        re.compile(r"Master must either be yarn or start with"),
        "--master: Spark knows local[N], local-cluster[N,CORES,MEMORY], spark://HOST:PORT, yarn,"
        " k8s://… and sc://HOST:PORT",
    ),
    (
        re.compile(r"OutOfMemoryError|exceeds? the (?:memory|overhead) limit|exit code 137\b"),
        "a process of Spark ran out of memory; give it more, such as"
        " --conf spark.driver.memory=4g --conf spark.executor.memory=4g",
    ),
    (
        re.compile(r"Python worker failed to connect back"),
        "a Python worker of Spark did not start within the 10 s that Spark allows: the machine has"
        " too much to do, or PYSPARK_PYTHON is not a Python that runs there; sessions of"
        " rocketlake.spark.session() start their workers with a third of the work",
    ),
    (
        re.compile(r"Python worker exited unexpectedly"),
        "a Python worker of Spark died without a word; mostly it was killed for want of memory, or"
        " its environment does not fit the machine",
    ),
    (
        re.compile(r"ExecutorLostFailure \(executor \S+ [^)]*\)(?: Reason: (?P<what>[^\n]+))?"),
        "executors of Spark were lost, again and again: {what}",
    ),
    (
        re.compile(r"No space left on device"),
        "no space left on the disk where Spark keeps its files; --conf spark.local.dir=DIR moves"
        " them",
    ),
)


@contextmanager
def rewording(on_details: Callable[[SparkError], None] | None = None) -> Iterator[None]:
    """Let errors of Spark leave the block as `RocketLakeError`; all others as they are.

    Args:
        on_details: Gets an error that is not RocketLake's, before it is raised.

    Raises:
        RocketLakeError: what was wrong, in words.
    """
    try:
        yield
    # A store's own code opens no connections: a broken one is that to Spark's Java.
    except (PySparkException, Py4JError, ConnectionError) as error:
        worded = reworded(error)
        if on_details is not None and isinstance(worded, SparkError):
            on_details(worded)
        raise worded from error


def reworded(error: BaseException) -> RocketLakeError:
    """Return what an error of Spark's means; one of ours is given back as it is."""
    if isinstance(error, RocketLakeError):
        return error
    text = _whole_text(error)
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return SparkError("the Java process of Spark's driver has ended or does not answer", text)
    return _our_error(text) or _missing_module(text) or SparkError(_reason(text), text)


def reason_of_start(log: str) -> str:
    """Return why Spark's Java did not start, from what it wrote; empty if it did not say."""
    for known, words in _KNOWN:
        if found := known.search(log):
            return words.format(**_named(found))
    # Java reports a bad option in the line before `Error: Could not create …`.
    invalid = r"^((?:Invalid|Unrecognized) .+)"
    for pattern in (
        invalid,
        r"^Error: (.+)",
        r"^Exception in thread \S+ (?:[\w.]+: )?(.+)",
        _JAVA.pattern,
    ):
        if found := re.search(pattern, log, re.MULTILINE):
            return found[1].strip()
    return ""


def _whole_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - it asks the JVM for its text, which may be gone
        text = f"{type(error).__name__} ({second})"
    cause = getattr(error, "_cause", None)
    return text if cause is None else f"{text}\n\n{_whole_text(cause)}"


def _our_error(text: str) -> RocketLakeError | None:
    for found in reversed(list(_OURS.finditer(text))):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, RocketLakeError):
            return _plain(kind)(_until_end(text[found.end() :]))
    return None


def _plain(kind: type[RocketLakeError]) -> type[RocketLakeError]:
    """Return the nearest kind that is made from a sentence alone."""
    return next(base for base in kind.__mro__ if "__init__" not in vars(base))


def _missing_module(text: str) -> RocketLakeError | None:
    found = _MODULE.search(text)
    if found is None:
        return None
    return ConfigError(f"the Python of Spark's workers lacks the package {found[1]}; {_SHIP}")


def _reason(text: str) -> str:
    for known, words in _KNOWN:
        if found := known.search(text):
            return words.format(**_named(found))
    traceback = text.find("Traceback (most recent call last)")
    if traceback >= 0 and (raised := list(_PYTHON.finditer(text, traceback))):
        return f"a Python worker of Spark failed: {_until_end(text[raised[0].start() :])}"
    for pattern in (_CONDITION, _FAILED, _JAVA):
        if found := pattern.search(text):
            return f"Spark: {_until_end(found[1])}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return f"Spark: {_until_end(first)}"


def _named(found: re.Match[str]) -> dict[str, str]:
    return {name: value or "no reason given" for name, value in found.groupdict().items()}


def _until_end(text: str) -> str:
    end = _END.search(text)
    return text[: end.start() if end else None].strip()
