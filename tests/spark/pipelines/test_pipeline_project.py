"""Projects: what is written for a store, and what is refused."""

import ast
import json

import pytest
import yaml

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError, SparkError, StoreNotFoundError
from rocketlake.spark.pipelines import run as running
from rocketlake.spark.pipelines.project import ProjectSettings, plan_project
from support.command import run

SMALL = {"mapped_file_size_commit_log": 1 << 20, "max_message_size": 1 << 16}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("piped") / "store"
    with rocketlake.open_store(path, **SMALL) as opened:
        for number in range(20):
            hostile = {'q"\'`$x\\\n"""': number, "keys": "k", "n": {"$deep": [number]}}
            opened.put(Message(topic="orders", body=json.dumps(hostile).encode()))
            opened.put(Message(topic="raw", body=b"\xff\xfe"))
            opened.put(Message(topic="long", body=json.dumps({"text": "x" * 9000}).encode()))
        opened.put(Message(topic="%DLQ%g", body=b"{}"))
    return path


def plan(directory, store, **settings):
    return plan_project(directory, ProjectSettings(store=str(store), **settings))


def test_project_has_a_table_for_what_is_json(store, tmp_path):
    found = plan(tmp_path / "p", store)
    assert [table.name for table in found.tables] == [
        *("bronze_messages", "silver_long", "quarantine_long", "silver_orders"),
        *("quarantine_orders", "gold_per_minute"),
    ]
    assert len(found.remarks) == 1
    assert "raw: 0 of 20 bodies looked at are JSON objects" in found.remarks[0]
    for name, text in found.files.items():
        if name.endswith(".py"):
            ast.parse(text)
    spec = yaml.safe_load(found.files["spark-pipeline.yml"])
    assert spec["storage"] == (tmp_path / "p" / "data" / "storage").as_uri()


def test_names_of_fields_come_back_as_they_are(store, tmp_path):
    code = plan(tmp_path / "p", store).files["transformations/silver_orders.py"]
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and node.targets[0].id in {"COLUMNS", "SCHEMA", "TOPIC"}
    }
    assert values["TOPIC"] == "orders"
    assert list(values["COLUMNS"]) == ['q"\'`$x\\\n"""', "body_keys", "n"]
    assert "`n` struct<`$deep`: array<bigint>>" in values["SCHEMA"]


def test_command_writes_once_and_says_what(store, tmp_path):
    place = tmp_path / "p"
    arguments = ("pipeline", "init", place, "--store", store, "--topic", "orders", "--sink", "out")
    dry = run(*arguments, "--dry-run")
    assert (dry.code, place.exists()) == (0, False)
    ran = run(*arguments)
    assert ran.code == 0, ran.err
    assert ran.out == dry.out
    assert "sink: silver_orders into out of" in ran.out
    assert (place / "conf" / "spark-defaults.conf").is_file()
    again = run(*arguments)
    assert again.code == 2
    assert "--force" in again.err
    assert run(*arguments, "--force").code == 0


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"topics": ("ordesr",)}, ConfigError, "orders"),
        ({"sink_topic": "out"}, ConfigError, "name its topic first by --topic"),
        ({"sink_topic": "out", "topics": ("raw",)}, ConfigError, "no topic has one"),
    ],
)
def test_what_cannot_be_is_refused(store, tmp_path, settings, error, text):
    with pytest.raises(error, match=text):
        plan(tmp_path / "p", store, **settings)


def test_missing_store_project_and_packages_are_named(tmp_path, monkeypatch):
    with pytest.raises(StoreNotFoundError, match="nowhere"):
        plan(tmp_path / "p", tmp_path / "nowhere")
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    with pytest.raises(ConfigError, match="holds no messages"):
        plan(tmp_path / "p", tmp_path / "empty")
    ran = run("pipeline", "run", tmp_path / "p")
    assert ran.code == 2
    assert "is no pipeline" in ran.err
    monkeypatch.setattr(running, "_PACKAGES", {"no_such_module": "no-such-package"})
    with pytest.raises(ConfigError, match=r"need no-such-package; pip install 'rocketlake\[pipe"):
        running.check_packages()


SAID = """2026-11-16 09:07:00: Flow spark_catalog.default.bronze is QUEUED.
2026-11-16 09:07:00: Flow spark_catalog.default.bronze is RUNNING.
26/11/16 09:07:00 WARN something
2026-11-16 09:07:01: Flow 'spark_catalog.default.bronze' has FAILED more than 2 times and will not.
Error: [STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
rocketlake.errors.StoreNotFoundError: no store at /data/gone: it has no commitlog directory

=== Streaming Query ===
2026-11-16 09:07:02: Flow 'spark_catalog.default.silver' SKIPPED due to upstream failure(s).
2026-11-16 09:07:03: Run is FAILED."""


def test_what_spark_prints_becomes_states_and_a_sentence(tmp_path):
    kept: list[str] = []
    flows = {flow.name: flow.state for flow in running.read_flows(SAID.splitlines(), kept)}
    assert flows == {"bronze": "FAILED", "silver": "SKIPPED"}
    assert len(kept) == len(SAID.splitlines())
    log = running.keep_log(tmp_path, kept)
    assert log.read_text() == SAID + "\n"
    error = running.failure("\n".join(kept), flows, log)
    assert isinstance(error, StoreNotFoundError)
    assert "the pipeline failed (in bronze): no store at /data/gone" in str(error)
    assert "Traceback" not in str(error)
    assert str(error).endswith(f"all that Spark said is in {log}")
    other = running.failure("[PIPELINE_X] Cannot do it. SQLSTATE: 42000", {})
    assert isinstance(other, SparkError)
    assert "Cannot do it" in str(other)


def test_arguments_of_a_run(store, tmp_path):
    (tmp_path / "spark-pipeline.yml").write_text("name: x\n")
    spec = ["--spec", str(tmp_path / "spark-pipeline.yml")]

    def arguments(**fields):
        return running.PipelineRun(directory=str(tmp_path), **fields).arguments()

    assert arguments() == ["run", *spec]
    assert arguments(is_dry=True) == ["dry-run", *spec]
    assert arguments(full_refresh=("all",)) == ["run", *spec, "--full-refresh-all"]
    assert arguments(full_refresh=("a", "b"), refresh=("c",)) == [
        *("run", *spec, "--full-refresh", "a,b", "--refresh", "c"),
    ]
