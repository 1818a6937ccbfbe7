"""Spark sessions for commands and jobs: quiet, with this interpreter, or a clear refusal."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, Self, TypeAlias

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError, SparkError
from rocketlake.spark import driver
from rocketlake.spark.source import register
from rocketlake.spark.wording import reason_of_start, rewording
from rocketlake.spark.worker_python import worker_python

Session: TypeAlias = SparkSession
"""For the commands, which use Spark only through this package."""

OLDEST_JAVA: Final = 17

_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
_PYTHON: Final = "spark.pyspark.python"
_CONNECT: Final = "sc://"
_MASTER_S: Final = 10.0
_LOG_KEPT: Final = 1 << 20


def open_session(
    master: str = "local[*]",
    *,
    name: str = "rocketlake",
    conf: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
    is_quiet: bool = True,
) -> SparkSession:
    """Return a session; the one there is, if there is one.

    Args:
        master: Where Spark runs; `sc://HOST:PORT` is a server of Spark Connect.
        name: What the application is called in Spark's own pages.
        conf: Settings of Spark's.
        log: Takes what Spark's Java and its workers write; without it, they write to the screen.
        is_quiet: Without Spark's own pages and progress bars.

    Raises:
        ConfigError: there is no Java for it, or another Spark in `SPARK_HOME`.
        SparkError: Spark does not start.
    """
    settings = {**(_QUIET if is_quiet else {}), **(conf or {})}
    if master.startswith(_CONNECT):
        return _connect(master, conf or {})
    builder = SparkSession.Builder().appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is None:
        check_java()
        check_spark_home()
        check_master(master)
        _choose_python(master, settings)
        _launch(master, name, settings, log)
    return builder.getOrCreate()


@contextmanager
def command_session(
    master: str, *, name: str, conf: Mapping[str, str], is_debug: bool = False
) -> Iterator[SparkSession]:
    """Give a command its session, and stop it afterwards, whatever happens.

    A session that this process has already is used and left running. What Java and the workers
    write is kept off the screen; if Spark fails for a reason of its own, it is put into a file.

    Raises:
        ConfigError: there is no Java for it.
        RocketLakeError: what went wrong in the block, in words.
    """
    own = SparkSession.getActiveSession() is None
    with _SparkLog(is_debug=is_debug) as log, rewording(log.explain), _plain_interrupt():
        session = open_session(master, name=name, conf=conf, log=log.file)
        # Why: Spark's own handler calls Java from within a call of Java that it interrupts.
        _take_interrupts()
        try:
            if own:
                # Why: tasks of a source that Spark found by itself do not see `--py-files`.
                register(session)
            yield session
        finally:
            if own:
                _stop(session)


def check_packages() -> None:
    """Check now for packages that Spark would miss only in its workers, with a worse message.

    Raises:
        ModuleNotFoundError: a package is missing.
    """
    for package in ("pandas", "pyarrow"):
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)


def is_connect(spark: object) -> bool:
    """Whether a session is a client of Spark Connect: it has no context, no JVM, no tracker."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_classic(spark: object, what: str) -> None:
    """Refuse a session of Spark Connect for something that needs the driver's own process.

    Raises:
        ConfigError: it is one.
    """
    if is_connect(spark):
        raise ConfigError(
            f"{what} cannot run over Spark Connect: it needs Spark's driver in this process;"
            " start it with --master local[N], spark://HOST:PORT, yarn or k8s://… where the"
            " store's files can be seen"
        )


