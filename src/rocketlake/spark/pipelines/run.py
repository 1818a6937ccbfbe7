"""Running a pipeline: PySpark's own command in a process of its own, against a server in this one.

Spark's `spark-pipelines` starts two Javas, one after the other, listens on a fixed port and prints
stacks. Here one session serves (`connect_settings`): on a port of its own, for this machine and
with a secret only; and the output of the command is read line by line and reported in plain words.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError, RocketLakeError, SparkError
from rocketlake.spark.pipelines.project import DEFAULTS, SPEC
from rocketlake.spark.session import is_connect
from rocketlake.spark.wording import reworded

LOG: Final = Path("data") / "last-run.log"

_PACKAGES: Final = {"yaml": "PyYAML", "grpc": "grpcio", "grpc_status": "grpcio-status"}
_TOKEN: Final = "spark.connect.authenticate.token"  # noqa: S105 - a name
_STAMP: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: "
_FLOW: Final = re.compile(
    _STAMP + r"Flow '?(?P<flow>\S+?)'? (?P<what>is|has|SKIPPED)\b ?(?P<rest>.*)"
)
_STATES: Final = ("QUEUED", "PLANNING", "STARTING", "RUNNING", "COMPLETED", "FAILED", "SKIPPED")
_END: Final = re.compile(_STAMP + r"Run is (?P<state>[A-Z]+)")


class PipelineRun(Struct, frozen=True, kw_only=True):
    """What is to be run."""

    directory: str
    full_refresh: tuple[str, ...] = ()
    """Tables that are refreshed from the start; `all` for every one."""
    refresh: tuple[str, ...] = ()
    """Only these tables; all if empty."""
    is_dry: bool = False

    def arguments(self) -> list[str]:
        """Spell it for Spark's command."""
        spec = ["--spec", str(spec_of(Path(self.directory)))]
        if self.is_dry:
            return ["dry-run", *spec]
        found = ["run", *spec]
        if "all" in self.full_refresh:
            return [*found, "--full-refresh-all"]
        if self.full_refresh:
            found += ["--full-refresh", ",".join(self.full_refresh)]
        if self.refresh:
            found += ["--refresh", ",".join(self.refresh)]
        return found


class FlowState(Struct, frozen=True):
    """How far one flow is; flows are named after the tables they fill."""

    name: str
    state: str


class TableCount(Struct, frozen=True):
    """How many rows a table holds."""

    name: str
    rows: int


class PipelineReport(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    flows: list[FlowState]
    tables: list[TableCount]


def spec_of(directory: Path) -> Path:
    """Return the file that says what a project is.

    Raises:
        ConfigError: there is none.
    """
    for name in (SPEC, "spark-pipeline.yaml"):
        if (directory / name).is_file():
            return (directory / name).absolute()
    raise ConfigError(
        f"{directory} is no pipeline: it has no {SPEC};"
        f" `rocketlake pipeline init {directory} --store STORE` makes one"
    )


def check_packages() -> None:
    """Make sure that what Spark's pipelines stand on is there.

    Raises:
        ConfigError: something is missing.
    """
    missing = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"Spark's pipelines need {', '.join(missing)}; pip install 'rocketlake[pipelines]'"
        )


def connect_settings(directory: Path) -> dict[str, str]:
    """Return what a session needs to serve a pipeline: a server, and the project's own settings."""
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "localhost",
        "spark.connect.grpc.binding.port": "0",
        _TOKEN: secrets.token_hex(16),
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        **project_settings(directory),
    }


def project_settings(directory: Path) -> dict[str, str]:
    """Return the settings of `conf/spark-defaults.conf`; none if there is no such file."""
    path = directory / DEFAULTS
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def run_pipeline(
    spark: SparkSession,
    run: PipelineRun,
    *,
    on_flow: Callable[[FlowState], None] | None = None,
) -> PipelineReport:
    """Run a pipeline against a session that was opened with `connect_settings`.

    Raises:
        ConfigError: there is no project, or a package is missing.
        RocketLakeError: the run failed; the text says why.
    """
    check_packages()
    arguments = run.arguments()
    flows: dict[str, str] = {}
    said: list[str] = []
    command = [sys.executable, "-u", "-m", "pyspark.pipelines.cli", *arguments]
    with subprocess.Popen(  # noqa: S603 - PySpark's own command
        command,
        env=_environment(spark),
        cwd=run.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        try:
            for flow in read_flows(child.stdout, said):
                # The last word counts: Spark tries a failed flow again.
                if flows.get(flow.name) != flow.state:
                    flows[flow.name] = flow.state
                    if on_flow is not None:
                        on_flow(flow)
        except BaseException:
            child.kill()
            raise
    kept = keep_log(Path(run.directory), said)
    if child.returncode != 0:
        raise failure("\n".join(said), flows, kept)
    tables = [] if run.is_dry else count_tables(spark, flows)
    return PipelineReport(flows=[FlowState(*item) for item in flows.items()], tables=tables)


def read_flows(lines: Iterable[str], said: list[str]) -> Iterator[FlowState]:
    """Yield the states of flows that the command prints; keep every line."""
    for line in lines:
        said.append(line.rstrip("\n"))
        found = _FLOW.match(line)
        if found is None:
            continue
        words = f"{found['what']} {found['rest']}".split()
        state = next((word.strip(".") for word in words if word.strip(".") in _STATES), None)
        if state is not None:
            yield FlowState(found["flow"].rpartition(".")[2], state)


def keep_log(directory: Path, said: Iterable[str]) -> Path | None:
    """Write the command's output to a file; return its path."""
    path = directory / LOG
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in said), encoding="utf-8")
    except OSError:
        return None  # a project that may only be read runs all the same
    return path


def failure(said: str, flows: Mapping[str, str], kept: Path | None = None) -> RocketLakeError:
    """Make an error of what a failed command printed: our own sentence, if one is in there."""
    worded = reworded(RuntimeError(said))
    failed = [name for name, state in flows.items() if state == "FAILED"]
    where = f" (in {', '.join(failed)})" if failed else ""
    text = f"the pipeline failed{where}: {worded}"
    if kept is not None:
        text += f"; all that Spark said is in {kept}"
    return SparkError(text, said) if isinstance(worded, SparkError) else type(worded)(text)


def count_tables(spark: SparkSession, names: Iterable[str]) -> list[TableCount]:
    """Count the rows of the tables that flows filled; sinks are not tables."""
    found = []
    for name in sorted(names):
        if spark.catalog.tableExists(name):
            spark.catalog.refreshTable(name)
            found.append(TableCount(name, spark.table(name).count()))
    return found


def _environment(spark: SparkSession) -> dict[str, str]:
    """Return the environment of the command: where the server is, and its secret."""
    if is_connect(spark):
        raise ConfigError("a pipeline needs Spark's driver in this process, not Spark Connect")
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to the port
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    token = spark.sparkContext.getConf().get(_TOKEN)
    if not token:
        raise ConfigError("the session serves no pipeline: open it with connect_settings()")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_GATEWAY")}
    return {
        **inherited,
        # Why localhost: the client sends its secret in the clear to that name alone.
        "SPARK_REMOTE": f"sc://localhost:{port}",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "PYTHONWARNINGS": "ignore",
    }
