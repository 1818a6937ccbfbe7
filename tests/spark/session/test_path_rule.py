"""A path with a scheme is refused by everything that takes one, and no directory is made of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from rocketlake.errors import ConfigError
from rocketlake.spark import bodies, jobs
from rocketlake.spark.catalog_table import options_of_create
from rocketlake.spark.pipelines.project import ProjectSettings, plan_project
from rocketlake.spark.reading.batch_reader import make_reader
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.session_builder import build
from rocketlake.spark.sink import finish
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.stream.consuming import Consuming
from rocketlake.spark.stream.stream_options import StreamOptions

URL = "s3://bucket/store"
HERE = jobs.Selection(path=".", topic="t")


def read(**options: str) -> None:
    make_reader(options, StructType([])).partitions()


def stream(**options: str) -> None:
    StreamOptions.parse(SourceOptions.parse({"path": ".", "topic": "t", "group": "g", **options}))


def create_table(path: str) -> None:
    created = options_of_create({"provider": "rocketlake", "path": path})
    assert created is not None
    SourceOptions.parse(created)


DOORS: dict[str, Callable[[], object]] = {
    "source path": lambda: read(path=URL),
    "source paths": lambda: read(paths=f'["{URL}"]'),
    "source named paths": lambda: read(path=f"a=/x,b={URL}"),
    "source commitLogPath": lambda: read(path=".", commitLogPath=f"{{store}}/log,{URL}"),
    "source options": lambda: read(path=".", options=f'{{"storePathCommitLog": "{URL}"}}'),
    "source archive": lambda: read(archive=URL, topic="t"),
    "stream progressPath": lambda: stream(progressPath=URL),
    "sink path": lambda: SinkOptions.parse({"path": URL}),
    "sink stagingPath": lambda: SinkOptions.parse({"path": ".", "stagingPath": URL}),
    "sink commitLogPath": lambda: SinkOptions.parse({"path": ".", "commitLogPath": URL}),
    "sink finish": lambda: finish(URL),
    "table": lambda: create_table(URL),
    "table of several stores": lambda: create_table(f"a={URL},b=/x"),
    "session catalog": lambda: build(None, name="n", memory=None, catalog=URL, conf={}),
    "Consuming": lambda: Consuming(URL, "g", "t", each=print),
    "json_schema": lambda: bodies.json_schema(URL, "t"),
    "pipeline project": lambda: plan_project(Path(URL), ProjectSettings(store=".")),
    "pipeline store": lambda: plan_project(Path(), ProjectSettings(store=URL)),
    "archive from": lambda: jobs.plan_archive(URL, "a"),
    "archive into": lambda: jobs.plan_archive(".", URL),
    "archive-drop": lambda: jobs.drop_days(URL, "2026-01-01"),
    "archive-compact": lambda: jobs.plan_archive_compaction(URL),
    "replay from": lambda: jobs.plan_replay_here(jobs.Selection(path=URL, topic="t"), "a"),
    "replay into": lambda: jobs.plan_replay_here(HERE, URL),
    "compact into": lambda: jobs.plan_compact_here(HERE, URL),
    "profile": lambda: jobs.plan_profile([URL]),
    "verify": lambda: jobs.verify(None, URL, dry_run=True),
    "rebuild": lambda: jobs.rebuild(None, URL, dry_run=True),
    "dispatch": lambda: jobs.dispatch(None, URL, dry_run=True),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_scheme_is_refused(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "commitlog").mkdir()
    words = "s3:/+bucket/store': stores and archives are in directories that every machine sees"
    with pytest.raises(ConfigError, match=words):
        DOORS[door]()
    assert [path.name for path in tmp_path.iterdir()] == ["commitlog"]