def check_java() -> None:
    """Make sure that Spark will find a Java it runs on.

    Raises:
        ConfigError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    way_out = "install it (Debian: apt-get install default-jre-headless) or set JAVA_HOME"
    if java is None:
        raise ConfigError(f"Spark needs Java {OLDEST_JAVA} or newer, and none was found; {way_out}")
    named = f"{java} (JAVA_HOME is {home})" if home else java
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own Java
    except OSError as error:
        raise ConfigError(
            f"{named} does not run ({error.strerror}), and Spark needs Java {OLDEST_JAVA} or newer;"
            f" {way_out}"
        ) from error
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = f"Java {found[1]}" if found else "a Java that does not report its version"
        raise ConfigError(f"{named} is {version}; Spark needs {OLDEST_JAVA} or newer: {way_out}")


def check_spark_home() -> None:
    """Make sure that `SPARK_HOME`, if it is set, is the Spark that this pyspark belongs to.

    Raises:
        ConfigError: it is another one, or none.
    """
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    jars = [path.name for path in Path(home, "jars").glob("spark-core_*.jar")]
    version = next((found[1] for name in jars if (found := _CORE.search(name))), None)
    if version is None:
        raise ConfigError(f"SPARK_HOME is {home}, and there is no Spark there; unset or correct it")
    if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise ConfigError(
            f"SPARK_HOME is {home}, which is Spark {version}, but the package pyspark is"
            f" {pyspark.__version__}; unset SPARK_HOME or install pyspark=={version}"
        )


def check_master(master: str) -> None:
    """Make sure that a master of Spark's own kind answers: Spark itself asks for minutes.

    Raises:
        ConfigError: none does.
    """
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"--master {master}: wanted spark://HOST:PORT")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_MASTER_S):
                return
        except (OSError, OverflowError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
    raise ConfigError(
        f"--master {master}: no Spark master answers ({'; '.join(reasons)}); is it right, and does"
        " the master run?"
    )


_CORE: Final = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+\S*)\.jar")


def _choose_python(master: str, settings: Mapping[str, str]) -> None:
    """Set the Python of the workers, which Spark takes from the environment.

    Raises:
        ConfigError: it is one of an archive, which only executors unpack where they run.
    """
    if wanted := settings.get(_PYTHON):
        os.environ["PYSPARK_PYTHON"] = wanted
    elif master.startswith("local") and not master.startswith("local-cluster"):
        # Why: workers would take the `python3` of the PATH, which may lack our packages.
        os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    python = os.environ.get("PYSPARK_PYTHON", "")
    if "/" in python and not Path(python).is_absolute() and not Path(python).exists():
        folder = Path(python).parts[0]
        raise ConfigError(
            f"PYSPARK_PYTHON is {python}, which is not here; executors have it from an archive, but"
            " Spark plans what a Python source reads on this machine, with the same name: type"
            f" `ln -s {sys.prefix} {folder}` and try again"
        )


def _launch(master: str, name: str, settings: Mapping[str, str], log: IO[bytes] | None) -> None:
    """Start Spark's Java with its output going elsewhere, which a builder cannot."""
    has_java = SparkContext._gateway is not None  # noqa: SLF001 - one Java lives as long as a process
    if log is None or has_java:
        return
    conf = SparkConf(loadDefaults=False)
    conf.setAll([*settings.items()]).setMaster(master).setAppName(name)
    try:
        launch: Any = launch_gateway  # it has no types
        gateway = launch(conf, {"stdout": log, "stderr": log})
        SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError as error:
        said = _tail(log)
        reason = reason_of_start(said) or "its Java ended at once"
        raise SparkError(f"Spark does not start: {reason}", said) from error


def _connect(url: str, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.Builder().remote(url)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Spark Connect needs the package {error.name}; pip install 'pyspark[connect]'"
        ) from error


def _stop(session: SparkSession) -> None:
    """Stop a session, if its Java is still alive."""
    # Why it died is being raised already, and after a Ctrl-C Java may have been quicker.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()


@contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Give Ctrl-C Python's own handler while a command runs, and silence py4j about it."""
    before = signal.getsignal(signal.SIGINT)

    def is_ours(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    logging.getLogger().addFilter(is_ours)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_ours)
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _take_interrupts() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _SparkLog:
    """Captures what Spark writes; a file of it is kept only if it explains a failure."""

    def __init__(self, *, is_debug: bool) -> None:
        self._is_debug = is_debug
        self.file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if not self._is_debug:
            self.file = tempfile.TemporaryFile(prefix="rocketlake-spark-")
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def explain(self, error: SparkError) -> None:
        """Add the path of the complete output to an error."""
        if self.file is None:
            return
        said = error.details if error.details in _tail(self.file) else _tail(self.file)
        with tempfile.NamedTemporaryFile(
            "w", prefix="rocketlake-spark-", suffix=".log", delete=False, errors="replace"
        ) as kept:
            kept.write(f"{said}\n\n{error.details}\n")
        error.args = (f"{error}\nall of it: {kept.name} (or on the screen, with --debug)",)


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_KEPT))
    return log.read().decode(errors="replace")


class _CallableModule(ModuleType):
    """Lets `rocketlake.spark.session(...)` be the function of `driver`, whatever is imported.

    Why: this module had the name before there was a function for it. Once it is imported, Python
    puts the module in the function's place.
    """

    __call__ = staticmethod(driver.session)


sys.modules[__name__].__class__ = _CallableModule
